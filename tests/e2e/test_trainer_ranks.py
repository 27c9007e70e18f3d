"""A trainer of two ranks with adapters, through the real command, and what happens when one of the ranks is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from prime_cli.models.folder import load_causal_model
from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime
from tests.e2e.test_faults import MODULES, RunningTraining

CONFIG = """
name = "run"
model = "{model}"
max_steps = 2
batch_size = 16
rollouts_per_example = 8
learning_rate = 1e-2
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 100 }}
[orchestrator]
env_workers = 1
[trainer]
ranks = 2
lora = {{ rank = 4 }}
"""


@pytest.mark.slow
def test_two_ranks_train_an_adapter_that_is_exported_beside_the_merged_weights(
    prime: Prime, workspace: Path, tiny_model: Path
) -> None:
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model))
    done = prime("rl", "run", "run.toml")
    assert done.returncode == 0, done.stderr
    run = workspace / "outputs" / "rl" / "run"
    records, _ = read_metrics(run / "metrics.jsonl")
    steps = [(record["source"], record["step"]) for record in records]
    assert sorted(steps) == [("orchestrator", 1), ("orchestrator", 2), ("trainer", 1), ("trainer", 2)]
    assert load_causal_model(run / "weights" / "step_2").config.model_type == "qwen3"
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        path.name for path in (run / "adapters" / "step_2").iterdir()
    }


@pytest.fixture
def training(workspace: Path, tiny_model: Path) -> Iterator[RunningTraining]:
    training = RunningTraining(workspace, tiny_model, "[trainer]\nranks = 2\n")
    yield training
    training.process.kill()


def ranks_among(family: list[psutil.Process]) -> list[int]:
    pids = []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if MODULES["trainer"] in process.cmdline():
                pids.append(process.pid)
    return pids


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_and_leaves_nothing_behind(training: RunningTraining) -> None:
    training.wait_for_steps(1)
    family = training.family()
    ranks = ranks_among(family)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    code, _, stderr = training.end(timeout_s=60)
    assert code == 1
    assert "the trainer process died" in stderr
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


@pytest.mark.slow
def test_ranks_end_when_the_launcher_is_killed(training: RunningTraining) -> None:
    training.wait_for_steps(1)
    family = training.family()
    assert len(ranks_among(family)) == 2
    training.process.kill()
    _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []
