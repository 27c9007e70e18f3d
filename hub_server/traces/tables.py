"""Tables of traces. The documents lie in blobs, each compressed by itself; rows hold where, and what lists show."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class TraceUpload(Base):
    """One request of lines, known to its owner by the digest of its bytes."""

    __tablename__ = "trace_uploads"
    __table_args__ = (UniqueConstraint("owner_id", "digest", name="uq_trace_uploads_digest"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    digest: Mapped[str] = mapped_column(String(64))
    line_format: Mapped[str] = mapped_column(String(10))
    schema_version: Mapped[int] = mapped_column(Integer)
    context: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    uploaded_by: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    blob_sha256: Mapped[str] = mapped_column(String(64), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)


class Episode(Base):
    """The envelope of an episode; its traces have rows of their own."""

    __tablename__ = "trace_episodes"
    __table_args__ = (Index("ix_trace_episodes_created", "owner_id", "created_at", "episode_id"),)

    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    episode_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    upload_key: Mapped[str] = mapped_column(ForeignKey("trace_uploads.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    run_id: Mapped[str | None] = mapped_column(String(200), index=True)
    environment_id: Mapped[str | None] = mapped_column(String(300))
    outcome: Mapped[str | None] = mapped_column(String(100))
    has_error: Mapped[bool] = mapped_column(Boolean)
    error_type: Mapped[str | None] = mapped_column(String(200))
    error_message: Mapped[str | None] = mapped_column(Text)
    offset: Mapped[int] = mapped_column(BigInteger)
    length: Mapped[int] = mapped_column(Integer)

    upload: Mapped[TraceUpload] = relationship(lazy="joined", innerjoin=True)


class Trace(Base):
    """One trace as it came last; a later upload of the same id takes the place of the former."""

    __tablename__ = "traces"
    __table_args__ = (
        Index("ix_traces_created", "owner_id", "created_at", "trace_id"),
        Index("ix_traces_run", "owner_id", "run_id", "run_step"),
        Index("ix_traces_episode", "owner_id", "episode_id"),
    )

    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), primary_key=True)
    trace_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    upload_key: Mapped[str] = mapped_column(ForeignKey("trace_uploads.id"), index=True)
    episode_id: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    run_id: Mapped[str | None] = mapped_column(String(200))
    run_type: Mapped[str | None] = mapped_column(String(20))
    run_step: Mapped[int | None] = mapped_column(BigInteger)
    environment_id: Mapped[str | None] = mapped_column(String(300))
    model_provider: Mapped[str | None] = mapped_column(String(300))
    model_id: Mapped[str | None] = mapped_column(String(300))
    task_id: Mapped[str | None] = mapped_column(String(300))
    agent_name: Mapped[str | None] = mapped_column(String(200))
    reward: Mapped[float | None] = mapped_column(Float)
    outcome: Mapped[str | None] = mapped_column(String(100))
    has_error: Mapped[bool] = mapped_column(Boolean)
    is_truncated: Mapped[bool] = mapped_column(Boolean)
    duration_ms: Mapped[int] = mapped_column(BigInteger)
    total_tokens: Mapped[int] = mapped_column(BigInteger)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    offset: Mapped[int] = mapped_column(BigInteger)
    length: Mapped[int] = mapped_column(Integer)

    upload: Mapped[TraceUpload] = relationship(lazy="joined", innerjoin=True)
