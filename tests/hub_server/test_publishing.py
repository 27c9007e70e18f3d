"""The push flow, end to end on a running hub."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.running_hub import Push, RunningHub, answer, make_source, make_wheel, put, sha256, start_hub

pytestmark = pytest.mark.both_databases

NewUser = Callable[[], tuple[str, str]]


def test_a_pushed_version_can_be_looked_up_in_every_way(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        push = Push(client, "Reverse-Text", "0.1.0")
        assert push.resolve()["created"] is True
        assert answer(push.run())["data"]["success"] is True
        assert push.resolve()["created"] is False
        for wanted in ("latest", "0.1.0", push.content_hash, push.content_hash[:8]):
            details = answer(nobody.get(f"/environmentshub/{slug}/reverse_text/@{wanted}"))["data"]
            assert details["semantic_version"] == "0.1.0"
        assert details["content_hash"] == push.content_hash
        assert details["wheel_sha256"] == sha256(push.wheel)
        assert details["metadata"]["description"] == "about Reverse-Text"
        assert httpx.get(details["wheel_url"], trust_env=False).content == push.wheel
        assert httpx.get(details["package_url"], trust_env=False).content == push.source
        (row,) = answer(nobody.get(f"/environmentshub/{slug}/reverse-text/versions"))["data"]["versions"]
        assert (row["version"], row["sha256"], row["size"]) == ("0.1.0", push.content_hash, 2)
        status = answer(nobody.get(f"/environmentshub/{slug}/reverse-text/status"))["data"]
        assert status["latest_version"]["semantic_version"] == "0.1.0"
        for body in ({"id": push.environment_id}, {"name": "reverse_text", "team_slug": slug}):
            assert answer(nobody.post("/environmentshub/lookup", json=body))["data"]["id"] == push.environment_id
        refused = nobody.post("/environmentshub/lookup", json={"name": "reverse_text"})
        assert refused.status_code == 422
        assert "give the id of an environment" in refused.json()["detail"][0]["msg"]


def test_nothing_is_visible_before_the_last_step(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        push = Push(client, "half-done", "0.1.0")
        push.resolve()
        assert push.send_wheel().is_success
        assert nobody.get(f"/environmentshub/{slug}/half-done/@latest").status_code == 404
        assert client.get(f"/environmentshub/{slug}/half-done/@latest").status_code == 404
        assert answer(nobody.get("/environmentshub/", params={"owner": slug}))["total_count"] == 0
        assert httpx.get(f"{hub.url}/index/{slug}/simple/half-done/", trust_env=False).status_code == 404
        assert push.send_source().is_success
        assert nobody.get(f"/environmentshub/{slug}/half-done/@latest").status_code == 200


def test_pushing_the_same_bytes_again_changes_nothing(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "again", "0.1.0")
        assert push.run().is_success
        before = answer(client.get(f"/environmentshub/{slug}/again/versions"))
        assert answer(push.announce_wheel())["data"]["upload_url"] is None
        push.source = make_source({"packed": "at another time"})
        assert push.run().is_success
        assert answer(client.get(f"/environmentshub/{slug}/again/versions")) == before


def test_a_published_version_never_takes_other_bytes(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        first = Push(client, "fixed", "0.1.0")
        assert first.run().is_success
        for version in ("0.1.0", "0.1", "v0.1.0"):
            refused = Push(client, "fixed", version, code="VALUE = 2\n")
            refused.resolve()
            refused.filename, refused.wheel = make_wheel("fixed", "0.1.0", code="VALUE = 2\n")
            response = refused.announce_wheel()
            assert response.status_code == 409
            words = response.json()["detail"]
            assert "content hash" in words
            assert "already exists" in words
            assert f"version 0.1.0 of {slug}/fixed" in words
            assert refused.announce_source().status_code == 409
        details = answer(client.get(f"/environmentshub/{slug}/fixed/@latest"))["data"]
        assert httpx.get(details["wheel_url"], trust_env=False).content == first.wheel


def test_the_same_content_is_not_published_under_two_numbers(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        first = Push(client, "twice", "0.1.0")
        assert first.run().is_success
        second = Push(client, "twice", "0.2.0")
        second.resolve()
        response = second.announce_wheel(content_hash=first.content_hash)
        assert response.status_code == 409
        assert "content hash" in response.json()["detail"]


def test_of_two_pushes_of_one_version_at_once_exactly_one_wins(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        pushes = [Push(hub.client(key), "race", "0.1.0", code=f"VALUE = {number}\n") for number in range(2)]
        for push in pushes:
            push.resolve()
            assert push.send_wheel().is_success
        results: dict[int, httpx.Response] = {}
        barrier = threading.Barrier(2)

        def finish(number: int) -> None:
            barrier.wait()
            results[number] = pushes[number].send_source()

        threads = [threading.Thread(target=finish, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [number for number, response in results.items() if response.is_success]
        assert len(winners) == 1
        loser = results[1 - winners[0]]
        assert loser.status_code == 409
        assert "already exists" in loser.json()["detail"]
        details = answer(client.get(f"/environmentshub/{slug}/race/@latest"))["data"]
        assert httpx.get(details["wheel_url"], trust_env=False).content == pushes[winners[0]].wheel
        assert len(answer(client.get(f"/environmentshub/{slug}/race/versions"))["data"]["versions"]) == 1


def test_a_push_that_was_cut_off_does_not_block_another(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        cut_off = Push(client, "cut-off", "0.1.0", code="VALUE = 'lost'\n")
        cut_off.resolve()
        assert cut_off.send_wheel().is_success
        assert Push(client, "cut-off", "0.1.0").run().is_success


def test_a_wheel_can_be_published_alone(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "alone", "0.1.0")
        push.resolve()
        data = answer(push.announce_wheel(wheel_only=True))["data"]
        assert put(data["upload_url"], push.wheel).is_success
        assert push.finalize("wheels", data["wheel_id"]).is_success
        details = answer(client.get(f"/environmentshub/{slug}/alone/@latest"))["data"]
        assert details["package_url"] is None
        assert details["wheel_url"]
        assert answer(push.announce_wheel(wheel_only=True))["data"]["upload_url"] is None


def test_a_deleted_version_is_gone_and_its_number_is_never_given_again(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        first, second = Push(client, "gone", "0.1.0"), Push(client, "gone", "0.2.0")
        assert first.run().is_success
        assert second.run().is_success
        answer(client.delete(f"/environmentshub/{slug}/gone/@{second.content_hash[:8]}"))
        assert answer(client.get(f"/environmentshub/{slug}/gone/@latest"))["data"]["semantic_version"] == "0.1.0"
        assert client.get(f"/environmentshub/{slug}/gone/@0.2.0").status_code == 404
        assert second.filename not in httpx.get(f"{hub.url}/index/{slug}/simple/gone/", trust_env=False).text
        for push in (second, Push(client, "gone", "0.2.0", code="VALUE = 3\n")):
            push.resolve()
            refused = push.announce_wheel()
            assert refused.status_code == 409
            assert "never given again" in refused.json()["detail"]


def test_a_deleted_environment_comes_back_without_its_old_versions(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "phoenix", "0.1.0")
        assert push.run().is_success
        answer(client.delete(f"/environmentshub/{slug}/phoenix"))
        assert client.get(f"/environmentshub/{slug}/phoenix/@latest").status_code == 404
        assert client.delete(f"/environmentshub/{slug}/phoenix").status_code == 404
        assert push.resolve()["created"] is True
        assert push.announce_wheel().status_code == 409
        assert Push(client, "phoenix", "0.2.0").run().is_success


def test_an_upload_with_other_bytes_than_announced_is_refused(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "wrong", "0.1.0")
        push.resolve()
        data = answer(push.announce_wheel())["data"]
        assert put(data["upload_url"], b"x" * len(push.wheel)).status_code == 400
        assert put(data["upload_url"], push.wheel + b"more").status_code == 413
        assert put(data["upload_url"].rsplit(".", 1)[0] + ".forged", push.wheel).status_code == 403
        refused = push.finalize("wheels", data["wheel_id"])
        assert refused.status_code == 400
        assert "not uploaded yet" in refused.json()["detail"]
        assert put(data["upload_url"], push.wheel).is_success
        assert put(data["upload_url"], push.wheel).is_success
        assert push.finalize("wheels", data["wheel_id"]).is_success
        assert push.finalize("wheels", data["wheel_id"]).is_success


def test_a_wheel_that_is_not_sound_is_refused_and_forgotten(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "broken", "0.1.0")
        sound = push.wheel
        push.wheel = make_wheel("broken", "0.1.0", without="RECORD")[1]
        push.resolve()
        refused = push.send_wheel()
        assert refused.status_code == 400
        assert "RECORD" in refused.json()["detail"]
        assert push.send_source().status_code == 400
        push.wheel = sound
        assert push.run().is_success


def test_an_archive_that_is_not_sound_is_refused(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as client:
        push = Push(client, "unsound", "0.1.0")
        push.source = make_source({"../outside": "x"})
        refused = push.run()
        assert refused.status_code == 400
        assert "outside" in refused.json()["detail"]


def test_what_cannot_be_announced_says_why(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    other, _ = new_user()
    with hub.client(key) as client:
        push = Push(client, "words", "0.1.0")
        push.resolve()
        wrong = {
            "is not a version": {"semantic_version": "one"},
            "is not of version": {"semantic_version": "0.2.0"},
            "does not install as": {"filename": "other-0.1.0-py3-none-any.whl"},
            "file name of a wheel": {"filename": "words-0.1.0.zip"},
        }
        for words, changes in wrong.items():
            response = push.announce_wheel(**changes)
            assert response.status_code == 400
            assert words in response.json()["detail"]
        assert push.announce_wheel(size=2**40).status_code == 413
        bad_name = push.announce_wheel(filename="../words-0.1.0-py3-none-any.whl")
        assert bad_name.status_code == 422
        assert bad_name.json()["detail"][0]["loc"] == ["body", "filename"]
        assert client.post("/environmentshub/resolve", json={"name": "x", "owner_slug": other}).status_code == 403
        assert client.post("/environmentshub/resolve", json={"name": "x", "owner_slug": slug}).status_code == 200
        assert client.post("/environmentshub/resolve", json={"name": "x", "team_slug": "lab"}).status_code == 404


def test_a_hub_killed_during_an_upload_shows_nothing_of_it_and_takes_it_afterwards(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "data")
    with hub.client(hub.admin_key) as client:
        kept = Push(client, "kept", "0.1.0")
        assert kept.run().is_success
        slug = answer(client.get("/user/whoami"))["data"]["slug"]
        push = Push(client, "killed", "0.1.0", code=f"VALUE = '{'x' * 200_000}'\n")
        push.resolve()
        upload_url = answer(push.announce_wheel())["data"]["upload_url"]
        address = httpx.URL(upload_url)
        with socket.create_connection((address.host, address.port or 80)) as connection:
            head = f"PUT {address.raw_path.decode()} HTTP/1.1\r\nHost: {address.host}\r\n"
            connection.sendall(f"{head}Content-Length: {len(push.wheel)}\r\n\r\n".encode() + push.wheel[:200])
            while not any((hub.data_dir / "blobs" / "incoming").iterdir()):
                pass
            hub.end(signal.SIGKILL)
    hub = start_hub(tmp_path / "data")
    try:
        with hub.client(hub.admin_key) as client:
            assert not list((hub.data_dir / "blobs" / "incoming").iterdir())
            assert answer(client.get("/environmentshub/"))["total_count"] == 1
            assert client.get(f"/environmentshub/{slug}/killed/@latest").status_code == 404
            details = answer(client.get(f"/environmentshub/{slug}/kept/@latest"))["data"]
            assert httpx.get(details["wheel_url"], trust_env=False).content == kept.wheel
            assert Push(client, "killed", "0.1.0", code=push.code).run().is_success
    finally:
        hub.end()
