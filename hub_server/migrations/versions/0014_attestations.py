"""Attestations of files, and which environments have any."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "file_attestations",
        sa.Column("file_id", sa.String(length=32), nullable=False),
        sa.Column("predicate_type", sa.String(length=100), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("publisher", sa.JSON(), nullable=False),
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["file_id"], ["release_files.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("file_id", "predicate_type"),
    )
    op.add_column("environments", sa.Column("attested", sa.Boolean(), nullable=False, server_default=sa.false()))
