"""Many requests in one, each answered as it ends; spoken between the workers of a run and the embedded server.

A small model answers a short prompt in less processor time than a request over HTTP takes, on both ends. A worker asks
for the rollouts of a group at the same moment, so they come here together:

POST /v1/many         {"id": ..., "requests": [{"path": "/v1/chat/completions", "body": {...}}, ...]}
POST /v1/many/cancel  {"id": ..., "indices": [...]}: nobody waits for these of its requests any more

The answer to the first has a line for each request, in the order in which they end: its index, its status and its body,
with a space between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from prime_cli.rl.inference.answers import one_line
from prime_cli.rl.inference.completing import Asked, Reader, answering
from prime_cli.rl.inference.engine import Completion, SlotEngine
from prime_cli.rl.inference.protocol import error_body

MANY = "/v1/many"


class OneOfMany(BaseModel):
    """A request as it would come alone: where to, and its body."""

    path: str
    body: dict[str, Any]


class ManyRequests(BaseModel):
    """Requests that come together, under a name that whoever asks makes up."""

    id: str
    requests: list[OneOfMany] = Field(min_length=1)


class CancelledOnes(BaseModel):
    """Requests of `ManyRequests` that nobody waits for any more."""

    id: str
    indices: list[int]


class ManyRoute:
    """/v1/many and /v1/many/cancel over one engine; `readers` are those of the routes that it stands for."""

    def __init__(self, engine: SlotEngine, readers: Mapping[str, Reader]) -> None:
        self._engine = engine
        self._readers = readers
        self._running: dict[str, list[threading.Event | None]] = {}

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(MANY, self.many, methods=["POST"]),
            Route(f"{MANY}/cancel", self.cancel, methods=["POST"]),
        ]

    @answering
    async def many(self, request: Request) -> Response:
        """Answer each of many requests as it ends."""
        wanted = ManyRequests.model_validate_json(await request.body())
        return StreamingResponse(self._lines(wanted), media_type="text/plain")

    @answering
    async def cancel(self, request: Request) -> Response:
        """Free the slots of some of many requests; those that have ended are left as they are."""
        wanted = CancelledOnes.model_validate_json(await request.body())
        running = self._running.get(wanted.id, [])
        for index in wanted.indices:
            cancelled = running[index] if 0 <= index < len(running) else None
            if cancelled is not None:
                cancelled.set()
        return Response(status_code=204)

    async def _lines(self, wanted: ManyRequests) -> AsyncIterator[bytes]:
        """Yield lines until all requests have ended; when nobody reads on, those that run are cancelled."""
        ended = _Ended()
        asked: dict[int, Asked] = {}
        running = self._running[wanted.id] = [None] * len(wanted.requests)
        try:
            for index, one in enumerate(wanted.requests):
                try:
                    understood = self._understood(one)
                    running[index] = self._engine.submit(
                        understood.prompt_ids, understood.parameters, partial(ended.add, index)
                    )
                except ValueError as error:
                    yield _refused(index, error, 400, "invalid_request_error")
                except RuntimeError as error:
                    yield _refused(index, error, 503, "server_error")
                else:
                    asked[index] = understood
            while asked:
                results = await ended.next()
                yield b"".join(_line(index, asked.pop(index), result) for index, result in results)
        finally:
            for cancelled in running:
                if cancelled is not None:
                    cancelled.set()
            self._running.pop(wanted.id, None)

    def _understood(self, one: OneOfMany) -> Asked:
        if one.path not in self._readers:
            raise ValueError(f"{one.path} does not take many requests at once")
        return self._readers[one.path](one.body)


class _Ended:
    """Takes what has ended from the engine's thread to the event loop's, which is woken once for all of a step."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._results: deque[tuple[int, Completion | Exception]] = deque()
        self._is_woken = False
        self._arrived = asyncio.Event()

    def add(self, index: int, result: Completion | Exception) -> None:
        """Note a result; called from any thread."""
        self._results.append((index, result))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._arrived.set)

    async def next(self) -> list[tuple[int, Completion | Exception]]:
        """Wait for results and return all that there are."""
        await self._arrived.wait()
        self._arrived.clear()
        self._is_woken = False  # before the results are taken: one that is added now wakes again
        taken = []
        while self._results:
            taken.append(self._results.popleft())
        return taken


def _line(index: int, asked: Asked, result: Completion | Exception) -> bytes:
    if isinstance(result, Exception):
        return _refused(index, f"the engine failed: {result}", 503, "server_error")
    if not result.token_ids:
        return _refused(index, "the request was cancelled before it ran", 499, "cancelled")
    if not math.isfinite(sum(result.logprobs)):
        return _refused(index, "the model gave log-probabilities that are no numbers", 503, "server_error")
    return b"%d 200 %b\n" % (index, to_json(asked.body_of(result)))


def _refused(index: int, error: Exception | str, status: int, kind: str) -> bytes:
    return b"%d %d %b\n" % (index, status, to_json(error_body(one_line(error), kind)))
