"""Backups: made beside a running hub, restored to one that answers the same, refused when anything is wrong."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.backups.backup import BackedUp, back_up
from hub_server.backups.exclusion import collecting, keeping_blobs
from hub_server.backups.restore import restore, verify
from hub_server.backups.rows import Filling, read_table, tables_of
from hub_server.backups.targets import FolderTarget
from hub_server.database import Base, Database
from hub_server.errors import NotServing
from hub_server.garbage import collect_garbage
from tests.fake_sandbox_node import create, fake_node
from tests.postgres import Postgres
from tests.running_hub import PRIME, Push, RunningHub, answer, make_wheel, sha256, start_hub


def fill(hub: RunningHub) -> None:
    """Put one of everything that lies in files or rows into a hub."""
    with hub.client(hub.admin_key) as client:
        for version in ("0.1.0", "0.2.0"):
            assert Push(client, "kept", version, code=f"VERSION = {version!r}\n").run().is_success
        assert Push(client, "locked", "0.1.0", visibility="PRIVATE").run().is_success
        slug = slug_of(hub)
        answer(client.put(f"/environmentshub/{slug}/kept/@0.1.0/yank", json={"reason": "the words “für” it"}))
        draft = Push(client, "kept", "0.3.0")
        draft.resolve()
        assert draft.announce_wheel().is_success
        evaluation = answer(client.post("/evaluations/", json={"name": "tried", "metadata": {"a": None, "b": [1.5]}}))
        samples = [{"example_id": n, "reward": n / 3, "completion": "x" * 200} for n in range(20)]
        answer(client.post(f"/evaluations/{evaluation['evaluation_id']}/samples", json={"samples": samples}))


def slug_of(hub: RunningHub) -> str:
    with hub.client(hub.admin_key) as client:
        return str(answer(client.get("/user/whoami"))["data"]["slug"])


def shown_by(hub: RunningHub) -> dict[str, Any]:
    """Return all that the API shows to the administrator, without the addresses that differ between two hubs."""
    with hub.client(hub.admin_key) as client:
        slug = slug_of(hub)
        index = client.get(f"{hub.url}/index/{slug}/simple/kept/", headers={"Accept": "application/*"}).json()
        evaluations = answer(client.get("/evaluations/"))
        (evaluation,) = evaluations["evaluations"]
        samples = answer(client.get(f"/evaluations/{evaluation['evaluation_id']}/samples", params={"limit": 100}))
        files = {
            file["filename"]: sha256(client.get(f"{hub.url}/index/{slug}/simple/kept/" + file["url"]).content)
            for file in index["files"]
        }
        answers = {
            "me": answer(client.get("/user/whoami")),
            "listed": answer(client.get("/environmentshub/", params={"mine_only": True})),
            "versions": answer(client.get(f"/environmentshub/{slug}/kept/versions")),
            "index": index, "files": files, "evaluations": evaluations, "samples": samples,
        }  # fmt: skip
    assert all(file["hashes"]["sha256"] == files[file["filename"]] for file in index["files"])
    # Downloads, those of this function among them, are counted a little later than they happen.
    text = re.sub(r'("\w*downloads": )\d+', r"\1 0", json.dumps(answers).replace(hub.url, "HUB"))
    return dict(json.loads(text))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a hub that was filled and stopped; not to be written to."""
    hub = start_hub(tmp_path_factory.mktemp("filled") / "data")
    try:
        fill(hub)
    finally:
        hub.end()
    return hub.data_dir


