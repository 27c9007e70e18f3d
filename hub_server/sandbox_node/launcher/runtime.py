"""The agent's own Python: what it needs of the node's interpreter, copied so that it runs in any image.

An image need not have Python, nor the C library that the node's was built for. So the folder has the dynamic loader
and every shared library as well, and the interpreter is started through that loader. Where the node's Python lies may
be closed to other users, and it may be replaced while sandboxes live; a copy is neither.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.agent import ENTRY, write_agent
from hub_server.sandbox_node.errors import NotPossible

INSIDE = "/run/prime"  # where the folder is seen in a sandbox

_AGENT_SOURCE = Path(__file__).parent.parent / "agent"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Prints the files of all modules that the agent imports at once, and of those that it imports when asked for something.
_LIST_MODULES = """
import encodings.ascii, encodings.idna, encodings.latin_1, encodings.utf_8, importlib, os, pwd, resource, sys, traceback
sys.path.insert(0, sys.argv[1])
for name in os.listdir(os.path.join(sys.argv[1], "agent")):
    if name.endswith(".pyc"):
        importlib.import_module("agent." + name[:-4])
for module in list(sys.modules.values()):
    if getattr(module, "__file__", None):
        print(module.__name__, module.__file__, sep="\\t")
"""


@dataclass(frozen=True)
class Runtime:
    """A prepared folder, and the command inside that starts the agent in it."""

    folder: Path
    command: tuple[str, ...]


def prepare(parent: Path) -> Runtime:
    """Make the folder below `parent`, or find it there from an earlier start of the same Python and agent.

    Raises:
        NotPossible: the interpreter's libraries cannot be told.
    """
    parent.mkdir(parents=True, exist_ok=True)
    binary = Path(sys.base_prefix, "bin", _VERSION)
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
    program = f"{INSIDE}/bin/python3"
    loader = next(folder.glob("ld*"), None)
    # A path to libraries that is compiled into the interpreter would come first, and inside, anybody may put one there.
    through = (f"{INSIDE}/{loader.name}", "--inhibit-rpath", "", "--library-path", f"{INSIDE}/lib") if loader else ()
    return Runtime(folder, (*through, program, "-I", "-S", "-B", f"{INSIDE}/{ENTRY}"))


def _fingerprint(binary: Path) -> str:
    facts = hashlib.sha256(f"{sys.version}\n{binary}\n{binary.stat().st_mtime_ns}\n".encode())
    for file in (Path(__file__), *sorted(_AGENT_SOURCE.rglob("*.py"))):
        facts.update(file.name.encode() + b"\0" + file.read_bytes())
    return facts.hexdigest()[:16]


def _fill(folder: Path, binary: Path) -> None:
    write_agent(folder)
    modules = folder / "lib" / _VERSION
    dynamic = modules / "lib-dynload"
    for made in (dynamic, folder / "bin"):
        made.mkdir(parents=True)
    shutil.copyfile(os.__file__, modules / "os.py")  # by this file the interpreter knows its library
    program = folder / "bin/python3"
    shutil.copyfile(binary, program)
    program.chmod(0o755)
    objects = [binary]
    for name, file in _modules(binary, folder):
        if file.suffix == ".so":
            shutil.copyfile(file, dynamic / file.name)
            objects.append(file)
        else:
            compiled = modules / Path(*name.split("."))
            compiled = compiled / "__init__.pyc" if file.stem == "__init__" else compiled.with_suffix(".pyc")
            py_compile.compile(
                str(file), str(compiled), f"{name}.py", doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )  # fmt: skip
    loader = _loader(binary)
    if loader is not None:
        shutil.copyfile(loader, folder / loader.name)
        folder.joinpath(loader.name).chmod(0o755)
        for library, found in _libraries(loader, objects).items():
            shutil.copyfile(found, folder / "lib" / library)
    for made in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        made.chmod(0o755)


def _modules(binary: Path, folder: Path) -> list[tuple[str, Path]]:
    """Return the names and files of the modules that the agent needs."""
    command = [str(binary), "-I", "-S", "-B", "-c", _LIST_MODULES, str(folder)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if listed.returncode != 0:
        raise NotPossible(f"the agent of sandboxes does not run with {binary}: {listed.stderr.strip()[-500:]}")
    found = [line.split("\t") for line in listed.stdout.splitlines()]
    return [(name, Path(file)) for name, file in found if not Path(file).is_relative_to(folder)]


def _loader(binary: Path) -> Path | None:
    """Return the dynamic loader that the ELF header of `binary` names; None for a static one."""
    with binary.open("rb") as file:
        found = re.search(rb"/[\w./+-]*ld-?[\w.+-]*\.so[\w.]*", file.read(8192))
    return Path(os.fsdecode(found[0])) if found else None


def _libraries(loader: Path, objects: list[Path]) -> dict[str, Path]:
    """Return the shared libraries that `objects` need, by the name by which they are asked for."""
    found: dict[str, Path] = {}
    for file in objects:
        listed = subprocess.run([loader, "--list", file], capture_output=True, text=True, check=False, timeout=30)
        if listed.returncode != 0:
            raise NotPossible(
                f"the libraries of {file} cannot be told: {listed.stderr.strip() or listed.returncode}",
                hint="Run the node with a Python that is linked in the ordinary way.",
            )
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed.stdout, re.MULTILINE):
            with contextlib.suppress(OSError):
                found.setdefault(name, Path(path).resolve(strict=True))
    return found
