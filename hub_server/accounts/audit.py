"""The audit log: every change of what somebody owns, written in the transaction of the change itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Receive, Scope, Send

from hub_server.accounts.tables import AuditEvent, User
from hub_server.database import table_of

_address: ContextVar[str] = ContextVar("address", default="")
_MAX_SUBJECT = 300
_ADD = table_of(AuditEvent).insert()


class NotedAddress:
    """Remembers where a request comes from while it is answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope.get("client"):
            _address.set(str(scope["client"][0]))
        await self._app(scope, receive, send)


def record(
    session: Session, actor: User | None, action: str, subject: str = "", *, owner_id: str | None = None, **details: Any
) -> None:
    """Note that `actor` did `action` to `subject`; `owner_id` is whose things it is about, the actor's when left out.

    Actions are named `thing.verb`: `key.create`, `environment.delete`. Details must be JSON and hold no secret.
    """
    about = owner_id or (actor.id if actor is not None else None)
    assert about is not None, "an event is about somebody"
    event = {
        "owner_id": about,
        "actor_id": actor.id if actor is not None else None,
        "action": action,
        "subject": subject[:_MAX_SUBJECT],
        "details": details,
        "key_prefix": actor.api_key.prefix if actor is not None and actor.api_key is not None else "",
        "address": _address.get()[:100],
    }
    session.connection().execute(_ADD, event)


def events_of(session: Session, owner_id: str, *, limit: int, offset: int = 0) -> tuple[Sequence[AuditEvent], int]:
    """Return one page of what was done to the things of an owner, newest first, and how many events there are."""
    about = AuditEvent.owner_id == owner_id
    total = session.scalar(select(func.count()).select_from(AuditEvent).where(about)) or 0
    newest = select(AuditEvent).where(about).order_by(AuditEvent.at.desc(), AuditEvent.id)
    return session.scalars(newest.limit(limit).offset(offset)).all(), total


def event_row(event: AuditEvent) -> dict[str, Any]:
    """Return an event as it looks on the wire."""
    return {
        "id": event.id,
        "at": event.at.isoformat(),
        "actor": event.actor.slug if event.actor is not None else None,
        "action": event.action,
        "subject": event.subject,
        "details": event.details,
        "key_prefix": event.key_prefix,
        "address": event.address,
    }
