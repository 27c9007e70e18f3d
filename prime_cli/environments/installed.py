"""What is installed in the workspace's interpreter, asked of that interpreter itself."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from prime_cli.core.errors import PrimeError

_PROBE = Path(__file__).with_name("installed_probe.py")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Installed:
    """An installed distribution. `sha256` is that of the wheel it came from, where the installer noted it."""

    name: str
    version: str
    sha256: str | None
    origin: str | None
    editable_folder: Path | None
    pyproject: Path | None


@dataclass(frozen=True)
class Interpreter:
    """What the workspace's interpreter has: pip or not, which of the names asked for, and the environments of them."""

    has_pip: bool
    present: frozenset[str]
    distributions: dict[str, Installed]


def inspect_interpreter(python: Path, *names: str) -> Interpreter:
    """Ask `python` for the distributions `names`, or without names for all environments that it has.

    Raises:
        PrimeError: the interpreter does not run.
    """
    try:
        process = subprocess.run(
            [str(python), str(_PROBE), *names], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        answer = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise PrimeError(f"the workspace's interpreter {python} does not run: {error}") from None
    found = [_installed(entry) for entry in answer["distributions"]]
    return Interpreter(bool(answer["has_pip"]), frozenset(answer["present"]), {entry.name: entry for entry in found})


def find_installed(python: Path, name: str) -> Installed | None:
    """Return the distribution `name` of `python`, or None."""
    return inspect_interpreter(python, name).distributions.get(name)


def _installed(entry: dict[str, Any]) -> Installed:
    direct_url = entry["direct_url"]
    url = urlsplit(direct_url.get("url", ""))
    archive = direct_url.get("archive_info", {})
    # pip notes the hash among the facts of the archive, uv leaves it where it was given: in the URL.
    noted = archive.get("hash") or url.fragment
    sha256 = archive.get("hashes", {}).get("sha256") or (
        noted.removeprefix("sha256=") if noted.startswith("sha256=") else None
    )
    path = Path(unquote(url.path))
    # .../wheel_cache/OWNER/NAME/VERSION/dist/x.whl is where wheels of a hub are kept.
    origin = f"{path.parts[-5]}/{path.parts[-4]}" if "wheel_cache" in path.parts[-6:-5] else None
    folder = path if entry["editable"] else None
    pyproject = folder / "pyproject.toml" if folder else entry["pyproject"]
    return Installed(entry["name"], entry["version"], sha256, origin, folder, Path(pyproject) if pyproject else None)
