"""An event loop whose clock jumps to the next timer, so that waiting takes no time and nothing is left to chance."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class NothingLeftToHappen(AssertionError):
    """There is a wait without a bound."""


class _Jump(selectors.BaseSelector):
    """Instead of waiting for a file descriptor, moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._map[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._map

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftToHappen("every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time; may be used for one after another."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run `main` to its end, and then see that it left no task behind."""
        try:
            result = self.run_until_complete(main)
        except BaseException:
            self._end(asyncio.all_tasks(self))
            raise
        left = [task for task in asyncio.all_tasks(self) if not task.done()]
        assert not left, f"tasks are left behind: {left}"
        return result

    def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))
