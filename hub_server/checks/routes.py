"""Routes of checks: older clients list, read and repeat them as actions; the badge is a picture for READMEs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from hub_server.access import Caller, PathEnvironment
from hub_server.accounts import audit
from hub_server.checks import answers, service
from hub_server.checks.badge import draw_badge
from hub_server.registry.tables import Environment
from hub_server.services import HubServices
from prime_cli.hub.models import CheckRetry

router = APIRouter(tags=["checks"])
_API = "/api/v1/environmentshub/{owner}/{name}"


@router.get(_API + "/actions")
def list_actions(
    environment: PathEnvironment,
    services: HubServices,
    version_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> dict[str, Any]:
    """List the checks of an environment, newest first."""
    with services.database.read() as session:
        page, total = service.list_checks(session, environment, version_id, limit=limit, offset=offset)
        return {"data": {"actions": [answers.action_row(check) for check in page], "total": total}}


@router.get(_API + "/actions/{action_id}/logs")
def action_logs(
    action_id: str,
    environment: PathEnvironment,
    services: HubServices,
    tail_lines: Annotated[int, Query(ge=1, le=100_000)] = 1000,
) -> dict[str, Any]:
    """Read the log of a check."""
    with services.database.read() as session:
        check = service.find_check(session, environment, action_id)
        return {"data": {"logs": answers.log_text(check, tail_lines)}}


@router.post(_API + "/actions/retry")
def retry_action(
    environment: PathEnvironment, user: Caller, services: HubServices, body: CheckRetry | None = None
) -> dict[str, Any]:
    """Check a version again: that of a check by its id, else the newest."""
    with services.database.write() as session:
        found = session.get_one(Environment, environment.id)
        check = service.retry_check(session, found, body.action_id if body else None)
        version = check.release.semantic_version
        name = f"{found.owner.slug}/{found.name} {version}"
        audit.record(session, user, "check.retry", name, owner_id=found.owner_id)
    message = f"version {version} of {environment.name} will be checked"
    return {"data": {"success": True, "job_id": check.id, "version_id": check.release_id, "message": message}}


@router.get("/environments/{owner}/{name}/badge.svg", include_in_schema=False)
def badge(environment: PathEnvironment, services: HubServices) -> Response:
    """Draw the badge of the newest version."""
    with services.database.read() as session:
        latest = environment.latest_release_id
        checks = service.latest_checks(session, [latest] if latest else [])
        drawn = draw_badge("check", answers.badge_of(checks.get(latest or "")))
    headers = {
        "Cache-Control": "max-age=60",
        "Content-Security-Policy": "default-src 'none'",
    }
    return Response(drawn, media_type="image/svg+xml", headers=headers)
