"""The environments of this workspace: folders, and what its interpreter has installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.environments.installed import Installed, inspect_interpreter
from prime_cli.environments.project import EnvironmentProject, read_project
from prime_cli.environments.workspace import ENVIRONMENTS, workspace_python


@dataclass(frozen=True)
class LocalEnvironment:
    """One environment here. `origin`: the hub's owner/name where that is known; `problem`: why it cannot be used."""

    name: str
    folder: Path | None
    folder_version: str | None
    installed_version: str | None
    origin: str | None
    problem: str | None = None


def list_local(environments: Path = ENVIRONMENTS) -> list[LocalEnvironment]:
    """Return the environments of the workspace by name, folders and installed ones together."""
    installed = inspect_interpreter(workspace_python()).distributions
    found = [_of_folder(path.parent, installed) for path in sorted(environments.glob("*/pyproject.toml"))]
    named = {environment.name for environment in found}
    found += [
        LocalEnvironment(name, None, None, entry.version, entry.origin)
        for name, entry in installed.items()
        if name not in named
    ]
    return sorted(found, key=lambda environment: environment.name)


def _of_folder(folder: Path, installed: dict[str, Installed]) -> LocalEnvironment:
    try:
        project: EnvironmentProject = read_project(folder)
    except PrimeError as error:
        return LocalEnvironment(folder.name.replace("_", "-"), folder, None, None, None, error.message)
    entry = installed.get(project.distribution)
    version = entry.version if entry else None
    return LocalEnvironment(project.distribution, folder, project.version, version, entry.origin if entry else None)
