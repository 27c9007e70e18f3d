"""The launcher: the small privileged process of a node that makes sandboxes, waits for them and removes what they had.

It is one thread around one loop. It has a mount namespace of its own, so its mounts are nobody else's and end with it;
all that it starts is killed by the kernel when it dies. When its node closes the channel, it ends all sandboxes, then
itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.launcher import (
    build,
    cgroups,
    hierarchies,
    host_root,
    oci,
    orders,
    root_filesystem,
    system_calls,
)
from hub_server.sandbox_node.launcher.uids import IdRange, IdRanges

UIDS_FIRST = 0x70000000  # above what systemd gives to containers, below what does not fit a signed number
UIDS_COUNT = 4000
_SHARED = Path("/run/prime-sandboxes")

# The agent becomes our child when its parent dies, so its end is told to us too, and then nothing is left. This is for
# what else may hold a group for a moment.
_RETRY_MS = 20
_FORCE_AFTER_S = 0.05


@dataclass
class _Live:
    ids: IdRange | None
    pid: int  # of bubblewrap's outer process, our child
    status: int | None = None  # once it was waited for
    since: float = 0.0
    agent_oom_killed: bool = False


class Launcher:
    """All sandboxes of one node."""

    def __init__(self, channel: socket.socket, place: build.Place, ranges: IdRanges | None) -> None:
        self._channel, self._place, self._ranges = channel, place, ranges
        self._live: dict[str, _Live] = {}
        self._by_pid: dict[int, str] = {}
        self._ended: list[str] = []  # their outermost process is gone, something of them may not be
        self._closing = False

    def serve(self) -> None:
        """Work until the node has gone and all is removed."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        while not (self._closing and not self._live):
            ready = dict(poll.poll(_RETRY_MS if self._ended else None))
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            self._reap()
            if self._channel.fileno() in ready and not self._closing and not self._obey():
                self._closing = True
                poll.unregister(self._channel)
                for live in self._live.values():
                    _kill(live)

    def _obey(self) -> bool:
        try:
            received = orders.receive(self._channel)
        except ConnectionError:
            return False
        if received is None:
            return False
        order, descriptors = received
        try:
            if isinstance(order, orders.Create):
                self._create(order, descriptors)
            elif isinstance(order, orders.Destroy) and (live := self._live.get(order.sandbox)) is not None:
                _kill(live)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _create(self, order: orders.Create, descriptors: list[int]) -> None:
        try:
            ids = self._ranges.take() if self._ranges is not None else None
        except OSError as problem:
            os.write(descriptors[2], f"{problem}\n".encode())
            self._tell(orders.Ended(order.sandbox, build.FAILED_STATUS << 8, False))
            return
        launcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            build.become(order, ids, self._place, descriptors, launcher)
        self._live[order.sandbox] = _Live(ids, pid)
        self._by_pid[pid] = order.sandbox

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            # Others are what a sandbox's outer process had started; they are ours once that is dead.
            if (name := self._by_pid.pop(pid, None)) is not None:
                live = self._live[name]
                live.status, live.since = status, time.monotonic()
                self._ended.append(name)
        self._ended = [name for name in self._ended if not self._removed(name)]

    def _removed(self, name: str) -> bool:
        """Remove what an ended sandbox had; tell whether nothing is left."""
        live = self._live[name]
        if self._place.groups is not None:
            live.agent_oom_killed |= bool(self._place.groups.agent_oom_kills(name))
            if not self._place.groups.remove(name):
                if time.monotonic() - live.since > _FORCE_AFTER_S:
                    for pid in self._place.groups.processes(name):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                return False
        elif strays := _children() - self._by_pid.keys():
            # Without groups nothing tells whose they are, but all are of sandboxes that end.
            if time.monotonic() - live.since > _FORCE_AFTER_S:
                for pid in strays:
                    os.kill(pid, signal.SIGKILL)
            return False
        if live.ids is not None and self._ranges is not None:
            self._ranges.give_back(live.ids)
        del self._live[name]
        self._tell(orders.Ended(name, live.status or 0, live.agent_oom_killed))
        return True

    def _tell(self, message: object) -> None:
        with contextlib.suppress(OSError):  # the node may be gone; the loop will see
            self._channel.send(orders.packed(message))


def _kill(live: _Live) -> None:
    # Its death is the agent's, which is the first process of the sandbox's process ids, so all of them end.
    if live.status is None:
        os.kill(live.pid, signal.SIGKILL)


def _children() -> set[int]:
    """Return the process ids of our children; not to be reused by others before we have waited for them."""
    found, ours = set(), str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                stat = Path("/proc", name, "stat").read_text()
                if stat.rpartition(")")[2].split()[1] == ours:
                    found.add(int(name))
    return found


