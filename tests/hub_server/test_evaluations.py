"""Evaluations over the wire: the published names, who may see what, and samples that come out of order and twice."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_server.accounts.service import create_user
from hub_server.blobs import FolderBlobs
from hub_server.database import Database
from hub_server.evaluations import sample_store, service
from hub_server.evaluations.samples import read_batch
from hub_server.garbage import collect
from prime_cli.hub.models import NewEvaluation
from tests.running_hub import Push, RunningHub, answer

pytestmark = pytest.mark.both_databases

NewUser = Callable[[], tuple[str, str]]
# What prime-evals 0.2.4 reads in an evaluation.
PUBLISHED = {
    "evaluation_id", "name", "model_name", "dataset", "framework", "task_type", "eval_type", "description", "status",
    "environment_ids", "suite_id", "run_id", "version_id", "tags", "metadata", "metrics", "total_samples",
    "created_at", "updated_at", "finalized_at", "user_id", "team_id", "viewer_url", "error_message", "avg_score",
}  # fmt: skip


def begin(client: httpx.Client, **fields: Any) -> str:
    """Begin an evaluation and return its id."""
    return str(answer(client.post("/evaluations/", json={"name": "a run", "tags": [], **fields}))["evaluation_id"])


def push(client: httpx.Client, evaluation: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Push one batch."""
    return answer(client.post(f"/evaluations/{evaluation}/samples", json={"samples": samples}))


def rollouts(examples: int, per_example: int) -> list[dict[str, Any]]:
    """Return rollouts that know which one they are, each with a reward of its own."""
    return [
        {
            "example_id": example, "rollout_number": number, "reward": (example + number) / 10,
            "prompt": [{"role": "user", "content": f"question {example} äöü"}],
            "completion": [{"role": "assistant", "content": "x" * 200}],
        }
        for example in range(examples) for number in range(per_example)
    ]  # fmt: skip


def all_samples(client: httpx.Client, evaluation: str, limit: int = 7) -> list[dict[str, Any]]:
    """Read all samples page by page."""
    found: list[dict[str, Any]] = []
    page = 1
    while True:
        part = answer(client.get(f"/evaluations/{evaluation}/samples", params={"page": page, "limit": limit}))
        found += part["samples"]
        assert (part["page"], part["limit"]) == (page, limit)
        if not part["has_more"]:
            assert part["total"] == len(found)
            return found
        page += 1


