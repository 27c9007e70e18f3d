"""Routes about one environment: status, versions, details, source, download; and those that delete and yank."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from hub_server.access import Caller, PathEnvironment, Visitor
from hub_server.accounts import audit
from hub_server.accounts.tables import User
from hub_server.blob_response import blob_response
from hub_server.checks.answers import action_status, check_facts, check_summary
from hub_server.checks.service import latest_checks
from hub_server.errors import NotFound
from hub_server.registry import answers, forks, inspect, service
from hub_server.registry.downloads import begins_download
from hub_server.registry.status import check_is_offered
from hub_server.registry.tables import Environment, Release
from hub_server.services import HubServices, public_url
from prime_cli.hub.models import LookupRequest, ResolveRequest, YankRequest

router = APIRouter(prefix="/api/v1/environmentshub", tags=["registry"])


@router.post("/lookup")
def lookup_environment(body: LookupRequest, user: Visitor, services: HubServices) -> dict[str, Any]:
    """Say whether there is an environment of this id, or of this owner and name."""
    with services.database.read() as session:
        if body.id is not None:
            found = service.get_environment(session, user, body.id)
        else:
            found = service.find_environment(session, user, body.owner or "", body.name or "")
        return {"data": {"id": found.id, "name": found.name, "owner": {"name": found.owner.slug}}}


@router.post("/resolve")
def resolve_environment(body: ResolveRequest, user: Caller, services: HubServices) -> dict[str, Any]:
    """Get the caller's environment of this name, or make it."""
    with services.database.write() as session:
        found, created = service.resolve(session, user, body)
        owner = {"name": found.owner.slug}
        return {
            "data": {
                "id": found.id, "name": found.name, "owner": owner, "visibility": found.visibility, "created": created
            }
        }  # fmt: skip


@router.get("/{owner}/{name}/status")
def environment_status(environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """Say what an environment's newest version is."""
    with services.database.read() as session:
        latest = service.latest_releases(session, [environment]).get(environment.id)
        check = latest_checks(session, [latest.id]).get(latest.id) if latest else None
    return {
        "data": {
            "id": environment.id,
            "name": environment.name,
            "owner": {"name": environment.owner.slug},
            "description": environment.description,
            "visibility": environment.visibility,
            "latest_version": answers.release_summary(latest) if latest else None,
            "action": {"status": action_status(check), "job_id": check.id} if check else None,
            "check": check_facts(check),
        }
    }


@router.get("/{owner}/{name}/versions")
def list_versions(environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """List the published versions, newest first."""
    with services.database.read() as session:
        releases = service.releases_of(session, environment)
        checks = latest_checks(session, [release.id for release in releases])
        rows = [
            {**answers.version_row(release), "check": check_summary(checks.get(release.id))} for release in releases
        ]
    return {"data": {"versions": rows}}


@router.get("/{owner}/{name}/@{version}")
def version_details(
    version: str, environment: PathEnvironment, user: Visitor, request: Request, services: HubServices
) -> dict[str, Any]:
    """Say how to install or download a version: `latest`, a number, or a content hash (or 8 and more of it)."""
    with services.database.read() as session:
        release = service.find_release(session, environment, version)
        latest = service.latest_releases(session, [environment])[environment.id]
        details = answers.release_details(services, environment, release, latest, user, public_url(request))
        details["metadata"].update(forks.lineage(session, environment, user))
        details.update(answers.standing(session, environment, release, user))
        check = latest_checks(session, [release.id]).get(release.id)
    return {"data": {**details, "check": check_facts(check)}}


@router.get("/{owner}/{name}/@{version}/package")
def download_package(version: str, environment: PathEnvironment, request: Request, services: HubServices) -> Response:
    """Download the source archive of a version."""
    with services.database.read() as session:
        release = service.find_release(session, environment, version)
        source = next((file for file in release.files if file.kind == "source"), None)
    if source is None:
        raise NotFound(
            f"version {release.semantic_version} of {environment.name} was published as a wheel only: "
            "source archive not found"
        )
    if begins_download(request):
        services.downloads.note(services.database, source)
    check_is_offered(environment)
    return blob_response(
        services.blobs, source.sha256, request, media_type="application/gzip", filename=source.filename
    )


@router.get("/{owner}/{name}/@{version}/inspect")
def inspect_source(
    version: str,
    environment: PathEnvironment,
    services: HubServices,
    path: Annotated[str, Query(max_length=1000)] = "",
    max_bytes: Annotated[int, Query(ge=1, le=inspect.MAX_SHOWN_BYTES)] = 100_000,
) -> dict[str, Any]:
    """Show a folder or a file of a version's source, or of its wheel where there is no source."""
    check_is_offered(environment)
    with services.database.read() as session:
        release = service.find_release(session, environment, version)
        found, archive = inspect.look_into_release(services.blobs, services.sources, release, path, max_bytes)
    return {"data": {**found, "version_id": release.id, "archive": archive}}


@router.delete("/{owner}/{name}")
def delete_environment(environment: PathEnvironment, user: Caller, services: HubServices) -> dict[str, Any]:
    """Delete an environment with all its versions."""
    with services.database.write() as session:
        service.delete_environment(session, session.get_one(Environment, environment.id))
        _record(session, user, "environment.delete", environment)
    return {"success": True, "message": f"{environment.owner.slug}/{environment.name} deleted"}


@router.delete("/{owner}/{name}/@{version}")
def delete_version(version: str, environment: PathEnvironment, user: Caller, services: HubServices) -> dict[str, Any]:
    """Delete one version, named as in its details."""
    with services.database.write() as session:
        found = session.get_one(Environment, environment.id)
        release: Release = service.delete_release(session, found, version)
        _record(session, user, "version.delete", environment, release)
    return {"success": True, "message": f"version {release.semantic_version} of {environment.name} deleted"}


@router.put("/{owner}/{name}/@{version}/yank")
def yank_version(
    version: str, body: YankRequest, environment: PathEnvironment, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Take a version back: only installers that ask for exactly it still get it."""
    with services.database.write() as session:
        found = session.get_one(Environment, environment.id)
        release = service.yank_release(session, found, version, body.reason.strip())
        _record(session, user, "version.yank", environment, release)
        return {"data": answers.release_summary(release)}


@router.delete("/{owner}/{name}/@{version}/yank")
def unyank_version(version: str, environment: PathEnvironment, user: Caller, services: HubServices) -> dict[str, Any]:
    """Offer a yanked version again."""
    with services.database.write() as session:
        release = service.unyank_release(session, session.get_one(Environment, environment.id), version)
        _record(session, user, "version.unyank", environment, release)
        return {"data": answers.release_summary(release)}


def _record(
    session: Session, user: User, action: str, environment: Environment, release: Release | None = None
) -> None:
    version = f" {release.semantic_version}" if release is not None else ""
    name = f"{environment.owner.slug}/{environment.name}{version}"
    audit.record(session, user, action, name, owner_id=environment.owner_id)
