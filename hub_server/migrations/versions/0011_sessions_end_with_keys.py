"""A browser session ends with the API key that began it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision. Sessions last for hours and do not know their keys: everybody signs in once more."""
    op.drop_table("browser_sessions")
    op.create_table(
        "browser_sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["owners.id"]),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("ix_browser_sessions_user_id", "browser_sessions", ["user_id"], unique=False)
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"], unique=False)
