"""Routes by which others take part in an environment: stars and forks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hub_server.access import Caller, PathEnvironment
from hub_server.registry import forks, stars
from hub_server.registry.tables import Environment
from hub_server.services import HubServices
from prime_cli.hub.models import ForkRequest

router = APIRouter(prefix="/api/v1/environmentshub", tags=["registry"])


@router.put("/{owner}/{name}/star")
def star_environment(user: Caller, environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """Star an environment; a second time changes nothing."""
    with services.database.write() as session:
        return {"data": {"starred": True, "stars": stars.star(session, environment.id, user)}}


@router.delete("/{owner}/{name}/star")
def unstar_environment(user: Caller, environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """Take a star back; a second time changes nothing."""
    with services.database.write() as session:
        return {"data": {"starred": False, "stars": stars.unstar(session, environment.id, user)}}


@router.post("/{owner}/{name}/fork")
def fork_environment(
    user: Caller, environment: PathEnvironment, services: HubServices, body: ForkRequest | None = None
) -> dict[str, Any]:
    """Copy the latest version to the caller, or to a team, as the beginning of an environment of their own."""
    with services.database.write() as session:
        source = session.get_one(Environment, environment.id)
        release = forks.fork(session, user, source, body or ForkRequest())
        target = release.environment
        owner = target.owner.slug
        return {
            "data": {
                "success": True,
                "message": f"{source.owner.slug}/{source.name} {release.semantic_version} forked to {owner}",
                "environment_id": target.id,
                "version_id": release.id,
                "name": target.name,
                "owner": owner,
                "slug": f"{owner}/{target.name}",
            }
        }
