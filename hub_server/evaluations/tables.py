"""Tables of evaluations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from hub_server.accounts.tables import Owner
from hub_server.database import Base, UtcDateTime, now
from hub_server.ids import new_id


class Evaluation(Base):
    """One evaluation. The totals follow its samples in the same transaction, so that lists need not count them."""

    __tablename__ = "evaluations"
    __table_args__ = (Index("ix_evaluations_owner_created", "owner_id", "created_at"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    name: Mapped[str] = mapped_column(String(300))
    status: Mapped[str] = mapped_column(String(10))
    is_public: Mapped[bool] = mapped_column(Boolean, default=False)
    suite_id: Mapped[str | None] = mapped_column(String(100), index=True)
    run_id: Mapped[str | None] = mapped_column(String(100))
    model_name: Mapped[str | None] = mapped_column(String(300))
    dataset: Mapped[str | None] = mapped_column(String(300))
    framework: Mapped[str | None] = mapped_column(String(100))
    task_type: Mapped[str | None] = mapped_column(String(100))
    description: Mapped[str | None] = mapped_column(Text)
    tags: Mapped[list[str]] = mapped_column(JSON, default=list)
    details: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # `metadata` on the wire
    metrics: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    error_message: Mapped[str | None] = mapped_column(Text)
    total_samples: Mapped[int] = mapped_column(Integer, default=0)
    scored_samples: Mapped[int] = mapped_column(Integer, default=0)
    reward_sum: Mapped[float] = mapped_column(Float, default=0.0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=now)
    finalized_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    owner: Mapped[Owner] = relationship(lazy="joined", innerjoin=True)
    environments: Mapped[list[EvaluatedEnvironment]] = relationship(
        lazy="selectin", cascade="all, delete-orphan", order_by="EvaluatedEnvironment.position"
    )

    @property
    def avg_score(self) -> float | None:
        """The mean reward of the samples that were scored; None while there is none."""
        return self.reward_sum / self.scored_samples if self.scored_samples else None


class EvaluatedEnvironment(Base):
    """An environment that an evaluation ran on, and the version that its client named."""

    __tablename__ = "evaluated_environments"

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    environment_id: Mapped[str] = mapped_column(ForeignKey("environments.id"), index=True)
    version_id: Mapped[str | None] = mapped_column(String(100))


class SampleBatch(Base):
    """A blob with samples, each compressed by itself, one after the other."""

    __tablename__ = "evaluation_batches"
    __table_args__ = (UniqueConstraint("evaluation_id", "sha256", name="uq_evaluation_batches_blob"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id"))
    sha256: Mapped[str] = mapped_column(String(64), index=True)


class EvaluationSample(Base):
    """Where one sample lies, who it is, and what a list of samples shows of it."""

    __tablename__ = "evaluation_samples"
    __table_args__ = (Index("ix_evaluation_samples_order", "evaluation_id", "sort_key", "identity"),)

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id"), primary_key=True)
    identity: Mapped[str] = mapped_column(String(32), primary_key=True)
    sort_key: Mapped[str] = mapped_column(String(40))
    content_key: Mapped[str] = mapped_column(String(32))
    example_id: Mapped[str] = mapped_column(String(100))
    rollout_number: Mapped[int | None] = mapped_column(BigInteger)
    reward: Mapped[float | None] = mapped_column(Float)
    failed: Mapped[bool] = mapped_column(Boolean)
    batch_id: Mapped[str] = mapped_column(ForeignKey("evaluation_batches.id"))
    offset: Mapped[int] = mapped_column(BigInteger)
    length: Mapped[int] = mapped_column(Integer)
