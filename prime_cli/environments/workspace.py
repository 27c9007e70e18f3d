"""The workspace that a command runs in: its interpreter, and where its environments lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENTS = Path("environments")


def workspace_python(start: Path | None = None) -> Path:
    """Return the interpreter that environments are installed into and run with.

    In order: `$UV_PROJECT_ENVIRONMENT`, `$VIRTUAL_ENV`, the `.venv` beside the nearest `pyproject.toml` upwards of
    `start` (the current folder), the interpreter that runs `prime`.
    """
    for variable in ("UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV"):
        root = os.environ.get(variable)
        if root and (python := _python_of(Path(root))):
            return python
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").is_file():
            python = _python_of(candidate / ".venv")
            if python:
                return python
            break
    return Path(sys.executable)


def local_environment_folder(name: str, environments: Path = ENVIRONMENTS) -> Path | None:
    """Return the folder of the environment `name` in this workspace, or None when it has none of that name."""
    folder = environments / name.replace("-", "_")
    return folder if (folder / "pyproject.toml").is_file() else None


def search_path_of(name: str, environments: Path = ENVIRONMENTS) -> list[Path]:
    """Return the folders to put on the import path, so that a local environment runs without being installed."""
    folder = local_environment_folder(name, environments)
    return [folder.resolve()] if folder else []


def _python_of(root: Path) -> Path | None:
    python = root / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    return python if python.is_file() else None
