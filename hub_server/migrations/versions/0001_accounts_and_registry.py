"""Accounts and registry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("slug", sa.String(length=30), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("slug"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("prefix", sa.String(length=20), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key_hash"),
    )
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"], unique=False)

    op.create_table(
        "browser_sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"], unique=False)
    op.create_index("ix_browser_sessions_user_id", "browser_sessions", ["user_id"], unique=False)

    op.create_table(
        "environments",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("normalized_name", sa.String(length=100), nullable=False),
        sa.Column("visibility", sa.String(length=10), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("latest_release_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner_id", "normalized_name", name="uq_environments_owner_name"),
    )
    op.create_index("ix_environments_normalized_name", "environments", ["normalized_name"], unique=False)
    op.create_index("ix_environments_owner_id", "environments", ["owner_id"], unique=False)

    op.create_table(
        "login_challenges",
        sa.Column("code", sa.String(length=32), nullable=False),
        sa.Column("status_token_hash", sa.String(length=64), nullable=False),
        sa.Column("public_key_pem", sa.Text(), nullable=False),
        sa.Column("asked_from", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approved_by", sa.String(length=32), nullable=True),
        sa.Column("encrypted_key", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["approved_by"], ["users.id"]),
        sa.PrimaryKeyConstraint("code"),
    )
    op.create_index("ix_login_challenges_expires_at", "login_challenges", ["expires_at"], unique=False)

    op.create_table(
        "environment_tags",
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.Column("tag", sa.String(length=100), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"]),
        sa.PrimaryKeyConstraint("environment_id", "tag"),
    )
    op.create_index("ix_environment_tags_tag", "environment_tags", ["tag"], unique=False)

    op.create_table(
        "releases",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.Column("semantic_version", sa.String(length=100), nullable=False),
        sa.Column("version_key", sa.String(length=100), nullable=False),
        sa.Column("content_hash", sa.String(length=128), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("runtime_hint", sa.String(length=50), nullable=True),
        sa.Column("wheel_only", sa.Boolean(), nullable=False),
        sa.Column("claimed", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("environment_id", "version_key", "content_hash", name="uq_releases_draft"),
    )
    op.create_index("ix_releases_environment_id", "releases", ["environment_id"], unique=False)
    op.create_index("ix_releases_published_at", "releases", ["published_at"], unique=False)
    op.create_index(
        "uq_releases_claimed_content",
        "releases",
        ["environment_id", "content_hash"],
        unique=True,
        sqlite_where=sa.text("claimed = 1"),
        postgresql_where=sa.text("claimed"),
    )
    op.create_index(
        "uq_releases_claimed_version",
        "releases",
        ["environment_id", "version_key"],
        unique=True,
        sqlite_where=sa.text("claimed = 1"),
        postgresql_where=sa.text("claimed"),
    )

    op.create_table(
        "release_files",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("filename", sa.String(length=255), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("metadata_sha256", sa.String(length=64), nullable=True),
        sa.Column("requires_python", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("release_id", "filename", "sha256", name="uq_release_files_bytes"),
    )
    op.create_index("ix_release_files_release_id", "release_files", ["release_id"], unique=False)
    op.create_index("ix_release_files_sha256", "release_files", ["sha256"], unique=False)