@pytest.fixture
def data_dir(stopped: Path, tmp_path: Path) -> Path:
    """A data folder of one's own with the same content."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def prime(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PRIME, "--plain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


def started_from(backup: Path, data_dir: Path) -> RunningHub:
    """Restore a backup, and start a hub on it."""
    restored = prime("hub", "restore", str(backup), "--data-dir", str(data_dir))
    assert restored.returncode == 0, restored.stderr
    return start_hub(data_dir)


def blobs_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs" / "sha256").glob("*/*")}


def test_a_backup_of_a_running_hub_restores_to_one_that_answers_the_same(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        fill(hub)
        before = shown_by(hub)
        done = prime("hub", "backup", str(tmp_path / "backup.tar"), "--data-dir", str(hub.data_dir))
        assert done.returncode == 0, done.stderr
    finally:
        hub.end()
    again = started_from(tmp_path / "backup.tar", tmp_path / "restored")
    try:
        assert again.admin_key == hub.admin_key
        assert shown_by(again) == before
        with again.client(again.admin_key) as client:
            assert Push(client, "kept", "0.3.0").run().is_success, "an upload that was cut off is taken again"
    finally:
        again.end()


def test_sandboxes_come_back_as_rows_and_can_be_ended_without_their_node(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        with fake_node() as node, hub.client(hub.admin_key) as client:
            node.register(hub)
            made = create(client, labels=["kept", "of a backup"], environment_vars={"A": "b"})
            before = answer(client.get(f"/sandbox/{made['id']}"))
            done = prime("hub", "backup", str(tmp_path / "backup.tar"), "--data-dir", str(hub.data_dir))
            assert done.returncode == 0, done.stderr
    finally:
        hub.end()
    again = started_from(tmp_path / "backup.tar", tmp_path / "restored")
    try:
        with again.client(again.admin_key) as client:
            assert answer(client.get(f"/sandbox/{made['id']}")) == before
            answer(client.delete(f"/sandbox/{made['id']}"))
            assert answer(client.get(f"/sandbox/{made['id']}"))["status"] == "TERMINATED"
    finally:
        again.end()


def test_a_backup_of_a_hub_that_is_written_to_is_of_one_moment(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    stop = threading.Event()
    pushed: list[int] = []

    def push() -> None:
        with hub.client(hub.admin_key) as client:
            while not stop.is_set():
                number = len(pushed)
                assert Push(client, f"busy-{number % 3}", f"0.{number}.0", code=f"N = {number}\n").run().is_success
                pushed.append(number)

    writer = threading.Thread(target=push)
    writer.start()
    try:
        for number in range(4):
            count = len(pushed)
            while len(pushed) < count + 2:
                stop.wait(0.01)
            finished = len(pushed)
            done = back_up(hub.data_dir, None, tmp_path / f"{number}.tar")
            assert done.damaged == []
            restored = tmp_path / f"restored-{number}"
            restore(tmp_path / f"{number}.tar", restored)
            database = Database(f"sqlite:///{restored / 'hub.db'}")
            with database.engine.connect() as connection:
                released = connection.exec_driver_sql("SELECT count(*) FROM releases WHERE claimed").scalar_one()
                names = {
                    row[0]
                    for row in connection.exec_driver_sql(
                        "SELECT f.sha256 FROM release_files f JOIN releases r ON r.id = f.release_id WHERE r.claimed"
                    )
                }
            database.close()
            assert finished <= released <= len(pushed) + 1
            assert names <= blobs_in(restored)
    finally:
        stop.set()
        writer.join()
        hub.end()


def test_a_folder_keeps_many_backups_and_each_blob_once(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    first = back_up(data_dir, None, folder)
    assert first.blobs_copied == first.blobs == len(blobs_in(folder)) > 8
    second = back_up(data_dir, None, folder)
    assert (second.blobs_copied, second.blobs) == (0, first.blobs)
    hub = start_hub(data_dir)
    with hub.client(hub.admin_key) as client:
        assert Push(client, "later", "0.1.0").run().is_success
    hub.end()
    assert 0 < back_up(data_dir, None, folder).blobs_copied < 4
    restore(folder, tmp_path / "newest")
    assert blobs_in(tmp_path / "newest") == blobs_in(folder)
    restore(folder, tmp_path / "oldest", snapshot=Path(first.path).name)
    assert len(blobs_in(tmp_path / "oldest")) == first.blobs


def test_only_the_newest_backups_stay_and_the_blobs_that_they_name(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    first = back_up(data_dir, None, folder)
    hub = start_hub(data_dir)
    with hub.client(hub.admin_key) as client:
        answer(client.delete(f"/environmentshub/{slug_of(hub)}/kept/@0.2.0"))
    hub.end()
    collect_garbage(data_dir, None, timedelta(0))
    done = prime("hub", "backup", str(folder), "--data-dir", str(data_dir), "--keep", "1")
    assert done.returncode == 0, done.stderr
    assert not Path(first.path).exists()
    assert blobs_in(folder) == blobs_in(data_dir)
    assert verify(folder).blobs == len(blobs_in(data_dir))


def test_nobody_else_can_read_a_backup_and_the_keys_can_be_left_out(data_dir: Path, tmp_path: Path) -> None:
    back_up(data_dir, None, tmp_path / "backup.tar")
    folder = Path(back_up(data_dir, None, tmp_path / "backups").path)
    back_up(data_dir, None, tmp_path / "keyless.tar", with_keys=False)
    assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "backups").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o600}
    with tarfile.open(tmp_path / "keyless.tar") as tar:
        assert not [name for name in tar.getnames() if name.startswith("keys/")]
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    for name in ("admin.key", "signing.key"):
        assert (tmp_path / "restored" / name).read_bytes() == (data_dir / name).read_bytes()
        assert stat.S_IMODE((tmp_path / "restored" / name).stat().st_mode) == 0o600
    restore(tmp_path / "keyless.tar", tmp_path / "keyless")
    assert not list((tmp_path / "keyless").glob("*.key"))


@pytest.mark.parametrize("damage", ["missing", "other bytes"])
def test_a_hub_with_a_damaged_blob_is_backed_up_without_it_and_says_so(
    data_dir: Path, tmp_path: Path, damage: str
) -> None:
    _, wheel = make_wheel("kept", "0.2.0", code="VERSION = '0.2.0'\n")
    blob = data_dir / "blobs" / "sha256" / sha256(wheel)[:2] / sha256(wheel)
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(wheel[:-1] + b"x")
    done = prime("hub", "backup", str(tmp_path / "backup.tar"), "--data-dir", str(data_dir))
    assert done.returncode == 1
    assert f"1 blobs of this hub are missing or damaged, the first is {sha256(wheel)}" in done.stderr
    restored = prime("hub", "restore", str(tmp_path / "backup.tar"), "--data-dir", str(tmp_path / "restored"))
    assert restored.returncode == 0
    assert "1 blobs were missing or damaged" in restored.stderr
    assert blobs_in(tmp_path / "restored") == blobs_in(data_dir) - {sha256(wheel)}


PARTS = ["manifest.json", "blobs.txt.gz", "tables/releases.jsonl.gz", "keys/signing.key", "blobs/"]


@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_backup_is_refused_and_leaves_nothing(stopped: Path, tmp_path: Path, part: str) -> None:
    whole, damaged = tmp_path / "backup.tar", tmp_path / "damaged.tar"
    back_up(stopped, None, whole)
    with tarfile.open(whole) as tar:
        member = next(member for member in tar if member.name.startswith(part) and member.size)
    middle = member.offset_data + member.size // 2
    flipped = bytearray(whole.read_bytes())
    flipped[member.offset_data if part == "manifest.json" else middle] ^= 0x08
    for data in (bytes(flipped), whole.read_bytes()[:middle]):
        damaged.write_bytes(data)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(NotServing, match=r"damaged|not a whole tar|not a backup"):
            verify(damaged)
        with pytest.raises(NotServing, match=r"damaged|not a whole tar|not a backup"):
            restore(damaged, tmp_path / "restored")
        assert sorted(tmp_path.iterdir()) == before


def test_a_backup_of_later_tables_or_of_a_later_format_is_refused(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    manifest = Path(back_up(data_dir, None, folder).path) / "manifest.json"
    text = manifest.read_text()
    for change, words in (
        ({"revision": "9999"}, "tables of a version that this one does not know"),
        ({"format": 2}, "not a backup that this version reads"),
    ):
        manifest.write_text(json.dumps(json.loads(text) | change))
        with pytest.raises(NotServing, match=words):
            restore(folder, tmp_path / "restored")
        assert {path.name for path in tmp_path.iterdir()} == {"data", "backups"}


def test_rows_that_refer_to_nothing_are_refused(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    snapshot = Path(back_up(data_dir, None, folder).path)
    table, manifest = snapshot / "tables" / "releases.jsonl.gz", json.loads((snapshot / "manifest.json").read_text())
    header = gzip.decompress(table.read_bytes()).splitlines(keepends=True)[0]
    table.write_bytes(gzip.compress(header))
    (member,) = [member for member in manifest["members"] if member["path"] == "tables/releases.jsonl.gz"]
    member |= {"sha256": sha256(table.read_bytes()), "rows": 0}
    (snapshot / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(NotServing, match="refer to rows that are not there"):
        restore(folder, tmp_path / "restored")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "backups"}


def content_of(*folders: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("data", "target", "options", "words"),
    [
        ("nothing", "b.tar", {}, "is not the data folder of a hub"),
        ("data", "taken.tar", {}, "is there already"),
        ("data", "nowhere/b.tar", {}, "there is no folder"),
        ("data", "b.tar.zst", {}, "not written as .zst"),
        ("data", "b.tar", {"keep": 3}, "a .tar is one backup"),
        ("data", "data", {}, "is not a folder of backups"),
    ],
)
def test_a_backup_that_cannot_be_is_refused_and_changes_nothing(
    data_dir: Path, tmp_path: Path, data: str, target: str, options: dict[str, int], words: str
) -> None:
    (tmp_path / "taken.tar").write_bytes(b"something else")
    before = content_of(tmp_path)
    with pytest.raises(NotServing, match=words):
        back_up(tmp_path / data, None, tmp_path / target, keep=options.get("keep"))
    assert content_of(tmp_path) == before


@pytest.mark.parametrize(
    ("source", "data", "snapshot", "words"),
    [
        ("taken.tar", "data", None, "is not empty"),
        ("taken.tar", "new", None, "is not a whole tar file"),
        ("taken.tar", "new", "first", "is not a folder of backups"),
        ("nothing.tar", "new", None, "there is no backup"),
        ("data", "new", None, "there is no backup"),
        ("backups", "new", "first", "there is no backup 'first'"),
        ("backups", "taken.tar", None, "is not empty"),
    ],
)
def test_a_restore_that_cannot_be_is_refused_and_changes_nothing(
    data_dir: Path, tmp_path: Path, source: str, data: str, snapshot: str | None, words: str
) -> None:
    (tmp_path / "taken.tar").write_bytes(b"something else")
    back_up(data_dir, None, tmp_path / "backups")
    before = content_of(tmp_path)
    with pytest.raises(NotServing, match=words):
        restore(tmp_path / source, tmp_path / data, snapshot=snapshot)
    assert content_of(tmp_path) == before


def test_nothing_is_collected_while_a_backup_runs_and_a_backup_waits_for_a_collection(
    data_dir: Path, tmp_path: Path
) -> None:
    database = Database(f"sqlite:///{data_dir / 'hub.db'}")
    with keeping_blobs(database, data_dir):
        with pytest.raises(NotServing, match="a backup of this hub, or another collection, is under way"):
            collect_garbage(data_dir, None, timedelta(hours=24))
        back_up(data_dir, None, tmp_path / "second.tar")
    done: list[BackedUp] = []
    waiting = threading.Thread(target=lambda: done.append(back_up(data_dir, None, tmp_path / "waited.tar")))
    with collecting(database, data_dir):
        waiting.start()
        waiting.join(0.5)
        assert done == []
    waiting.join(20)
    assert len(done) == 1
    database.close()


def test_a_second_backup_into_a_folder_at_once_is_refused(data_dir: Path, tmp_path: Path) -> None:
    with FolderTarget(tmp_path / "backups", "now"), pytest.raises(NotServing, match="another backup is being written"):
        back_up(data_dir, None, tmp_path / "backups")


def test_every_column_of_every_table_goes_out_and_in_again(stopped: Path, tmp_path: Path) -> None:
    back_up(stopped, None, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "restored")
    tables = []
    for folder in (stopped, tmp_path / "restored"):
        database = Database(f"sqlite:///{folder / 'hub.db'}")
        with database.engine.connect() as connection:
            names = [table.name for table in tables_of(connection)]
            tables.append(
                {name: connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1, 2").all() for name in names}
            )
        database.close()
    assert tables[0] == tables[1]
    assert sum(map(len, tables[0].values())) > 30


def test_a_hub_whose_restore_was_cut_off_does_not_serve(data_dir: Path) -> None:
    (data_dir / "restoring").touch()
    refused = prime("hub", "serve", "--port", "0", "--data-dir", str(data_dir))
    assert refused.returncode == 1
    assert "a restore into" in refused.stderr


def test_the_moment_of_the_last_backup_is_a_metric(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    try:
        made = back_up(hub.data_dir, None, tmp_path / "backup.tar")
        assert made.made_at in (hub.data_dir / "last-backup.json").read_text()
        headers = {"Authorization": f"Bearer {hub.admin_key}"}
        text = httpx.get(f"{hub.url}/metrics", headers=headers, trust_env=False).text
        assert "prime_hub_last_backup_timestamp_seconds 1" in text
    finally:
        hub.end()


def test_a_file_of_rows_is_read_in_any_order_of_its_columns(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    path = tmp_path / "index_names.jsonl.gz"
    lines = [["environment_id", "normalized_name"], ["cabc", "thing"]]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    with database.write() as session:
        filling = Filling(session.connection())
        filling.begin()
        (table,) = [table for table in filling.tables if table.name == "index_names"]
        assert read_table(session.connection(), table, path) == 1
        assert session.connection().execute(table.select()).all() == [("thing", "cabc")]
        session.connection().execute(table.delete())
    database.close()


def rows_of(database_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables as Python sees them, in an order that no database chooses."""
    database = Database(database_url)
    with database.read() as session:
        tables = [Base.metadata.tables[table.name] for table in tables_of(session.connection())]
        rows = {table.name: sorted(map(tuple, session.execute(table.select())), key=repr) for table in tables}
    database.close()
    return rows


