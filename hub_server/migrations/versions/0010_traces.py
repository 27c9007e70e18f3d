"""Traces and episodes with the uploads that they came in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "trace_uploads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("line_format", sa.String(length=10), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("context", sa.JSON(), nullable=False),
        sa.Column("uploaded_by", sa.String(length=32), nullable=False),
        sa.Column("blob_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"]),
        sa.ForeignKeyConstraint(["uploaded_by"], ["owners.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner_id", "digest", name="uq_trace_uploads_digest"),
    )
    op.create_index("ix_trace_uploads_blob_sha256", "trace_uploads", ["blob_sha256"], unique=False)
    op.create_table(
        "trace_episodes",
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("episode_id", sa.String(length=200), nullable=False),
        sa.Column("upload_key", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(length=200), nullable=True),
        sa.Column("environment_id", sa.String(length=300), nullable=True),
        sa.Column("outcome", sa.String(length=100), nullable=True),
        sa.Column("has_error", sa.Boolean(), nullable=False),
        sa.Column("error_type", sa.String(length=200), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"]),
        sa.ForeignKeyConstraint(["upload_key"], ["trace_uploads.id"]),
        sa.PrimaryKeyConstraint("owner_id", "episode_id"),
    )
    op.create_index("ix_trace_episodes_created", "trace_episodes", ["owner_id", "created_at", "episode_id"])
    op.create_index("ix_trace_episodes_run_id", "trace_episodes", ["run_id"])
    op.create_index("ix_trace_episodes_upload_key", "trace_episodes", ["upload_key"])
    op.create_table(
        "traces",
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("trace_id", sa.String(length=200), nullable=False),
        sa.Column("upload_key", sa.String(length=32), nullable=False),
        sa.Column("episode_id", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(length=200), nullable=True),
        sa.Column("run_type", sa.String(length=20), nullable=True),
        sa.Column("run_step", sa.BigInteger(), nullable=True),
        sa.Column("environment_id", sa.String(length=300), nullable=True),
        sa.Column("model_provider", sa.String(length=300), nullable=True),
        sa.Column("model_id", sa.String(length=300), nullable=True),
        sa.Column("task_id", sa.String(length=300), nullable=True),
        sa.Column("agent_name", sa.String(length=200), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=100), nullable=True),
        sa.Column("has_error", sa.Boolean(), nullable=False),
        sa.Column("is_truncated", sa.Boolean(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"]),
        sa.ForeignKeyConstraint(["upload_key"], ["trace_uploads.id"]),
        sa.PrimaryKeyConstraint("owner_id", "trace_id"),
    )
    op.create_index("ix_traces_created", "traces", ["owner_id", "created_at", "trace_id"])
    op.create_index("ix_traces_run", "traces", ["owner_id", "run_id", "run_step"])
    op.create_index("ix_traces_episode", "traces", ["owner_id", "episode_id"])
    op.create_index("ix_traces_upload_key", "traces", ["upload_key"])
