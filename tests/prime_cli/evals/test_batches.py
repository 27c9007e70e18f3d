"""Rollouts on their way to a hub: how they are named, cut into bodies, and sent again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import HubError, PrimeError
from prime_cli.evals.batches import Batch, make_batches, read_lines, send_batches


def write(folder: Path, *lines: str) -> Path:
    path = folder / "results.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def samples_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [
        sample
        for batch in make_batches(read_lines(path), [], **options)
        for sample in json.loads(batch.body)["samples"]
    ]


def test_rollouts_are_numbered_and_equal_ones_are_told_apart(tmp_path: Path) -> None:
    line = '{"example_id": 3, "reward": 1.0}'
    samples = samples_of(write(tmp_path, line, '{"id": 4, "reward": NaN}', line))
    assert [(sample["example_id"], sample["rollout_number"]) for sample in samples] == [(3, 0), (4, 0), (3, 1)]
    assert len({sample["sample_id"] for sample in samples}) == 3
    assert samples[1]["reward"] is None
    assert samples == samples_of(tmp_path / "results.jsonl"), "the same file always gives the same names"


def test_a_rollout_keeps_its_name_when_failed_ones_before_it_are_run_again(tmp_path: Path) -> None:
    before = samples_of(write(tmp_path, '{"example_id": 0, "error": "x"}', '{"example_id": 0, "reward": 1}'))
    after = samples_of(write(tmp_path, '{"example_id": 0, "reward": 1}', '{"example_id": 0, "reward": 0}'))
    assert after[0]["sample_id"] == before[1]["sample_id"]


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"example_id": 0}\n{"example_id": 1')
    assert len(samples_of(path)) == 1


@pytest.mark.parametrize("line", ["no json", "[]"])
def test_a_line_that_is_no_rollout_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(PrimeError, match="line 2"):
        samples_of(write(tmp_path, "{}", line))


def test_bodies_are_as_large_as_allowed_and_no_larger(tmp_path: Path) -> None:
    path = write(tmp_path, *(json.dumps({"example_id": n, "text": "ä" * (n % 90)}) for n in range(300)))
    too_large: list[int] = []
    batches = list(make_batches(read_lines(path), too_large, max_bytes=4000))
    assert all(3000 < len(batch.body) <= 4000 for batch in batches[:-1])
    assert sum(batch.num_samples for batch in batches) == 300
    assert sum(batch.bytes_read for batch in batches) == path.stat().st_size
    assert not too_large


def test_a_rollout_that_fits_into_no_body_is_left_out_by_its_line(tmp_path: Path) -> None:
    too_large: list[int] = []
    path = write(tmp_path, '{"example_id": 0}', json.dumps({"example_id": 1, "text": "x" * 500}))
    batches = list(make_batches(read_lines(path), too_large, max_bytes=300))
    assert (len(batches), too_large) == (1, [2])


def test_what_may_pass_is_tried_five_times_and_four_go_at_once() -> None:
    waits: list[float] = []
    tries: dict[bytes, int] = {}
    at_once = threading.Barrier(4, timeout=10)
    lock = threading.Lock()

    def send(body: bytes) -> dict[str, Any]:
        with lock:
            tries[body] = tries.get(body, 0) + 1
            first = tries[body] == 1
        if first:
            at_once.wait()
        if tries[body] < 5:
            raise HubError("busy", status=429 if tries[body] % 2 else None)
        return {"samples_added": 1}

    sent: list[Batch] = []
    batches = [Batch(bytes([number]), 2, 0) for number in range(4)]
    assert send_batches(batches, send, sent.append, waits.append) == (4, 4)
    assert set(tries.values()) == {5}
    assert sorted(set(waits)) == [1.0, 2.0, 4.0, 8.0]
    assert len(sent) == 4


def test_a_refusal_is_not_tried_again_and_ends_the_push() -> None:
    tries: list[bytes] = []

    def send(body: bytes) -> dict[str, Any]:
        tries.append(body)
        raise HubError("no", status=403)

    with pytest.raises(HubError, match="no"):
        send_batches((Batch(bytes([n]), 1, 0) for n in range(100)), send, lambda _: None, lambda _: None)
    assert len(tries) <= 8
