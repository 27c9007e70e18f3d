"""Sends requests that are made at the same moment as one; used by `worker_client.py`, in the workspace's interpreter.

The rollouts of a group ask the model at the same moment. A small model on a CPU answers in less processor time than a
request over HTTP takes, so an embedded server takes them together at /v1/many and answers each as it ends; how is told
in `prime_cli/rl/inference/many_route.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from typing import Any
from urllib.parse import urlsplit

_ROUTE = "/v1/many"

Answer = asyncio.Future[bytes | None]
"""The body of a successful answer, else None."""


class Together:
    """Asks one server, through a session of aiohttp."""

    def __init__(self, session: Any, url: str) -> None:
        parts = urlsplit(url)
        self._session = session
        self._route = f"{parts.scheme}://{parts.netloc}{_ROUTE}"
        self._next: _Bundle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, url: str, body: bytes) -> bytes | None:
        """Return the body of a successful answer, else None; whoever no longer waits is cancelled at the server."""
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = _Bundle(self._session, self._route)
            loop.call_soon(self._send)
        return await self._next.add(urlsplit(url).path, body)

    def _send(self) -> None:
        bundle, self._next = self._next, None
        assert bundle is not None, "it was there when this was scheduled"
        bundle.exchanging = asyncio.ensure_future(bundle.exchange())
        self._tasks.add(bundle.exchanging)
        bundle.exchanging.add_done_callback(self._tasks.discard)


class _Bundle:
    """Requests that go out as one."""

    def __init__(self, session: Any, route: str) -> None:
        self._session = session
        self._route = route
        self._id = uuid.uuid4().hex
        self._waiting: list[tuple[bytes, Answer]] = []
        self._sent: list[Answer] = []
        self._left = 0
        self._given_up: list[int] = []
        self._cancelling: asyncio.Task[None] | None = None
        self.exchanging: asyncio.Task[None] | None = None

    def add(self, path: str, body: bytes) -> Answer:
        """Take a request; the future gets the body of a successful answer, else None."""
        answer: Answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(self._ended)
        self._waiting.append((b'{"path": %b, "body": %b}' % (json.dumps(path).encode(), body), answer))
        self._left += 1
        return answer

    async def exchange(self) -> None:
        """Send the requests and hand out the answers as they come."""
        import aiohttp

        wanted = [(request, answer) for request, answer in self._waiting if not answer.done()]
        if not wanted:
            return
        self._sent = [answer for _, answer in wanted]
        body = b'{"id": "%b", "requests": [%b]}' % (self._id.encode(), b", ".join(request for request, _ in wanted))
        try:
            async with self._session.post(self._route, data=body) as response:
                if response.status == 200:
                    rest = b""
                    async for received in response.content.iter_any():
                        *lines, rest = (rest + received).split(b"\n")
                        for line in lines:
                            self._hand_out(line)
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        finally:
            for answer in self._sent:
                if not answer.done():
                    answer.set_result(None)

    def _hand_out(self, line: bytes) -> None:
        index, status, body = line.split(b" ", 2)
        answer = self._sent[int(index)]
        if not answer.done():
            answer.set_result(body if status == b"200" else None)

    def _ended(self, answer: Answer) -> None:
        self._left -= 1
        if not answer.cancelled() or not self._sent or self.exchanging is None:
            return
        if not self._left:
            self.exchanging.cancel()  # which closes the connection, and that cancels what runs
            return
        self._given_up.append(self._sent.index(answer))
        if self._cancelling is None:
            self._cancelling = asyncio.ensure_future(self._cancel())

    async def _cancel(self) -> None:
        """Tell the server of which requests the answers are not waited for any more."""
        import aiohttp

        while self._given_up and self._left:
            indices, self._given_up = self._given_up, []
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with self._session.post(f"{self._route}/cancel", json={"id": self._id, "indices": indices}):
                    pass
        self._cancelling = None
