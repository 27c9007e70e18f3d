"""Ends rollouts that have become as long as they may; used by `worker.py`, in the workspace's interpreter.

The library knows a greatest number of turns, and nothing of the kind for tokens that holds in all of its environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

TURNS = "max_turns"


class NotLimited(Exception):
    """A limit that cannot be kept in this environment; its text is meant for the user."""


def limit_rollouts(environment: Any, limits: Mapping[str, int]) -> None:
    """Make every rollout of `environment` end with the turn in which it reaches one of `limits`.

    Args:
        limits: of max_turns, max_input_tokens (the longest prompt), max_output_tokens (all turns together) and
            max_total_tokens (the conversation).

    Raises:
        NotLimited: the environment does not run its turns where this could count them.
    """
    if not limits:
        return
    inner = getattr(environment, "envs", None)
    if inner:
        for one in inner:
            limit_rollouts(one, limits)
        return
    harness = getattr(environment, "harness", None)
    if harness is not None:
        _limit_harness(harness, limits)
        return
    if not hasattr(environment, TURNS) or not hasattr(environment, "_stop_conditions"):
        raise NotLimited(f"{type(environment).__name__} takes no turns that could be limited ({', '.join(limits)})")
    if TURNS in limits and environment.max_turns != 1:  # one with a single turn has no answer to a second
        environment.max_turns = limits[TURNS]
    measured = {name: value for name, value in limits.items() if name != TURNS}
    environment._stop_conditions += [_condition(name, value) for name, value in measured.items()]
    if "max_output_tokens" in limits:
        _bound_requests(environment, limits["max_output_tokens"])


def _limit_harness(harness: Any, limits: Mapping[str, int]) -> None:
    others = [name for name in limits if name != TURNS]
    if others:
        raise NotLimited(f"an environment of the library's v1 interface keeps max_turns only, not {', '.join(others)}")
    harness.config.max_turns = limits[TURNS]


def _condition(name: str, limit: int) -> Callable[..., Any]:
    measure = _MEASURES[name]

    async def reached(state: Any) -> bool:
        trajectory = state.get("trajectory") or []
        is_over = bool(trajectory) and measure(trajectory) >= limit
        if is_over:
            state["is_truncated"] = True
        return is_over

    reached.__name__ = f"{name}_reached"
    return reached


def _bound_requests(environment: Any, limit: int) -> None:
    """Let no turn sample more tokens than are left."""
    ask = environment.get_model_response

    async def get_model_response(state: Any, prompt: Any, *rest: Any, **options: Any) -> Any:
        arguments = dict(options.get("sampling_args") or state.get("sampling_args") or {})
        left = max(limit - _output_tokens(state.get("trajectory") or []), 1)
        arguments["max_tokens"] = min(arguments.get("max_tokens") or left, left)
        return await ask(state, prompt, *rest, **{**options, "sampling_args": arguments})

    environment.get_model_response = get_model_response


def _tokens_of(step: Any) -> tuple[int, int]:
    """Return the tokens of a turn's prompt and of what was sampled."""
    tokens = step.get("tokens")
    if tokens:
        return len(tokens["prompt_ids"]), len(tokens["completion_ids"])
    usage = getattr(step.get("response"), "usage", None)
    return getattr(usage, "prompt_tokens", None) or 0, getattr(usage, "completion_tokens", None) or 0


def _input_tokens(trajectory: Iterable[Any]) -> int:
    return max(_tokens_of(step)[0] for step in trajectory)


def _output_tokens(trajectory: Iterable[Any]) -> int:
    return sum(_tokens_of(step)[1] for step in trajectory)


def _total_tokens(trajectory: Iterable[Any]) -> int:
    return max(sum(_tokens_of(step)) for step in trajectory)


_MEASURES: dict[str, Callable[[Any], int]] = {
    "max_input_tokens": _input_tokens,
    "max_output_tokens": _output_tokens,
    "max_total_tokens": _total_tokens,
}
