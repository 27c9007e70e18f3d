"""An index of words over descriptions and READMEs, and what lists of environments are read from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SEEN = ["visibility", "deleted_at", "latest_release_id", "owner_id", "created_at", "normalized_name", "id"]
_FILL = """
INSERT INTO environment_texts (environment_id, words)
SELECT environments.id, environments.description || ' ' || coalesce(substr(release_abouts.readme, 1, 100000), '')
FROM environments LEFT JOIN release_abouts ON release_abouts.release_id = environments.latest_release_id
WHERE environments.latest_release_id IS NOT NULL
"""
_REMOVED = "INSERT INTO searched_words (searched_words, rowid, words) VALUES ('delete', old.id, old.words);"
_ADDED = "INSERT INTO searched_words (rowid, words) VALUES (new.id, new.words);"
_SQLITE = (
    "CREATE VIRTUAL TABLE searched_words USING fts5 "
    "(words, content='environment_texts', content_rowid='id', tokenize='unicode61', prefix='2 3', detail='full')",
    f"CREATE TRIGGER searched_words_added AFTER INSERT ON environment_texts BEGIN {_ADDED} END",
    f"CREATE TRIGGER searched_words_removed AFTER DELETE ON environment_texts BEGIN {_REMOVED} END",
    f"CREATE TRIGGER searched_words_changed AFTER UPDATE ON environment_texts BEGIN {_REMOVED} {_ADDED} END",
)
_POSTGRESQL = "CREATE INDEX searched_words ON environment_texts USING gin (to_tsvector('simple', words))"


def upgrade() -> None:
    """Apply this revision."""
    op.create_index("ix_environments_seen", "environments", _SEEN)
    op.execute("CREATE INDEX searched_words_of_tags ON environment_tags (lower(tag), environment_id)")
    op.create_table(
        "environment_texts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.String(length=32), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_environment_texts_environment_id", "environment_texts", ["environment_id"], unique=True)
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else (_POSTGRESQL,):
        op.execute(statement)
    op.execute(_FILL)
