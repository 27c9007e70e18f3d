"""Routes that mark whole environments (PEP 792)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hub_server.access import Caller, PathEnvironment
from hub_server.registry import answers, status
from hub_server.registry.tables import Environment
from hub_server.services import HubServices
from prime_cli.hub.models import QuarantineRequest, StatusChange

router = APIRouter(prefix="/api/v1/environmentshub", tags=["registry"])


@router.put("/{owner}/{name}/project-status")
def mark_environment(
    body: StatusChange, environment: PathEnvironment, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Mark an environment active, archived or deprecated."""
    with services.database.write() as session:
        found = session.get_one(Environment, environment.id)
        status.mark(session, user, found, body.status, body.reason)
        return {"data": answers.project_status(found)}


@router.put("/{owner}/{name}/quarantine")
def quarantine_environment(
    owner: str, name: str, body: QuarantineRequest, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Take an environment out of everybody's reach: no file of it is offered or given out."""
    with services.database.write() as session:
        found = status.find_as_administrator(session, owner, name)
        status.quarantine(session, user, found, body.reason)
        return {"data": answers.project_status(found)}


@router.delete("/{owner}/{name}/quarantine")
def release_environment(owner: str, name: str, user: Caller, services: HubServices) -> dict[str, Any]:
    """End a quarantine."""
    with services.database.write() as session:
        found = status.find_as_administrator(session, owner, name)
        status.release_from_quarantine(session, user, found)
        return {"data": answers.project_status(found)}
