"""How environments and versions look on the wire."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from packaging.utils import canonicalize_name
from sqlalchemy.orm import Session

from hub_server.access import INDEX_TOKEN_PURPOSE
from hub_server.accounts.tables import User
from hub_server.attestations.service import summaries as attestations_of
from hub_server.registry.abouts import dependency_warnings
from hub_server.registry.downloads import downloads_of
from hub_server.registry.stars import is_starred
from hub_server.registry.tables import Environment, Release, ReleaseAbout, ReleaseFile
from hub_server.services import Services
from prime_cli.hub.models import ProjectStatus, Visibility

INDEX_TOKEN_VALID_S = 3600


def environment_row(environment: Environment, latest: Release | None) -> dict[str, Any]:
    """Return an environment as a row of the list."""
    return {
        "id": environment.id,
        "name": environment.name,
        "owner": {"name": environment.owner.slug},
        "description": environment.description,
        "visibility": environment.visibility,
        **project_status(environment),
        "latest_version": latest.semantic_version if latest else "",
        "stars": environment.stars,
        "downloads": environment.downloads,
        "tags": [tag.tag for tag in environment.tags],
        "created_at": environment.created_at.isoformat(),
        "updated_at": environment.updated_at.isoformat(),
    }


def release_summary(release: Release) -> dict[str, Any]:
    """Return a version as other answers name it."""
    assert release.published_at is not None
    return {
        "semantic_version": release.semantic_version,
        "content_hash": release.content_hash,
        "created_at": release.published_at.isoformat(),
        "yanked": release.yanked_at is not None,
        "yanked_reason": release.yanked_reason,
    }


def version_row(release: Release) -> dict[str, Any]:
    """Return a version as a row of the list of versions: `sha256` is its content hash, `size` its number of files."""
    summary = release_summary(release)
    return {
        **summary,
        "version": release.semantic_version,
        "sha256": release.content_hash,
        "size": len(release.files),
        "files": [file_facts(file) for file in release.files],
    }


def file_facts(file: ReleaseFile) -> dict[str, Any]:
    """Return what a client can check a file by."""
    return {"filename": file.filename, "kind": file.kind, "sha256": file.sha256, "size": file.size}


def project_status(environment: Environment) -> dict[str, Any]:
    """Return how an environment is marked (PEP 792)."""
    return {"project_status": environment.project_status, "status_reason": environment.status_reason}


def release_details(
    services: Services, environment: Environment, release: Release, latest: Release, user: User | None, base: str
) -> dict[str, Any]:
    """Return all that a client needs to install or download a version.

    A private environment has no URL that works for everybody: its index URL carries a token of an hour's life.
    """
    owner, name, version = environment.owner.slug, environment.name, release.semantic_version
    wheel = next((file for file in release.files if file.kind == "wheel"), None)
    source = next((file for file in release.files if file.kind == "source"), None)
    index = f"{base}/index/{owner}/simple/" if wheel else None
    wheel_url = f"{base}/index/{owner}/files/{wheel.sha256}/{quote(wheel.filename)}" if wheel else None
    public = environment.visibility == Visibility.PUBLIC
    if environment.project_status == ProjectStatus.QUARANTINED:
        wheel = source = index = wheel_url = None
    return {
        "id": environment.id,
        "name": name,
        "owner": {"name": owner},
        "distribution": canonicalize_name(name),
        "visibility": environment.visibility,
        **project_status(environment),
        "version_id": release.id,
        **release_summary(release),
        "sha256": release.content_hash,
        "latest_version": release_summary(latest),
        "metadata": {**release.details, "description": release.details.get("description")},
        "runtime_hint": release.runtime_hint,
        "package_url": f"{base}/api/v1/environmentshub/{owner}/{name}/@{quote(version)}/package" if source else None,
        "package_sha256": source.sha256 if source else None,
        "simple_index_url": index if public else None,
        "install_index_url": index if public or index is None else _with_token(services, index, user),
        "wheel_url": wheel_url if public else None,
        "wheel_sha256": wheel.sha256 if wheel else None,
        "requires_python": wheel.requires_python if wheel else None,
    }


def standing(session: Session, environment: Environment, release: Release, user: User | None) -> dict[str, Any]:
    """Return what a version's details say beside how to get it: stars, downloads, and dependencies without an index."""
    about = session.get(ReleaseAbout, release.id)
    url_dependencies = about.url_dependencies if about else []
    return {
        "tags": [tag.tag for tag in session.get_one(Environment, environment.id).tags],
        "stars": environment.stars,
        "starred": is_starred(session, environment.id, user),
        "downloads": environment.downloads,
        "version_downloads": downloads_of(session, release),
        "url_dependencies": url_dependencies,
        "dependency_warnings": dependency_warnings(url_dependencies),
        "attestations": attestations_of(session, release),
    }


def _with_token(services: Services, url: str, user: User | None) -> str:
    """Put a short-lived token into the URL as its password, which installers hide in what they print.

    Whoever comes without an API key has no token, and the URL stays as it is.
    """
    if user is None or user.api_key is None:
        return url
    token = services.signer.sign(INDEX_TOKEN_PURPOSE, {"key": user.api_key.id}, valid_s=INDEX_TOKEN_VALID_S)
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"__token__:{token}@{parts.netloc}"))
