"""Sandboxes, and the nodes that run them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    _moment = sa.DateTime(timezone=True)
    op.create_table(
        "sandbox_nodes",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("url", sa.String(length=500), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("level", sa.String(length=20), nullable=False),
        sa.Column("backend", sa.String(length=50), nullable=False),
        sa.Column("arch", sa.String(length=20), nullable=False),
        sa.Column("version", sa.String(length=50), nullable=False),
        sa.Column("images", sa.JSON(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.Column("registered_at", _moment, nullable=False),
        sa.Column("last_seen_at", _moment, nullable=False),
        sa.Column("left_at", _moment, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.String(length=32), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("image", sa.String(length=500), nullable=False),
        sa.Column("start_command", sa.JSON(), nullable=True),
        sa.Column("cpu_cores", sa.Float(), nullable=False),
        sa.Column("memory_gb", sa.Float(), nullable=False),
        sa.Column("disk_size_gb", sa.Float(), nullable=False),
        sa.Column("is_vm", sa.Boolean(), nullable=False),
        sa.Column("timeout_minutes", sa.Integer(), nullable=False),
        sa.Column("idle_timeout_minutes", sa.Integer(), nullable=True),
        sa.Column("environment_vars", sa.JSON(), nullable=True),
        sa.Column("secret_names", sa.JSON(), nullable=False),
        sa.Column("advanced_configs", sa.JSON(), nullable=True),
        sa.Column("allowlist", sa.JSON(), nullable=True),
        sa.Column("denylist", sa.JSON(), nullable=True),
        sa.Column("egress_generation", sa.Integer(), nullable=False),
        sa.Column("exposures", sa.JSON(), nullable=False),
        sa.Column("enforcement", sa.JSON(), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("termination_reason", sa.Text(), nullable=True),
        sa.Column("error_type", sa.String(length=50), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("created_at", _moment, nullable=False),
        sa.Column("updated_at", _moment, nullable=False),
        sa.Column("started_at", _moment, nullable=True),
        sa.Column("terminated_at", _moment, nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["sandbox_nodes.id"]),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["owners.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner_id", "idempotency_key", name="uq_sandboxes_owner_key"),
    )
    op.create_index("ix_sandboxes_owner_created", "sandboxes", ["owner_id", "created_at"], unique=False)
    op.create_index("ix_sandboxes_node_status", "sandboxes", ["node_id", "status"], unique=False)
    op.create_table(
        "sandbox_labels",
        sa.Column("sandbox_id", sa.String(length=32), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["sandbox_id"], ["sandboxes.id"]),
        sa.PrimaryKeyConstraint("sandbox_id", "label"),
    )
    op.create_index("ix_sandbox_labels_label", "sandbox_labels", ["label"], unique=False)
