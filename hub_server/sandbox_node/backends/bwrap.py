"""Sandboxes of bubblewrap: namespaces, a seccomp allow-list, control groups, and user ids of their own.

The work that needs privileges is done by the launcher, a process of its own; this tells it what to make, and speaks
with the agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from hub_server.sandbox_node import seccomp
from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.errors import NotPossible, NotStarted, SandboxError
from hub_server.sandbox_node.launcher import build, cgroups, orders, runtime
from hub_server.sandbox_node.launcher.client import LauncherClient
from hub_server.sandbox_node.link import AgentLink
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, End, EndKind, Enforcement, Held, Level, Limits

HOST_IMAGE = RootFilesystem(name="host", path=None, environment={})

_READY_WITHIN_S = 30.0
_MOST_SHARED_MEMORY = 64 * MEBIBYTE
_MOST_COMPLAINT = 4096


class BwrapBackend:
    """Makes sandboxes through a launcher; `open` makes the backend itself."""

    name = "bwrap"

    def __init__(self, setup: orders.Setup, program: bytes, client: LauncherClient) -> None:
        self._setup, self._program, self._client = setup, program, client
        self._groups = cgroups.of_launcher(client.ready.groups, client.ready.homes) if client.ready.groups else None
        self.level = Level.RESTRICTED  # until it was examined
        self.notes: list[str] = list(client.ready.notes)
        self._starting = asyncio.Lock()

    @classmethod
    async def open(cls, folder: Path) -> BwrapBackend:
        """Start the launcher, and make a first sandbox to see what this host can give. `folder` is the node's.

        Raises:
            NotPossible: no sandbox can be made here; says why.
        """
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise NotPossible("bubblewrap is not installed", hint="Install it: apt install bubblewrap.")
        program = seccomp.filter_bytes()
        made = await asyncio.to_thread(runtime.prepare, folder)
        stage = folder / "stage"
        stage.mkdir(exist_ok=True)
        setup = orders.Setup("", bwrap, str(made.folder), list(made.command), stage=str(stage))
        backend = cls(setup, program, await start_launcher(setup, program))
        await backend.prove("bubblewrap")
        return backend

    async def prove(self, maker: str) -> None:
        """Examine what this host gives, and close what gives nothing. `maker` is what sandboxes are made with.

        Raises:
            NotPossible: no sandbox can be made here; says why.
        """
        try:
            await self.examine()
        except SandboxError as problem:
            await self.close()
            raise NotPossible(f"{maker} makes no sandbox here: {problem.detail}", problem.hint) from problem

    async def examine(self) -> None:
        """Make a sandbox, look from inside and outside at what holds it, and set the level by that.

        Raises:
            SandboxError: none can be made, or it is less confined than it is to be.
        """
        first = await self.create("first", HOST_IMAGE, Limits())
        try:
            inside = Sandbox("first", HOST_IMAGE.name, first, {})
            status = dict(line.split(":\t", 1) for line in (await text_of(inside, "/proc/self/status")).splitlines())
            more = int(status["CapBnd"], 16) & ~sum(1 << number for number in build.CAPABILITIES.values())
            if (status["Seccomp"], status["NoNewPrivs"], more) != ("2", "1", 0):
                raise NotPossible("a sandbox made here has no filter of system calls, or more capabilities than it may")
            own_uid = int((await text_of(inside, "/proc/self/uid_map")).split()[1]) not in (0, os.geteuid())
            held = self._groups is not None and self._groups.hold("first")
            self.level = Level.CONTAINER if own_uid and held else Level.RESTRICTED
        finally:
            await first.destroy()

    async def create(self, sandbox_id: str, image: RootFilesystem, limits: Limits) -> BwrapSandbox:
        """Make a sandbox; its agent answers when this returns.

        Raises:
            NotStarted: it could not be made; nothing of it is left.
        """
        client = await self._living_client()
        enforcement = self._enforcement(limits)
        order = orders.Create(
            sandbox=sandbox_id,
            root=str(image.path) if image.path is not None else None,
            limits=enforcement.limits,
            shared_memory_bytes=min(_MOST_SHARED_MEMORY, enforcement.limits.memory_bytes // 4),
        )
        ended: asyncio.Future[orders.Ended] | None = None
        inner, (we_read, we_write, we_hear) = _pipes()
        try:
            link = await AgentLink.over(we_read, we_write)
        except BaseException:
            _close([*inner, we_hear])
            raise
        try:
            try:
                ended = await client.create(order, inner)
            finally:
                _close(inner)
            await link.ready(_READY_WITHIN_S)
        except BaseException as problem:
            link.close()
            if ended is not None:
                await client.destroy(sandbox_id)
            if isinstance(problem, NotStarted) and (complaint := _complaint(we_hear)):
                raise NotStarted(f"the sandbox could not be made: {complaint}") from problem
            raise
        finally:
            os.close(we_hear)
        return BwrapSandbox(sandbox_id, client, link, enforcement, ended, self._groups, image)

    async def close(self) -> None:
        """Destroy all sandboxes, and end the launcher."""
        await self._client.close()

    async def _living_client(self) -> LauncherClient:
        async with self._starting:
            if self._client.lost:
                # It took all its sandboxes along; the next one removes what else is left.
                self._client = await start_launcher(self._setup, self._program)
                ready = self._client.ready
                self._groups = cgroups.of_launcher(ready.groups, ready.homes) if ready.groups else None
            return self._client

    def _enforcement(self, limits: Limits) -> Enforcement:
        """Say which limits a sandbox will have, and by what they are held."""
        held = dict.fromkeys((field.name for field in dataclasses.fields(Limits)), Held.ENFORCED)
        held["open_files"] = held["file_bytes"] = Held.PER_PROCESS
        notes = list(self.notes)
        if self._groups is None:
            held["cpu_cores"] = Held.NOT
            held["memory_bytes"] = Held.PER_PROCESS
        most = limits.memory_bytes // 2
        if limits.disk_bytes > most:
            # Files are kept in memory, so a full disk must leave some to run in.
            limits = dataclasses.replace(limits, disk_bytes=most)
            held["disk_bytes"] = Held.LOWERED
            notes.append(f"files are kept in memory: the disk is {most // MEBIBYTE} MiB, half of the memory")
        return Enforcement(self.level, self.name, limits, held, notes)


class BwrapSandbox:
    """One sandbox and its agent."""

    def __init__(
        self,
        sandbox_id: str,
        client: LauncherClient,
        link: AgentLink,
        enforcement: Enforcement,
        ended: asyncio.Future[orders.Ended],
        groups: cgroups.Groups | None,
        image: RootFilesystem,
    ) -> None:
        self._id, self._client, self.link, self.enforcement = sandbox_id, client, link, enforcement
        self._ended, self._groups = ended, groups
        self._image: RootFilesystem | None = image  # whose files stay while somebody has it

    async def destroy(self) -> None:
        """End all processes and remove every trace; it may be called twice."""
        await self._client.destroy(self._id)
        self.link.close()
        self._image = None

    async def why_ended(self) -> End | None:
        """Return why the sandbox ended, as far as the host knows."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                ended = await asyncio.shield(self._ended)
                if ended.agent_oom_killed:
                    return End(EndKind.OOM_KILLED, "the sandbox had no memory left, and its first process was killed")
                if self._client.lost:
                    return End(EndKind.FAILED, "the launcher of sandboxes ended, and all sandboxes with it")
        return None

    def memory_bytes(self) -> int | None:
        """Return what the sandbox holds now; None where the host does not count."""
        return self._groups.memory_bytes(self._id) if self._groups is not None else None

    def oom_kills(self) -> int | None:
        """Return how many of its processes were killed for want of memory; None where the host does not count."""
        return self._groups.oom_kills(self._id) if self._groups is not None else None


async def text_of(sandbox: Sandbox, path: str) -> str:
    """Return a file of a sandbox as text."""
    return b"".join([part async for part in sandbox.read_file(path)]).decode()


async def start_launcher(setup: orders.Setup, program: bytes) -> LauncherClient:
    """Start a launcher of its own instance.

    Raises:
        NotPossible: it cannot do its work on this host.
    """
    return await LauncherClient.start(dataclasses.replace(setup, instance=uuid.uuid4().hex[:12]), program)


def _pipes() -> tuple[list[int], list[int]]:
    """Return the sandbox's ends (what it reads, writes, complains to), and ours to (read, write, read complaints)."""
    agent_reads, we_write = os.pipe()
    we_read, agent_writes = os.pipe()
    we_hear, agent_complains = os.pipe()
    os.set_blocking(we_hear, False)
    return [agent_reads, agent_writes, agent_complains], [we_read, we_write, we_hear]


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _complaint(descriptor: int) -> str:
    try:
        return os.read(descriptor, _MOST_COMPLAINT).decode(errors="replace").strip()
    except BlockingIOError:
        return ""
