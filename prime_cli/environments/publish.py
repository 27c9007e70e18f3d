"""Publishes an environment: wheel and source go to the hub, which from then on never changes that version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from prime_cli.core.errors import HubError, PrimeError
from prime_cli.environments.archive import content_hash, pack, source_files
from prime_cli.environments.hub_catalog import fetch_details
from prime_cli.environments.metadata import write_metadata
from prime_cli.environments.project import EnvironmentProject, read_project
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.wheel_facts import WheelFacts

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

TransferProgress = Callable[[str, int, int], None]
"""Called with a file's name, its bytes sent, and its bytes in all."""

_CONFLICT = 409


@dataclass(frozen=True)
class Destination:
    """Under whom an environment is published; None leaves it to the hub. `visibility`: PUBLIC or PRIVATE.

    `runtime`: VERIFIERS_V0 or VERIFIERS_V1; None reads it in the wheel.
    """

    owner: str | None = None
    team: str | None = None
    visibility: str | None = None
    runtime: str | None = None


@dataclass(frozen=True)
class Published:
    """A version on the hub. `already` says that the same contents were there before."""

    owner: str
    name: str
    version: str
    content_hash: str
    url: str
    already: bool


def project_beside(wheel: WheelFacts) -> EnvironmentProject | None:
    """Return the project that a wheel in its `dist` folder was built from, or None when it lies alone.

    Raises:
        PrimeError: the project has moved on to another version.
    """
    folder = wheel.path.resolve().parent.parent
    if not (folder / "pyproject.toml").is_file():
        return None
    project = read_project(folder)
    if project.distribution != wheel.name:
        return None
    if project.version is not None and Version(project.version) != Version(wheel.version):
        raise PrimeError(
            f"{wheel.path.name} is not of version {project.version}, which the project beside it has",
            hint="build it again with `prime env build`, or move the wheel elsewhere to publish it alone",
        )
    return project


def publish(
    client: HubClient,
    wheel: WheelFacts,
    project: EnvironmentProject | None,
    destination: Destination,
    progress: TransferProgress,
) -> Published:
    """Upload the wheel, then the source archive of `project` when there is one; note where in `.prime`.

    Raises:
        HubError: the hub refused: not the owner, or the version exists with other contents.
    """
    files = source_files(project.folder) if project else []
    digest = content_hash(project.folder, files) if project else wheel.sha256
    target = _resolve(client, wheel.name, destination)
    owner, name = str(target["owner"]["name"]), str(target.get("name") or wheel.name)
    url = f"{client.settings.frontend_url}/dashboard/environments/{owner}/{name}"
    already = not target["created"] and _is_published(client, owner, name, wheel.version, digest)
    result = Published(owner, name, wheel.version, digest, url, already)
    if not already:
        try:
            _push(client, str(target["id"]), wheel, project, files, digest, destination.runtime, progress)
        except HubError as error:
            if error.status == _CONFLICT:
                hint = "`prime env upload --auto-bump` publishes it as the next version"
                raise HubError(error.message, hint, error.status) from None
            raise
    if project is not None:
        values = {"environment_id": target["id"], "owner": owner, "name": name, "version": wheel.version}
        write_metadata(project.folder, {**values, "wheel_sha256": wheel.sha256}, event="pushed_at")
    return result


def _resolve(client: HubClient, name: str, destination: Destination) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name}
    if destination.visibility:
        body["visibility"] = destination.visibility
    if destination.team:
        body["team_slug"] = destination.team
    elif destination.owner:
        body["owner_slug"] = destination.owner
    elif client.settings.team_id:
        body["team_id"] = client.settings.team_id
    data: dict[str, Any] = client.post("environmentshub/resolve", body)["data"]
    return data


def _is_published(client: HubClient, owner: str, name: str, version: str, digest: str) -> bool:
    try:
        details = fetch_details(client, EnvironmentId(owner, name, version))
    except HubError as error:
        if error.status is not None and error.status < 500:
            return False
        raise
    return details.content_hash == digest and details.version == version


def _push(
    client: HubClient,
    environment_id: str,
    wheel: WheelFacts,
    project: EnvironmentProject | None,
    files: list[Any],
    digest: str,
    runtime: str | None,
    progress: TransferProgress,
) -> None:
    tags = list(project.keywords) if project else wheel.keywords
    common: dict[str, Any] = {"content_hash": digest, "semantic_version": wheel.version}
    if hint := runtime or runtime_hint(wheel):
        common["runtime_hint"] = hint
    base = f"environmentshub/{environment_id}"
    announced = client.post(
        f"{base}/wheels",
        {
            **common,
            "filename": wheel.path.name,
            "sha256": wheel.sha256,
            "size": wheel.size_bytes,
            "metadata": wheel.wire_metadata(wheel.path.name, tags),
            "wheel_only": project is None,
        },
    )["data"]
    if announced["upload_url"]:
        _send(client, announced["upload_url"], wheel.path, wheel.path.name, progress)
        client.post(f"{base}/wheels/{announced['wheel_id']}/finalize")
    if project is None:
        return
    archive = pack(project.folder, files)
    stem = f"{wheel.name}-{wheel.version}"
    version = client.post(
        f"{base}/versions",
        {
            **common,
            "filename": f"{stem}-{digest[:8]}.tar.gz",
            "sha256": hashlib.sha256(archive).hexdigest(),
            "metadata": wheel.wire_metadata(f"{stem}.tar.gz", tags),
        },
    )["data"]
    _send(client, version["upload_url"], archive, f"{stem}.tar.gz", progress)
    client.post(f"{base}/versions/{version['version_id']}/finalize")


def _send(client: HubClient, url: str, data: bytes | Path, name: str, progress: TransferProgress) -> None:
    client.put_bytes(url, data, lambda done, total: progress(name, done, total))


def runtime_hint(wheel: WheelFacts) -> str | None:
    """Say which generation of the library the environment is written for, from its lower bound; None without one."""
    for text in wheel.metadata.get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(str(text))
        except InvalidRequirement:
            continue
        if requirement.name.lower() != "verifiers" or requirement.url:
            continue
        bounds = [part for part in requirement.specifier if part.operator in (">=", ">", "==", "~=")]
        if not bounds:
            return None
        newest = max(Version(part.version.removesuffix(".*")) for part in bounds)
        # The classic interface lived on beside the new one until 0.3.2, so an upper bound below that says classic.
        capped = any(
            part.operator in ("<", "<=") and Version(part.version) <= Version("0.3.2") for part in requirement.specifier
        )
        return "VERIFIERS_V1" if newest >= Version("0.2.0") and not capped else "VERIFIERS_V0"
    return None
