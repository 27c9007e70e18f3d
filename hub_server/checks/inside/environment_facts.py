"""Reads an environment of verifiers' classic API: its sets, its rewards, its tools, one rollout."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

_MOST_NAMED = 100


class Skipped(Exception):
    """A rollout that cannot be run here, and why."""


class RewardErrors(logging.Handler):
    """Notices reward functions that raise: the library logs it and scores 0, so a broken one looks like a bad model."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[tuple[str, BaseException | None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what a rubric complains of, with the exception that it is handling."""
        if "rubric" in record.name:
            self.found.append((record.getMessage(), sys.exc_info()[1]))


def describe(environment: Any) -> dict[str, Any]:
    """Return the facts of a loaded environment; whatever it raises is the environment's own."""
    rewards: list[dict[str, Any]] = []
    _collect_rewards(getattr(environment, "rubric", None), rewards)
    tools = getattr(environment, "tools", None) or []
    return {
        "environment_type": type(environment).__name__,
        "num_train": _count(environment.get_dataset),
        "num_eval": _count(environment.get_eval_dataset),
        "rewards": rewards[:_MOST_NAMED],
        "tools": [_name(tool) for tool in tools][:_MOST_NAMED] if isinstance(tools, (list, tuple)) else [],
    }


async def run_one(environment: Any, base_url: str) -> dict[str, Any]:
    """Run and score one rollout on the first row against the model at `base_url`; return the library's output.

    Raises:
        Skipped: it has no rows.
    """
    import openai
    import verifiers

    row = _first_row(environment)
    client = verifiers.OpenAIChatCompletionsClient(
        openai.AsyncOpenAI(base_url=base_url, api_key="scripted", max_retries=0)
    )
    if getattr(environment, "requires_group_rollouts", False):
        outputs = await environment.run_group([row, dict(row)], client, "scripted", {})
        return dict(outputs[0])
    return dict(await environment.run_rollout(row, client, "scripted", {}))


def _first_row(environment: Any) -> dict[str, Any]:
    for dataset in (environment.get_eval_dataset, environment.get_dataset):
        if _count(dataset):
            return dict(dataset()[0])
    raise Skipped("it has no rows")


def _count(dataset: Callable[[], Any]) -> int:
    # An environment may have only one of the two sets; of the other the library says that it "is not set".
    try:
        return len(dataset())
    except ValueError as error:
        if "not set" in str(error):
            return 0
        raise


def _collect_rewards(rubric: Any, found: list[dict[str, Any]]) -> None:
    for inner in getattr(rubric, "rubrics", None) or []:
        _collect_rewards(inner, found)
    functions = list(getattr(rubric, "funcs", None) or [])
    weights = list(getattr(rubric, "weights", None) or [])
    for position, function in enumerate(functions):
        weight = float(weights[position]) if position < len(weights) else 1.0
        found.append({"name": _name(function), "weight": weight})


def _name(thing: Any) -> str:
    return str(getattr(thing, "__name__", None) or type(thing).__name__)[:200]
