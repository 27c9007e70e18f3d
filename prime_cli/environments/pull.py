"""Fetches the source of a published environment into the workspace."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import directory_written_aside
from prime_cli.environments.archive import unpack
from prime_cli.environments.hub_catalog import fetch_details
from prime_cli.environments.metadata import write_metadata
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.workspace import ENVIRONMENTS

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient


@dataclass(frozen=True)
class Pulled:
    """The source of a version, and the folder that it was written to."""

    environment: str
    version: str
    path: Path


def pull_environment(client: HubClient, identity: EnvironmentId, target: Path | None) -> Pulled:
    """Download and unpack a version's source, wholly or not at all.

    Without `target` it goes to `environments/<module>` where there is such a folder, else `./<module>`; a number is
    added when that is taken.

    Raises:
        PrimeError: it was published without source, or `target` is there already.
    """
    details = fetch_details(client, identity)
    url = details.raw.get("tracked_package_url") or details.raw.get("package_url")
    if not url:
        raise PrimeError(
            f"{details.owner}/{details.name} {details.version} was published without its source",
            hint=f"`prime env install {details.owner}/{details.name}` installs its wheel",
        )
    folder = target or _free_folder(identity.module)
    if folder.exists():
        raise PrimeError(f"{folder} is there already", hint="choose another place by --target")
    with tempfile.TemporaryDirectory() as scratch, directory_written_aside(folder) as aside:
        archive = client.download(url, Path(scratch) / "source.tar.gz", sha256=details.raw.get("package_sha256"))
        unpack(archive, aside)
        values = {
            "environment_id": details.raw.get("id"),
            "owner": details.owner,
            "name": details.name,
            "version": details.version,
        }
        write_metadata(aside, values, event="pulled_at")
    return Pulled(f"{details.owner}/{details.name}", details.version, folder)


def _free_folder(module: str) -> Path:
    base = ENVIRONMENTS if ENVIRONMENTS.is_dir() else Path()
    candidate, number = base / module, 0
    while candidate.exists():
        number += 1
        candidate = base / f"{module}-{number}"
    return candidate
