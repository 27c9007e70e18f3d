"""Yanking, the serial of index pages, and names in the index of the whole hub."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision; names go to the oldest environments that are public now."""
    op.add_column("environments", sa.Column("index_serial", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("releases", sa.Column("yanked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("releases", sa.Column("yanked_reason", sa.String(length=500), nullable=False, server_default=""))
    op.create_table(
        "index_names",
        sa.Column("normalized_name", sa.String(length=100), nullable=False),
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"]),
        sa.PrimaryKeyConstraint("normalized_name"),
    )
    op.create_index("ix_index_names_environment_id", "index_names", ["environment_id"], unique=False)
    op.execute(
        "INSERT INTO index_names (normalized_name, environment_id) "
        "SELECT normalized_name, id FROM ("
        "  SELECT normalized_name, id,"
        "    row_number() OVER (PARTITION BY normalized_name ORDER BY created_at, id) AS place"
        "  FROM environments WHERE visibility = 'PUBLIC' AND latest_release_id IS NOT NULL AND deleted_at IS NULL"
        ") AS ranked WHERE place = 1"
    )
