"""The evaluator of a fine-tuning run: a process beside the training, with an inference server of its own.

    python -m prime_cli.sft.evaluator RUN_DIRECTORY

The training leaves the weights of the steps that are evaluated in the run's folder. They are evaluated one after the
other, each whole under its own weights, while the training goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import describe_exit, die_with_parent, end_process_groups
from prime_cli.core.tasks import first_to_end
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.rl.eval_config import EvalSamplingConfig
from prime_cli.rl.evaluation.environments import LoadedEnvironment, Sampler, eval_set, workers_of
from prime_cli.rl.evaluation.evaluator import EvalSet, Evaluator
from prime_cli.rl.evaluation.output import EvalOutput, evaluated_steps
from prime_cli.rl.heartbeat import Heartbeat, start_heartbeat
from prime_cli.rl.inference.serving import server_command, start_server, wait_until_ready
from prime_cli.rl.last_words import last_words
from prime_cli.rl.orchestrator.policy import InferenceAddress, InferenceAdmin
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.sft.config import SFTConfig, SFTEvalConfig

NAME = "evaluator"
_SERVER = "inference"
_MODEL = "policy"
_POLL_S = 0.05
_COMMON = EvalSamplingConfig(max_tokens=512, temperature=1.0)


class _Served:
    """The policy as the server has it: its version changes between evaluations only."""

    def __init__(self) -> None:
        self.version = 0
        self.observers: list[Callable[[], None]] = []


class RunEvaluator:
    """Evaluates the weights that a fine-tuning run leaves."""

    def __init__(self, run: RunDirectory, config: SFTConfig, address: InferenceAddress) -> None:
        assert config.eval is not None, "there is something to evaluate"
        self._run = run
        self._config = config
        self._settings: SFTEvalConfig = config.eval
        self._admin = InferenceAdmin(address)
        self._sampler = Sampler(
            ModelEndpoint(address.base_url, address.model, takes_many=address.takes_many), _COMMON, config.seed
        )
        self._workers = {
            one.label: workers_of(
                one,
                name=one.label,
                logs=run.path / "logs",
                num_workers=one.workers or self._settings.env_workers,
                silence_timeout_s=self._settings.env_worker_timeout_s,
            )
            for one in self._settings.env
        }

    async def evaluate(self) -> None:
        """Evaluate the steps that are due, each as soon as the training has left its weights.

        Raises:
            PrimeError: an environment does not load or has no evaluation examples, or the server refuses weights.
        """
        policy = _Served()
        try:
            self._say("loading the environments")
            evaluator = Evaluator(
                [await self._set(label) for label in self._workers],
                policy=policy,
                output=EvalOutput(self._run),
                limit=lambda: self._settings.max_concurrent,
                max_steps=self._config.max_steps,
                timeout_s=self._settings.timeout_s,
            )
            try:
                await self._evaluate_all(evaluator, policy)
            finally:
                await evaluator.close()
        finally:
            await asyncio.gather(*(workers.close() for workers in self._workers.values()))
            await self._admin.close()
        self._say("done")

    async def _evaluate_all(self, evaluator: Evaluator, policy: _Served) -> None:
        begins_at = self._run.read_attempt().steps_done
        evaluator.go_on_after(begins_at, evaluated_steps(self._run))
        for step in self._config.eval_steps:
            if step < begins_at or (step == 0 and begins_at):
                continue
            if step > 0:
                self._say(f"waiting for the weights of step {step}")
                while not self._run.broadcast(step).exists():
                    await asyncio.sleep(_POLL_S)
                await self._admin.load_weights(self._run, step)
                self._run.drop_broadcasts_before(step + 1)
            policy.version = step
            await evaluator.finish(self._say, version=step)

    async def _set(self, label: str) -> EvalSet:
        environment = next(one for one in self._settings.env if one.label == label)
        workers = self._workers[label]
        loaded = LoadedEnvironment(workers, await workers.start())
        return await eval_set(self._settings, environment, loaded, self._sampler)

    def _say(self, doing: str) -> None:
        self._run.set_status(NAME, doing)


async def _until_it_ends(server: subprocess.Popen[bytes], run: RunDirectory) -> None:
    """Raise when the server ends, which it should not."""
    while server.poll() is None:
        await asyncio.sleep(_POLL_S)
    raise PrimeError(
        f"the inference server of the evaluations died ({describe_exit(server.returncode)})",
        hint=f"its log is {run.log(_SERVER)}",
    )


def evaluate_beside_training(run: RunDirectory, config: SFTConfig, heartbeat: Heartbeat | None) -> None:
    """Serve the model, and evaluate it and what the training makes of it.

    Raises:
        ProcessDied: the server did not start.
        PrimeError: see `RunEvaluator.evaluate`; or the server died.
    """
    assert config.eval is not None, "there is something to evaluate"
    run.set_status(NAME, "starting the inference server")
    token, ready_file = secrets.token_urlsafe(16), run.path / "status" / f"{_SERVER}_ready.json"
    ready_file.unlink(missing_ok=True)
    command = server_command(config.model, model_name=_MODEL, ready_file=ready_file, seed=config.seed)
    server = start_server(command, log_path=run.log(_SERVER), admin_token=token)
    try:
        url = wait_until_ready(server, ready_file, log_path=run.log(_SERVER), timeout_s=config.eval.startup_timeout_s)
        address = InferenceAddress(
            base_url=f"{url}/v1", model=_MODEL, admin_url=url, admin_token=token, takes_many=True
        )

        async def work() -> None:
            if heartbeat is not None:
                heartbeat.follow(asyncio.get_running_loop())
            await first_to_end(RunEvaluator(run, config, address).evaluate(), _until_it_ends(server, run))

        asyncio.run(work())
    finally:
        end_process_groups([server])


def main(arguments: list[str] | None = None) -> None:
    """Entry of `python -m prime_cli.sft.evaluator RUN_DIRECTORY`."""
    parser = argparse.ArgumentParser(description="Evaluate what a fine-tuning run makes, while it goes on.")
    parser.add_argument("run_directory", type=Path)
    options = parser.parse_args(arguments)
    die_with_parent()
    heartbeat = start_heartbeat()
    run = RunDirectory(options.run_directory)
    config = SFTConfig.model_validate_json(run.config.read_text())
    with last_words(run, NAME):
        evaluate_beside_training(run, config, heartbeat)


if __name__ == "__main__":
    main()
