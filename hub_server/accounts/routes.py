"""Routes of accounts: login challenge, whoami, users, audit log."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from hub_server.access import Caller, bearer_token
from hub_server.accounts import audit, challenges, service
from hub_server.accounts.keys import mint_key, scope_of
from hub_server.accounts.tables import User
from hub_server.errors import NotAuthenticated
from hub_server.paging import Limit, Offset
from hub_server.services import HubServices
from prime_cli.hub.models import ChallengeApproval, ChallengeRequest, Feedback, NewUser, SlugChange

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
    """Say who the key belongs to, and what it allows."""
    return {"data": {**_shown(user), "scope": scope_of(user.api_key)}}


@router.patch("/user/slug")
def change_slug(body: SlugChange, user: Caller, services: HubServices) -> dict[str, Any]:
    """Give the caller another slug."""
    with services.database.write() as session:
        return {"data": _shown(service.change_slug(session, user.id, body.slug))}


@router.get("/user/audit")
def list_audit_events(user: Caller, services: HubServices, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """List what was done with the caller's account and things, newest first."""
    with services.database.read() as session:
        events, total = audit.events_of(session, user.id, limit=limit, offset=offset)
        return {"data": [audit.event_row(event) for event in events], "total_count": total}


@router.post("/users")
def add_user(body: NewUser, user: Caller, services: HubServices) -> dict[str, Any]:
    """Add a user; the answer holds their first API key, which is shown only here."""
    with services.database.write() as session:
        added = service.create_user(session, slug=body.slug, name=body.name, email=body.email)
        key = mint_key(session, added, name="first key, made by an administrator")
        audit.record(session, user, "user.create", added.slug, owner_id=added.id)
        return {"data": {**_shown(added), "api_key": key}}


@router.post("/feedback")
def send_feedback(body: Feedback, user: Caller, services: HubServices) -> dict[str, Any]:
    """Tell the operator something; it is kept in the audit log of the caller."""
    details = body.model_dump(exclude_none=True)
    with services.database.write() as session:
        audit.record(session, user, "feedback", body.category, **details)
    return {"success": True, "message": "kept for the operator of this hub"}


def _shown(user: User) -> dict[str, Any]:
    return {"id": user.id, "email": user.email, "name": user.name, "slug": user.slug, "is_admin": user.is_admin}
