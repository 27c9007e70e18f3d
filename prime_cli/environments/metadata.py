"""The small facts beside an environment: where it was published, and what an evaluation of it takes by default."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prime_cli.core.files import write_json_atomically
from prime_cli.environments.installed import find_installed
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.workspace import ENVIRONMENTS, local_environment_folder, workspace_python

_METADATA = Path(".prime") / ".env-metadata.json"


@dataclass(frozen=True)
class EvalDefaults:
    """What an evaluation takes when it is not told: `[tool.verifiers.eval]` of the environment, else these."""

    num_examples: int = 5
    rollouts_per_example: int = 3


def write_metadata(folder: Path, values: dict[str, Any], *, event: str) -> Path:
    """Note in `folder` with which environment of a hub it belongs together; `event` is pushed_at or pulled_at."""
    path = folder / _METADATA
    write_json_atomically(path, {**read_metadata(folder), **values, event: datetime.now(UTC).isoformat()})
    return path


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return what was noted in `folder`; empty when nothing was."""
    for path in (folder / _METADATA, folder / _METADATA.name):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict):
            return data
    return {}


def eval_defaults(identity: EnvironmentId, environments: Path = ENVIRONMENTS) -> EvalDefaults:
    """Return the defaults of a local environment, else of the installed one, else the general ones."""
    folder = local_environment_folder(identity.name, environments)
    if folder is not None:
        pyproject: Path | None = folder / "pyproject.toml"
    else:
        installed = find_installed(workspace_python(), identity.distribution)
        pyproject = installed.pyproject if installed else None
    data = _read_toml(pyproject) if pyproject else {}
    # Wheels of single-file modules put their pyproject.toml in one place, so the one found may be of another package.
    if EnvironmentId(None, str(data.get("project", {}).get("name")), None).distribution != identity.distribution:
        return EvalDefaults()
    table = data.get("tool", {}).get("verifiers", {}).get("eval", {})
    known = {key: table[key] for key in ("num_examples", "rollouts_per_example") if isinstance(table.get(key), int)}
    return EvalDefaults(**known)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
