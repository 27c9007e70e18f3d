"""The orchestrator process: environment workers on one side, the inference server and the trainer on the other."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import die_with_parent
from prime_cli.environments.runtime import (
    ClientType,
    EnvironmentFailed,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from prime_cli.environments.target import locate_target
from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.algorithm_config import AlgorithmConfig, SamplingConfig
from prime_cli.rl.config import RLConfig
from prime_cli.rl.heartbeat import Heartbeat, start_heartbeat
from prime_cli.rl.orchestrator.algorithms import Algorithm, Encode, algorithm_of
from prime_cli.rl.orchestrator.examples import shuffled_forever
from prime_cli.rl.orchestrator.groups import failed_rollouts
from prime_cli.rl.orchestrator.loop import Orchestrator
from prime_cli.rl.orchestrator.policy import INFERENCE_VARIABLE, InferenceAddress, InferenceAdmin, PolicyWatcher
from prime_cli.rl.orchestrator.teacher import Teacher, TeacherAddress, teacher_address
from prime_cli.rl.run_directory import RunDirectory

_STATE_COLUMNS = ("trajectory",)


async def orchestrate(run: RunDirectory, config: RLConfig, address: InferenceAddress) -> None:
    """Produce all batches of the run.

    Raises:
        PrimeError: the environment does not load, every rollout fails, or the server refuses new weights.
    """
    environment = config.env[0]
    run.set_status("orchestrator", f"loading the environment {environment.id}")
    target = locate_target(environment.id)
    workers = EnvironmentWorkers(
        EnvironmentSpec(target.identity.name, environment.args, environment.name),
        python=target.python,
        num_workers=config.orchestrator.env_workers,
        log_directory=run.path / "logs",
        search_path=target.search_path,
    )
    admin = InferenceAdmin(address)
    watcher = PolicyWatcher(run, admin)
    settings = config.algorithm_for(environment)
    at = teacher_address()
    teacher = Teacher(at) if at is not None and settings.type == "opd" else None
    try:
        await workers.start()
        rows = await workers.examples("train")
        algorithm = _algorithm(config, settings, teacher)
        endpoint, sampling = _source(config, settings, address, at)

        async def run_group(index: int) -> list[dict[str, Any]]:
            count = config.rollouts_per_example
            try:
                return await workers.run_group(
                    [rows[index]] * count,
                    endpoint,
                    sampling,
                    state_columns=_STATE_COLUMNS,
                    timeout_s=environment.timeout,
                )
            except (EnvironmentFailed, EnvironmentWorkerDied) as error:
                # One bad example or one dead worker does not end a run; the loop gives up when nothing else comes.
                return failed_rollouts(rows[index], error, count)

        orchestrator = Orchestrator(
            config,
            run,
            run_group=run_group,
            policy=watcher,
            examples=shuffled_forever(len(rows), config.seed),
            algorithm=algorithm,
        )
        await _first_to_end(orchestrator.produce(), watcher.follow())
    finally:
        await workers.close()
        await admin.close()
        if teacher is not None:
            await teacher.close()


def _algorithm(config: RLConfig, settings: AlgorithmConfig, teacher: Teacher | None) -> Algorithm:
    encode: Encode | None = None
    if settings.type == "echo":
        tokenizer = load_tokenizer(config.model)

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
            return ids

    async def score(token_ids: Sequence[int]) -> list[float]:
        assert teacher is not None, "the algorithm has a teacher"
        return await teacher.score(token_ids[: config.trainer.seq_len - 1])  # a server needs room for one token more

    return algorithm_of(settings, score=score, encode=encode)


def _source(
    config: RLConfig, settings: AlgorithmConfig, policy: InferenceAddress, teacher: TeacherAddress | None
) -> tuple[ModelEndpoint, dict[str, Any]]:
    """Return the model that samples the rollouts, and how it samples."""
    kind = config.orchestrator.client_type
    if settings.type != "sft":
        endpoint = ModelEndpoint(
            base_url=policy.base_url,
            model=policy.model,
            client_type=kind,
            tokenizer=str(config.model),
            renderer=config.orchestrator.renderer,
        )
        return endpoint, sampling_arguments(config.sampling, kind)
    assert teacher is not None, "the launcher names the teacher"
    assert config.teacher is not None, "the configuration holds the teacher"
    key = os.environ.get(teacher.api_key_var or "", "") or "EMPTY"
    endpoint = ModelEndpoint(base_url=teacher.base_url, model=teacher.model, api_key=key)
    return endpoint, sampling_arguments(config.teacher.sampling or config.sampling)


def sampling_arguments(sampling: SamplingConfig, client_type: ClientType = "openai_chat_completions") -> dict[str, Any]:
    """Return what is sent with each request: always with token ids and log-probabilities, never with a cut."""
    arguments = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens, "top_p": 1.0}
    if client_type == "renderer":  # it asks for both itself, and takes every other key for a sampling parameter
        return {**arguments, "extra_body": dict(sampling.extra_body)}
    return {
        **arguments,
        "logprobs": True,
        "extra_body": {**sampling.extra_body, "return_token_ids": True},
    }


async def _first_to_end(main: Any, companion: Any) -> None:
    """Run both; return when `main` does, raise when either raises."""
    tasks = {asyncio.ensure_future(main), asyncio.ensure_future(companion)}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: list[str] | None = None) -> None:
    """Entry of `python -m prime_cli.rl.orchestrator.process RUN`; the server's address is in the environment."""
    parser = argparse.ArgumentParser(description="Produce the training batches of a run directory.")
    parser.add_argument("run_directory", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    heartbeat = start_heartbeat()
    run = RunDirectory(options.run_directory)
    address = InferenceAddress(**json.loads(os.environ[INFERENCE_VARIABLE]))
    config = RLConfig.model_validate_json(run.config.read_text())
    try:
        asyncio.run(_until_terminated(orchestrate(run, config, address), heartbeat))
    except PrimeError as error:
        run.record_failure("orchestrator", error)
        sys.exit(f"error: {error.message}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


async def _until_terminated(work: Any, heartbeat: Heartbeat | None) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    if heartbeat is not None:
        heartbeat.follow(loop)
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    await task


if __name__ == "__main__":
    main()
