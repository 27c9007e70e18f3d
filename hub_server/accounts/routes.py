"""Routes of accounts: login challenge, whoami, users."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from hub_server.access import Caller, bearer_token
from hub_server.accounts import challenges, service
from hub_server.accounts.tables import User
from hub_server.errors import NotAuthenticated
from hub_server.services import HubServices
from prime_cli.hub.models import ChallengeApproval, ChallengeRequest, NewUser, SlugChange

router = APIRouter(prefix="/api/v1", tags=["accounts"])


@router.post("/auth_challenge/generate")
def generate_challenge(body: ChallengeRequest, request: Request, services: HubServices) -> dict[str, Any]:
    """Start a login: a person approves the challenge in a browser."""
    asked_from = request.client.host if request.client else ""
    with services.database.write() as session:
        new = challenges.create_challenge(session, body.encryption_public_key, asked_from=asked_from)
    return {"challenge": new.code, "status_auth_token": new.status_token}


@router.get("/auth_challenge/status")
def challenge_status(challenge: str, request: Request, services: HubServices) -> dict[str, Any]:
    """Ask after a login: null while pending, then the API key, encrypted to the client's public key."""
    token = bearer_token(request)
    if token is None:
        raise NotAuthenticated("send the status_auth_token as bearer token")
    with services.database.read() as session:
        return {"result": challenges.result_of(session, challenge, token)}


@router.post("/auth_challenge/approve")
def approve_challenge(body: ChallengeApproval, user: Caller, services: HubServices) -> dict[str, Any]:
    """Approve a login as the caller, without a browser: for scripts that hold an API key."""
    with services.database.write() as session:
        challenges.approve(session, body.challenge, user)
    return {"data": {"success": True, "message": f"approved as {user.slug}"}}


@router.get("/user/whoami")
def whoami(user: Caller) -> dict[str, Any]:
    """Say who the key belongs to."""
    return {"data": _shown(user)}


@router.patch("/user/slug")
def change_slug(body: SlugChange, user: Caller, services: HubServices) -> dict[str, Any]:
    """Give the caller another slug."""
    with services.database.write() as session:
        return {"data": _shown(service.change_slug(session, user.id, body.slug))}


@router.get("/user/teams")
def list_teams(_user: Caller) -> dict[str, Any]:
    """List the caller's teams. This hub has none."""
    return {"data": [], "total_count": 0}


@router.post("/users")
def add_user(body: NewUser, _user: Caller, services: HubServices) -> dict[str, Any]:
    """Add a user; the answer holds their first API key, which is shown only here."""
    with services.database.write() as session:
        added = service.create_user(session, slug=body.slug, name=body.name, email=body.email)
        key = service.mint_key(session, added, name="first key, made by an administrator")
        return {"data": {**_shown(added), "api_key": key}}


def _shown(user: User) -> dict[str, Any]:
    return {"id": user.id, "email": user.email, "name": user.name, "slug": user.slug, "is_admin": user.is_admin}
