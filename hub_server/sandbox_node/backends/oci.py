"""Sandboxes of an OCI container runtime: crun or runc for containers, gVisor's runsc for a kernel of their own.

All but the runtime is as with bubblewrap: the same launcher, agent, limits and root file systems.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from hub_server.sandbox_node import seccomp
from hub_server.sandbox_node.backends.bwrap import HOST_IMAGE, BwrapBackend, start_launcher, text_of
from hub_server.sandbox_node.errors import NotPossible
from hub_server.sandbox_node.launcher import orders, runtime
from hub_server.sandbox_node.launcher.client import LauncherClient
from hub_server.sandbox_node.launcher.oci import Kind
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import Enforcement, Held, Level, Limits

_HOW_TO_GET = {"runc": "apt install runc", "runsc": "install gVisor: https://gvisor.dev/docs/user_guide/install/"}
_VERSION_WITHIN_S = 10.0
# The control group counts what gVisor runs on the host: some for itself, some for each process inside.
_GVISOR_OWN_TASKS, _GVISOR_TASKS_EACH = 256, 4
_GVISOR_NOTES = ("a sandbox of gVisor that has no memory or processes left ends as a whole",)


@dataclass(frozen=True)
class FoundRuntime:
    """A container runtime on this host."""

    kind: Kind
    path: str
    version: str


def find_runtimes() -> list[FoundRuntime]:
    """Return the runtimes that are installed, in the order in which they are preferred."""
    found = []
    for kind in Kind:
        path = shutil.which(
            kind.value, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
        )
        if path is not None:
            found.append(FoundRuntime(kind, path, _version(path)))
    return found


def runtime_of(name: str) -> FoundRuntime:
    """Return the runtime of a name or path; its file name says which kind it is, as `runsc` does.

    Raises:
        NotPossible: it is not there, or of no known kind.
    """
    path = shutil.which(name) or next((each.path for each in find_runtimes() if each.kind.value == name), None)
    if path is None:
        raise NotPossible(
            f"the container runtime {name} is not installed", hint=_HOW_TO_GET.get(name, "apt install crun")
        )
    kind = next((kind for kind in Kind if Path(path).name.startswith(kind.value)), None)
    if kind is None:
        known = ", ".join(kind.value for kind in Kind)
        raise NotPossible(f"{path} is no container runtime that is known", hint=f"known are {known}")
    return FoundRuntime(kind, path, _version(path))


class OciBackend(BwrapBackend):
    """Makes sandboxes through a launcher and a container runtime; `open_with` makes the backend itself."""

    name = "oci"

    def __init__(
        self, setup: orders.Setup, program: bytes, client: LauncherClient, found: FoundRuntime | None = None
    ) -> None:
        super().__init__(setup, program, client)
        self.name = f"oci ({setup.oci_kind})"
        self.runtime = found

    @classmethod
    async def open_with(cls, folder: Path, found: FoundRuntime) -> OciBackend:
        """Start the launcher, and make a first sandbox to see what this host can give. `folder` is the node's.

        Raises:
            NotPossible: no sandbox can be made here with this runtime; says why.
        """
        if os.geteuid() != 0:
            raise NotPossible(
                f"sandboxes of {found.kind.value} need a node that runs as root", hint="Use the bwrap backend."
            )
        program = json.dumps(seccomp.oci_profile()).encode()
        made = await asyncio.to_thread(runtime.prepare, folder)
        setup = orders.Setup("", "", str(made.folder), list(made.command), found.kind.value, found.path)
        backend = cls(setup, program, await start_launcher(setup, program), found)
        await backend.prove(found.kind.value)
        return backend

    async def examine(self) -> None:
        """Make a sandbox, and look at what holds it; of one of gVisor the kernel inside says nothing of ours.

        Raises:
            SandboxError: none can be made, or it is less confined than it is to be.
        """
        if self._setup.oci_kind != Kind.RUNSC:
            await super().examine()
            return
        first = await self.create("first", HOST_IMAGE, Limits())
        try:
            inside = Sandbox("first", HOST_IMAGE.name, first, {})
            if platform.release() in await text_of(inside, "/proc/version"):
                raise NotPossible("what calls itself gVisor here runs sandboxes on the host's own kernel")
            held = self._groups is not None and self._groups.hold("first")
            self.level = Level.GVISOR if held else Level.RESTRICTED
        finally:
            await first.destroy()

    def _enforcement(self, limits: Limits) -> Enforcement:
        if self._setup.oci_kind != Kind.RUNSC:
            return super()._enforcement(limits)
        enforcement = super()._enforcement(
            replace(limits, processes=_GVISOR_OWN_TASKS + _GVISOR_TASKS_EACH * limits.processes)
        )
        held = {**enforcement.held, "file_bytes": Held.NOT}
        return replace(enforcement, held=held, notes=[*enforcement.notes, *_GVISOR_NOTES])


def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=_VERSION_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"version (\S+)", done.stdout.decode(errors="replace"))
    return found[1] if found else "unknown"
