"""Installs environments into the workspace's interpreter: from a hub, or from a folder of the workspace."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prime_cli.core.context import prime_home
from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.environments.archive import unpack
from prime_cli.environments.build import build_wheel
from prime_cli.environments.hub_catalog import EnvironmentDetails, fetch_details, locate_wheel
from prime_cli.environments.installed import Installed, inspect_interpreter
from prime_cli.environments.installer import Tool, choose_installer
from prime_cli.environments.project import EnvironmentProject, find_project, read_project
from prime_cli.environments.resolve import EnvironmentId, parse_environment_id
from prime_cli.environments.workspace import ENVIRONMENTS, workspace_python

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


@dataclass(frozen=True)
class InstallOptions:
    """How to install. `upgrade` False keeps any version that is there; `constrained` holds to the tested versions."""

    tool: Tool | None = None
    upgrade: bool = True
    prerelease: bool = False
    constrained: bool = True
    environments: Path = ENVIRONMENTS


@dataclass(frozen=True)
class InstallOutcome:
    """What became of one environment. `status` failed: `error` says why, `hint` what to do."""

    environment: str
    status: Literal["installed", "kept", "failed"]
    name: str = ""
    version: str = ""
    error: str = ""
    hint: str | None = None


def install_environments(
    names: Sequence[str], options: InstallOptions, note: Callable[[str], None]
) -> list[InstallOutcome]:
    """Install each of `names`: `owner/name[@version]` from the hub, a plain name or a path from the workspace.

    One that fails does not stop the others; its outcome says why.
    """
    outcomes = []
    for name in names:
        try:
            outcomes.append(_install_one(name, options, note))
        except PrimeError as error:
            outcomes.append(InstallOutcome(name, "failed", error=error.message, hint=error.hint))
    return outcomes


def ensure_installed(identity: EnvironmentId, note: Callable[[str], None]) -> None:
    """Install `owner/name[@version]` from the hub unless it is there; a name without an owner is left alone.

    Raises:
        PrimeError: it is not there and cannot be installed.
    """
    if identity.owner is None:
        return
    installed = inspect_interpreter(workspace_python(), identity.distribution).distributions
    present = installed.get(identity.distribution)
    if present is None or (identity.version is not None and identity.version not in ("latest", present.version)):
        _install_from_hub(identity, InstallOptions(), note)


def uninstall_environment(name: str, tool: Tool | None) -> str:
    """Remove an installed environment and return its version.

    Raises:
        PrimeError: it is not installed.
    """
    identity = parse_environment_id(name)
    python = workspace_python()
    interpreter = inspect_interpreter(python, identity.distribution)
    present = interpreter.distributions.get(identity.distribution)
    if present is None:
        raise PrimeError(
            f"no environment {identity.name!r} is installed for {python}", hint="`prime env list --local` shows them"
        )
    choose_installer(python, has_pip=interpreter.has_pip, tool=tool).uninstall(identity.distribution)
    return present.version


def _install_one(name: str, options: InstallOptions, note: Callable[[str], None]) -> InstallOutcome:
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or (Path(name) / "pyproject.toml").is_file():
        return _install_folder(name, read_project(Path(name).expanduser()), options, note)
    identity = parse_environment_id(name)
    if identity.owner is not None:
        return _install_from_hub(identity, options, note)
    if identity.version is not None:
        raise BadInput(f"{name!r} names a version but no owner", hint=f"write `OWNER/{name}` to install from a hub")
    try:
        project = find_project(identity.name, options.environments)
    except PrimeError as error:
        hint = f"{error.hint or ''}; from a hub it is `prime env install OWNER/{identity.name}`".removeprefix("; ")
        raise PrimeError(error.message, hint) from None
    return _install_folder(name, project, options, note)


def _install_folder(
    name: str, project: EnvironmentProject, options: InstallOptions, note: Callable[[str], None]
) -> InstallOutcome:
    python, folder = workspace_python(), project.folder.resolve()
    interpreter = inspect_interpreter(python, project.distribution, *_build_packages(project))
    present = interpreter.distributions.get(project.distribution)
    if present is not None and present.editable_folder == folder and present.version == project.version:
        return InstallOutcome(name, "kept", project.distribution, present.version)
    installer = choose_installer(
        python, has_pip=interpreter.has_pip, tool=options.tool,
        constrained=options.constrained, prerelease=options.prerelease,
    )  # fmt: skip
    note(f"installing {project.name} from {project.folder} with {installer.tool}")
    # Without isolation nothing is downloaded for the build; that works when its tools are there already.
    isolated = not interpreter.present.issuperset(_build_packages(project))
    installer.install_editable(folder, isolated=isolated)
    now = inspect_interpreter(python, project.distribution).distributions[project.distribution]
    return InstallOutcome(name, "installed", project.distribution, now.version)


def _install_from_hub(identity: EnvironmentId, options: InstallOptions, note: Callable[[str], None]) -> InstallOutcome:
    from prime_cli.hub.client import connect

    python = workspace_python()
    interpreter = inspect_interpreter(python, identity.distribution)
    present = interpreter.distributions.get(identity.distribution)
    if present is not None and not options.upgrade and identity.version is None:
        return InstallOutcome(str(identity), "kept", present.name, present.version)
    with connect(login_required=False) as client:
        details = fetch_details(client, identity)
        wheel = fetch_wheel(client, details, note)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if present is not None and _is_same(present, details, digest):
        return InstallOutcome(str(identity), "kept", present.name, present.version)
    installer = choose_installer(
        python, has_pip=interpreter.has_pip, tool=options.tool,
        constrained=options.constrained, prerelease=options.prerelease,
    )  # fmt: skip
    note(f"installing {details.owner}/{details.name} {details.version} with {installer.tool} into {python}")
    same_version = present is not None and present.version == details.version
    installer.install(
        f"{details.distribution} @ {wheel.resolve().as_uri()}#sha256={digest}",
        *details.url_dependencies,
        extra_index_url=details.index_url,
        replace=details.distribution if same_version else None,
    )
    return InstallOutcome(str(identity), "installed", details.distribution, details.version)


def _is_same(present: Installed, details: EnvironmentDetails, digest: str) -> bool:
    """Say whether the installed copy came from these very bytes: the version alone does not tell whose it is."""
    return present.version == details.version and present.sha256 == digest


def fetch_wheel(client: HubClient, details: EnvironmentDetails, note: Callable[[str], None]) -> Path:
    """Return the wheel of this version, from the cache when its bytes are right, else downloaded.

    An environment of which the hub gives no wheel is built from its source archive.

    Raises:
        PrimeError: the hub offers neither.
    """
    folder = prime_home() / "wheel_cache" / details.owner / details.name / details.version / "dist"
    location = locate_wheel(details)
    if location is not None:
        target = folder / location.filename
        if location.sha256 and target.is_file():
            if hashlib.sha256(target.read_bytes()).hexdigest() == location.sha256:
                return target
            target.unlink()
        return client.download(location.url, target, sha256=location.sha256)
    package_url = details.raw.get("tracked_package_url") or details.raw.get("package_url")
    if not package_url:
        raise PrimeError(f"the hub offers no way to install {details.owner}/{details.name} {details.version}")
    note(f"building {details.owner}/{details.name} from its source")
    with tempfile.TemporaryDirectory() as scratch:
        archive = client.download(package_url, Path(scratch) / "source.tar.gz")
        unpack(archive, Path(scratch) / "source")
        built = build_wheel(read_project(Path(scratch) / "source")).path
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / built.name
        target.write_bytes(built.read_bytes())
    return target


def _build_packages(project: EnvironmentProject) -> list[str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names = [str(canonicalize_name(Requirement(text).name)) for text in project.build_requires]
    return [*names, "editables"] if "hatchling" in names else names
