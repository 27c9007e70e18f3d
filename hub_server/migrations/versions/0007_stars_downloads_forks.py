"""Stars, download counts, where a fork comes from, and what a version's wheel says of itself at length."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.add_column("environments", sa.Column("forked_from_id", sa.String(length=32), nullable=True))
    op.add_column("environments", sa.Column("stars", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("environments", sa.Column("downloads", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_environments_forked_from_id", "environments", ["forked_from_id"], unique=False)
    op.create_table(
        "release_abouts",
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("readme", sa.Text(), nullable=False),
        sa.Column("readme_type", sa.String(length=100), nullable=False),
        sa.Column("url_dependencies", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("release_id"),
    )
    op.create_table(
        "stars",
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["owners.id"]),
        sa.PrimaryKeyConstraint("environment_id", "user_id"),
    )
    op.create_index("ix_stars_user_id", "stars", ["user_id"], unique=False)
    op.create_table(
        "download_counts",
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("filename", sa.String(length=255), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"]),
        sa.PrimaryKeyConstraint("release_id", "filename", "day"),
    )
