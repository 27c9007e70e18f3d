"""Does an environment load? First by reading its source, then by importing it in the workspace's interpreter."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically
from prime_cli.environments.archive import content_hash, source_files
from prime_cli.environments.project import EnvironmentProject
from prime_cli.environments.source_check import LOADER, check_source

_TIMEOUT_S = 120
_FRAMES_OF_OTHERS = 2
_PROBE = Path(__file__).with_name("import_probe.py")


def check_project(project: EnvironmentProject, python: Path, *, by_import: bool = True) -> None:
    """Check that the environment of `project` loads.

    The import, which takes the library's seconds, is left out when these very sources passed it with this interpreter.

    Raises:
        PrimeError: there is no module, no `load_environment`, or the import fails: with its own traceback, shortened.
    """
    path = project.module_path
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PrimeError(f"{path} is not UTF-8 text: {error.reason}") from None
    check_source(text, str(path))
    if not by_import:
        return
    passed = project.folder / ".prime" / "check.json"
    fingerprint = {"content_hash": content_hash(project.folder, source_files(project.folder)), "python": str(python)}
    if _read(passed) == fingerprint:
        return
    check_import(project, python)
    write_json_atomically(passed, fingerprint)


def check_import(project: EnvironmentProject, python: Path) -> None:
    """Import the environment in a process of `python`.

    Raises:
        PrimeError: the import fails, takes too long, or yields no `load_environment`.
    """
    folder = project.folder.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        verdict_path = Path(scratch) / "verdict.json"
        command = [str(python), str(_PROBE), str(folder), project.module, str(verdict_path)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=scratch)
        except subprocess.TimeoutExpired:
            raise PrimeError(
                f"importing {project.module} took more than {_TIMEOUT_S} s",
                hint="move slow work into `load_environment` or into a data set that is made when it is asked for",
            ) from None
        verdict = _read(verdict_path)
    if verdict is None:
        last = process.stderr.strip().splitlines()[-1:] or ["no message"]
        raise PrimeError(f"importing {project.module} ended the interpreter: {last[0]}")
    if "error" in verdict:
        raise PrimeError(_import_failure(project, folder, verdict), hint=_hint(verdict["error"], python))
    if not verdict["has_loader"]:
        raise PrimeError(
            f"{project.module} has no `{LOADER}` once it is imported",
            hint=f"define `{LOADER}(...)` in {project.module_path}, or import it there",
        )


def _import_failure(project: EnvironmentProject, folder: Path, verdict: dict[str, Any]) -> str:
    """Tell the failure in one line, and below it where: all frames of the project, and the last of other code."""
    lines = [f"{project.module} cannot be imported: {verdict['error'].splitlines()[0]}"]
    own = [Path(frame["file"]).is_relative_to(folder) for frame in verdict["frames"]]
    for index, frame in enumerate(verdict["frames"]):
        if own[index] or index >= len(own) - _FRAMES_OF_OTHERS:
            place = Path(frame["file"])
            shown = place.relative_to(folder) if own[index] else "/".join(place.parts[-2:])
            lines.append(f"  {shown}, line {frame['line']}, in {frame['name']}")
            if frame["code"]:
                lines.append(f"    {frame['code']}")
    return "\n".join(lines)


def _hint(error: str, python: Path) -> str | None:
    if error.startswith("ModuleNotFoundError"):
        return f"install what it needs for {python}, or pass --no-check"
    return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
