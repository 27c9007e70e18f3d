"""What a wheel says of itself, and whether it holds an environment."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from prime_cli.core.errors import PrimeError
from prime_cli.environments.source_check import check_source


@dataclass(frozen=True)
class WheelFacts:
    """A wheel of an environment: its path, size in bytes, sha256, and its core metadata."""

    path: Path
    name: str
    version: str
    size_bytes: int
    sha256: str
    metadata: Message

    @property
    def module(self) -> str:
        """The module that holds `load_environment`."""
        return self.name.replace("-", "_")

    @property
    def keywords(self) -> list[str]:
        """The keywords of the core metadata."""
        return [word.strip() for word in str(self.metadata.get("Keywords") or "").split(",") if word.strip()]

    def wire_metadata(self, original_filename: str, tags: list[str]) -> dict[str, Any]:
        """Return the `metadata` object that a push sends."""
        requires = [str(value) for value in self.metadata.get_all("Requires-Dist") or []]
        return {
            "description": self.metadata.get("Summary") or "",
            "tags": tags,
            "license": self.metadata.get("License-Expression") or self.metadata.get("License"),
            "dependencies": requires,
            "python_requires": self.metadata.get("Requires-Python"),
            "original_filename": original_filename,
            "requires_dist": requires,
        }


def read_wheel(path: Path) -> WheelFacts:
    """Read the wheel at `path` and check that it installs a module with `load_environment`.

    Raises:
        PrimeError: it is no wheel, or no wheel of an environment.
    """
    hint = "`prime env build` makes one"
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        raise PrimeError(f"{path.name!r} is not the file name of a wheel", hint) from None
    if not path.is_file():
        raise PrimeError(f"no such file: {path}", hint)
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
            folder = next((member for member in members if member.endswith(".dist-info/METADATA")), None)
            if folder is None:
                raise PrimeError(f"{path.name} has no METADATA", hint)
            metadata = BytesHeaderParser().parsebytes(archive.read(folder))
            module = str(name).replace("-", "_")
            source = next((m for m in (f"{module}.py", f"{module}/__init__.py") if m in members), None)
            if source is None:
                raise PrimeError(
                    f"{path.name} holds no module {module}.py",
                    hint='list it under `[tool.hatch.build]`, `include = ["' + module + '.py", "pyproject.toml"]`',
                )
            text = archive.read(source).decode("utf-8", errors="replace")
    except zipfile.BadZipFile:
        raise PrimeError(f"{path} is not a readable wheel", hint) from None
    check_source(text, f"{source} in {path.name}")
    return WheelFacts(path, str(name), str(version), len(data), hashlib.sha256(data).hexdigest(), metadata)
