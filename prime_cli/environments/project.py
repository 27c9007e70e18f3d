"""An environment's project folder: where it is, and what its pyproject.toml says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from prime_cli.core.config_file import read_toml
from prime_cli.core.errors import BadInput, ConfigError, PrimeError
from prime_cli.core.files import write_text_atomically
from prime_cli.environments.package_names import nearest
from prime_cli.environments.source_check import module_file
from prime_cli.environments.workspace import ENVIRONMENTS


@dataclass(frozen=True)
class EnvironmentProject:
    """A project folder. `version` is None when the build decides it; `build_requires` are requirement strings."""

    folder: Path
    name: str
    version: str | None
    keywords: tuple[str, ...]
    build_requires: tuple[str, ...]

    @property
    def distribution(self) -> str:
        """The normalised name of the package (PEP 503)."""
        return re.sub(r"[-_.]+", "-", self.name).lower()

    @property
    def module(self) -> str:
        """The module that must hold `load_environment`."""
        return self.distribution.replace("-", "_")

    @property
    def module_path(self) -> Path:
        """The file of that module.

        Raises:
            PrimeError: there is none.
        """
        path = module_file(self.folder, self.module)
        if path is None:
            raise PrimeError(
                f"{self.folder} has no module {self.module}.py",
                hint=f"the package {self.name!r} is loaded by importing {self.module!r}: name the file so",
            )
        return path


def read_project(folder: Path) -> EnvironmentProject:
    """Read the pyproject.toml of `folder`.

    Raises:
        PrimeError: there is none.
        ConfigError: it is not TOML, or names no package or no proper version.
    """
    path = folder / "pyproject.toml"
    if not path.is_file():
        hint = "`prime env init NAME` writes a new environment"
        raise PrimeError(f"{folder} has no pyproject.toml" if folder.is_dir() else f"no such folder: {folder}", hint)
    data = read_toml(path)
    project = _table(data, "project", path)
    name = project.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ConfigError(f"{path}: `project.name` must be the name of a package, found {name!r}")
    version = project.get("version")
    dynamic = "version" in _strings(project, "dynamic", path)
    if not dynamic:
        _parse_version(version, path)
    return EnvironmentProject(
        folder=folder,
        name=name,
        version=None if dynamic else str(version),
        keywords=_strings(project, "tags", path) or _strings(project, "keywords", path),
        build_requires=_strings(_table(data, "build-system", path), "requires", path) or ("setuptools",),
    )


def find_project(name: str | None, environments: Path = ENVIRONMENTS) -> EnvironmentProject:
    """Return the project that `name` means: a folder by its path, else one of `environments`, else the current folder.

    Raises:
        PrimeError: there is no such project.
    """
    if name is None:
        if not Path("pyproject.toml").is_file():
            raise BadInput(
                "which environment?", hint="give its name, or go into its folder; `prime env list --local` shows them"
            )
        return read_project(Path())
    if "/" in name or name in (".", ".."):
        return read_project(Path(name))
    folder = environments / name.replace("-", "_").replace(".", "_").lower()
    if folder.is_dir():
        return read_project(folder)
    if Path("pyproject.toml").is_file():
        here = read_project(Path())
        if here.distribution == re.sub(r"[-_.]+", "-", name).lower():
            return here
    known = [path.parent.name.replace("_", "-") for path in sorted(environments.glob("*/pyproject.toml"))]
    guess = nearest(name, known)
    hint = f"did you mean `{guess}`?" if guess else "`prime env init NAME` writes a new one"
    raise PrimeError(f"there is no environment {name!r} in {environments}", hint=hint)


VersionPart = Literal["patch", "rc", "post"]


def next_version(version: Version, part: VersionPart) -> str:
    """Return the version after this one: the next patch, release candidate (1.2.3rc0) or post-release (1.2.3.post0)."""
    if part == "patch":
        return f"{version.major}.{version.minor}.{version.micro + 1}"
    if part == "rc":
        number = version.pre[1] + 1 if version.pre and version.pre[0] == "rc" else 0
        return f"{version.base_version}rc{number}"
    pre = f"{version.pre[0]}{version.pre[1]}" if version.pre else ""
    return f"{version.base_version}{pre}.post{0 if version.post is None else version.post + 1}"


def bump_version(folder: Path, part: VersionPart) -> str:
    """Raise the version in pyproject.toml, comments and order kept; return it.

    Raises:
        ConfigError: the version is not written there.
    """
    import tomlkit

    path = folder / "pyproject.toml"
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    project: Any = document.get("project", {})
    if "version" not in project:
        raise ConfigError(f"{path}: `project.version` is not written there, so it cannot be raised")
    version = _parse_version(str(project["version"]), path)
    project["version"] = next_version(version, part)
    write_text_atomically(path, tomlkit.dumps(document))
    return str(project["version"])


def _table(data: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: `{key}` must be a table")
    return table


def _strings(table: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{path}: `{key}` must be a list of strings, found {values!r}")
    return tuple(values)


def _parse_version(text: Any, path: Path) -> Version:
    try:
        return Version(str(text) if isinstance(text, str) else "")
    except InvalidVersion:
        raise ConfigError(
            f"{path}: `project.version` must be a version, found {text!r}", hint="write one such as 0.1.0"
        ) from None


@contextlib.contextmanager
def raised_version(project: EnvironmentProject, part: VersionPart | None) -> Iterator[EnvironmentProject]:
    """Yield the project with its version raised, or as it is for None; if the block fails, the file is put back."""
    if part is None:
        yield project
        return
    path = project.folder / "pyproject.toml"
    before = path.read_text(encoding="utf-8")
    bump_version(project.folder, part)
    try:
        yield read_project(project.folder)
    except BaseException:
        write_text_atomically(path, before)
        raise