def test_an_evaluation_speaks_with_the_published_names(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client:
        environment = Push(client, "sums", "0.1.0")
        assert environment.run().is_success
        version = answer(client.get(f"/environmentshub/{slug}/sums/@latest"))["data"]["version_id"]
        begun = answer(
            client.post(
                "/evaluations/",
                json={
                    "name": "sums--m", "environments": [{"id": environment.environment_id, "version_id": version}],
                    "model_name": "m", "dataset": "sums", "framework": "verifiers", "task_type": "math",
                    "description": "about it", "tags": ["nightly"],
                    "metadata": {"num_examples": 2, "rollouts_per_example": 3, "notes": "long"},
                    "metrics": {"reward": 0.5}, "a_key_of_tomorrow": 1,
                },
            )
        )  # fmt: skip
        assert begun.keys() >= PUBLISHED
        assert begun["status"] == "PENDING"
        assert begun["environment_names"] == [f"{slug}/sums"]
        assert begun["version_id"] == version
        assert begun["viewer_url"] == f"{hub.url}/dashboard/evaluations/{begun['evaluation_id']}"
        path = f"/evaluations/{begun['evaluation_id']}"
        told = push(client, begun["evaluation_id"], rollouts(2, 3))
        assert (told["samples_added"], told["total_samples"]) == (6, 6)
        assert answer(client.get(path))["status"] == "RUNNING"
        done = answer(client.post(f"{path}/finalize", headers={"Content-Type": "application/json"}))
        assert (done["status"], done["metrics"]) == ("COMPLETED", {"reward": 0.5})
        assert answer(client.post(f"{path}/finalize", json={"metrics": {"reward": 0.15}}))["metrics"] == {
            "reward": 0.15
        }
        details = answer(client.get(path))
        assert details["avg_score"] == pytest.approx(0.15)
        assert details["metadata"]["notes"] == "long"
        listed = answer(client.get("/evaluations/", params={"environment_name": f"{slug}/sums", "skip": 0, "limit": 5}))
        assert listed["total"] == 1
        assert listed["evaluations"][0].keys() >= PUBLISHED
        assert listed["evaluations"][0]["metadata"] == {"num_examples": 2, "rollouts_per_example": 3}


def test_batches_out_of_order_and_repeated_are_not_doubled(hub: RunningHub, new_user: NewUser) -> None:
    samples = rollouts(10, 3)
    batches = [samples[start : start + 4] for start in range(0, len(samples), 4)]
    order = [*batches, *batches[2:5]]
    random.Random(0).shuffle(order)
    with hub.client(new_user()[1]) as client:
        evaluation = begin(client)
        told = [push(client, evaluation, batch) for batch in order]
        assert sum(one["samples_added"] for one in told) == 30
        assert sum(one["samples_repeated"] for one in told) == 12
        assert all_samples(client, evaluation) == samples
        assert answer(client.get(f"/evaluations/{evaluation}"))["avg_score"] == pytest.approx(0.55)


def test_two_clients_that_push_the_same_batches_at_once_add_them_once(hub: RunningHub, new_user: NewUser) -> None:
    key = new_user()[1]
    samples = rollouts(40, 3)
    batches = [samples[start : start + 10] for start in range(0, len(samples), 10)]
    told: list[dict[str, Any]] = []
    with hub.client(key) as client:
        evaluation = begin(client)

    def run(number: int) -> None:
        with hub.client(key) as client:
            told.extend([push(client, evaluation, batch) for batch in (batches if number % 2 else batches[::-1])])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4 * len(batches)
    assert sum(one["samples_added"] for one in told) == len(samples)
    assert sum(one["samples_differing"] for one in told) == 0
    with hub.client(key) as client:
        assert all_samples(client, evaluation, limit=50) == samples


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"sample_id": "a", "reward": 1}, {"sample_id": "b", "reward": 1}, False),
        ({"sample_id": "a", "reward": 1}, {"sample_id": "a", "reward": 0}, True),
        ({"id": "a", "reward": 1}, {"id": "a", "reward": 0}, True),
        ({"example_id": 1, "rollout_number": 0}, {"example_id": 1, "rollout_number": 1}, False),
        ({"example_id": 1, "rollout_number": 0, "reward": 0}, {"example_id": 1, "rollout_number": 0}, True),
        ({"example_id": 1, "rollout_number": 0}, {"example_id": "1", "rollout_number": 0}, False),
        ({"example_id": 1, "reward": 1}, {"example_id": 1, "reward": 0}, False),
        ({"example_id": 1, "reward": 1}, {"example_id": 1, "reward": 1}, True),
    ],
)
def test_a_sample_is_known_by_its_id_else_its_rollout_else_its_content(
    hub: RunningHub, new_user: NewUser, first: dict[str, Any], second: dict[str, Any], same: bool
) -> None:
    with hub.client(new_user()[1]) as client:
        evaluation = begin(client)
        push(client, evaluation, [first])
        told = push(client, evaluation, [second])
        assert told["total_samples"] == (1 if same else 2)
        assert told["samples_differing"] == (1 if same and first != second else 0)
        assert first in all_samples(client, evaluation)


def test_only_rewards_of_rollouts_without_an_error_count(hub: RunningHub, new_user: NewUser) -> None:
    samples = [
        {"example_id": 0, "reward": 1.0}, {"example_id": 1, "reward": 0.0, "error": {"error": "ModelError"}},
        {"example_id": 2, "reward": None}, {"example_id": 3, "score": 0.5}, {"example_id": 4, "reward": 10**400},
    ]  # fmt: skip
    with hub.client(new_user()[1]) as client:
        evaluation = begin(client)
        assert answer(client.get(f"/evaluations/{evaluation}"))["avg_score"] is None
        push(client, evaluation, samples)
        assert answer(client.get(f"/evaluations/{evaluation}"))["avg_score"] == 0.75


