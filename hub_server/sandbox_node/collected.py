"""The output of commands whose callers wait for all of it; what a node holds of it meanwhile has a bound."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

from hub_server.sandbox_node.sessions import Follower, Output, Session
from hub_server.sandbox_node.specification import MEBIBYTE, Finished

ALWAYS_HELD = MEBIBYTE  # of each command, however much is held of others
MOST_HELD = 512 * MEBIBYTE  # beyond that, of all commands


class HeldOutput:
    """How much output a node holds beyond what every command may have held."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._left = most
        self._being_cut = 0
        self._waiting: set[asyncio.Future[None]] = set()

    async def take(self, size: int) -> bool:
        """Hold some more, perhaps after a wait; False where there is no room, and the caller is the one to be cut.

        Only one is cut at a time: when it has ended there is room again, and the others go on.
        """
        while size > self._left:
            if not self._being_cut:
                self._being_cut += 1
                return False
            room = asyncio.get_running_loop().create_future()
            self._waiting.add(room)
            try:
                await room
            finally:
                self._waiting.discard(room)
        self._left -= size
        return True

    def give_back(self, size: int, *, was_cut: bool) -> None:
        """Let go of what was taken."""
        self._left += size
        self._being_cut -= was_cut
        for room in self._waiting:
            if not room.done():
                room.set_result(None)


# Of this process, which is one node.
_held = HeldOutput()


async def collect(session: Session, follower: Follower, stdin: bytes, held: HeldOutput = _held) -> Finished:
    """Follow a command to its end and return what it wrote.

    It is killed when its caller gives up, and when it writes while the node holds too much already.
    """
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    feeding = asyncio.ensure_future(_feed(session, stdin)) if stdin else None
    size = taken = 0
    was_cut = False
    try:
        with follower:
            async for event in follower:
                if not isinstance(event, Output) or was_cut:
                    continue
                size += len(event.data)
                needed = max(0, size - ALWAYS_HELD - taken)
                if needed and not await held.take(needed):
                    was_cut = True
                    await session.signal(signal.SIGKILL)
                    continue
                taken += needed
                parts[event.stream].append(event.data)
        assert session.ended is not None
        ended = replace(session.ended, cut=True) if was_cut else session.ended
        return Finished(ended, b"".join(parts["stdout"]), b"".join(parts["stderr"]))
    except asyncio.CancelledError:
        await session.signal(signal.SIGKILL)
        raise
    finally:
        if feeding is not None:
            feeding.cancel()
        if taken or was_cut:
            held.give_back(taken, was_cut=was_cut)


async def _feed(session: Session, stdin: bytes) -> None:
    await session.write(stdin)
    await session.close_input()
