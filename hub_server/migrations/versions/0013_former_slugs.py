"""Slugs that were given up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "former_slugs",
        sa.Column("slug", sa.String(length=30), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["owners.id"]),
        sa.PrimaryKeyConstraint("slug"),
    )
