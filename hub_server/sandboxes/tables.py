"""Tables of sandboxes and of the nodes that run them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class SandboxStatus(StrEnum):
    """How a sandbox stands, by the published names. This hub never sets PROVISIONING and PAUSED."""

    PENDING = "PENDING"
    PROVISIONING = "PROVISIONING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    ERROR = "ERROR"
    TERMINATED = "TERMINATED"
    TIMEOUT = "TIMEOUT"


ACTIVE = (SandboxStatus.PENDING, SandboxStatus.PROVISIONING, SandboxStatus.RUNNING, SandboxStatus.PAUSED)


class SandboxNode(Base):
    """A machine that runs sandboxes. Its row stays when it leaves: sandboxes that ended there name it."""

    __tablename__ = "sandbox_nodes"

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    url: Mapped[str] = mapped_column(String(500))  # of its gateway and of its control API
    sealed: Mapped[bytes] = mapped_column(LargeBinary)
    level: Mapped[str] = mapped_column(String(20))
    backend: Mapped[str] = mapped_column(String(50))
    arch: Mapped[str] = mapped_column(String(20))
    version: Mapped[str] = mapped_column(String(50))
    images: Mapped[list[str]] = mapped_column(JSON, default=list)
    capacity: Mapped[int] = mapped_column(Integer)
    is_draining: Mapped[bool] = mapped_column(Boolean, default=False)
    registered_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    left_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @property
    def place(self) -> str:
        """What the secret is sealed for."""
        return f"sandbox node {self.id}"


class Sandbox(Base):
    """One sandbox, from its creation on; the row stays when it ends. Values of its secrets are never kept."""

    __tablename__ = "sandboxes"
    __table_args__ = (
        UniqueConstraint("owner_id", "idempotency_key", name="uq_sandboxes_owner_key"),
        Index("ix_sandboxes_owner_created", "owner_id", "created_at"),
        Index("ix_sandboxes_node_status", "node_id", "status"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    user_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))  # who made it, for a team too
    node_id: Mapped[str] = mapped_column(ForeignKey("sandbox_nodes.id"))
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(200))
    image: Mapped[str] = mapped_column(String(500))
    start_command: Mapped[Any] = mapped_column(JSON, nullable=True)  # text for a shell, {executable, args}, or nothing
    cpu_cores: Mapped[float] = mapped_column(Float)
    memory_gb: Mapped[float] = mapped_column(Float)
    disk_size_gb: Mapped[float] = mapped_column(Float)
    is_vm: Mapped[bool] = mapped_column(Boolean)  # what the client asked for, which tells it how to talk to the gateway
    timeout_minutes: Mapped[int] = mapped_column(Integer)
    idle_timeout_minutes: Mapped[int | None] = mapped_column(Integer)
    environment_vars: Mapped[dict[str, str] | None] = mapped_column(JSON)
    secret_names: Mapped[list[str]] = mapped_column(JSON, default=list)
    advanced_configs: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    allowlist: Mapped[list[str] | None] = mapped_column(JSON)
    denylist: Mapped[list[str] | None] = mapped_column(JSON)
    egress_generation: Mapped[int] = mapped_column(Integer, default=1)
    exposures: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    enforcement: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    status: Mapped[str] = mapped_column(String(20))
    termination_reason: Mapped[str | None] = mapped_column(Text)
    error_type: Mapped[str | None] = mapped_column(String(50))
    error_message: Mapped[str | None] = mapped_column(Text)
    exit_code: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    terminated_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    labels: Mapped[list[SandboxLabel]] = relationship(
        lazy="selectin", cascade="all, delete-orphan", order_by="SandboxLabel.position"
    )

    @property
    def team_id(self) -> str | None:
        """The team that it belongs to; None when it is its maker's own."""
        return self.owner_id if self.owner_id != self.user_id else None

    @property
    def is_active(self) -> bool:
        """Whether it runs or is about to."""
        return self.status in ACTIVE


class SandboxLabel(Base):
    """A label of a sandbox, to find it by."""

    __tablename__ = "sandbox_labels"
    __table_args__ = (Index("ix_sandbox_labels_label", "label"),)

    sandbox_id: Mapped[str] = mapped_column(ForeignKey("sandboxes.id"), primary_key=True)
    label: Mapped[str] = mapped_column(String(200), primary_key=True)
    position: Mapped[int] = mapped_column(Integer)
