"""Batches and run directories on disk."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prime_cli.rl.run_directory import create_run_directory, read_metrics
from prime_cli.rl.transport import Batch, Sample, read_batch, write_batch
from tests.documented_files import assert_documented


def test_a_batch_comes_back_as_it_was_written(tmp_path: Path) -> None:
    samples = [
        Sample([1, 2, 3], [0.0, -0.25, -0.5], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], 0.5),
        Sample([7], [0.0], [0.0], [0.0], [1.0]),
    ]
    write_batch(Batch(4, samples, {"note": "x"}), tmp_path / "batches/step_4")
    assert_documented(tmp_path, "A training run")
    back = read_batch(tmp_path / "batches/step_4")
    assert (back.step, back.samples, back.facts) == (4, samples, {"note": "x"})


def test_an_empty_batch_comes_back_empty(tmp_path: Path) -> None:
    write_batch(Batch(1, []), tmp_path / "step_1")
    assert read_batch(tmp_path / "step_1").samples == []


def test_columns_of_different_lengths_are_a_bug() -> None:
    with pytest.raises(AssertionError):
        Sample([1, 2], [0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0])


def test_a_second_run_of_the_same_name_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    first = create_run_directory(tmp_path, "run", {"seed": 1})
    second = create_run_directory(tmp_path, "run", {"seed": 2})
    assert first.path != second.path
    assert json.loads(first.config.read_text()) == {"seed": 1}


def test_runs_of_one_name_that_start_at_once_never_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda i: create_run_directory(tmp_path, "run", {"number": i}), range(40)))
    assert len({run.path for run in runs}) == 40
    assert sorted(json.loads(run.config.read_text())["number"] for run in runs) == list(range(40))
    assert len(list(tmp_path.iterdir())) == 40


def test_broadcasts_are_found_by_version_and_old_ones_go(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", {})
    assert run.newest_broadcast() is None
    for version in (1, 2, 10):
        run.broadcast(version).mkdir()
    (run.path / "broadcasts" / ".step_11.half").mkdir()
    assert run.newest_broadcast() == 10
    run.drop_broadcasts_before(10)
    assert [folder.name for folder in (run.path / "broadcasts").glob("step_*")] == ["step_10"]


def test_metrics_are_read_on_from_where_reading_stopped(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", {})
    run.append_metrics(1, "trainer", {"loss/mean": 0.5})
    records, offset = read_metrics(run.metrics)
    assert [record["loss/mean"] for record in records] == [0.5]
    with run.metrics.open("a") as file:
        file.write('{"step": 2, "half a re')
    assert read_metrics(run.metrics, after_byte=offset) == ([], offset)


def test_a_status_says_what_and_since_when(tmp_path: Path) -> None:
    run = create_run_directory(tmp_path, "run", {})
    assert run.read_status("trainer") is None
    run.set_status("trainer", "waiting for batch 1")
    status = run.read_status("trainer")
    assert status is not None
    assert status[0] == "waiting for batch 1"
    assert 0 <= status[1] < 5
