"""Sandboxes that are none: plain processes of this user, for development where nothing better is there (macOS)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hub_server.sandbox_node.agent import ENTRY, write_agent
from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.errors import NotStarted
from hub_server.sandbox_node.link import AgentLink
from hub_server.sandbox_node.specification import End, Enforcement, Held, Level, Limits

_READY_WITHIN_S = 20.0
_NOTES = ("no isolation: code here can do all that the user of this service can",)


class ProcessBackend:
    """Starts agents as ordinary processes; refuses no code, protects nothing."""

    name = "process"
    level = Level.NONE

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._agent = folder / "agent-runtime"
        write_agent(self._agent)
        self._made: set[ProcessSandbox] = set()

    async def create(self, sandbox_id: str, image: RootFilesystem, limits: Limits) -> ProcessSandbox:
        """Start one agent in a folder of its own.

        Raises:
            NotStarted: the image is not the host's own, or the agent did not start.
        """
        if image.path is not None:
            raise NotStarted(f"the process backend has the image `host` only, not {image.name}")
        home = Path(tempfile.mkdtemp(prefix=f"{sandbox_id}-", dir=self._folder))
        process, link = await self._start(home, limits)
        sandbox = ProcessSandbox(process, link, home, _enforcement(limits))
        try:
            await link.ready(_READY_WITHIN_S)
        except BaseException:
            await sandbox.destroy()
            raise
        self._made.add(sandbox)
        sandbox.on_destroyed = self._made.discard
        return sandbox

    async def close(self) -> None:
        """Destroy all that it made."""
        for sandbox in list(self._made):
            await sandbox.destroy()
        shutil.rmtree(self._agent, ignore_errors=True)

    async def _start(self, home: Path, limits: Limits) -> tuple[subprocess.Popen[bytes], AgentLink]:
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        process = subprocess.Popen(  # noqa: ASYNC220  it returns at once
            [sys.executable, "-I", "-S", "-B", str(self._agent / ENTRY)],
            stdin=read_in, stdout=write_out, stderr=subprocess.DEVNULL, cwd=home, start_new_session=True,
            env={"PATH": os.defpath, "HOME": str(home)},
        )  # fmt: skip
        os.close(read_in)
        os.close(write_out)
        if sys.platform == "linux":
            for number, most in (
                (resource.RLIMIT_NOFILE, limits.open_files),
                (resource.RLIMIT_FSIZE, limits.file_bytes),
            ):
                with contextlib.suppress(OSError, ValueError):
                    resource.prlimit(process.pid, number, (most, most))
        return process, await AgentLink.over(read_out, write_in)


class ProcessSandbox:
    """One agent and its folder."""

    def __init__(self, process: subprocess.Popen[bytes], link: AgentLink, home: Path, enforcement: Enforcement) -> None:
        self._process, self.link, self._home, self.enforcement = process, link, home, enforcement
        self.on_destroyed: Callable[[ProcessSandbox], None] = _nothing

    async def destroy(self) -> None:
        """End the agent, which ends all that it started, and remove its folder."""
        self.link.close()
        try:
            await asyncio.to_thread(self._process.wait, 5.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
        shutil.rmtree(self._home, ignore_errors=True)
        self.on_destroyed(self)

    async def why_ended(self) -> End | None:
        """Return None: nobody watches."""
        return None

    def memory_bytes(self) -> int | None:
        """Return None: nobody counts."""
        return None

    def oom_kills(self) -> int | None:
        """Return None: nobody counts."""
        return None


def _enforcement(limits: Limits) -> Enforcement:
    held = dict.fromkeys(("cpu_cores", "memory_bytes", "disk_bytes", "inodes", "processes"), Held.NOT)
    on_linux = Held.PER_PROCESS if sys.platform == "linux" else Held.NOT
    held |= {"open_files": on_linux, "file_bytes": on_linux}
    return Enforcement(Level.NONE, ProcessBackend.name, limits, held, _NOTES)


def _nothing(_sandbox: ProcessSandbox) -> None:
    """Do nothing; the backend sets what is done."""
