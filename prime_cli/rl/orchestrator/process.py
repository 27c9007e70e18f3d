"""The orchestrator process: environment workers on one side, the inference server and the trainer on the other."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from prime_cli.core.processes import die_with_parent
from prime_cli.core.tasks import first_to_end
from prime_cli.models.folder import check_model_folder
from prime_cli.rl.config import RLConfig
from prime_cli.rl.evaluation.evaluator import Evaluator
from prime_cli.rl.evaluation.output import EvalOutput, evaluated_steps
from prime_cli.rl.heartbeat import Heartbeat, start_heartbeat
from prime_cli.rl.last_words import last_words
from prime_cli.rl.orchestrator.adaptive_concurrency import AdaptiveConcurrency
from prime_cli.rl.orchestrator.environments import RunEnvironments
from prime_cli.rl.orchestrator.evaluations import WhatIsLeft, sets_to_evaluate
from prime_cli.rl.orchestrator.filters import filters_of
from prime_cli.rl.orchestrator.loop import Orchestrator, Schedule
from prime_cli.rl.orchestrator.output import RunOutput
from prime_cli.rl.orchestrator.policy import INFERENCE_VARIABLE, InferenceAddress, InferenceAdmin, PolicyWatcher
from prime_cli.rl.orchestrator.server_load import concurrency_of, follow_load
from prime_cli.rl.orchestrator.teacher import teacher_address
from prime_cli.rl.run_directory import RunDirectory


async def orchestrate(run: RunDirectory, config: RLConfig, address: InferenceAddress) -> None:
    """Produce all batches of the run.

    Raises:
        PrimeError: an environment does not load, every rollout fails, or the server refuses new weights.
    """
    names = ", ".join(environment.label for environment in config.env)
    run.set_status("orchestrator", f"loading the environment {names}")
    environments = RunEnvironments(config, run.path / "logs", address, teacher_address())
    admin = InferenceAdmin(address)
    attempt = run.read_attempt()
    watcher = PolicyWatcher(run, admin, version=0 if attempt.start is None else -1)
    try:
        sources = await environments.start()
        concurrency = concurrency_of(config)
        vocabulary = int(check_model_folder(config.model)["vocab_size"])
        schedule = Schedule(
            batch_size=config.batch_size,
            max_steps=config.max_steps,
            max_off_policy_steps=config.orchestrator.max_off_policy_steps,
            policy_timeout_s=config.orchestrator.policy_timeout_s,
        )
        evaluator = Evaluator(
            await sets_to_evaluate(config, environments, address),
            policy=watcher,
            output=EvalOutput(run),
            limit=concurrency.limit,
            others=lambda: orchestrator.dispatcher.rollouts_in_flight,
            max_steps=config.max_steps,
            timeout_s=config.orchestrator.policy_timeout_s,
        )
        output = RunOutput(run, schedule.gate)
        orchestrator = Orchestrator(
            schedule,
            sources,
            policy=watcher,
            concurrency=WhatIsLeft(concurrency, lambda: evaluator.claims),
            output=output,
            seed=config.seed,
            before_opening=evaluator.advance,
            pre_batch_filters=filters_of(config.pre_batch_filters, vocabulary),
            post_batch_filters=filters_of(config.post_batch_filters, vocabulary),
        )
        evaluator.observers.append(orchestrator.wake)
        if attempt.steps_done:
            orchestrator.restore(run.orchestrator_state(attempt))
            evaluator.go_on_after(attempt.steps_done, evaluated_steps(run))

        async def produce() -> None:
            output.say(f"waiting for policy {attempt.steps_done}")
            await watcher.reach(attempt.steps_done, config.orchestrator.policy_timeout_s)
            await _produce(orchestrator, evaluator, output)

        companions = [watcher.follow()]
        if isinstance(concurrency, AdaptiveConcurrency):
            companions.append(
                follow_load(concurrency, orchestrator.dispatcher, address.admin_url, others=lambda: evaluator.in_flight)
            )
        await first_to_end(produce(), *companions)
    finally:
        await environments.close()
        await admin.close()


async def _produce(orchestrator: Orchestrator, evaluator: Evaluator, output: RunOutput) -> None:
    """Produce all batches, and evaluate the policy that they make."""
    try:
        await orchestrator.produce()
        await evaluator.finish(output.say)
    finally:
        await evaluator.close()
    output.say("done")


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
    with last_words(run, "orchestrator"):
        asyncio.run(_until_terminated(orchestrate(run, config, address), heartbeat))


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
