"""Signatures that are worked out once."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace

from prime_cli.environments.worker_signatures import carrying_signature, remember_signatures


class Environment:
    """Has one stop condition, marked as the library marks them."""

    def __init__(self) -> None:
        self._stop_conditions = [self.is_over]
        self.rubric = SimpleNamespace(_cleanup_handlers=[], rubrics=[SimpleNamespace(_cleanup_handlers=[self.is_over])])

    async def is_over(self, state: dict[str, int], **more: object) -> bool:
        """Say whether it is."""
        return state["turns"] > 1

    is_over.stop_priority = 7  # type: ignore[attr-defined]


def test_what_the_library_calls_keeps_its_name_marks_signature_and_answer() -> None:
    environment = Environment()
    remember_signatures(environment)
    (condition,) = environment._stop_conditions
    assert condition.__name__ == "is_over"
    assert condition.stop_priority == 7  # type: ignore[attr-defined]
    assert inspect.signature(condition) == inspect.signature(environment.is_over)
    assert asyncio.run(condition({"turns": 2}))
    assert environment.rubric.rubrics[0]._cleanup_handlers[0].__signature__ == inspect.signature(environment.is_over)


def test_a_callable_that_carries_its_signature_is_left_as_it_is() -> None:
    carrying = carrying_signature(lambda state: state)
    assert carrying_signature(carrying) is carrying
