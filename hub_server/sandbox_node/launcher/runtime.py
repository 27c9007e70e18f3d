"""The agent's own Python: the node's interpreter with its libraries, copied so that it runs in any image.

An image need not have Python, nor the C library that the node's was built for. So the folder has the dynamic loader
and every shared library as well, and the interpreter is started through that loader. Where the node's Python lies may be
closed to other users, and it may be replaced while sandboxes live; a copy is neither.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.errors import NotPossible

INSIDE = "/run/prime"  # where the folder is seen in a sandbox

_LEFT_OUT = frozenset(
    ("site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "venv")
)
_AGENT = Path(__file__).parent.parent / "agent"


@dataclass(frozen=True)
class Runtime:
    """A prepared folder, and how the agent in it is started."""

    folder: Path
    interpreter: tuple[str, ...]  # the command inside, up to the options of Python

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that starts the agent inside."""
        return [*self.interpreter, "-I", "-S", "-B", f"{INSIDE}/agent/agent.py", *arguments]


def prepare(parent: Path) -> Runtime:
    """Make the folder below `parent`, or find it there from an earlier start of the same Python and agent.

    Raises:
        NotPossible: the interpreter's libraries cannot be told.
    """
    parent.mkdir(parents=True, exist_ok=True)
    binary = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    if not binary.exists():
        binary = Path(os.path.realpath(sys.executable))
    folder = parent / f"runtime-{_fingerprint(binary)}"
    with parent.joinpath("runtime.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            aside = parent / f".{folder.name}.{os.getpid()}"
            shutil.rmtree(aside, ignore_errors=True)
            _fill(aside, binary)
            aside.rename(folder)
    loader = json.loads(folder.joinpath("loader.json").read_text())
    program = f"{INSIDE}/bin/python3"
    if loader is None:
        return Runtime(folder, (program,))
    # A path that is compiled into the interpreter would come first, and inside anybody may put a library there.
    return Runtime(folder, (f"{INSIDE}/lib/{loader}", "--inhibit-rpath", "", "--library-path", f"{INSIDE}/lib", program))


def _fingerprint(binary: Path) -> str:
    facts = hashlib.sha256(f"{sys.version}\n{binary}\n{binary.stat().st_mtime_ns}\n".encode())
    for file in sorted(_AGENT.glob("*.py")):
        facts.update(file.name.encode() + b"\0" + file.read_bytes())
    return facts.hexdigest()[:16]


def _fill(folder: Path, binary: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    standard_library = Path(sysconfig.get_path("stdlib"))
    modules = folder / "lib" / version

    def left_out(where: str, names: list[str]) -> set[str]:
        return {name for name in names if name in _LEFT_OUT or name.startswith("config-") or _is_tkinter(name)}

    shutil.copytree(standard_library, modules, ignore=left_out, symlinks=False)
    folder.joinpath("bin").mkdir()
    shutil.copyfile(binary, folder / "bin/python3")
    objects = [folder / "bin/python3", *modules.glob("lib-dynload/*.so")]
    loader = _loader(binary)
    if loader is not None:
        shutil.copyfile(loader, folder / "lib" / loader.name)
        for name, library in _libraries(loader, [binary, *standard_library.glob("lib-dynload/*.so")]).items():
            shutil.copyfile(library, folder / "lib" / name)
    folder.joinpath("loader.json").write_text(json.dumps(loader.name if loader else None))
    folder.joinpath("agent").mkdir()
    for file in _AGENT.glob("*.py"):
        shutil.copyfile(file, folder / "agent" / file.name)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path in objects or ".so" in path.name else 0o644)


def _is_tkinter(name: str) -> bool:
    return name.startswith("_tkinter.")


def _loader(binary: Path) -> Path | None:
    """Return the dynamic loader that the ELF header of `binary` names; None for a static one."""
    start = binary.read_bytes()[:8192]
    found = re.search(rb"/[\w./+-]*ld-?[\w.+-]*\.so[\w.]*", start)
    return Path(os.fsdecode(found[0])) if found else None


def _libraries(loader: Path, objects: list[Path]) -> dict[str, Path]:
    """Return the shared libraries that `objects` need, by the name by which they are asked for."""
    found: dict[str, Path] = {}
    for file in objects:
        result = subprocess.run([loader, "--list", file], capture_output=True, text=True, check=False, timeout=30)
        if result.returncode != 0 and file == objects[0]:
            raise NotPossible(
                f"the libraries of {file} cannot be told: {result.stderr.strip() or result.returncode}",
                hint="Run the node with a Python that is linked dynamically in the ordinary way.",
            )
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", result.stdout, re.MULTILINE):
            with contextlib.suppress(OSError):
                found.setdefault(name, Path(path).resolve(strict=True))
    return found