def test_an_evaluation_is_its_owners_until_it_is_public(hub: RunningHub, new_user: NewUser) -> None:
    _, key = new_user()
    with hub.client(key) as owner, hub.client(new_user()[1]) as stranger, hub.client() as nobody:
        environment = Push(owner, "hidden", "0.1.0", visibility="PRIVATE")
        assert environment.run().is_success
        evaluation = begin(owner, environments=[{"id": environment.environment_id}])
        path = f"/evaluations/{evaluation}"
        push(owner, evaluation, rollouts(1, 1))
        for other in (stranger, nobody):
            assert other.get(path).status_code == 404
            assert other.get(f"{path}/samples").status_code == 404
        assert stranger.put(path, json={"name": "mine now"}).status_code == 404
        assert stranger.post(f"{path}/samples", json={"samples": []}).status_code == 404
        assert nobody.post(f"{path}/samples", json={"samples": []}).status_code == 401
        assert stranger.post("/evaluations/", json={"name": "x", "environments": [{"id": environment.environment_id}]}
                             ).status_code == 404  # fmt: skip

        assert answer(owner.put(path, json={"is_public": True}))["is_public"] is True
        for other in (stranger, nobody):
            shown = answer(other.get(path))
            assert shown["environment_names"] == [], "the name of a private environment stays private"
            assert environment.environment_id not in str(shown)
            assert len(answer(other.get(f"{path}/samples"))["samples"]) == 1
        assert stranger.put(path, json={"name": "mine now"}).status_code == 403
        assert stranger.post(f"{path}/finalize", json={}).status_code == 403
        assert nobody.post(f"{path}/finalize", json={}).status_code == 401
        assert answer(stranger.get("/evaluations/"))["total"] == 0
        assert answer(owner.get("/evaluations/"))["total"] == 1
        assert nobody.get("/evaluations/").status_code == 401


def test_lists_are_filtered_by_environment_and_suite_and_come_in_parts(hub: RunningHub, new_user: NewUser) -> None:
    slug, key = new_user()
    with hub.client(key) as client, hub.client() as nobody:
        environment = Push(client, "listed", "0.1.0")
        assert environment.run().is_success
        reference = [{"id": environment.environment_id}]
        private = begin(client, environments=reference)
        time.sleep(0.01)
        public = begin(client, environments=reference, is_public=True, suite_id=f"suite-of-{slug}")
        begin(client, run_id="a-training")

        def ids(caller: httpx.Client, **params: Any) -> list[str]:
            return [row["evaluation_id"] for row in answer(caller.get("/evaluations/", params=params))["evaluations"]]

        assert ids(client, environment_name=f"{slug}/Listed") == [public, private]
        assert ids(nobody, environment_name=f"{slug}/listed") == [public]
        assert ids(nobody, suite_id=f"suite-of-{slug}") == [public]
        assert ids(client, environment_name="no-such") == []
        assert len(ids(client, skip=1, limit=1)) == 1
        assert client.get("/evaluations/", params={"team_id": "c123"}).status_code == 404


def test_what_ended_stays_ended(hub: RunningHub, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as client:
        failed, completed = begin(client, tags=["kept"]), begin(client)
        told = answer(
            client.put(
                f"/evaluations/{failed}", json={"status": "FAILED", "error_message": "out of memory", "tags": []}
            )
        )
        assert (told["status"], told["error_message"], told["tags"]) == ("FAILED", "out of memory", ["kept"])
        assert told["finalized_at"]
        assert client.put(f"/evaluations/{failed}", json={"status": "FAILED"}).is_success
        for response in (
            client.put(f"/evaluations/{failed}", json={"status": "CANCELLED"}),
            client.post(f"/evaluations/{failed}/finalize", json={}),
        ):
            assert response.status_code == 409
            assert "already closed: FAILED" in response.json()["detail"]
        assert client.post(f"/evaluations/{completed}/finalize", json={}).is_success
        assert client.put(f"/evaluations/{completed}", json={"status": "FAILED"}).status_code == 409
        assert client.put(f"/evaluations/{completed}", json={"status": "COMPLETED"}).status_code == 422
        assert answer(client.put(f"/evaluations/{completed}", json={"metadata": {"a": 1}}))["metadata"] == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"samples": {}}', b'{"samples": [1]}', b'{"samples": [{"reward": NaN}]}',
     b'{"samples": [{"text": "\\ud800"}]}', b'{"samples": ' + b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_a_body_that_is_no_batch_is_refused_and_adds_nothing(hub: RunningHub, new_user: NewUser, body: bytes) -> None:
    with hub.client(new_user()[1]) as client:
        evaluation = begin(client)
        response = client.post(f"/evaluations/{evaluation}/samples", content=body)
        assert response.status_code == 400
        assert answer(client.get(f"/evaluations/{evaluation}"))["total_samples"] == 0


