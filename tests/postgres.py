"""A PostgreSQL server of the tests' own, in a temporary folder and on a unix socket, gone when they end."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from prime_cli.core.processes import child_environment, die_with_parent

# Neither UTC nor the order of bytes: what quietly relies on one of them fails here.
_OPTIONS = ["-c", "timezone=Asia/Kolkata", "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"]
_ORDER = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]


@dataclass
class Postgres:
    """A server that answers; `fresh_url` makes an empty database on it."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        """Return the URL of a database, as an operator would give it."""
        return f"postgresql://prime@/{database}?host={self.folder}"

    def fresh_url(self) -> str:
        """Make an empty database and return its URL."""
        name = f"hub_{next(self._numbers)}"
        address = make_url(self.url("postgres")).set(drivername="postgresql+psycopg")
        engine = create_engine(address, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self.url(name)


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server; skips the test that needs it where PostgreSQL is not installed."""
    programs = _newest_programs()
    # The path of a unix socket may have about a hundred characters: fewer than the temporary folders of pytest.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    account = _account()
    if account:
        shutil.chown(folder, **account)
    try:
        made = [programs / "initdb", "--pgdata", folder / "data", "--username=prime", "--auth=trust", "--no-sync"]
        subprocess.run([*made, *_ORDER], check=True, stdout=subprocess.DEVNULL, cwd=folder, **account)
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-k", folder, *_OPTIONS],
            cwd=folder, stderr=subprocess.DEVNULL, env=child_environment(), preexec_fn=die_with_parent, **account,
        )  # fmt: skip
        try:
            _wait_until_ready(programs, folder, server)
            yield Postgres(folder)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _newest_programs() -> Path:
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        pytest.skip("PostgreSQL is not installed: `apt-get install postgresql` brings it")
    return max(found, key=lambda path: int(path.parent.name)) if found else Path(str(on_path)).resolve().parent


def _account() -> dict[str, str]:
    """Return whom to run as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    return {"user": name}


def _wait_until_ready(programs: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run([programs / "pg_isready", "--quiet", "--host", folder], check=False).returncode:
        assert server.poll() is None, "PostgreSQL ended at its start"
        assert time.monotonic() < deadline, "PostgreSQL did not start"
        time.sleep(0.05)
