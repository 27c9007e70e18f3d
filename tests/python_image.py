"""A root file system with bash and Python, made of this machine's own files: about as small as it can be."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

_PROGRAMS = (
    "bash", "cat", "chmod", "cp", "echo", "env", "false", "grep", "head", "ls", "mkdir", "mkfifo", "mv", "nohup", "rm",
    "sleep", "sort", "tail", "test", "touch", "tr", "true", "wc",
)  # fmt: skip
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "__pycache__", "pydoc_data", "turtledemo"}


def write_python_image(path: Path) -> None:
    """Write it as a tar archive, with `python`, `python3`, `bash` and `sh`; skips where there is none here."""
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        pytest.skip("this machine has no /usr/bin/python3 to make an image of")
    programs = {f"/usr/bin/{name}": found for name in _PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin"))}
    programs[f"/usr/bin/{python.name}"] = str(python)
    library = Path(f"/usr/lib/{python.name}")
    with tarfile.open(path, "w") as archive:
        for name in ("bin", "sbin", "lib", "lib64"):
            _add_link(archive, name, f"usr/{name}")
        for name, target in (("python", python.name), ("python3", python.name), ("sh", "bash")):
            _add_link(archive, f"usr/bin/{name}", target)
        for name in ("tmp", "root", "proc", "dev", "etc"):
            _add_folder(archive, name)
        _add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
        for name, source in programs.items():
            archive.add(Path(source).resolve(), name.lstrip("/"))
        modules = list((library / "lib-dynload").glob("*.so"))
        for wanted in _libraries([Path(source) for source in programs.values()] + modules):
            # What stands under /lib belongs under /usr/lib, to which it links.
            archive.add(wanted.resolve(), re.sub(r"^/(usr/)?", "usr/", str(wanted)))
        archive.add(library, str(library).lstrip("/"), filter=_wanted)


def _libraries(files: list[Path]) -> list[Path]:
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    return sorted({Path(found) for found in re.findall(r"(/\S+) \(0x", told)})


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(entry.name).name in _LEFT_OUT or "/config-" in entry.name or entry.issym() else entry


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text.encode()))
