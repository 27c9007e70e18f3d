"""A run that is killed, launcher and all, goes on from its last checkpoint as if nothing had been. Real processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from prime_cli.rl.run_directory import RunDirectory, read_metrics
from tests.documented_files import assert_documented
from tests.e2e.conftest import write_reverse_text

CONFIG = """
name = "run"
model = "{model}"
max_steps = {steps}
batch_size = 8
rollouts_per_example = 4
learning_rate = 1e-2
[sampling]
max_tokens = 6
[[env]]
id = "reverse-text"
args = {{ num_train = 40 }}
[orchestrator]
env_workers = 1
max_off_policy_steps = {staleness}
[trainer.scheduler]
warmup_steps = 2
[checkpoints]
interval = 1
"""
START_S = 400  # a loaded machine takes long to start six processes


@dataclass
class Kill:
    """What a kill left behind: the last whole checkpoint, and whether one was being written."""

    after_step: int
    in_mid_checkpoint: bool


class KilledRun:
    """A run in a workspace of its own, that is started, killed and gone on with."""

    def __init__(self, workspace: Path, model: Path, *, steps: int, staleness: int) -> None:
        workspace.mkdir()
        write_reverse_text(workspace)
        (workspace / "run.toml").write_text(CONFIG.format(model=model, steps=steps, staleness=staleness))
        self.workspace = workspace
        self.steps = steps
        self.run = RunDirectory(workspace / "outputs" / "rl" / "run")

    def finish(self, *more: str) -> None:
        """Run to the end."""
        done = subprocess.run(
            self._command(*more), cwd=self.workspace, capture_output=True, text=True, timeout=START_S + 200
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def start_and_kill(self, due: Callable[[], bool], *more: str) -> Kill:
        """Start, or go on, and kill every process of the run at once as soon as `due`."""
        process = subprocess.Popen(
            self._command(*more), cwd=self.workspace, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + START_S
            while not due():
                assert process.poll() is None, f"ended early: {process.communicate()[1][-3000:]}"
                assert time.monotonic() < deadline, "the moment did not come"
                time.sleep(0.0005)
        finally:
            process.kill()  # first of all: the kernel ends its children with it, in this very moment
            process.communicate()
            for left in self._processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()
            psutil.wait_procs(self._processes(), timeout=20)
        whole = self.run.checkpoint_steps()[-1]
        return Kill(whole, self.writes_checkpoint(after=whole))

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.cwd() == str(self.workspace):
                    found.append(process)
        return found

    def half_written(self) -> list[Path]:
        """Checkpoints on their way to their name, or away from it."""
        return list(self.run.path.glob("checkpoints/.step_*"))

    def writes_checkpoint(self, after: int) -> bool:
        """Whether a checkpoint of a step past `after` is on its way to its name."""
        steps = [int(path.name.split(".")[1].removeprefix("step_")) for path in self.half_written()]
        return any(step > after and not self.has_checkpoint_of(step) for step in steps)

    def trainers(self) -> list[psutil.Process]:
        return [process for process in self._processes() if "prime_cli.rl.trainer.process" in _words(process)]

    def has_checkpoint_of(self, step: int) -> bool:
        return self.run.checkpoint(step).exists()

    def final_weights(self) -> str:
        """The digest of the weights after the last step."""
        file = self.run.weights(self.steps) / "model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def records(self) -> list[dict[str, Any]]:
        return read_metrics(self.run.metrics)[0]

    def _command(self, *more: str) -> list[str]:
        return [sys.executable, "-m", "prime_cli.main", "rl", "run", "run.toml", *more]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return process.cmdline()
    return []


def in_mid_checkpoint(run: KilledRun, after: int, rng: random.Random) -> Callable[[], bool]:
    """A moment at which a checkpoint past `after` is being written.

    A small checkpoint is there within milliseconds. So the trainer is stopped to look; where it was done already, it
    goes on, and the next checkpoint is tried.
    """

    def due() -> bool:
        if not run.writes_checkpoint(after):
            return False
        time.sleep(rng.uniform(0, 0.002))
        trainers = run.trainers()
        for trainer in trainers:
            trainer.suspend()
        while any(trainer.status() != psutil.STATUS_STOPPED for trainer in trainers):
            time.sleep(0.0005)
        if run.writes_checkpoint(after):
            return True
        for trainer in trainers:
            trainer.resume()
        return False

    return due


def at_random(run: KilledRun, step: int, rng: random.Random) -> Callable[[], bool]:
    """A moment up to 0.3 s after the checkpoint of `step`."""
    wait_s, seen = rng.uniform(0, 0.3), []

    def due() -> bool:
        if run.has_checkpoint_of(step) and not seen:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] > wait_s

    return due


def kill_again_and_again(run: KilledRun, kills: int, rng: random.Random) -> list[Kill]:
    """Kill every second time while a checkpoint is written, else at random, go on each time, and run to the end."""
    left: list[Kill] = []
    for number in range(kills):
        done = left[-1].after_step if left else 0
        assert done < run.steps - 1, "it was not to get that far yet"
        moment = in_mid_checkpoint(run, max(done, 1), rng) if number % 2 == 0 else at_random(run, done + 1, rng)
        left.append(run.start_and_kill(moment, *(["--resume"] if left else [])))
    run.finish("--resume")
    return left


def assert_each_step_is_there_once(run: KilledRun) -> None:
    steps = list(range(1, run.steps + 1))
    for source in ("orchestrator", "trainer"):
        assert [record["step"] for record in run.records() if record["source"] == source] == steps
    trained = {r["step"]: r["progress/tokens"] for r in run.records() if r["source"] == "trainer"}
    shipped = {r["step"]: r["progress/batch_tokens"] for r in run.records() if r["source"] == "orchestrator"}
    assert trained == shipped
    assert not run.half_written()


@pytest.fixture
def runs(tmp_path: Path, tiny_model: Path) -> Iterator[Callable[..., KilledRun]]:
    def make(name: str, *, steps: int, staleness: int = 0) -> KilledRun:
        return KilledRun(tmp_path / name, tiny_model, steps=steps, staleness=staleness)

    return make


def test_a_run_killed_in_mid_checkpoint_and_at_random_ends_with_the_weights_of_one_that_was_not(
    runs: Callable[..., KilledRun],
) -> None:
    straight, killed = runs("straight", steps=6), runs("killed", steps=6)
    straight.finish()
    left = kill_again_and_again(killed, 2, random.Random(0))
    assert left[0].in_mid_checkpoint, "the first kill was to hit a checkpoint that is being written"
    assert killed.final_weights() == straight.final_weights()
    assert_each_step_is_there_once(killed)
    assert sorted(path.name for path in (killed.run.path / "logs").glob("attempt_*")) == ["attempt_1", "attempt_2"]
    met = assert_documented(killed.run.path, "A training run", "A checkpoint")
    assert {"*/step_*/orchestrator.json", "rollouts/step_*.jsonl", "attempt.json", "status/*.json"} <= met


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_kills_leave_no_trace_in_the_weights(runs: Callable[..., KilledRun]) -> None:
    straight, killed = runs("straight", steps=60), runs("killed", steps=60)
    straight.finish()
    seed = random.randrange(10**6)
    left = kill_again_and_again(killed, 20, random.Random(seed))
    hits = sum(kill.in_mid_checkpoint for kill in left)
    assert hits >= 5, f"of 20 kills only {hits} hit a checkpoint that was being written: {left}"
    assert killed.final_weights() == straight.final_weights(), f"seed {seed}"
    assert_each_step_is_there_once(killed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_an_asynchronous_run_that_is_killed_loses_no_group_and_trains_none_twice(
    runs: Callable[..., KilledRun],
) -> None:
    killed = runs("killed", steps=24, staleness=2)
    kill_again_and_again(killed, 6, random.Random(1))
    assert_each_step_is_there_once(killed)
    of_step = {
        step: {json.loads(line)["group"] for line in killed.run.rollouts(step).read_text().splitlines()}
        for step in range(1, killed.steps + 1)
    }
    seen = [group for groups in of_step.values() for group in groups]
    assert len(seen) == len(set(seen)), "no group in two batches"
    state = json.loads((killed.run.checkpoint(killed.steps) / "orchestrator.json").read_text())
    owed = {entry["number"] for entry in state["owed"]}
    missing = set(range(1, state["opened"] + 1)) - set(seen) - owed
    stale = sum(r["off_policy/dropped"] for r in killed.records() if r["source"] == "orchestrator")
    assert len(missing) <= stale, f"lost: {sorted(missing)}"
