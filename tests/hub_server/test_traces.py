"""Traces: uploaded as lines, stored once, listed by facts, read back byte by byte, private to their owner."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.running_hub import RunningHub, answer

NewUser = Callable[[], tuple[str, str]]


def trace(name: str, *, start: float = 1_700_000_000.0, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """Return a trace as verifiers writes one."""
    return {
        "id": name,
        "task": {"type": "Sum", "data": {"idx": 3}, "key": f"task of {name}"},
        "agent": {"name": "solver", "config": {"model": "tiny"}},
        "run": {"id": "run-1", "type": "train", "work": {"type": "train", "step": 2}},
        "nodes": [
            {"parent": None, "message": {"role": "user", "content": f"what is {name}?"}, "timestamp": start},
            {"parent": 0, "message": {"role": "assistant", "content": "the answer"}, "sampled": True},
        ],
        "calls": [
            {"node": 1, "model": "tiny", "finish_reason": "stop", "time": {"start": start, "end": start + 1},
             "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        ],
        "rewards": {} if reward is None else {"exact": {"score": reward, "weight": 1.0}},
        "errors": [],
        "timing": {"start": start, "agent": {"start": start, "end": start + 1.5}},
        **more,
    }  # fmt: skip


def lines_of(*documents: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def upload(client: httpx.Client, data: bytes, *, packed: bool = True, **changes: Any) -> httpx.Response:
    """Upload as the published SDK does."""
    metadata = changes.get("metadata", json.dumps({"schema_version": 1, "context": {"source": "test"}}))
    part = ("traces.jsonl", gzip.compress(data), "application/x-ndjson", {"Content-Encoding": "gzip"})
    plain = ("traces.jsonl", data, "application/x-ndjson")
    headers = {"Idempotency-Key": f"sha256:{hashlib.sha256(data).hexdigest()}", **changes.get("headers", {})}
    files = {"metadata": (None, metadata, "application/json"), "traces": changes.get("part", part if packed else plain)}
    return client.post("/traces", files=files, headers=headers)


@pytest.fixture
def client(hub: RunningHub, new_user: NewUser) -> Iterator[httpx.Client]:
    """A client of somebody who has nothing yet."""
    with hub.client(new_user()[1]) as client:
        yield client


@pytest.mark.parametrize("packed", [True, False])
def test_a_trace_is_listed_by_its_facts_and_read_back_byte_by_byte(client: httpx.Client, packed: bool) -> None:
    data = lines_of(trace("one"))
    receipt = answer(upload(client, data, packed=packed))
    assert receipt == {"upload_id": hashlib.sha256(data).hexdigest(), "status": "committed"}
    (row,) = answer(client.get("/traces"))["items"]
    ingested = row.pop("ingested_at")
    assert ingested
    assert row == {
        "trace_id": "one", "upload_id": receipt["upload_id"], "episode_id": None,
        "created_at": "2023-11-14T22:13:20+00:00", "run_id": "run-1", "run_step": 2, "environment_id": None,
        "model": {"provider": None, "id": "tiny"}, "task_id": "task of one", "agent_name": "solver",
        "score": {"reward": 1.0, "outcome": None}, "execution": {"has_error": False, "is_truncated": False},
        "duration_ms": 1500, "total_tokens": 15, "size_bytes": len(data) - 1, "context": {"source": "test"},
    }  # fmt: skip
    assert client.get("/traces/one", params={"raw": "true"}).content == data.rstrip(b"\n")
    nodes = answer(client.get("/traces/one/nodes", params={"limit": 1}))
    assert nodes["items"][0]["message"] == {"role": "user", "content": "what is one?"}
    following = answer(client.get("/traces/one/nodes", params={"limit": 1, "cursor": nodes["next_cursor"]}))
    assert (following["items"][0]["node_idx"], following["next_cursor"]) == (1, None)
    assert [node["node_idx"] for node in answer(client.get("/traces/one/nodes?role=assistant"))["items"]] == [1]
    (call,) = answer(client.get("/traces/one/calls"))["items"]
    assert (call["model"], call["finish_reason"], call["node_idx"]) == ("tiny", "stop", 1)


def test_the_same_bytes_again_change_nothing_and_new_bytes_replace(client: httpx.Client) -> None:
    first = answer(upload(client, lines_of(trace("one"), trace("two"))))
    assert answer(upload(client, lines_of(trace("one"), trace("two")), packed=False)) == first
    assert len(answer(client.get("/traces"))["items"]) == 2
    later = answer(upload(client, lines_of(trace("one", reward=0.5))))
    rows = {row["trace_id"]: row for row in answer(client.get("/traces"))["items"]}
    assert (rows["one"]["score"]["reward"], rows["one"]["upload_id"]) == (0.5, later["upload_id"])
    assert rows["two"]["upload_id"] == first["upload_id"]


def test_an_episode_and_its_traces_are_found_from_each_other(client: httpx.Client) -> None:
    members = [trace("a", start=5.0), trace("b", start=6.0, reward=None)]
    for member in members:
        del member["run"]
    run = {"id": "run-2", "type": "eval"}
    episode = {"id": "ep", "env": {"id": "sums"}, "run": run, "task": {}, "traces": members,
               "errors": [{"type": "HookError", "message": "failed"}]}  # fmt: skip
    answer(upload(client, lines_of(episode), headers={"X-Prime-Line-Format": "episode"}))
    (row,) = answer(client.get("/episodes", params={"environment_id": "sums"}))["items"]
    assert (row["has_error"], row["error"]) == (True, {"type": "HookError", "message": "failed"})
    details = answer(client.get("/episodes/ep"))
    assert details["traces"] == {
        "trace_count": 2, "total_tokens": 30, "total_duration_ms": 3000, "any_trace_error": False,
        "agent_names": ["solver"],
    }  # fmt: skip
    assert [row["trace_id"] for row in answer(client.get("/episodes/ep/traces"))["items"]] == ["b", "a"]
    assert client.get("/episodes/ep?raw=true").json() == {**episode, "traces": ["a", "b"]}
    assert client.get("/traces/a?raw=true").json() == members[0]
    row = answer(client.get("/traces/a"))
    assert (row["episode_id"], row["run_id"], row["environment_id"]) == ("ep", "run-2", "sums")


def test_traces_are_filtered_and_paged(client: httpx.Client) -> None:
    many = [trace(f"t{n}", start=1000.0 + n // 2, reward=n / 10) for n in range(10)]
    answer(upload(client, lines_of(*many)))
    context = json.dumps({"schema_version": 1, "context": {"source": "other"}})
    answer(upload(client, lines_of(trace("other", start=2000.0, errors=[{"type": "E"}])), metadata=context))

    def names(**params: Any) -> list[str]:
        return [row["trace_id"] for row in answer(client.get("/traces", params=params))["items"]]

    assert names(**{"context.source": "other"}) == names(has_error="true") == ["other"]
    assert names(reward_min=0.8, reward_max=0.9) == ["t8", "t9"]
    assert names(task_id="task of t3", model_id="tiny", run_id="run-1", run_step=2) == ["t3"]
    assert names(created_before="1970-01-01T00:16:41Z") == ["t0", "t1"]
    assert names(environment_id="nothing") == []
    paged: list[str] = []
    cursor = None
    while True:
        page = answer(client.get("/traces", params={"limit": 3, **({"cursor": cursor} if cursor else {})}))
        paged += [row["trace_id"] for row in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == ["other", "t8", "t9", "t6", "t7", "t4", "t5", "t2", "t3", "t0", "t1"]
    assert names(sort="created_at")[0] == "t0"


def test_runs_have_totals_steps_and_search(client: httpx.Client) -> None:
    later = {"id": "run-1", "type": "train", "work": {"step": 3}}
    answer(upload(client, lines_of(trace("x"), trace("y", reward=0.0, run=later), trace("z", run={"id": "other"}))))
    runs = answer(client.get("/runs"))["items"]
    assert [run["run_id"] for run in runs] == ["other", "run-1"]
    run = answer(client.get("/runs/run-1"))
    assert run == runs[1]
    assert (run["trace_count"], run["avg_reward"], run["step_min"], run["step_max"]) == (2, 0.5, 2, 3)
    assert (run["model_ids"], run["context"], run["has_error"]) == (["tiny"], {"source": "test"}, False)
    assert [run["run_id"] for run in answer(client.get("/runs?run_type=unknown"))["items"]] == ["other"]
    steps = answer(client.get("/runs/run-1/steps"))
    assert [(step["step"], step["avg_reward"]) for step in steps["items"]] == [(2, 1.0), (3, 0.0)]
    found = answer(client.get("/runs/run-1/search", params={"query": "what is", "limit": 1}))
    assert (found["items"][0]["trace_id"], found["items"][0]["match_start"]) == ("x", 0)
    assert found["coverage"]["examined_traces"] == 2
    following = answer(
        client.get("/runs/run-1/search", params={"query": "what is", "limit": 1, "cursor": found["next_cursor"]})
    )
    assert ([match["trace_id"] for match in following["items"]], following["next_cursor"]) == (["y"], None)
    assert answer(client.get("/runs/run-1/search?query=What+is"))["items"] == []


def test_what_is_deleted_is_gone_and_can_come_again(client: httpx.Client) -> None:
    data = lines_of(trace("one"), trace("two"))
    answer(upload(client, data))
    assert client.delete("/traces/one").status_code == 202
    assert client.get("/traces/one").status_code == 404
    assert client.delete("/traces/one").json()["error"]["code"] == "trace_not_found"
    assert client.delete("/traces", params={"run_id": "run-1"}).status_code == 202
    assert answer(client.get("/traces"))["items"] == []
    assert client.delete("/traces", params={"run_id": "run-1"}).json()["error"]["code"] == "run_not_found"
    assert client.get("/runs/run-1").json()["error"]["code"] == "run_not_found"
    answer(upload(client, data))
    assert len(answer(client.get("/traces"))["items"]) == 2


GOOD = lines_of(trace("one"))
ZEROES = "sha256:" + "0" * 64
BAD = ("traces.jsonl", b"no gzip", "application/x-ndjson", {"Content-Encoding": "gzip"})
CUT = ("traces.jsonl", gzip.compress(GOOD)[:-9], "application/x-ndjson", {"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("data", "changes", "code"),
    [
        (GOOD, {"headers": {"Idempotency-Key": "x"}}, "invalid_idempotency_key"),
        (GOOD, {"headers": {"Idempotency-Key": ZEROES}}, "digest_mismatch"),
        (GOOD, {"headers": {"X-Prime-Line-Format": "episode"}}, "line_format_mismatch"),
        (GOOD, {"headers": {"X-Prime-Line-Format": "rows"}}, "line_format_mismatch"),
        (GOOD, {"metadata": "none"}, "invalid_metadata"),
        (GOOD, {"metadata": '{"context": []}'}, "invalid_metadata"),
        (GOOD, {"metadata": '{"context": {"a": {}}}'}, "invalid_metadata"),
        (GOOD, {"metadata": '{"schema_version": 2}'}, "unsupported_schema_version"),
        (GOOD, {"part": BAD}, "malformed_encoding"),
        (GOOD, {"part": CUT}, "malformed_encoding"),
        (b"\n \n", {}, "invalid_trace"),
        (b"{]", {}, "invalid_trace"),
        (b"[]", {}, "invalid_trace"),
        (b'{"id": 3}', {}, "invalid_trace"),
        (b'{"id": "a", "reward": NaN}', {}, "invalid_trace"),
        (GOOD + GOOD, {}, "duplicate_trace_id"),
    ],
)
def test_an_upload_that_cannot_be_is_refused_as_a_whole(
    client: httpx.Client, data: bytes, changes: dict[str, Any], code: str
) -> None:
    refused = upload(client, data, **changes)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code, refused.text
    assert refused.json()["error"]["message"]
    assert answer(client.get("/traces"))["items"] == []


@pytest.mark.parametrize(
    ("line", "times", "code"),
    [
        (b" " * (1024**2 - 1) + b"\n", 257, "upload_too_large"),
        (b" " * 1024**2, 65, "trace_too_large"),
        (b"\n" * 1024**2, 1, "too_many_traces_in_upload"),
    ],
)
def test_a_bomb_is_refused_while_it_is_unpacked(client: httpx.Client, line: bytes, times: int, code: str) -> None:
    part = ("traces.jsonl", gzip.compress(line * times, 1), "application/x-ndjson", {"Content-Encoding": "gzip"})
    refused = upload(client, b"", part=part)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("query", "code"),
    [("limit=101", "invalid_filter"), ("cursor=x", "invalid_cursor"), ("has_error=maybe", "invalid_filter"),
     ("created_after=soon", "invalid_filter"), ("sort=reward", "invalid_filter")],
)  # fmt: skip
def test_a_list_that_cannot_be_says_what_is_wrong(client: httpx.Client, query: str, code: str) -> None:
    refused = client.get(f"/traces?{query}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)


def test_traces_are_private_to_their_owner_or_team(hub: RunningHub, new_user: NewUser, client: httpx.Client) -> None:
    answer(upload(client, lines_of(trace("one"))))
    with hub.client() as nobody:
        refused = nobody.get("/traces")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
    slug, key = new_user()
    with hub.client(key) as other:
        assert answer(other.get("/traces"))["items"] == answer(other.get("/runs"))["items"] == []
        for path in ("/traces/one", "/traces/one/nodes", "/traces/one?raw=true", "/runs/run-1"):
            assert other.get(path).status_code == 404
        assert other.delete("/traces/one").status_code == 404
        team = answer(other.post("/teams", json={"slug": f"{slug}-lab"}))["data"]["teamId"]
        as_team = {"X-Prime-Team-ID": team}
        answer(upload(other, lines_of(trace("of-team")), headers=as_team))
        assert answer(other.get("/traces"))["items"] == []
        assert [row["trace_id"] for row in answer(other.get("/traces", headers=as_team))["items"]] == ["of-team"]
        refused = client.get("/traces", headers=as_team)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert len(answer(client.get("/traces"))["items"]) == 1


@pytest.mark.parametrize("odd", [10**30, "soon", [1], {"start": {}}, None])
def test_a_trace_with_odd_facts_is_kept_and_read(client: httpx.Client, odd: Any) -> None:
    calls = [{"node": odd, "model": odd, "time": odd, "usage": odd}]
    document = trace("odd", nodes=[{"parent": odd, "message": odd, "timestamp": odd}], calls=calls, timing=odd, run=odd)
    answer(upload(client, lines_of(document)))
    for part in ("", "/nodes", "/calls"):
        answer(client.get(f"/traces/odd{part}"))
    assert answer(client.get("/traces/odd?raw=true")) == document
