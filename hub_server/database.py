"""The database: SQLite in WAL mode by default, any other that SQLAlchemy speaks by URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, DateTime, Engine, create_engine, event, text
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.types import TypeDecorator

from hub_server.errors import NotServing

_BUSY_TIMEOUT_S = 30
_SIZE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}


class Base(DeclarativeBase):
    """Base of all tables; its metadata is what the migrations must arrive at."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone. SQLite drops the zone, so it is put back here; everything is UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the stored moment as UTC."""
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def now() -> datetime:
    """Return the present moment in UTC, whole milliseconds."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Database:
    """Sessions over one engine. Reads see a snapshot; writes are one transaction each, serialised on SQLite."""

    def __init__(self, url: str) -> None:
        try:
            self.engine = _create_engine(url)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise NotServing(
                f"cannot use the database URL {url!r}: {error}", hint="give one such as sqlite:////path/hub.db"
            ) from None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a session for reading; nothing is committed."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session whose changes are committed together at the end, or not at all on an exception."""
        with (
            self.engine.connect().execution_options(writes=True) as connection,
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def migrate(self) -> None:
        """Bring the tables to the newest revision."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def probe(self) -> None:
        """Raise whatever keeps the tables from being read."""
        with self.engine.connect() as connection:
            connection.execute(text("SELECT version_num FROM alembic_version")).all()

    def size_bytes(self) -> int:
        """Return how much room the database takes."""
        with self.engine.connect() as connection:
            return int(connection.execute(text(_SIZE[self.engine.dialect.name])).scalar_one())

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _create_engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, hide_parameters=True)
    connect_args = {"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False}
    # The values of a statement that fails stay out of errors, and so out of the log.
    engine = create_engine(url, connect_args=connect_args, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # Transactions are opened below, not by the driver, which would start them late and as readers.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock at once: upgrading a read transaction fails instead of waiting its turn.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
