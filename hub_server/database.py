"""The database: SQLite in WAL mode by default, PostgreSQL by URL.

One rule holds on both: what a transaction looked at stays so until it ends, unless it says otherwise. SQLite has one
writer at a time. On PostgreSQL locks see to it, which every server on the database takes part in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, DateTime, Engine, Table, create_engine, event, text
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.types import TypeDecorator

from hub_server.errors import NotServing

_BUSY_TIMEOUT_S = 30
_SIZE = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
# A server that stands still in the middle of a transaction must not stop all the others for good.
_IDLE_TIMEOUT_S = 60
# One connection for each thread that answers requests, so that none waits for another's.
_CONNECTIONS_KEPT, _CONNECTIONS_MORE = 10, 30
_PASSWORD = re.compile(r"//.*@")
_ALL_WRITES, _SERVERS = "all writes", "servers"


class Base(DeclarativeBase):
    """Base of all tables; its metadata is what the migrations must arrive at."""


def table_of(mapped: type[Base]) -> Table:
    """Return the table behind a class, for statements that are made once and run often."""
    table = mapped.__table__
    assert isinstance(table, Table)
    return table


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite drops the zone and PostgreSQL answers in its own, so it is put right here."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the stored moment as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now() -> datetime:
    """Return the present moment in UTC, whole milliseconds."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Database:
    """Sessions over one engine. Reads see a snapshot; writes are one transaction each, one after another."""

    def __init__(self, url: str) -> None:
        try:
            self.engine = _create_engine(make_url(url))
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            shown, reason = _PASSWORD.sub("//***@", url), _PASSWORD.sub("//***@", str(error))
            needs_driver = isinstance(error, ModuleNotFoundError) and error.name == "psycopg"
            raise NotServing(
                f"cannot use the database URL {shown!r}: {reason}",
                hint="pip install 'prime-lab[postgres]'" if needs_driver else "give one such as sqlite:////path/hub.db",
            ) from None
        self.is_postgresql = self.engine.dialect.name == "postgresql"
        self._watching: PoolProxiedConnection | None = None
        snapshot: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self.engine.execution_options(**snapshot) if self.is_postgresql else self.engine

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a session for reading; nothing is committed."""
        with Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self, scope: str = "") -> Iterator[Session]:
        """Yield a session whose changes are committed together at the end, or not at all on an exception.

        No other change happens meanwhile, so that what was looked at here can be relied on. A transaction that is
        long or frequent names a `scope`, such as one evaluation: on PostgreSQL it then runs beside those of other
        scopes, and has to do with rows of its own scope only.
        """
        with (
            self.engine.connect().execution_options(writes=True) as connection,
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            self._wait_for_turn(session, scope)
            yield session

    def migrate(self, revision: str = "head") -> None:
        """Bring the tables to a revision, by default the newest; of several servers that start at once one does."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            self._wait_for_turn(connection, "")
            config.attributes["connection"] = connection
            command.upgrade(config, revision)

    def probe(self) -> None:
        """Raise whatever keeps the tables from being read."""
        with self.engine.connect() as connection:
            connection.execute(text("SELECT version_num FROM alembic_version")).all()

    def size_bytes(self) -> int:
        """Return how much room the database takes."""
        with self.engine.connect() as connection:
            return int(connection.execute(text(_SIZE[self.engine.dialect.name])).scalar_one())

    @contextmanager
    def as_server(self, *, alone: bool = False) -> Iterator[None]:
        """Be one of the servers on this database, or `alone` with it; on SQLite the data folder's lock does that.

        Raises:
            NotServing: somebody is alone with it, or, to be alone, a server runs on it.
        """
        if not self.is_postgresql:
            yield
            return
        lock = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
        # The lock is the connection's: it ends with this process, however that ends.
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if not connection.scalar(text(f"SELECT {lock}(:key)"), {"key": _lock_key(_SERVERS)}):
                words = "a server runs on this database" if alone else "this database is being worked on"
                raise NotServing(words, hint="wait until it has ended, and try again")
            try:
                yield
            finally:
                connection.invalidate()

    def change_count(self) -> Callable[[], int] | None:
        """Return what tells a number that every commit changes, whoever makes it; None where there is no such number.

        To be called by one thread only. On SQLite it costs microseconds; the first call opens a connection.
        """
        if self.is_postgresql:
            return None

        def count() -> int:
            # The number is that of a connection which changes nothing itself.
            if self._watching is None:
                watching = self.engine.raw_connection()
                watching.detach()
                self._watching = watching
            cursor = self._watching.cursor()
            [(number,)] = cursor.execute("PRAGMA data_version").fetchall()
            return int(number)

        return count

    def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.close()
        self.engine.dispose()

    def _wait_for_turn(self, transaction: Connection | Session, scope: str) -> None:
        """Take the locks that last to the end of the transaction; SQLite took its own when the transaction began."""
        if not self.is_postgresql:
            return
        bounds = f"set_config('lock_timeout', '{_BUSY_TIMEOUT_S}s', true)"
        bounds += f", set_config('idle_in_transaction_session_timeout', '{_IDLE_TIMEOUT_S}s', true)"
        keys = {"all": _lock_key(_ALL_WRITES), "scope": _lock_key(f"scope {scope}")}
        locks = "pg_advisory_xact_lock(:all)"
        if scope:
            locks = "pg_advisory_xact_lock_shared(:all), pg_advisory_xact_lock(:scope)"
        transaction.execute(text(f"SELECT {bounds}, {locks}"), keys if scope else {"all": keys["all"]})


def open_database(url: str) -> Database:
    """Return the database with all its tables at their newest revision.

    Raises:
        NotServing: it cannot be used.
    """
    database = Database(url)
    try:
        database.migrate()
    except SQLAlchemyError as error:
        database.close()
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise NotServing(f"cannot use the database: {reason}") from None
    return database


def _lock_key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _create_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _create_sqlite_engine(url)
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() != "postgresql":
        raise ArgumentError("it is neither SQLite nor PostgreSQL")
    return create_engine(
        url,
        pool_pre_ping=True,
        pool_size=_CONNECTIONS_KEPT,
        max_overflow=_CONNECTIONS_MORE,
        hide_parameters=True,  # the values of a statement that fails stay out of errors, and so out of the log
    )


def _create_sqlite_engine(url: URL) -> Engine:
    connect_args = {"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False}
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
