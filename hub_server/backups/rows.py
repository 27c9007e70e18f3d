"""Tables as files that any database of a hub can be filled from.

Tables are read as they stand in the database, not as the code knows them: a backup can be made by a newer version
before it migrates, and is restored at its own revision first. Each row is a JSON array; a moment is ISO 8601 in UTC,
JSON is text inside it, bytes are base64.
"""

from __future__ import annotations

import base64
import gzip
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    cast,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import SAWarning
from sqlalchemy.schema import AddConstraint, DropConstraint, ForeignKeyConstraint

from hub_server.expected_blobs import ExpectedBlob

_BATCH = 1000
_COMPRESSION_LEVEL = 3
REVISIONS = "alembic_version"
# A file that is announced and not uploaded yet names a blob that need not be there.
_PROMISE = ("release_files", "state", "pending")

Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _same(value: Any) -> Any:
    return value


def _write_moment(value: datetime) -> str:
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()


def _read_json(value: str) -> Any:
    parsed = json.loads(value)
    return JSON.NULL if parsed is None else parsed


# The first type that fits counts.
_CODECS: tuple[tuple[tuple[type[Any], ...], Codec], ...] = (
    ((DateTime,), (_write_moment, datetime.fromisoformat)),
    ((Date,), (date.isoformat, date.fromisoformat)),
    ((JSON,), (_same, _read_json)),
    ((LargeBinary,), (lambda value: base64.b64encode(value).decode(), base64.b64decode)),
    ((Boolean, Integer, Float, String), (_same, _same)),
)


@dataclass
class Named:
    """The blobs that rows name, and those among them that were only announced."""

    needed: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)


def tables_of(connection: Connection) -> list[Table]:
    """Return the tables of a database in the order of their references, without what is derived from others."""
    names = [name for name in inspect(connection).get_table_names() if name != REVISIONS]
    if connection.dialect.name == "sqlite":  # a full-text index is a virtual table with shadows, filled by triggers
        real = set(connection.scalars(text("SELECT name FROM pragma_table_list WHERE type = 'table'")))
        names = [name for name in names if name in real]
    metadata = MetaData()
    with warnings.catch_warnings():  # an index over an expression, which SQLAlchemy cannot read, is no row
        warnings.filterwarnings("ignore", "Skipped unsupported reflection", SAWarning)
        metadata.reflect(connection, only=names, resolve_fks=False)
    return list(metadata.sorted_tables)


def revision_of(connection: Connection) -> str:
    """Return the revision of the tables."""
    return str(connection.scalar(text(f"SELECT version_num FROM {REVISIONS}")))  # noqa: S608  a name of ours


def write_table(connection: Connection, table: Table, path: Path, named: Named) -> int:
    """Write all rows of a table to a file and return their number; adds the blobs that they name to `named`."""
    columns = _columns(table)
    encode = [_codec(column)[0] for column in columns]
    shown = [cast(column, Text) if isinstance(column.type, JSON) else column for column in columns]
    naming = [position for position, column in enumerate(columns) if column.name.endswith("sha256")]
    promise, is_expected = _promise_of(table, columns), table.name == ExpectedBlob.__tablename__
    count = 0
    statement = select(*shown).order_by(*table.primary_key.columns).execution_options(yield_per=_BATCH)
    with gzip.GzipFile(path, "wb", _COMPRESSION_LEVEL, mtime=0) as file:
        file.write(_line([column.name for column in columns]))
        for row in connection.execute(statement):
            file.write(_line([None if v is None else write(v) for v, write in zip(row, encode, strict=True)]))
            is_promise = is_expected or (promise is not None and row[promise] == _PROMISE[2])
            (named.promised if is_promise else named.needed).update(row[p] for p in naming if row[p])
            count += 1
    return count


def read_table(connection: Connection, table: Table, path: Path) -> int:
    """Fill a table from a file whose bytes were checked, and return the number of its rows."""
    by_name = {column.name: column for column in _columns(table)}
    count = 0
    with gzip.open(path, "rt", encoding="utf-8") as file:
        columns = [by_name[name] for name in json.loads(next(file))]
        decode = [_codec(column)[1] for column in columns]
        for column in columns:
            if isinstance(column.type, JSON):
                column.type = JSON(none_as_null=True)
        names = [column.name for column in columns]
        for lines in _batches(file):
            rows = [
                {n: None if v is None else read(v) for n, v, read in zip(names, json.loads(line), decode, strict=True)}
                for line in lines
            ]
            connection.execute(insert(table), rows)
            count += len(rows)
    return count


class Filling:
    """A transaction that fills tables whose references are checked at its end, whatever the order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.tables = tables_of(connection)
        self._references = [
            constraint
            for table in self.tables
            for constraint in table.constraints
            if isinstance(constraint, ForeignKeyConstraint)
        ]

    def begin(self) -> None:
        """Empty what the migrations put into the tables, and put the checks off."""
        if self._connection.dialect.name == "sqlite":
            self._connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        else:
            for constraint in self._references:
                self._connection.execute(DropConstraint(constraint))
        for table in reversed(self.tables):
            self._connection.execute(table.delete())

    def end(self) -> None:
        """Check the references, and let counted keys go on after the highest.

        Raises:
            ValueError: a row refers to one that is not there.
        """
        if self._connection.dialect.name == "sqlite":
            broken = self._connection.execute(text("PRAGMA foreign_key_check")).all()
            if broken:
                raise ValueError(f"{len(broken)} rows refer to rows that are not there, one of them in {broken[0][0]}")
            return
        for constraint in self._references:
            self._connection.execute(AddConstraint(constraint))
        for table in self.tables:
            for column in table.primary_key.columns:
                if isinstance(column.type, Integer) and column.server_default is not None:
                    sequence = func.pg_get_serial_sequence(table.name, column.name)
                    highest = select(func.max(column)).scalar_subquery()
                    self._connection.execute(select(func.setval(sequence, func.coalesce(highest, 1))))


def is_empty(connection: Connection) -> bool:
    """Say whether no table has a row."""
    return all(connection.execute(select(table).limit(1)).first() is None for table in tables_of(connection))


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.computed is None]


def _codec(column: Column[Any]) -> Codec:
    for types, codec in _CODECS:
        if isinstance(column.type, types):
            return codec
    raise TypeError(f"column {column} has a type that backups do not know: {column.type!r}")


def _promise_of(table: Table, columns: Sequence[Column[Any]]) -> int | None:
    name, column, _ = _PROMISE
    return [each.name for each in columns].index(column) if table.name == name else None


def _line(values: Sequence[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _batches(lines: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
