"""Whether the hub can do its work: each thing it stands on is asked, with a bound of time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.to_thread import run_sync

from hub_server.operation.logs import log
from hub_server.services import Services

_PATIENCE_S = 3.0
# A database that hangs holds these threads only, not those that answer requests.
_MAX_THREADS = 4
OK = "ok"


class Readiness:
    """Asks the database and the blob store of one hub."""

    def __init__(self, services: Services) -> None:
        self._asked: dict[str, Callable[[], None]] = {
            "database": services.database.probe,
            "blobs": services.blobs.probe,
        }
        self._limiter: anyio.CapacityLimiter | None = None

    async def states(self) -> dict[str, str]:
        """Return `ok` for each thing that answers, else what is wrong in words that hold no detail."""
        states = {}
        async with anyio.create_task_group() as group:

            async def ask(name: str, probe: Callable[[], None]) -> None:
                states[name] = await self._ask(name, probe)

            for name, probe in self._asked.items():
                group.start_soon(ask, name, probe)
        return {name: states[name] for name in self._asked}

    async def _ask(self, name: str, probe: Callable[[], None]) -> str:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_MAX_THREADS)
        try:
            with anyio.fail_after(_PATIENCE_S):
                await run_sync(probe, abandon_on_cancel=True, limiter=self._limiter)
        except TimeoutError:
            log(logging.ERROR, "not ready", part=name, reason=f"no answer in {_PATIENCE_S:g} s")
            return f"no answer in {_PATIENCE_S:g} s"
        except Exception as error:  # noqa: BLE001  whatever it is, it keeps the hub from working
            log(logging.ERROR, "not ready", part=name, reason=f"{type(error).__name__}: {error}")
            return "does not answer; the log says why"
        return OK
