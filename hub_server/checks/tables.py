"""The table of checks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id
from hub_server.registry.tables import Release


class CheckStatus(StrEnum):
    """How far a check is. `skipped`: it cannot be made of this version; `error`: the hub did not get it done."""

    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"


class Check(Base):
    """One check of one version. The newest of a version counts; a few older ones are kept to look back at."""

    __tablename__ = "checks"
    __table_args__ = (
        Index("ix_checks_release_queued", "release_id", "queued_at"),
        Index("ix_checks_status_queued", "status", "queued_at"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    release_id: Mapped[str] = mapped_column(ForeignKey("releases.id"))
    trigger: Mapped[str] = mapped_column(String(20))  # publish, retry or operator
    status: Mapped[str] = mapped_column(String(10), default=CheckStatus.QUEUED)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    log: Mapped[str] = mapped_column(Text, default="", deferred=True)
    runner: Mapped[str | None] = mapped_column(String(100))
    queued_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    renewed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # its runner lived then
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    release: Mapped[Release] = relationship()