def main(descriptor: int) -> None:
    """Serve the node at the other end of the socket `descriptor`."""
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the node decides, by closing the channel
    received = orders.receive(channel)
    if received is None:
        return
    setup, descriptors = received
    system_calls.adopt_orphans()
    groups, notes = _groups(setup, is_root=os.geteuid() == 0)
    try:
        try:
            launcher, ready = _prepared(setup, descriptors, channel, groups, notes)
        except OSError as problem:
            channel.send(orders.packed(orders.Failed(str(problem))))
            return
        channel.send(orders.packed(ready))
        launcher.serve()
    finally:
        if groups is not None:
            groups.close()


def _prepared(
    setup: orders.Setup,
    descriptors: list[int],
    channel: socket.socket,
    groups: cgroups.Groups | None,
    notes: list[str],
) -> tuple[Launcher, orders.Ready]:
    is_root = os.geteuid() == 0
    seccomp = b""
    for descriptor in descriptors:
        with os.fdopen(descriptor, "rb") as file:
            seccomp = file.read()
    ranges = None
    if is_root:
        _SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
        ranges = IdRanges(_SHARED / "uids", UIDS_FIRST, UIDS_COUNT)
    else:
        notes.append("all sandboxes have the user id of this service, which is not root's")
        system_calls.become_root_of_ourselves()
    system_calls.keep_mounts_to_ourselves()
    # Where users that are not root can get to; nobody but us sees what we mount there.
    sources = _sources(_SHARED if is_root else Path(setup.stage), setup.runtime, is_root=is_root)
    if is_root and not sources.maps_owners:
        notes.append("files of images cannot be shown as the sandbox's own: they are nobody's, and stay as they are")
    place = build.Place(
        sources=sources,
        agent=setup.agent,
        bwrap=setup.bwrap,
        seccomp=seccomp,
        groups=groups,
        masked=build.masked_here(),
        oci=_container_runtime(setup, seccomp),
    )
    homes = {name: str(home) for name, home in groups.homes.items()} if groups is not None else {}
    ready = orders.Ready(os.getpid(), is_root, groups.version if groups is not None else None, homes, notes)
    return Launcher(channel, place, ranges), ready


def _container_runtime(setup: orders.Setup, seccomp: bytes) -> oci.Runtime | None:
    if not setup.oci_kind:
        return None
    return oci.Runtime(oci.Kind(setup.oci_kind), setup.oci_path, json.loads(seccomp))


def _groups(setup: orders.Setup, *, is_root: bool) -> tuple[cgroups.Groups | None, list[str]]:
    """Return the control groups, opened, or none and why."""
    mounts = hierarchies.mounted(Path("/proc/self/mountinfo").read_text())
    for_runc = setup.oci_kind == oci.Kind.RUNC
    groups, lacking = hierarchies.find(setup.instance, mounts, is_root=is_root, for_runc=for_runc)
    if groups is not None:
        try:
            groups.open()
        except OSError as problem:
            groups, lacking = None, f"no control groups can be made: {problem}"
    return groups, [lacking] if lacking else []


def _sources(base: Path, runtime: str, *, is_root: bool) -> root_filesystem.Sources:
    """Prepare what all sandboxes' file systems are made of, in a file system that ends with this process."""
    system_calls.mount(
        "tmpfs", str(base), "tmpfs", system_calls.MS_NOSUID | system_calls.MS_NODEV, "mode=0755,size=64m"
    )
    stage, host, agent = base / "stage", base / "host", base / "agent"
    stage.mkdir()
    agent.mkdir()
    system_calls.attach(runtime, str(agent))  # a sandbox reads where its mounts are from, and need not know our folders
    maps_owners = is_root and _can_map(runtime, stage)
    return root_filesystem.Sources(
        stage, host, host_root.make(host), str(agent), is_root=is_root, maps_owners=maps_owners
    )


def _can_map(folder: str, stage: Path) -> bool:
    """Tell whether what lies on the node's disk can be shown with other owners below an overlay; Linux 5.19 can."""
    userns = system_calls.user_namespace(UIDS_FIRST, IdRange(0, UIDS_FIRST).mapping)
    mapped, seen = stage.with_name("mapped"), stage.with_name("seen")
    for each in (mapped, seen):
        each.mkdir()
    try:
        if not root_filesystem.attach_mapped(folder, str(mapped), userns):
            return False
        system_calls.overlay(str(seen), [str(mapped), str(stage)])
    except OSError:
        return False
    else:
        return seen.stat().st_uid == UIDS_FIRST
    finally:
        os.close(userns)


if __name__ == "__main__":
    main(int(sys.argv[1]))
