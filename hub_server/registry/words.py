"""The words by which an environment is found beside its name: those of its description and its latest README.

They lie in a table of their own, which the database keeps an index of words over: FTS5 on SQLite, GIN on PostgreSQL.
"""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, literal_column, select
from sqlalchemy import text as sql

from hub_server.database import table_of
from hub_server.registry.tables import Environment, EnvironmentText, ReleaseAbout

# PostgreSQL indexes no document of more than a megabyte of words.
_README_SEARCHED = 100_000
_TOKEN = re.compile(r"[^\W_]+")
_TEXTS, _ENVIRONMENTS, _ABOUTS = table_of(EnvironmentText), table_of(Environment), table_of(ReleaseAbout)
_REMOVE = delete(_TEXTS).where(_TEXTS.c.environment_id == bindparam("old_environment_id"))
_readme = func.coalesce(func.substr(_ABOUTS.c.readme, 1, _README_SEARCHED), "")
_ADD = _TEXTS.insert().from_select(
    ["environment_id", "words"],
    select(_ENVIRONMENTS.c.id, _ENVIRONMENTS.c.description + " " + _readme)
    .select_from(_ENVIRONMENTS.outerjoin(_ABOUTS, _ABOUTS.c.release_id == _ENVIRONMENTS.c.latest_release_id))
    .where(_ENVIRONMENTS.c.id == bindparam("found_environment_id"), _ENVIRONMENTS.c.latest_release_id.is_not(None)),
)


def keep_words(connection: Connection, environment_id: str) -> None:
    """Let an environment be found by what its latest version says now, in the caller's transaction."""
    connection.execute(_REMOVE, {"old_environment_id": environment_id})
    connection.execute(_ADD, {"found_environment_id": environment_id})


def has_word(dialect: str, searched: str) -> ColumnElement[bool] | None:
    """Return the condition that words of an environment begin with what is searched; None where that is no word."""
    tokens = _TOKEN.findall(searched.lower())
    if not tokens:
        return None
    if dialect == "sqlite":
        matching = sql("SELECT rowid FROM searched_words WHERE searched_words MATCH :tokens")
        found = EnvironmentText.id.in_(matching.bindparams(bindparam("tokens", f'"{" ".join(tokens)}" *', unique=True)))
    else:
        document = func.to_tsvector(literal_column("'simple'"), EnvironmentText.words)
        wanted = " <-> ".join(f"'{token}'" for token in tokens)
        found = document.op("@@")(func.to_tsquery(literal_column("'simple'"), f"{wanted}:*"))
    return Environment.id.in_(select(EnvironmentText.environment_id).where(found))
