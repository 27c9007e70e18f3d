"""How many rollouts may run at once, over all evaluations that run beside each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Permits:
    """So many permits; who asks first is served first, also when he needs several at once and the next only one."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def taken(self, count: int) -> AsyncIterator[None]:
        """Hold `count` permits, or all of them where there are not so many."""
        count = min(count, self._total)
        await self._take(count)
        try:
            yield
        finally:
            self._give(count)

    async def _take(self, count: int) -> None:
        if not self._waiting and count <= self._free:
            self._free -= count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += count
            elif (count, turn) in self._waiting:
                self._waiting.remove((count, turn))
            self._serve()
            raise

    def _give(self, count: int) -> None:
        self._free += count
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            count, turn = self._waiting.popleft()
            if turn.cancelled():
                continue
            self._free -= count
            turn.set_result(None)
