"""Remembers signatures; used by `worker.py`, in the workspace's interpreter.

The library works out the signature of every stop condition and of every clean-up each time that it calls one, several
times in a turn: about a fifth of a worker's processor time. A callable that carries its signature is only asked for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def remember_signatures(environment: Any) -> None:
    """Let what the library calls in every rollout of `environment` carry its signature, in place."""
    for inner in getattr(environment, "envs", None) or []:
        remember_signatures(inner)
    _remember_all(getattr(environment, "_stop_conditions", None))
    _remember_all(getattr(environment, "_cleanup_handlers", None))
    _of_rubric(getattr(environment, "rubric", None))


def _of_rubric(rubric: Any) -> None:
    for inner in getattr(rubric, "rubrics", None) or []:
        _of_rubric(inner)
    _remember_all(getattr(rubric, "_cleanup_handlers", None))


def _remember_all(callables: Any) -> None:
    if isinstance(callables, list):
        callables[:] = [carrying_signature(one) for one in callables]


def carrying_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or a wrapper of the same name that carries its signature."""
    if hasattr(function, "__signature__"):
        return function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins have none; whoever asks will hear it
        return function

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    return wrapper
