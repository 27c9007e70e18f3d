"""The sandbox node that a hub starts beside itself, as a process of its own; it ends with the hub, however that ends.

The node gets what it is to do as a JSON object in PRIME_SANDBOX_NODE: `hub_url` and `key` to register with, `name`,
`host`, `port`, `public_url`, `min_level`, `data_dir`, `log_format` and `log_level`. It ends with status 0 when it is
told to, or when this machine cannot give the level; with any other it is started again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hub_server.operation import logs
from hub_server.operation.logs import LogFormat, LogLevel
from hub_server.sandbox_node.specification import Level
from hub_server.settings import HubSettings
from hub_server.signing import Signer
from prime_cli.core.processes import child_environment, describe_exit, end_process_groups

CONFIGURATION = "PRIME_SANDBOX_NODE"
NODE_TOKEN_PURPOSE = "sandbox node"  # noqa: S105  the name of a purpose, not a secret
_TOKEN_VALID_S = 10 * 365 * 24 * 3600  # it is in the memory of two processes only, and ends with them
_GRACE_S = 20.0
_LOOK_EVERY_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(frozen=True)
class SandboxOptions:
    """How a hub has sandboxes: on a node beside itself, unless that is turned off, and from which level on.

    `allow` is the allowlist of those for which none is given, nor a denylist.
    """

    beside: bool = True
    min_level: Level = Level.CONTAINER
    port: int = 0
    public_url: str = ""
    allow: Sequence[str] = ()


@contextlib.contextmanager
def node_beside(
    options: SandboxOptions,
    settings: HubSettings,
    signer: Signer,
    *,
    hub_url: str,
    host: str,
    log_format: LogFormat,
    log_level: LogLevel,
) -> Iterator[None]:
    """Run a node in a process of its own for the time of the block."""
    facts = {
        "hub_url": hub_url,
        "key": signer.sign(NODE_TOKEN_PURPOSE, {}, valid_s=_TOKEN_VALID_S),
        "name": f"{socket.gethostname()[:60]}, beside the hub",
        "host": host,
        "port": options.port,
        "public_url": options.public_url,
        "min_level": str(options.min_level),
        "data_dir": str(settings.data_dir / "sandboxes"),
        "log_format": str(log_format),
        "log_level": str(log_level),
    }
    keeper = _Keeper(json.dumps(facts))
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _Keeper(threading.Thread):
    """Starts the node, and again when it dies. One thread does it all: the node dies with the thread that began it."""

    def __init__(self, configuration: str) -> None:
        super().__init__(name="keeper of the sandbox node", daemon=True)
        self._configuration = configuration
        self._ending = threading.Event()

    def stop(self) -> None:
        """End the node and wait for it."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """Keep a node running until `stop`."""
        pause_s = _FIRST_PAUSE_S
        while not self._ending.is_set():
            process = subprocess.Popen(
                [sys.executable, "-m", "hub_server.sandbox_node.serve"],
                env=child_environment(**{CONFIGURATION: self._configuration}),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            status = self._wait(process)
            if status is None or status == 0:
                return
            logs.log(logging.WARNING, "the sandbox node died; it is started again", status=describe_exit(status))
            self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _wait(self, process: subprocess.Popen[bytes]) -> int | None:
        """Return how the node ended by itself; None when it was ended."""
        while not self._ending.wait(_LOOK_EVERY_S):
            status = process.poll()
            if status is not None:
                return status
        end_process_groups([process], grace_s=_GRACE_S)
        return None
