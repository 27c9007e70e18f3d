"""Evaluations on disk with scores that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prime_cli.evals.store import EvalDirectory

FAILED = "failed"


def write_evaluation(
    root: Path,
    name: str,
    rewards: Mapping[int, Sequence[float | str]],
    *,
    answers: Mapping[int, str] | None = None,
    rows: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> EvalDirectory:
    """Write an evaluation whose examples have these rewards, one a rollout; `FAILED` is a rollout with an error.

    `rows` are more keys of each line, `metadata` more of the settings.
    """
    settings = {"env_id": "squares", "model": "small", "split": "eval", "env_args": {}, **metadata}
    directory = EvalDirectory(root / "evals" / f"{settings['env_id']}--{settings['model']}" / name)
    directory.path.mkdir(parents=True)
    for example, values in rewards.items():
        for value in values:
            failed = value == FAILED
            directory.append(
                {
                    "example_id": example,
                    "prompt": [{"role": "user", "content": str(example)}],
                    "completion": [{"role": "assistant", "content": "?"}],
                    "answer": (answers or {}).get(example, str(example)),
                    "reward": 0.0 if failed else value,
                    "error": {"error": "Boom", "message": "boom"} if failed else None,
                    "metrics": {} if failed else {"turns": float(value) + 1},
                    "info": {"difficulty": "hard" if example % 2 else "easy"},
                    **(rows or {}),
                }
            )
    directory.write_metadata(settings)
    return directory
