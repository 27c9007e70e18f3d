"""Tables of secrets and variables. Every value is sealed (see vault.py); the other columns are readable."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class Secret(Base):
    """A secret of an owner, to be linked to environments, or one of a single environment: exactly one of the two."""

    __tablename__ = "secrets"
    __table_args__ = (
        UniqueConstraint("owner_id", "name", name="uq_secrets_owner_name"),
        UniqueConstraint("environment_id", "name", name="uq_secrets_environment_name"),
        CheckConstraint("(owner_id IS NULL) <> (environment_id IS NULL)", name="ck_secrets_one_place"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str | None] = mapped_column(ForeignKey("owners.id"))
    environment_id: Mapped[str | None] = mapped_column(ForeignKey("environments.id"))
    name: Mapped[str] = mapped_column(String(100))
    description: Mapped[str] = mapped_column(Text, default="")
    is_file: Mapped[bool] = mapped_column(Boolean, default=False)  # the value is the content of a file in base64
    sealed: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    @property
    def place(self) -> str:
        """What the value is sealed for: a row that is given to somebody else does not open any more."""
        return f"secret {self.id} of {self.owner_id or self.environment_id}"


class SecretLink(Base):
    """A secret of an owner that the jobs of one of their environments get."""

    __tablename__ = "secret_links"
    __table_args__ = (UniqueConstraint("environment_id", "secret_id", name="uq_secret_links_pair"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"))
    secret_id: Mapped[str] = mapped_column(ForeignKey("secrets.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class Variable(Base):
    """A value that the jobs of an environment get and that its writers may read again."""

    __tablename__ = "environment_variables"
    __table_args__ = (UniqueConstraint("environment_id", "name", name="uq_environment_variables_name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"))
    name: Mapped[str] = mapped_column(String(100))
    description: Mapped[str] = mapped_column(Text, default="")
    sealed: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)

    @property
    def place(self) -> str:
        """What the value is sealed for."""
        return f"variable {self.id} of {self.environment_id}"


class SecretsKey(Base):
    """Which key all values are sealed with: one row, a fingerprint that tells nothing about the key."""

    __tablename__ = "secrets_key"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    fingerprint: Mapped[str] = mapped_column(String(32))
    since: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
