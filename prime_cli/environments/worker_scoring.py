"""Notices reward functions that raise; used by `worker.py`, in the workspace's interpreter.

The library logs such an exception and scores 0 with no error, so a broken judge looks like a bad model. Here the
rollout gets an `error` that names the function and what it said.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_origin

Fail = Callable[[str], Exception]
"""Makes the library's kind of error from a text."""

# A function with one of these parameters scores a whole group at once; so does one that returns a list.
_OF_A_GROUP = {"states", "prompts", "completions", "answers", "tasks", "infos"}


def watch_rubric(rubric: Any, fail: Fail) -> None:
    """Wrap the reward functions of `rubric`, and of the rubrics that it is made of, in place."""
    for inner in getattr(rubric, "rubrics", None) or []:
        watch_rubric(inner, fail)
    functions = getattr(rubric, "funcs", None)
    if functions is not None:
        functions[:] = [watched(function, fail) for function in functions]


def watched(function: Callable[..., Any], fail: Fail) -> Callable[..., Any]:
    """Return `function` in a wrapper that puts its exceptions into `state["error"]` and raises them again.

    The library hands a function those arguments that its signature names, so the wrapper's names the state as well.
    When a function of a group fails, that is the error of each of its rollouts.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    scores_group = _scores_group(signature)
    state_name = "states" if scores_group else "state"
    takes_anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    is_added = state_name not in signature.parameters and not takes_anything
    if is_added:
        parameters.append(inspect.Parameter(state_name, inspect.Parameter.KEYWORD_ONLY))

    def mark(arguments: dict[str, Any], error: Exception) -> None:
        states: Iterable[Any] = arguments[state_name] if scores_group else [arguments[state_name]]
        for state in states:
            if state.get("error") is None:
                state["error"] = fail(f"{function.__name__}: {type(error).__name__}: {error}")

    def checked(result: Any) -> Any:
        # A reward that is no number would become 0 in the library, without a word.
        return result if scores_group else float(result)

    async def awaited(result: Any, arguments: dict[str, Any]) -> Any:
        try:
            return checked(await result)
        except Exception as error:
            mark(arguments, error)
            raise

    @functools.wraps(function)
    def wrapper(**arguments: Any) -> Any:
        passed_on = {name: value for name, value in arguments.items() if name != state_name or not is_added}
        try:
            result = function(**passed_on)
            return awaited(result, arguments) if inspect.isawaitable(result) else checked(result)
        except Exception as error:
            mark(arguments, error)
            raise

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapper


def _scores_group(signature: inspect.Signature) -> bool:
    returns = signature.return_annotation
    return bool(_OF_A_GROUP & set(signature.parameters)) or returns is list or get_origin(returns) is list
