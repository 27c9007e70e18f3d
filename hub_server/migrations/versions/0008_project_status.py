"""The marks of PEP 792: archived, deprecated and quarantined environments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    status = sa.Column("project_status", sa.String(length=20), nullable=False, server_default="active")
    op.add_column("environments", status)
    op.add_column("environments", sa.Column("status_reason", sa.String(length=500), nullable=False, server_default=""))
