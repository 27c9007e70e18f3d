"""Values at rest: nowhere in clear, readable with the right key only, handed to jobs and to nobody else."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest

from hub_server.database import Database
from hub_server.errors import NotServing, Unavailable
from hub_server.registry.tables import Environment
from hub_server.secrets import service
from hub_server.secrets.keys import open_vault, rotate_key
from hub_server.secrets.tables import Secret, SecretsKey, Variable
from hub_server.secrets.vault import Vault, WrongKey
from prime_cli.hub.models import NewGlobalSecret, NewSecret, NewVariable
from tests.running_hub import PRIME, RunningHub, answer, start_hub

VALUE = "sk-the-very-secret-value-4711"


def rotate(data_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `prime hub rotate-secrets-key`."""
    command = [*PRIME, "--output", "json", "hub", "rotate-secrets-key", "--data-dir", str(data_dir), *options]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


def fill(hub: RunningHub) -> str:
    """Give a hub a secret, a linked one, one of an environment, and a variable; returns the environment's id."""
    with hub.client(hub.admin_key) as client:
        found = answer(client.post("/environmentshub/resolve", json={"name": "sums"}))["data"]["id"]
        home = f"/environmentshub/{found}"
        shared = answer(client.post("/secrets", json={"name": "SHARED", "value": f"{VALUE} shared"}))["data"]["id"]
        answer(client.post(f"{home}/secrets/link/{shared}"))
        answer(client.post(f"{home}/secrets", json={"name": "OWN", "value": f"{VALUE} own"}))
        answer(client.post(f"{home}/variables", json={"name": "LEVEL", "value": f"{VALUE} level"}))
    return str(found)


def job_of(data_dir: Path, environment_id: str) -> dict[str, str]:
    """Return what a job of the environment gets, as a hub on this folder would hand it out."""
    database = Database(f"sqlite:///{data_dir}/hub.db")
    try:
        vault = open_vault(database, data_dir)
        with database.read() as session:
            return service.for_job(session, vault, session.get_one(Environment, environment_id))
    finally:
        database.close()


EXPECTED = {"LEVEL": f"{VALUE} level", "OWN": f"{VALUE} own", "SHARED": f"{VALUE} shared"}


