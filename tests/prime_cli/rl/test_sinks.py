"""W&B and TensorBoard beside a run: real packages, real processes, nothing sent anywhere."""

from __future__ import annotations

import importlib.util
import json
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.rl.run_directory import RunDirectory, create_run_directory, read_metrics
from prime_cli.rl.sinks.beside import Sinks, check_sinks, sinks_beside
from prime_cli.rl.sinks.config import TensorboardConfig, WandbConfig
from prime_cli.rl.sinks.sink import figures_in
from prime_cli.rl.sinks.told import bytes_told, cut_metrics, remember_told

WANDB = {"project": "lab", "name": "try", "tags": ["a"], "offline": True}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = create_run_directory(tmp_path, "run", {"max_steps": 2, "wandb": WANDB, "tensorboard": {}})
    run.append_metrics(1, "orchestrator", {"reward/mean": 0.25})
    run.append_metrics(2, "orchestrator", {"reward/mean": 0.75})
    run.append_metrics(1, "trainer", {"loss/mean": -0.5})
    return run


def wandb_history(run: RunDirectory) -> list[dict[str, Any]]:
    """Read the figures in W&B's own file: a log as LevelDB writes it, of records in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (run.path / "wandb").glob("offline-run-*/*.wandb")
    data, at, parts, history = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record, parts = Record.FromString(parts), b""
            if record.WhichOneof("record_type") == "history":
                items = [(item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item]
                history.append({key: json.loads(value) for key, value in items if not key.startswith("_")})
    return history


def test_figures_come_into_event_files_to_the_last_and_none_twice_when_a_run_is_resumed(run: RunDirectory) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for step in (2, 3):
        with sinks_beside(run, ["tensorboard"], note=pytest.fail):
            run.append_metrics(step, "trainer", {"loss/mean": -float(step)})
    events = EventAccumulator(str(run.tensorboard)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.75)]
    assert [(event.step, event.value) for event in events.Scalars("loss/mean")] == [(1, -0.5), (2, -2.0), (3, -3.0)]


def test_figures_come_into_a_wandb_run_with_the_step_beside_them(run: RunDirectory) -> None:
    with sinks_beside(run, ["wandb"], note=pytest.fail):
        run.append_metrics(2, "trainer", {"loss/mean": -2.0})
    assert wandb_history(run) == [
        {"reward/mean": 0.25, "step": 1}, {"reward/mean": 0.75, "step": 2},
        {"loss/mean": -0.5, "step": 1}, {"loss/mean": -2.0, "step": 2},
    ]  # fmt: skip
    (folder,) = (run.path / "wandb").glob("offline-run-*")
    assert folder.name.endswith(run.wandb_id.read_text())


def test_a_run_that_goes_back_tells_a_sink_only_what_it_has_not_had(run: RunDirectory) -> None:
    first, second, _ = run.metrics.read_bytes().splitlines(keepends=True)
    remember_told(run, "wandb", len(first + second))
    cut_metrics(run, 1)
    offset = bytes_told(run, "wandb")
    assert offset == len(first)
    records, _ = read_metrics(run.metrics, after_byte=offset)
    assert [(record["step"], record["source"]) for record in records] == [(1, "trainer")]


def test_a_sink_that_fails_is_told_once_and_changes_nothing(run: RunDirectory) -> None:
    run.tensorboard.write_text("in the way")
    notes: list[str] = []
    sinks = Sinks(run, notes.append)
    sinks.start(["tensorboard"])
    (sink,) = sinks.running
    sink.process.wait(timeout=60)
    for _ in range(3):
        sinks.look()
    sinks.end()
    (note,) = notes
    assert note.startswith("warning: TensorBoard gets no more figures (exit code 1); the run goes on")
    assert "FileExistsError" in note


def test_a_sink_that_blocks_is_ended_after_a_while(run: RunDirectory) -> None:
    notes: list[str] = []
    sinks = Sinks(run, notes.append)
    sinks.start(["tensorboard"])
    (sink,) = sinks.running
    sink.process.send_signal(signal.SIGSTOP)
    sinks.look()
    assert not notes
    sinks.end(within_s=0.2)
    assert sink.process.returncode == -signal.SIGKILL
    assert "had not taken all figures 0 s after the end of the run" in notes[0]


def test_a_sink_that_cannot_work_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(ConfigError, match="needs an API key") as refused:
        check_sinks(WandbConfig(), None)
    assert "wandb.offline = true" in str(refused.value.hint)
    assert check_sinks(WandbConfig(), TensorboardConfig(), {"WANDB_API_KEY": "k"}) == ["wandb", "tensorboard"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="package tensorboard is not installed") as refused:
        check_sinks(None, TensorboardConfig())
    assert refused.value.hint == "pip install 'prime-lab[tensorboard]', or remove the table"


def test_only_numbers_are_figures() -> None:
    record = {"step": 1, "source": "trainer", "time": 1.0, "loss/mean": 0.5, "name": "x", "flag": True, "errors": 2}
    assert figures_in(record) == {"loss/mean": 0.5, "errors": 2}
