"""Tables of accounts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Boolean, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class Owner(Base):
    """Whoever things on the hub belong to, under a slug: a user or a team."""

    __tablename__ = "owners"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_abstract": True}  # noqa: RUF012  SQLAlchemy reads it

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    kind: Mapped[str] = mapped_column(String(10))
    slug: Mapped[str] = mapped_column(String(30), unique=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(320), default="")
    is_admin: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class User(Owner):
    """A person, or a machine, with a slug under which it publishes."""

    __mapper_args__ = {"polymorphic_identity": "user"}  # noqa: RUF012
    __allow_unmapped__ = True

    api_key: ApiKey | None = None  # no column: the key by which the user came in the present request


class Team(Owner):
    """Users who own things together."""

    __mapper_args__ = {"polymorphic_identity": "team"}  # noqa: RUF012


class FormerSlug(Base):
    """A slug that an owner gave up. Nobody else gets it: clients may still ask for what was published under it."""

    __tablename__ = "former_slugs"

    slug: Mapped[str] = mapped_column(String(30), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))


class Membership(Base):
    """A user in a team."""

    __tablename__ = "memberships"

    team_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(10))
    joined_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True, foreign_keys=user_id)
    team: Mapped[Team] = relationship(lazy="joined", innerjoin=True, foreign_keys=team_id)


class AuditEvent(Base):
    """Who changed what, when and from where. Never changed, never removed; it holds no secret."""

    __tablename__ = "audit_events"
    __table_args__ = (Index("ix_audit_events_owner_at", "owner_id", "at"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))  # whose things it is about
    actor_id: Mapped[str | None] = mapped_column(ForeignKey("owners.id"))
    action: Mapped[str] = mapped_column(String(60))
    subject: Mapped[str] = mapped_column(String(300), default="")
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    key_prefix: Mapped[str] = mapped_column(String(20), default="")  # of the key that was used, or signed in with
    address: Mapped[str] = mapped_column(String(100), default="")

    actor: Mapped[User | None] = relationship(lazy="joined", foreign_keys=actor_id)


class ApiKey(Base):
    """An API key: only its hash is kept, and its first characters to recognise it by.

    `scopes` maps areas to `read` or `write`; None allows everything that its user may do.
    """

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(20))
    key_hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)


class LoginChallenge(Base):
    """A client that waits for somebody to approve it in a browser."""

    __tablename__ = "login_challenges"

    code: Mapped[str] = mapped_column(String(32), primary_key=True)
    status_token_hash: Mapped[str] = mapped_column(String(64))
    public_key_pem: Mapped[str] = mapped_column(Text)
    asked_from: Mapped[str] = mapped_column(String(100), default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    approved_by: Mapped[str | None] = mapped_column(ForeignKey("owners.id"))
    encrypted_key: Mapped[str | None] = mapped_column(Text)


class BrowserSession(Base):
    """A browser in which somebody has proved who they are; only the hash of its cookie is kept."""

    __tablename__ = "browser_sessions"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))  # which the session ends with
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)
    key: Mapped[ApiKey] = relationship(lazy="joined", innerjoin=True)
