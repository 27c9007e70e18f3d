"""Keeps a node known to a hub: registers it, sends signs of life with what happened, and ends what the hub disowns.

The hub may be away for a while: sandboxes live on, and events are kept until it has heard them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from hub_server.operation import logs
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.node import Node
from hub_server.sandbox_node.specification import End, EndKind
from hub_server.sandbox_node.wire import (
    HEARTBEAT_S,
    Heartbeat,
    HeartbeatAnswer,
    NodeFacts,
    Registered,
    Registration,
)

_LEAST_PAUSE_S = 0.1  # between two heartbeats with events
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0  # after a failure
_TIMEOUT_S = 10.0
_FAREWELL_S = 3.0
_MOST_EVENTS = 500  # of one heartbeat
_DISOWNED = End(EndKind.DELETED, "the hub does not know it any more")

Answer = TypeVar("Answer", bound=BaseModel)


class HubRefused(SandboxError):
    """The hub answers, and does not want this node: the key is wrong, or the node's level too low."""


class HubAway(SandboxError):
    """The hub does not answer."""


class _RegisterAgain(Exception):
    """The hub has forgotten this node."""


class HubConnection:
    """One node's relation to one hub. `facts` tells how the node is; `secret` is what the hub is to call it with."""

    def __init__(self, hub_url: str, key: str, node: Node, secret: str, facts: Callable[[], NodeFacts]) -> None:
        self._url = hub_url.rstrip("/") + "/api/v1/sandbox-nodes"
        self._node, self._secret, self._facts = node, secret, facts
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"}, timeout=_TIMEOUT_S, trust_env=False, follow_redirects=False
        )
        self._node_id: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[object]] = set()

    async def register(self) -> None:
        """Tell the hub of the node.

        Raises:
            HubRefused: the hub does not want it.
            HubAway: the hub does not answer.
        """
        offer = Registration(**dict(self._facts()), secret=self._secret)
        self._node_id = (await self._post("", offer, Registered)).node_id
        logs.log(logging.INFO, "registered with the hub", hub=self._url.partition("/api/")[0], node=self._node_id)

    def start(self) -> None:
        """Stay known from here on; registers first where that did not happen yet."""
        self._task = asyncio.create_task(self._stay_known())

    async def close(self) -> None:
        """Take leave of the hub, as far as it answers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._node_id is not None:
            with contextlib.suppress(httpx.HTTPError):
                await self._http.delete(f"{self._url}/{self._node_id}", timeout=_FAREWELL_S)
        await self._http.aclose()

    async def _stay_known(self) -> None:
        pause_s, was_away = _FIRST_PAUSE_S, False
        while True:
            try:
                if self._node_id is None:
                    await self.register()
                await self._beat()
            except _RegisterAgain:
                self._node_id = None
            except (HubAway, HubRefused) as error:
                if not was_away:
                    logs.log(logging.WARNING, "the hub does not hear this node", reason=error.detail)
                was_away = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                if was_away:
                    logs.log(logging.INFO, "the hub hears this node again")
                pause_s, was_away = _FIRST_PAUSE_S, False
                await asyncio.sleep(_LEAST_PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._node.has_events.wait(), HEARTBEAT_S - _LEAST_PAUSE_S)

    async def _beat(self) -> None:
        events = self._node.take_events()[:_MOST_EVENTS]
        beat = Heartbeat(node=self._facts(), sandboxes=self._node.states(), events=events)
        answer = await self._post(f"/{self._node_id}/heartbeat", beat, HeartbeatAnswer)
        self._node.heard(events)
        for sandbox_id in answer.unknown:
            with contextlib.suppress(KeyError):
                ending = asyncio.ensure_future(self._node.delete(sandbox_id, _DISOWNED))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    async def _post(self, path: str, body: BaseModel, answered: type[Answer]) -> Answer:
        headers = {"Content-Type": "application/json"}
        try:
            response = await self._http.post(self._url + path, content=body.model_dump_json(), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HubAway(f"{self._url}: {type(error).__name__} {error}".rstrip()) from None
        if response.status_code == httpx.codes.NOT_FOUND and path:
            raise _RegisterAgain
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or response.status_code == 429:
            raise HubAway(f"the hub answers with {response.status_code}")
        if not response.is_success:
            raise HubRefused(_detail(response), "the key has to be one of an administrator of the hub")
        try:
            return answered.model_validate_json(response.content)
        except ValidationError:
            raise HubRefused(f"{self._url} does not answer as a hub with sandboxes") from None


def _detail(response: httpx.Response) -> str:
    try:
        said = response.json()
    except ValueError:
        said = None
    detail = said.get("detail") if isinstance(said, dict) else None
    return f"the hub refuses this node ({response.status_code}): {detail or response.text[:200]}"
