"""Tables of accounts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class User(Base):
    """A person, or a machine, with a slug under which it publishes."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(30), unique=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(320), default="")
    is_admin: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class ApiKey(Base):
    """An API key: only its hash is kept, and its first characters to recognise it by."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(20))
    key_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
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
    approved_by: Mapped[str | None] = mapped_column(ForeignKey("users.id"))
    encrypted_key: Mapped[str | None] = mapped_column(Text)


class BrowserSession(Base):
    """A browser in which somebody has proved who they are; only the hash of its cookie is kept."""

    __tablename__ = "browser_sessions"

    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)
