"""Which of several servers answers a request: the one that answered its conversation before, else the least busy."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SESSION_HEADER = "X-Session-ID"

_REMEMBERED = 65_536
_PREFIX_TOKENS = 16
# A conversation leaves its server when that has this many times the least busy one's work, and some more.
_OVERLOAD, _SLACK = 2, 8


@dataclass
class Replica:
    """One server, and what it does now."""

    name: str
    url: str
    in_flight: int = 0
    answers: int = 0
    version: int = 0


class Replicas:
    """Chooses among servers. Conversations stay where their prefix is cached, unless that server is overloaded."""

    def __init__(self, servers: Mapping[str, str]) -> None:
        self.all = [Replica(name, url) for name, url in servers.items()]
        self._homes: OrderedDict[str, Replica] = OrderedDict()

    def choose(self, conversation: str | None, *, avoid: Replica | None = None) -> Replica:
        """Return the server for a request of `conversation`; `avoid` only if there is no other."""
        candidates = [replica for replica in self.all if replica is not avoid] or self.all
        idlest = min(candidates, key=lambda replica: replica.in_flight)
        if conversation is None:
            return idlest
        home = self._homes.get(conversation)
        if home is None or home not in candidates or home.in_flight > _OVERLOAD * idlest.in_flight + _SLACK:
            home = idlest
        self._homes[conversation] = home
        self._homes.move_to_end(conversation)
        if len(self._homes) > _REMEMBERED:
            self._homes.popitem(last=False)
        return home

    @contextlib.contextmanager
    def busy(self, replica: Replica) -> Iterator[None]:
        """Count a request of `replica` while the context lasts."""
        replica.in_flight += 1
        try:
            yield
        finally:
            replica.in_flight -= 1


def conversation_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Return what the requests of one conversation have in common: a session, a cache salt, or how the prompt begins.

    The rollouts of a group begin alike, so they share a server and its cached prefix.
    """
    if SESSION_HEADER in headers:
        return f"session {headers[SESSION_HEADER]}"
    if body.get("cache_salt"):
        return f"salt {body['cache_salt']}"
    messages = body.get("messages")
    if messages:
        first_user = next((i for i, message in enumerate(messages) if message.get("role") == "user"), 0)
        return json.dumps(messages[: first_user + 1])
    prompt = body.get("token_ids") or body.get("prompt")
    return json.dumps(prompt[:_PREFIX_TOKENS]) if prompt else None