def test_no_value_is_in_clear_in_any_file_answer_page_or_log(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    told = []
    with hub.client(hub.admin_key) as client:
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
        secret = answer(client.get("/secrets"))["data"][0]["id"]
        home = f"/environmentshub/{environment_id}"
        for response in (
            client.get("/secrets"), client.get(f"/secrets/{secret}"), client.get(f"{home}/secrets"),
            client.patch(f"/secrets/{secret}", json={"value": f"{VALUE} again"}),
            client.post("/secrets", json={"name": "SHARED", "value": VALUE}),
            client.post("/secrets", json={"name": "lower", "value": VALUE}),
            client.post("/secrets", content=f'{{"name": "A", "value": "{VALUE}",'),
            client.post(f"{home}/secrets", json={"name": "FILE", "value": VALUE, "isFile": True}),
            client.get(f"{hub.url}/"), client.get(f"{hub.url}/dashboard/environments/{slug}/sums"),
        ):  # fmt: skip
            assert response.status_code < 500
            told.append(response.text)
    # The log beside the database holds what a running hub has written, so it is read while the hub runs.
    held = b"".join(path.read_bytes() for path in hub.data_dir.rglob("*") if path.is_file())
    assert (hub.data_dir / "hub.db-wal").exists()
    hub.end()
    held += b"".join(path.read_bytes() for path in hub.data_dir.rglob("*") if path.is_file())
    held += (hub.log + "".join(told)).encode()
    assert b"SHARED" in held, "names can be read"
    assert VALUE.encode() not in held
    assert stat.S_IMODE((hub.data_dir / "secrets.key").stat().st_mode) == 0o600


def test_a_hub_without_its_key_does_not_start(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    hub.end()
    key_file = hub.data_dir / "secrets.key"
    key = key_file.read_text()
    key_file.unlink()
    with pytest.raises(AssertionError, match=r"secrets.key is missing") as missing:
        start_hub(hub.data_dir)
    assert "Traceback" not in str(missing.value)
    assert not key_file.exists(), "no other key takes the place of a lost one"
    key_file.write_text("ab" * 32)
    key_file.chmod(0o600)
    with pytest.raises(AssertionError, match="is not the key that the secrets of this hub are sealed with"):
        start_hub(hub.data_dir)
    key_file.write_text(key)
    key_file.chmod(0o640)
    with pytest.raises(AssertionError, match="others can read"):
        start_hub(hub.data_dir)
    key_file.chmod(0o600)
    assert job_of(hub.data_dir, environment_id) == EXPECTED


def test_the_key_of_the_variable_wins_and_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", "a password")
    with pytest.raises(AssertionError, match="PRIME_HUB_SECRETS_KEY holds something that is not a key"):
        start_hub(tmp_path / "data")
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", "ab" * 32)
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    hub.end()
    assert not (hub.data_dir / "secrets.key").exists()
    assert job_of(hub.data_dir, environment_id) == EXPECTED
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", "cd" * 32)
    with pytest.raises(AssertionError, match="the key in PRIME_HUB_SECRETS_KEY is not the key"):
        start_hub(hub.data_dir)


def test_rotation_seals_everything_anew_and_leaves_nothing_for_the_former_key(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    refused = rotate(hub.data_dir)
    assert refused.returncode == 1
    assert "another hub is running on" in refused.stderr
    hub.end()
    key_file = hub.data_dir / "secrets.key"
    former_key, former = key_file.read_text(), sealed_values(hub.data_dir)
    assert len(former) == 3
    done = json.loads(rotate(hub.data_dir).stdout)
    assert (done["resealed"], done["forgotten"], done["kept_in"]) == (3, 0, str(key_file))
    assert key_file.read_text() != former_key
    assert len(key_file.read_text().split()) == 1
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    held = b"".join(path.read_bytes() for path in hub.data_dir.glob("hub.db*"))
    assert not any(value in held for value in former)
    assert job_of(hub.data_dir, environment_id) == EXPECTED
    key_file.write_text(former_key)
    with pytest.raises(AssertionError, match="is not the key that the secrets of this hub are sealed with"):
        start_hub(hub.data_dir)


def test_rotation_to_a_key_in_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    hub.end()
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", "ab" * 32)
    assert json.loads(rotate(hub.data_dir).stdout)["kept_in"] == "PRIME_HUB_SECRETS_KEY"
    (hub.data_dir / "secrets.key").unlink()
    assert job_of(hub.data_dir, environment_id) == EXPECTED
    again = rotate(hub.data_dir)
    assert again.returncode == 1
    assert "sealed with the first key of PRIME_HUB_SECRETS_KEY already" in again.stderr
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", f"{'cd' * 32},{'ab' * 32}")
    assert job_of(hub.data_dir, environment_id) == EXPECTED, "before the change the second key is in force"
    assert json.loads(rotate(hub.data_dir).stdout)["resealed"] == 3
    monkeypatch.setenv("PRIME_HUB_SECRETS_KEY", "cd" * 32)
    assert job_of(hub.data_dir, environment_id) == EXPECTED


def test_a_lost_key_costs_the_values_and_not_the_hub(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    environment_id = fill(hub)
    hub.end()
    (hub.data_dir / "secrets.key").unlink()
    assert rotate(hub.data_dir).returncode == 1
    assert json.loads(rotate(hub.data_dir, "--forget-lost").stdout)["forgotten"] == 3
    assert job_of(hub.data_dir, environment_id) == {}
    hub = start_hub(hub.data_dir)
    try:
        fill(hub)
    finally:
        hub.end()
    assert job_of(hub.data_dir, environment_id) == EXPECTED


@pytest.mark.parametrize("folder", ["nothing", "empty"])
def test_a_folder_without_a_hub_has_no_key_to_change(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    refused = rotate(tmp_path / folder)
    assert refused.returncode == 1
    assert "is not the data folder of a hub" in refused.stderr
    assert not list((tmp_path / "empty").iterdir())


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """An empty database with all tables."""
    database = Database(f"sqlite:///{tmp_path}/hub.db")
    database.migrate()
    return database


def test_a_change_of_the_key_that_is_cut_off_leaves_a_hub_that_starts(database: Database, tmp_path: Path) -> None:
    before = open_vault(database, tmp_path)
    owner, _ = somebody(database)
    add(database, before, owner, "A")
    key_file = tmp_path / "secrets.key"
    # Cut off before the transaction: the file has both keys, the new one first, and the row names the old one.
    key_file.write_text(f"{'ab' * 32}\n{key_file.read_text()}")
    key_file.chmod(0o600)
    assert open_vault(database, tmp_path).fingerprint == before.fingerprint
    rotate_key(database, tmp_path, forget_lost=False)
    after = open_vault(database, tmp_path)
    # Cut off after the transaction: the same file, and the row names the new one.
    key_file.write_text(f"{key_file.read_text()}{'cd' * 32}\n")
    assert open_vault(database, tmp_path).fingerprint == after.fingerprint != before.fingerprint


def test_a_value_that_does_not_open_stops_the_change_of_the_key_as_a_whole(database: Database, tmp_path: Path) -> None:
    vault = open_vault(database, tmp_path)
    owner, _ = somebody(database)
    add(database, vault, owner, "A")
    damaged = add(database, vault, owner, "B")
    with database.write() as session:
        session.get_one(Secret, damaged).sealed = b"\1" + bytes(40)
    before = sealed_values(tmp_path)
    with pytest.raises(NotServing, match=rf"the value of B \({damaged}\) does not open .* nothing was changed"):
        rotate_key(database, tmp_path, forget_lost=False)
    assert sealed_values(tmp_path) == before
    assert open_vault(database, tmp_path).fingerprint == vault.fingerprint


def test_a_value_opens_only_in_its_own_row(database: Database, tmp_path: Path) -> None:
    vault = open_vault(database, tmp_path)
    owner, environment_id = somebody(database)
    with database.write() as session:
        environment = session.get_one(Environment, environment_id)
        mine = service.add_to_environment(session, vault, environment, secret("MINE"))
        variable = service.add_variable(session, vault, environment, NewVariable(name="PLAIN", value="1"))
        variable.sealed = mine.sealed
        session.flush()
        with pytest.raises(Unavailable, match="the value of PLAIN cannot be read with the key of this hub"):
            service.value_of(vault, variable)
        moved = Secret(id=mine.id, owner_id=owner, name="MINE", sealed=mine.sealed)
        with pytest.raises(Unavailable):
            service.value_of(vault, moved)


def test_a_sealed_value_that_was_changed_or_has_another_key_does_not_open() -> None:
    vault = Vault(bytes(32))
    sealed = vault.seal("here", VALUE)
    assert vault.open("here", sealed) == VALUE
    assert vault.seal("here", VALUE) != sealed
    for damaged in (b"", sealed[:-1], sealed[:20], b"\2" + sealed[1:], sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(WrongKey):
            vault.open("here", damaged)
    with pytest.raises(WrongKey):
        vault.open("there", sealed)
    with pytest.raises(WrongKey):
        Vault(b"\1" * 32).open("here", sealed)


def test_a_server_with_the_former_key_writes_no_more(database: Database, tmp_path: Path) -> None:
    former = open_vault(database, tmp_path)
    owner, _ = somebody(database)
    rotate_key(database, tmp_path, forget_lost=False)
    with pytest.raises(Unavailable, match="its operator has to start it again"):
        add(database, former, owner, "LATE")
    with database.read() as session:
        assert service.list_global(session, owner) == []
        assert session.get_one(SecretsKey, 1).fingerprint != former.fingerprint


def test_a_job_gets_the_environments_own_before_linked_ones_before_variables(
    database: Database, tmp_path: Path
) -> None:
    vault = open_vault(database, tmp_path)
    owner, environment_id = somebody(database)
    with database.write() as session:
        environment = session.get_one(Environment, environment_id)
        for name in ("A", "B", "C"):
            service.add_variable(session, vault, environment, NewVariable(name=name, value="variable"))
        for name in ("A", "B", "UNLINKED"):
            linked = service.add_global(session, vault, owner, NewGlobalSecret(name=name, value="linked"))
            if name != "UNLINKED":
                service.link(session, environment, linked)
        service.add_to_environment(session, vault, environment, NewSecret(name="A", value="own"))
        assert service.for_job(session, vault, environment) == {"A": "own", "B": "linked", "C": "variable"}


def somebody(database: Database) -> tuple[str, str]:
    """Add a user with an environment and return the ids of both."""
    from hub_server.accounts.service import create_user
    from hub_server.registry.service import resolve
    from prime_cli.hub.models import ResolveRequest

    with database.write() as session:
        user = create_user(session, slug="somebody")
        environment, _ = resolve(session, user, ResolveRequest(name="sums"))
        return user.id, environment.id


def secret(name: str) -> NewGlobalSecret:
    return NewGlobalSecret(name=name, value=VALUE)


def add(database: Database, vault: Vault, owner_id: str, name: str) -> str:
    with database.write() as session:
        return service.add_global(session, vault, owner_id, secret(name)).id


def sealed_values(data_dir: Path) -> list[bytes]:
    """Return every sealed value as it stands in the database file."""
    connection = sqlite3.connect(data_dir / "hub.db")
    try:
        return [
            row[0]
            for table in (Secret.__tablename__, Variable.__tablename__)
            for row in connection.execute(f"SELECT sealed FROM {table} ORDER BY id")
        ]
    finally:
        connection.close()
