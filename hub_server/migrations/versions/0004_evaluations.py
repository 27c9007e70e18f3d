"""Evaluations and their samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "evaluations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=300), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("suite_id", sa.String(length=100), nullable=True),
        sa.Column("run_id", sa.String(length=100), nullable=True),
        sa.Column("model_name", sa.String(length=300), nullable=True),
        sa.Column("dataset", sa.String(length=300), nullable=True),
        sa.Column("framework", sa.String(length=100), nullable=True),
        sa.Column("task_type", sa.String(length=100), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("total_samples", sa.Integer(), nullable=False),
        sa.Column("scored_samples", sa.Integer(), nullable=False),
        sa.Column("reward_sum", sa.Float(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finalized_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_evaluations_owner_created", "evaluations", ["owner_id", "created_at"], unique=False)
    op.create_index("ix_evaluations_suite_id", "evaluations", ["suite_id"], unique=False)
    op.create_table(
        "evaluated_environments",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.Column("version_id", sa.String(length=100), nullable=True),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"]),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"]),
        sa.PrimaryKeyConstraint("evaluation_id", "position"),
    )
    op.create_index(
        "ix_evaluated_environments_environment_id", "evaluated_environments", ["environment_id"], unique=False
    )
    op.create_table(
        "evaluation_batches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("evaluation_id", "sha256", name="uq_evaluation_batches_blob"),
    )
    op.create_index("ix_evaluation_batches_sha256", "evaluation_batches", ["sha256"], unique=False)
    op.create_table(
        "evaluation_samples",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("identity", sa.String(length=32), nullable=False),
        sa.Column("sort_key", sa.String(length=40), nullable=False),
        sa.Column("content_key", sa.String(length=32), nullable=False),
        sa.Column("example_id", sa.String(length=100), nullable=False),
        sa.Column("rollout_number", sa.BigInteger(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("batch_id", sa.String(length=32), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["evaluation_batches.id"]),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"]),
        sa.PrimaryKeyConstraint("evaluation_id", "identity"),
    )
    op.create_index(
        "ix_evaluation_samples_order", "evaluation_samples", ["evaluation_id", "sort_key", "identity"], unique=False
    )
