"""An index of a results file: where each rollout begins, and the facts that lists, orders and filters need.

The file may hold 100,000 rollouts in a gigabyte, and may grow while it is looked at. `advance` reads on by some
lines; the rest works on what was read so far. The index of a large file is kept in a cache, so that it is read once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from prime_cli.core.context import prime_home
from prime_cli.viewer.reading.rollout_facts import RolloutFacts, facts_of, parse_line
from prime_cli.viewer.reading.rollout_query import RolloutQuery

_FORMAT = "1"
_KEPT_FROM_BYTES = 4 << 20
_KEPT_INDEXES = 100
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rollouts (number INTEGER PRIMARY KEY, example TEXT, reward REAL, failed INTEGER,
  truncated INTEGER, tokens INTEGER, tags TEXT, preview TEXT, start INTEGER, size INTEGER, metrics TEXT);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT);
"""
_FACTS = "number, example, reward, failed, truncated, tokens, tags, preview"


@dataclass(frozen=True)
class MetricRange:
    """A metric over the rollouts that have it."""

    name: str
    mean: float
    least: float
    most: float
    count: int


class RolloutIndex:
    """The rollouts of one results file. One thread may `advance` while another reads.

    Args:
        path: the results file; it need not exist yet.
        cache: where the index of a large file is kept; None for nowhere.
    """

    def __init__(self, path: Path, *, cache: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._end = 0
        self._count = 0
        self._identity = ""
        self._database = _open_database(path, cache)
        self._restore()

    @property
    def count(self) -> int:
        """How many rollouts are indexed."""
        return self._count

    @property
    def share_done(self) -> float:
        """Which part of the file is indexed, from 0 to 1."""
        size = _size(self.path)
        return min(1.0, self._end / size) if size else 1.0

    def advance(self, max_lines: int = 500) -> int:
        """Read on by at most `max_lines` whole lines; return how many there were, 0 at the end of the file.

        A file that was replaced, or cut, is begun anew.
        """
        try:
            status = self.path.stat()
        except OSError:
            return 0
        identity = f"{status.st_dev}:{status.st_ino}"
        if identity != self._identity or status.st_size < self._end:
            self._forget(identity)
        if status.st_size == self._end:
            return 0
        entries, end = [], self._end
        with self.path.open("rb") as file:
            file.seek(end)
            for number in range(self._count, self._count + max_lines):
                line = file.readline()
                if not line.endswith(b"\n"):
                    break  # it is still being written
                facts, metrics = facts_of(number, parse_line(line))
                entries.append((*astuple(facts), end, len(line), json.dumps(metrics)))
                end += len(line)
        if entries:
            self._keep(entries, end)
        return len(entries)

    def numbers(self, query: RolloutQuery) -> Sequence[int]:
        """Return the rollouts that meet the conditions, in order; words are `search`'s part."""
        if not query.conditions and query.order == "number":
            return range(self._count)
        statement = f"SELECT number FROM rollouts WHERE {query.where} ORDER BY {query.order_by}"  # noqa: S608
        with self._lock:
            return [number for (number,) in self._database.execute(statement, query.values)]

    def search(self, query: RolloutQuery, every: int = 200) -> Iterator[tuple[int, list[int]]]:
        """Look for the words in all rollouts that meet the conditions; yield (how many were looked at, those found)."""
        needles = query.needles()
        found: list[int] = []
        looked = 0
        with self.path.open("rb") as file:
            for numbers in _chunks(self.numbers(query), every):
                for start, size, number in self._places(numbers):
                    file.seek(start)
                    line = file.read(size).lower()
                    if all(any(spelling in line for spelling in word) for word in needles):
                        found.append(number)
                looked += len(numbers)
                yield looked, found
                found = []

    def facts(self, numbers: Sequence[int]) -> list[RolloutFacts]:
        """Return the facts of some rollouts, in the order asked for."""
        marks = ",".join("?" * len(numbers))
        statement = f"SELECT {_FACTS} FROM rollouts WHERE number IN ({marks})"  # noqa: S608
        with self._lock:
            rows = {row[0]: row for row in self._database.execute(statement, tuple(numbers))}
        return [_as_facts(rows[number]) for number in numbers if number in rows]

    def raw(self, number: int) -> bytes:
        """Return the line of a rollout as it is stored.

        Raises:
            KeyError: there is none of that number.
        """
        for start, size, _ in self._places([number]):
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(size)
        raise KeyError(number)

    def read(self, number: int) -> dict[str, Any]:
        """Return a whole rollout."""
        return parse_line(self.raw(number))

    def scores(self) -> list[tuple[int, str, float | None]]:
        """Return (number, example, reward) of all; the reward of one that failed is None."""
        with self._lock:
            return self._database.execute("SELECT number, example, reward FROM rollouts ORDER BY number").fetchall()

    def metrics(self) -> list[MetricRange]:
        """Return each metric's mean and range over the rollouts without an error, in the order of their names."""
        statement = (
            "SELECT key, avg(value), min(value), max(value), count(*) FROM rollouts, json_each(metrics) "
            "WHERE NOT failed GROUP BY key ORDER BY key"
        )
        with self._lock:
            return [MetricRange(*row) for row in self._database.execute(statement)]

    def tags(self) -> dict[str, tuple[int, float | None]]:
        """Return how many rollouts have each tag, and their mean reward."""
        with self._lock:
            rows = self._database.execute(
                "SELECT tags, count(*), sum(reward), count(reward) FROM rollouts WHERE tags != '' GROUP BY tags"
            ).fetchall()
        sums: dict[str, list[float]] = {}
        for tags, count, total, scored in rows:
            for tag in tags.split():
                entry = sums.setdefault(tag, [0, 0.0, 0])
                entry[0] += count
                entry[1] += total or 0.0
                entry[2] += scored
        return {tag: (int(n), total / scored if scored else None) for tag, (n, total, scored) in sorted(sums.items())}

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def _places(self, numbers: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        marks = ",".join("?" * len(numbers))
        with self._lock:
            rows = self._database.execute(
                f"SELECT number, start, size FROM rollouts WHERE number IN ({marks})", tuple(numbers)  # noqa: S608
            ).fetchall()  # fmt: skip
        places = {number: (start, size, number) for number, start, size in rows}
        return [places[number] for number in numbers if number in places]

    def _keep(self, entries: list[tuple[Any, ...]], end: int) -> None:
        with self._lock, self._database:
            self._database.executemany(f"INSERT OR REPLACE INTO rollouts VALUES ({','.join('?' * 11)})", entries)  # noqa: S608
            self._end = end
            self._count += len(entries)
            state = {"identity": self._identity, "end": str(end), "count": str(self._count), "last": self._last_line()}
            state["format"] = _FORMAT
            self._database.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())

    def _forget(self, identity: str) -> None:
        with self._lock, self._database:
            self._database.execute("DELETE FROM rollouts")
            self._database.execute("DELETE FROM state")
        self._identity, self._end, self._count = identity, 0, 0

    def _restore(self) -> None:
        """Go on with a kept index if the file is the one it was made of, and at most has grown."""
        state: dict[str, str] = dict(self._database.execute("SELECT name, value FROM state").fetchall())
        if state.get("format") != _FORMAT or _size(self.path) < int(state["end"]):
            return
        self._identity, self._end, self._count = state["identity"], int(state["end"]), int(state["count"])
        if self._last_line() != state["last"]:
            self._identity, self._end, self._count = "", 0, 0

    def _last_line(self) -> str:
        """Return what tells the file apart from another of its length: a hash of its ends, of what was indexed."""
        digest = sha256()
        with self.path.open("rb") as file:
            digest.update(file.read(min(self._end, 4096)))
            file.seek(max(0, self._end - 4096))
            digest.update(file.read(min(self._end, 4096)))
        return digest.hexdigest()


def index_cache() -> Path:
    """Return where the indexes of large files are kept."""
    return prime_home() / "viewer"


def _open_database(path: Path, cache: Path | None) -> sqlite3.Connection:
    """Return the database of an index: in the cache if the file is large and the cache can be written to."""
    if cache is not None and _size(path) >= _KEPT_FROM_BYTES:
        place = cache / f"{sha256(str(path.resolve()).encode()).hexdigest()[:24]}.sqlite"
        try:
            cache.mkdir(parents=True, exist_ok=True)
            _make_room(cache)
            return _database(str(place))
        except (OSError, sqlite3.Error):
            place.unlink(missing_ok=True)  # damaged, or of a disk that is full
    return _database(":memory:")


def _database(name: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, check_same_thread=False, timeout=2.0)
    # What is lost with the power is read again.
    database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + _SCHEMA)
    return database


def _make_room(cache: Path) -> None:
    kept = sorted(cache.glob("*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[_KEPT_INDEXES:]:
        for part in cache.glob(f"{path.name}*"):
            part.unlink(missing_ok=True)


def _as_facts(row: tuple[Any, ...]) -> RolloutFacts:
    number, example, reward, failed, truncated, tokens, tags, preview = row
    return RolloutFacts(number, example, reward, bool(failed), bool(truncated), tokens, tags, preview)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _chunks(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
