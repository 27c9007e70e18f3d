"""The table of attestations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from hub_server.database import Base, UtcDateTime, now


class FileAttestation(Base):
    """A verified attestation of a file, one of each type of predicate; `body` is the object that PEP 740 describes."""

    __tablename__ = "file_attestations"

    file_id: Mapped[str] = mapped_column(ForeignKey("release_files.id", ondelete="CASCADE"), primary_key=True)
    predicate_type: Mapped[str] = mapped_column(String(100), primary_key=True)
    position: Mapped[int] = mapped_column(Integer)
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    publisher: Mapped[dict[str, Any]] = mapped_column(JSON)
    verified_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
