"""What a node and its launcher say to each other: one JSON object a packet, descriptors beside it."""

from __future__ import annotations

import json
import socket
from array import array
from dataclasses import asdict, dataclass, field
from typing import Any

from hub_server.sandbox_node.specification import Limits

MOST_BYTES = 65536
MOST_DESCRIPTORS = 4


@dataclass(frozen=True)
class Setup:
    """The first packet to a launcher: what all sandboxes have in common; the system call filter goes along."""

    instance: str
    bwrap: str
    runtime: str
    agent: list[str]  # the command line inside
    oci_kind: str = ""  # a container runtime in bubblewrap's place; the filter is then one of its configuration
    oci_path: str = ""
    stage: str = ""  # an empty folder, on which a launcher that is not root mounts what it prepares


@dataclass(frozen=True)
class Ready:
    """The launcher's answer: what it found it can do."""

    pid: int
    own_uid: bool
    groups: int | None  # the version of control groups
    homes: dict[str, str] = field(default_factory=dict)  # the launcher's folders of control groups by controller
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Create:
    """Make a sandbox. Descriptors: what the agent reads, what it writes, and where complaints go."""

    sandbox: str
    root: str | None  # None is the host's own system
    limits: Limits
    shared_memory_bytes: int


@dataclass(frozen=True)
class Ended:
    """A sandbox is gone with all that it had."""

    sandbox: str
    status: int  # of its outermost process, as waitpid gives it
    agent_oom_killed: bool  # of its own processes, not its jobs


@dataclass(frozen=True)
class Destroy:
    """End a sandbox; `Ended` follows."""

    sandbox: str


@dataclass(frozen=True)
class Failed:
    """The launcher cannot do its work at all."""

    why: str


def packed(message: Any) -> bytes:
    """Return a message as a packet."""
    return json.dumps({"is": type(message).__name__, **asdict(message)}).encode()


def unpacked(packet: bytes) -> Any:
    """Return the message in a packet."""
    fields = json.loads(packet)
    kind = {one.__name__: one for one in (Setup, Ready, Create, Destroy, Ended, Failed)}[fields.pop("is")]
    if kind is Create:
        fields["limits"] = Limits(**fields["limits"])
    return kind(**fields)


def receive(channel: socket.socket) -> tuple[Any, list[int]] | None:
    """Read one packet and the descriptors with it; None when the other side is gone."""
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
    data, attached, _, _ = channel.recvmsg(MOST_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array("i")
    for level, kind, content in attached:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if not data:
        return None
    return unpacked(data), list(descriptors)
