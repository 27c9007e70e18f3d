"""Evaluations and a training run as they lie on disk, with fixed times, for the tests of the viewer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prime_cli.core.files import write_text_atomically
from prime_cli.evals.store import EvalDirectory
from prime_cli.rl.run_directory import RunDirectory, create_run_directory

THOUGHT = "A product: the tool knows it."
A_DAY = 1_790_000_000.0
CALL = json.dumps({"id": "call_1", "name": "multiply", "arguments": '{"a": 17, "b": 3}'})


def a_rollout(number: int, **changes: Any) -> dict[str, Any]:
    """A rollout that used a tool and thought about it."""
    return {
        "example_id": number // 2,
        "prompt": [
            {"role": "system", "content": "Use the tool, then answer with the number alone."},
            {"role": "user", "content": f"What is 17 times {number}?"},
        ],
        "completion": [
            {"role": "assistant", "content": "", "reasoning_content": THOUGHT, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": str(17 * number)},
            {"role": "assistant", "content": f"{17 * number} [not markup]"},
        ],
        "answer": str(17 * number),
        "info": {"difficulty": "easy" if number % 3 else "hard"},
        "task": "sums" if number % 2 else "products",
        "reward": number % 5 / 4,
        "metrics": {"exact": float(number % 2), "tool_calls": 1.0},
        "error": None,
        "is_truncated": number % 7 == 3,
        "stop_condition": "no_tools_called",
        "token_usage": {"input_tokens": 40.0, "output_tokens": 10.0 + number},
        **changes,
    }  # fmt: skip


def replace_rollouts(directory: EvalDirectory, rollouts: Iterable[dict[str, Any]]) -> None:
    """Put other rollouts in the place of all."""
    write_text_atomically(directory.results, "".join(json.dumps(row) + "\n" for row in rollouts))


def an_evaluation(
    folder: Path, count: int = 24, env: str = "multiply", model: str = "tiny", age_s: float = 0, **changes: Any
) -> EvalDirectory:
    """An evaluation of `count` rollouts; the second one failed."""
    folder.mkdir(parents=True)
    directory = EvalDirectory(folder)
    rows = [a_rollout(number) for number in range(count)]
    if count > 1:
        rows[1] |= {"error": {"error": "Boom", "message": "the judge is broken"}, "reward": 0.0, "completion": []}
    directory.results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory.write_metadata(
        {
            "env_id": env, "env_args": {"max_turns": 3}, "model": model, "base_url": "http://127.0.0.1:8000/v1",
            "num_examples": count // 2, "rollouts_per_example": 2, "sampling_args": {"temperature": 0.7},
            "date": "2026-11-22T01:02:03+0000", "time": 12.5, "avg_reward": 0.512, "reward_standard_error": 0.05,
            "pass_at_k": {"1": 0.51, "2": 0.75}, "pass_all_k": {"1": 0.51, "2": 0.25},
            "num_rollouts": count, "num_errors": 1, "usage": {"input_tokens": 40.0, "output_tokens": 21.5},
            **changes,
        }
    )  # fmt: skip
    os.utime(directory.metadata, (A_DAY - age_s, A_DAY - age_s))
    return directory


def a_run(parent: Path, *, steps: int = 12, mismatch: float = 2e-6, name: str = "reverse-text") -> RunDirectory:
    """A training run of some steps that is over; with a large `mismatch` its alarm sounds."""
    config = {"model": "models/tiny", "max_steps": steps, "env": [{"id": "reverse-text"}], "learning_rate": 1e-3}
    run = create_run_directory(parent, name, config)
    for step in range(1, steps + 1):
        write_step(run, step, mismatch=mismatch)
    (run.path / "logs" / "trainer.log").write_text("".join(f"trained step {step}\n" for step in range(1, steps + 1)))
    (run.path / "logs" / "orchestrator.log").write_text("cut batch 1\n")
    run.summary.write_text("{}")
    os.utime(run.config, (A_DAY, A_DAY))
    return run


def write_step(run: RunDirectory, step: int, *, mismatch: float = 2e-6) -> None:
    """Write what the processes write of a step."""
    rows = [a_rollout(number, env="reverse-text", group=number // 2, policy_version=step - 1) for number in range(8)]
    run.rollouts(step).write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.append_metrics(step, "orchestrator", {
        "reward/mean": 0.2 + 0.05 * step, "reward/max": 1.0, "rollouts": 8, "errors": 0, "samples": 6,
        "off_policy/mean": 1.0, "off_policy/max": 1, "groups/zero_advantage": 0.25,
        "completion_tokens/mean": 12.0, "truncated": 0.1,
    })  # fmt: skip
    run.append_metrics(step, "trainer", {
        "loss/mean": 0.5 / step, "entropy/mean": 1.2 - 0.01 * step, "mismatch_kl/mean": mismatch,
        "optim/grad_norm": 0.4, "perf/throughput": 4000.0 + step, "time/step": 1.5, "time/wait_for_batch": 0.3,
    })  # fmt: skip
