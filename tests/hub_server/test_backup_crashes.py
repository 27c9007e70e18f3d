"""A backup and a restore are killed at many points: afterwards there is a whole one, or none, and the next succeeds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_server.backups.restore import verify
from hub_server.backups.targets import snapshot_names
from hub_server.database import Database
from tests.running_hub import Push, start_hub

SCRIPT = Path(__file__).parent.parent / "crashing_backup.py"
NEVER = -1


class Crashing:
    """Backs up and restores in processes that die when they are told to."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path) -> None:
        self._process = process
        self.data_dir = data_dir

    def run(self, what: str, source: Path, target: Path, point: int) -> int | None:
        """Return how many lines it took; None when it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {source} {target} {point}\n")
        self._process.stdin.flush()
        status, lines = map(int, self._process.stdout.readline().split())
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
        assert status == 0
        return lines


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashing]:
    """The data folder of a small hub, and a process that backs it up."""
    hub = start_hub(tmp_path_factory.mktemp("crashing") / "data")
    try:
        with hub.client(hub.admin_key) as client:
            for name in ("first", "second"):
                assert Push(client, name, "0.1.0").run().is_success
    finally:
        hub.end()
    process = subprocess.Popen([sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield Crashing(process, hub.data_dir)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(20)


def points_in(lines: int, count: int) -> list[int]:
    """Spread points over all lines; a quarter are the very last lines, among which is the moment of appearing."""
    last = count // 4
    return [1 + number * lines // (count - last) for number in range(count - last)] + [lines - n for n in range(last)]


def sweep_backups(crashing: Crashing, folder: Path, points: int, *, to_tar: bool) -> None:
    """Kill a backup at `points` points; each time there is a whole one or none, and the next one succeeds."""

    def backups() -> list[Path | str]:
        return [*folder.glob("*.tar")] if to_tar else [*snapshot_names(folder / "kept")]

    target = folder / ("backup.tar" if to_tar else "kept")
    crashing.run("backup", crashing.data_dir, target, NEVER)
    whole = verify(target)
    lines = crashing.run("backup", crashing.data_dir, folder / "counted.tar" if to_tar else target, NEVER)
    assert lines is not None
    assert lines > points, "there are fewer lines than points"
    found = []
    for number, point in enumerate(points_in(lines, points)):
        if to_tar:
            for path in folder.glob("*.tar"):
                path.unlink()
        elif number % 2:  # half of them begin with an empty folder
            shutil.rmtree(target)
            target.mkdir()
            (target / "snapshots").mkdir()
        before = backups()
        assert crashing.run("backup", crashing.data_dir, target, point) is None
        found.append(len(backups()) - len(before))
        if backups():
            assert verify(target).blobs == whole.blobs
        again = folder / "again.tar" if to_tar and target.exists() else target
        assert crashing.run("backup", crashing.data_dir, again, NEVER) is not None
        assert verify(again).rows == whole.rows
        partial = (".partial.", ".room", "incoming/")
        left = [path for path in folder.rglob("*") if any(part in str(path) for part in partial) and is_more(path)]
        assert left == [], "the next backup clears away what the crash left"
    assert set(found) == {0, 1}, "the points lie on both sides of the moment at which it appears"


def is_more(path: Path) -> bool:
    """Say whether something is there beside an empty folder: one that is young may be another process's."""
    return path.is_file() or any(path.iterdir())


def sweep_restores(crashing: Crashing, folder: Path, points: int) -> None:
    """Kill a restore at `points` points; each time the hub is there and whole or not there, and the next succeeds."""
    backup, target = folder / "backup.tar", folder / "restored"
    crashing.run("backup", crashing.data_dir, backup, NEVER)
    lines = crashing.run("restore", backup, target, NEVER)
    assert lines is not None
    expected = content_of(target)
    found = []
    for point in points_in(lines, points):
        shutil.rmtree(target, ignore_errors=True)
        assert crashing.run("restore", backup, target, point) is None
        found.append(target.exists())
        if not target.exists():
            assert crashing.run("restore", backup, target, NEVER) is not None
        assert content_of(target) == expected
        left = {path.name for path in folder.iterdir() if is_more(path)}
        assert left == {"backup.tar", "restored"}, "nothing is left beside"
    assert set(found) == {False, True}, "the points lie on both sides of the moment at which it appears"


def content_of(data_dir: Path) -> tuple[set[str], int]:
    database = Database(f"sqlite:///{data_dir / 'hub.db'}")
    with database.engine.connect() as connection:
        versions = connection.exec_driver_sql("SELECT count(*) FROM releases WHERE claimed").scalar_one()
    database.close()
    return {path.name for path in (data_dir / "blobs" / "sha256").glob("*/*")}, versions


@pytest.mark.parametrize("to_tar", [True, False], ids=["tar", "folder"])
def test_a_backup_that_is_killed_anywhere_is_whole_or_not_there(
    crashing: Crashing, tmp_path: Path, to_tar: bool
) -> None:
    sweep_backups(crashing, tmp_path, 10, to_tar=to_tar)


def test_a_restore_that_is_killed_anywhere_leaves_a_whole_hub_or_none(crashing: Crashing, tmp_path: Path) -> None:
    sweep_restores(crashing, tmp_path, 6)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("to_tar", [True, False], ids=["tar", "folder"])
def test_a_backup_that_is_killed_at_two_hundred_points_is_whole_or_not_there(
    crashing: Crashing, tmp_path: Path, to_tar: bool
) -> None:
    sweep_backups(crashing, tmp_path, 200, to_tar=to_tar)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_restore_that_is_killed_at_fifty_points_leaves_a_whole_hub_or_none(
    crashing: Crashing, tmp_path: Path
) -> None:
    sweep_restores(crashing, tmp_path, 50)
