"""A trainer of two ranks with adapters, through the real command, and what happens when one of the ranks is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil

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


def test_a_killed_rank_ends_the_run_and_leaves_nothing_behind(workspace: Path, tiny_model: Path) -> None:
    training = RunningTraining(workspace, tiny_model, "[trainer]\nranks = 2\n")
    try:
        training.wait_for_steps(1)
        family = training.family()
        ranks = []
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if MODULES["trainer"] in process.cmdline() and "torch.distributed.run" not in process.cmdline():
                    ranks.append(process.pid)
        assert len(ranks) == 2
        os.kill(ranks[1], signal.SIGKILL)
        code, _, stderr = training.end(timeout_s=60)
    finally:
        training.process.kill()
    assert code == 1
    assert "the trainer process died" in stderr
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