def test_metadata_that_is_no_json_is_refused(hub: RunningHub, new_user: NewUser) -> None:
    with hub.client(new_user()[1]) as client:
        for value in (b"NaN", b"Infinity", b'"\\ud800"'):
            body = b'{"name": "x", "metadata": {"a": ' + value + b"}}"
            response = client.post("/evaluations/", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == 422, value
        assert client.post("/evaluations/", json={"name": ""}).status_code == 422
        assert client.post("/evaluations/", json={"name": "x", "environments": [{"id": "c1"}]}).status_code == 404
        assert client.post("/evaluations/", json={"name": "x", "team_id": "c1"}).status_code == 404


def test_a_batch_of_25_mebibytes_is_taken_and_a_page_reads_only_its_own_samples(
    hub: RunningHub, new_user: NewUser
) -> None:
    noise = random.Random(1)
    samples = [{"example_id": n, "rollout_number": 0, "text": noise.randbytes(50_000).hex()} for n in range(262)]
    with hub.client(new_user()[1]) as client:
        evaluation = begin(client)
        body = client.build_request("POST", f"/evaluations/{evaluation}/samples", json={"samples": samples}).content
        assert 24.9 * 1024**2 < len(body) < 25.1 * 1024**2
        assert push(client, evaluation, samples)["samples_added"] == 262
        assert push(client, evaluation, samples)["samples_repeated"] == 262
        started = time.monotonic()
        page = answer(client.get(f"/evaluations/{evaluation}/samples", params={"page": 200, "limit": 1}))
        assert time.monotonic() - started < 1
        assert page["samples"] == [samples[199]]
        assert client.post(f"/evaluations/{evaluation}/samples", content=b" " * (27 * 1024**2)).status_code == 413


def test_samples_sort_by_number_then_text() -> None:
    ids = [10, 9, "b", "a", "11", -1, None, 2**70]
    batch = read_batch(json.dumps({"samples": [{"example_id": value} for value in ids]}).encode())
    ordered = sorted(batch, key=lambda sample: sample.sort_key)
    assert [sample.example_id for sample in ordered][:3] == ["9", "10", "11"]
    assert len(ordered) == len(ids)


def test_gc_keeps_samples_and_takes_a_batch_that_was_stored_but_never_named(tmp_path: Path) -> None:
    database, blobs = Database(f"sqlite:///{tmp_path}/hub.db"), FolderBlobs(tmp_path / "blobs")
    database.migrate()
    with database.write() as session:
        evaluation = service.begin(session, create_user(session, slug="somebody"), NewEvaluation(name="a run")).id
    samples = read_batch(json.dumps({"samples": rollouts(3, 2)}).encode())
    sample_store.add_samples(database, blobs, evaluation, samples)
    orphan = blobs.put(b"of a server that was killed before it named this")
    collected = collect(database, blobs, grace=timedelta(0))
    assert (collected.blobs, collected.blobs_kept) == (1, 1)
    assert not blobs.path(orphan).exists()
    with database.read() as session:
        rows = sample_store.list_samples(session, evaluation, offset=0, limit=10)
        places = sample_store.places_of(session, rows)
    assert [json.loads(sample_store.read_sample(blobs, place)) for place in places] == rollouts(3, 2)
