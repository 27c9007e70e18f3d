"""Runs one node until it is told to stop: alone (`prime sandbox serve`), or beside a hub that started it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from hub_server.errors import NotServing
from hub_server.operation import logs
from hub_server.operation.addresses import read_public_url
from hub_server.operation.http_heads import BoundedHeads
from hub_server.operation.listening import Server, listening, only_server_of
from hub_server.operation.logs import LogFormat, LogLevel
from hub_server.sandbox_node.app import create_node_app
from hub_server.sandbox_node.choosing import BackendChoice, open_backend
from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.images.references import host_architecture
from hub_server.sandbox_node.images.registries import NodeImages, Registry
from hub_server.sandbox_node.images.store import ImageStore
from hub_server.sandbox_node.network.proxy import Outside
from hub_server.sandbox_node.node import Node, NodeSettings
from hub_server.sandbox_node.pool_plan import PoolSettings
from hub_server.sandbox_node.registration import HubAway, HubConnection, HubRefused
from hub_server.sandbox_node.specification import Level, Shape
from hub_server.sandbox_node.wire import NodeFacts
from hub_server.sandboxes.egress import BadPolicy, OperatorRules
from prime_cli import __version__
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import die_with_parent

CONFIGURATION = "PRIME_SANDBOX_NODE"
"""The environment variable with the options of a node that a hub starts beside itself, as a JSON object."""

_HINT = "end the other one, or use another `--data-dir`"
_DRAIN_S = 2
_ANY = ("0.0.0.0", "::")  # noqa: S104


@dataclass(frozen=True)
class NodeOptions:
    """What an operator may say about a node. Without `hub_url` it belongs to no hub."""

    data_dir: Path
    hub_url: str = ""
    key: str = ""  # API key of an administrator of the hub
    name: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    public_url: str = ""  # by which the hub and clients reach this node, where it is not host and port
    backend: BackendChoice = BackendChoice.AUTO
    min_level: Level = Level.CONTAINER
    most_sandboxes: int = PoolSettings.most_sandboxes
    least_idle: int = PoolSettings.least_idle
    most_idle: int = PoolSettings.most_idle
    creations_at_once: int = 0  # as many as there are processors
    registries: Sequence[str] = ()
    registry_logins: Path | None = None
    allow_private: Sequence[str] = ()  # addresses and networks that sandboxes may reach though they are not public
    secret: str = ""  # hexadecimal; a new one where none is given
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    ready_file: Path | None = None


@dataclass(frozen=True)
class Serving:
    """A node that accepts requests."""

    url: str
    pid: int
    name: str
    level: Level
    backend: str
    notes: Sequence[str]  # what is weaker here than it could be, one line each


def serve(options: NodeOptions, on_ready: Callable[[Serving], None] = lambda serving: None) -> None:
    """Serve until SIGTERM, which ends it normally, or SIGINT, which ends it with KeyboardInterrupt.

    All sandboxes end with it. `ready_file` gets {url, pid, name, level, backend} once requests are accepted.

    Raises:
        NotServing: this host cannot give the level; the port or the data folder is taken; the hub refuses this node; or
            an option cannot be used.
    """
    logs.configure(options.log_format, options.log_level)
    _allow_many_files()
    data_dir = options.data_dir.expanduser().absolute()
    with listening(options.host, options.port) as listener, contextlib.ExitStack() as stack:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_server_of(data_dir, "sandbox node", _HINT))
        except OSError as error:
            raise NotServing(f"cannot use the data folder {data_dir}: {error.strerror}") from None
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            ended_by = runner.run(_serve(options, data_dir, listener, on_ready))
    logs.log(logging.INFO, "stopped")
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


async def _serve(
    options: NodeOptions, data_dir: Path, listener: socket.socket, on_ready: Callable[[Serving], None]
) -> int | None:
    secret = options.secret or secrets.token_hex(32)
    name = options.name or socket.gethostname()
    url = _url_of(options, listener)
    async with _node(options, data_dir) as node:

        def facts() -> NodeFacts:
            counts = node.counts
            return NodeFacts(
                name=name, url=url, level=node.backend.level, backend=node.backend.name, arch=host_architecture(),
                images=node.images.names(), capacity=options.most_sandboxes, live=counts.used, pending=counts.waiting,
                idle=counts.idle, version=__version__,
            )  # fmt: skip

        hub = await _registered(options, node, secret, facts) if options.hub_url else None
        serving = Serving(
            url, os.getpid(), name, node.backend.level, node.backend.name, list(getattr(node.backend, "notes", ()))
        )

        def ready() -> None:
            if options.ready_file is not None:
                write_json_atomically(options.ready_file, {**vars(serving), "notes": list(serving.notes)})
            logs.log(
                logging.INFO, "started", url=url, gives=serving.level.value, backend=serving.backend,
                version=__version__, pid=serving.pid,
            )  # fmt: skip
            if hub is not None:
                hub.start()
            on_ready(serving)

        config = uvicorn.Config(
            create_node_app(node, secret, facts),
            log_config=None, log_level="warning", access_log=False, lifespan="off", ws="websockets-sansio",
            http=BoundedHeads,
            server_header=False, date_header=False, timeout_graceful_shutdown=_DRAIN_S, timeout_keep_alive=75,
            backlog=2048,
        )  # fmt: skip
        gc.collect()
        gc.freeze()
        server = _NodeServer(config, ready, node, hub)
        await server.serve(sockets=[listener])
        return server.ended_by


class _NodeServer(Server):
    """Ends all sandboxes before it waits for the requests that use them."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], node: Node, hub: HubConnection | None
    ) -> None:
        super().__init__(config, ready)
        self._node, self._hub = node, hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave the hub, end the sandboxes, then the connections."""
        if self._hub is not None:
            await self._hub.close()
        await self._node.close()
        await super().shutdown(sockets=sockets)


@contextlib.asynccontextmanager
async def _node(options: NodeOptions, data_dir: Path) -> AsyncIterator[Node]:
    """Open all parts of a node, and leave nothing behind."""
    try:
        store = ImageStore(data_dir / "images")
        registries = [Registry.parse(text) for text in options.registries]
        outside = Outside(OperatorRules.parse(options.allow_private))
    except SandboxError as error:
        raise NotServing(error.detail, hint=error.hint) from None
    except BadPolicy as error:
        raise NotServing(f"--allow-private: {error}") from None
    images = NodeImages(store, registries, logins=options.registry_logins)
    work = data_dir / "work"
    work.mkdir(exist_ok=True)
    backend = await open_backend(options.backend, options.min_level, work)
    pools = PoolSettings(
        most_sandboxes=options.most_sandboxes,
        creations_at_once=options.creations_at_once or len(os.sched_getaffinity(0)),
        least_idle=options.least_idle,
        most_idle=max(options.most_idle, options.least_idle),
        kept=(Shape("host"),),
    )
    node = Node(backend, images, NodeSettings(pools, options.min_level, outside))
    node.start()
    try:
        yield node
    finally:
        await node.close()


async def _registered(options: NodeOptions, node: Node, secret: str, facts: Callable[[], NodeFacts]) -> HubConnection:
    """Return the connection to the hub; a hub that does not answer yet is tried again later."""
    if not options.key:
        raise NotServing(
            "no API key to register this node with the hub", hint="log in as an administrator of it: `prime login`"
        )
    hub = HubConnection(options.hub_url, options.key, node, secret, facts)
    try:
        await hub.register()
    except HubRefused as error:
        await hub.close()
        raise NotServing(error.detail, hint=error.hint) from None
    except HubAway as error:
        logs.log(logging.WARNING, "the hub does not answer yet", reason=error.detail)
    return hub


def _url_of(options: NodeOptions, listener: socket.socket) -> str:
    """Return the URL by which the hub and clients reach this node."""
    if (public := read_public_url(options.public_url)) is not None:
        return public
    host = f"[{options.host}]" if ":" in options.host else options.host
    hub_host = urlsplit(options.hub_url).hostname
    if hub_host is not None and not _is_loopback(hub_host):
        if _is_loopback(options.host):
            raise NotServing(
                f"the hub could not reach a node that listens on {options.host} of this machine",
                hint="use `--host 0.0.0.0`, or `--public-url` where a proxy stands in front",
            )
        if options.host in _ANY:
            host = _address_towards(hub_host) or host
    return f"http://{host}:{listener.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _address_towards(host: str) -> str | None:
    """Return the address that this machine has on the way to another one; nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        address: str = probe.getsockname()[0]
        return address
    return None


def _allow_many_files() -> None:
    """Raise the limit of descriptors to what is allowed: a sandbox needs some, and so does each connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.Loop()
    return loop


def main() -> None:
    """Serve beside the hub that started this process, with its options; status 0 where this machine cannot."""
    die_with_parent()
    facts = json.loads(os.environ.pop(CONFIGURATION))
    readers: dict[str, Callable[[str], Any]] = {
        "data_dir": Path, "backend": BackendChoice, "min_level": Level, "log_format": LogFormat,
        "log_level": LogLevel, "ready_file": Path, "registry_logins": Path,
    }  # fmt: skip
    given: dict[str, Any] = {name: readers[name](value) if name in readers else value for name, value in facts.items()}
    options = NodeOptions(**given)
    try:
        serve(options)
    except NotServing as error:
        logs.log(logging.WARNING, "there are no sandboxes on this machine", reason=error.message, hint=error.hint)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
