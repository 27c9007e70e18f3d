"""Finds the files that ship with the tool: in an installed wheel inside the package, in a checkout at its top."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def resource_path(name: str) -> Path:
    """Return where the shipped file or folder `name` (such as `templates/environment`) lies.

    Raises:
        FileNotFoundError: it was not shipped, which is a packaging bug.
    """
    for root in (_PACKAGE / "_resources", _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"the resource {name!r} did not ship with this installation")