def test_a_hub_moves_from_sqlite_to_postgresql_and_back(stopped: Path, tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.fresh_url()
    back_up(stopped, None, tmp_path / "sqlite.tar")
    restore(tmp_path / "sqlite.tar", tmp_path / "moved", url)
    expected = rows_of(f"sqlite:///{stopped / 'hub.db'}")
    assert rows_of(url) == expected
    hub = start_hub(tmp_path / "moved", "--database-url", url)
    try:
        assert len(shown_by(hub)["files"]) == 2
        with hub.client(hub.admin_key) as client:
            assert Push(client, "kept", "0.4.0", code="VERSION = 4\n").run().is_success
        done = prime(
            "hub", "backup", str(tmp_path / "back.tar"), "--data-dir", str(hub.data_dir), "--database-url", url
        )
        assert done.returncode == 0, done.stderr
        moved = shown_by(hub)
    finally:
        hub.end()
    restore(tmp_path / "back.tar", tmp_path / "back")
    hub = start_hub(tmp_path / "back")
    try:
        assert shown_by(hub) == moved
    finally:
        hub.end()


def test_a_database_with_rows_is_not_restored_into(stopped: Path, tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.fresh_url()
    back_up(stopped, None, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "first", url)
    before = rows_of(url)
    with pytest.raises(NotServing, match="the database is not empty"):
        restore(tmp_path / "backup.tar", tmp_path / "second", url)
    assert not (tmp_path / "second").exists()
    assert rows_of(url) == before


def test_a_restore_into_a_database_that_was_cut_off_is_done_again(
    stopped: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.fresh_url()
    back_up(stopped, None, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "cut-off")
    (tmp_path / "cut-off" / "restoring").touch()
    (tmp_path / "cut-off" / "admin.key").unlink()
    restore(tmp_path / "backup.tar", tmp_path / "cut-off", url)
    assert not (tmp_path / "cut-off" / "restoring").exists()
    assert (tmp_path / "cut-off" / "admin.key").exists()
    assert rows_of(url) == rows_of(f"sqlite:///{stopped / 'hub.db'}")


def test_nothing_is_collected_from_postgresql_while_a_backup_runs(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.fresh_url()
    start_hub(tmp_path / "data", "--database-url", url).end()
    database = Database(url)
    with keeping_blobs(database, tmp_path / "data"):
        with pytest.raises(NotServing, match="a backup of this hub, or another collection, is under way"):
            collect_garbage(tmp_path / "data", url, timedelta(hours=24))
        back_up(tmp_path / "data", url, tmp_path / "second.tar")
    database.close()
    collect_garbage(tmp_path / "data", url, timedelta(hours=24))
