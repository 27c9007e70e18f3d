"""Index pages as they went out last, given again while nothing in the database has changed.

Installers ask for the same pages all the time, mostly without saying who they are. Such a page is answered before it is
routed, and asks of the database only whether anybody committed anything since: then the page is asked for anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PAGE = re.compile(r"(?:/index/[^/]+)?/simple/(?:[^/]+/)?")
_METHODS = frozenset(["GET", "HEAD"])
# All headers on which the answer to nobody in particular depends; the host stands in the links to provenance.
_DECISIVE = frozenset([b"host", b"accept", b"accept-encoding", b"if-none-match"])
_KEPT_STATUS = frozenset([200, 304])
_MAX_BYTES = 64 * 1024**2
_BYTES_BESIDE_BODY = 4096

Key = tuple[str, str, tuple[tuple[bytes, bytes], ...]]


@dataclass
class _Answer:
    """What the app sent, and the route that it took."""

    messages: list[Message] = field(default_factory=list)
    route: object = None
    path_params: dict[str, Any] = field(default_factory=dict)

    @property
    def is_worth_keeping(self) -> bool:
        """Say whether it is a page in one piece."""
        return len(self.messages) == 2 and self.messages[0]["status"] in _KEPT_STATUS


class KeptAnswers:
    """Gives pages that nobody in particular asks for again, as long as `change_count` returns the same number.

    Who sends an `Authorization` header is always passed on. All answers are of one state of the database, and are
    dropped together with the next one, or when they are too large together.
    """

    def __init__(self, app: ASGIApp, change_count: Callable[[], int], max_bytes: int = _MAX_BYTES) -> None:
        self._app = app
        self._change_count = change_count
        self._max_bytes = max_bytes
        self._answers: dict[Key, _Answer] = {}
        self._size = 0
        self._state = -1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on and keep what is answered."""
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        state = self._change_count()
        if state != self._state:
            self._forget()
            self._state = state
        kept = self._answers.get(key)
        if kept is None:
            answer = await self._ask(scope, receive, send)
            # To HEAD the answer of GET is given, whose body the server takes off.
            if state == self._state and scope["method"] == "GET" and answer.is_worth_keeping:
                self._keep(key, answer)
            return
        scope["route"], scope["path_params"] = kept.route, kept.path_params
        for message in kept.messages:
            await send(message)

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> _Answer:
        answer = _Answer()

        async def noted(message: Message) -> None:
            answer.messages.append(message)
            await send(message)

        await self._app(scope, receive, noted)
        answer.route, answer.path_params = scope.get("route"), scope.get("path_params", {})
        return answer

    def _keep(self, key: Key, answer: _Answer) -> None:
        size = len(answer.messages[1].get("body", b"")) + sum(len(value) for _, value in key[2]) + _BYTES_BESIDE_BODY
        if key in self._answers or size > self._max_bytes:
            return
        if self._size + size > self._max_bytes:
            self._forget()
        self._answers[key] = answer
        self._size += size

    def _forget(self) -> None:
        self._answers.clear()
        self._size = 0


def _key(scope: Scope) -> Key | None:
    """Return what names the answer to a request; None where it is not one of these pages, or somebody's own."""
    if scope["type"] != "http" or scope["method"] not in _METHODS or scope["query_string"]:
        return None
    if _PAGE.fullmatch(scope["path"]) is None:
        return None
    decisive, has_host = [], False
    for header in scope["headers"]:
        if header[0] in _DECISIVE:
            decisive.append((header[0], header[1]))
            has_host = has_host or header[0] == b"host"
        elif header[0] == b"authorization":
            return None
    return (scope["scheme"], scope["path"], tuple(decisive)) if has_host else None
