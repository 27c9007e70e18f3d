"""What a hub on SQLite and a folder has stored, to compare before and after."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from tests.running_hub import RunningHub

# What changes by being looked at, or by the clock.
_PASSING = {
    "api_keys": ("last_used_at",), "environments": ("downloads",), "download_counts": None, "expected_blobs": None
}  # fmt: skip


def stored(hub: RunningHub) -> dict[str, object]:
    """Return all rows of all tables, and the names of all blobs."""
    engine = create_engine(f"sqlite:///{hub.data_dir}/hub.db")
    found: dict[str, object] = {}
    with engine.connect() as connection:
        for name in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all():
            passing = _PASSING.get(name, ())
            if passing is None:
                continue
            rows = connection.execute(text(f'SELECT * FROM "{name}"')).mappings()
            found[name] = sorted(
                str({column: value for column, value in row.items() if column not in passing}) for row in rows
            )
    engine.dispose()
    found["blobs"] = sorted(path.name for path in (hub.data_dir / "blobs" / "sha256").glob("*/*"))
    return found
