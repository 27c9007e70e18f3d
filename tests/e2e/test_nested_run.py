"""A run from a file in the nested schema, with a curriculum, and with variables for its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime

CONFIG = """
max_steps = 3
seq_len = 64
env_files = ["some.env"]
[model]
name = "{model}"
[run]
name = "run"
[trainer.optim]
lr = 1e-3
[trainer.model.compile]
fullgraph = true
[orchestrator]
batch_size = 16
group_size = 4
max_off_policy_steps = 1
[orchestrator.concurrency]
initial_inflight = 16
[orchestrator.train.sampling]
max_completion_tokens = 8
temp_scheduler = {{ start_temperature = 1.0, end_temperature = 0.5 }}
[[orchestrator.train.source]]
env.taskset = {{ id = "reverse-text", num_train = 12 }}
[orchestrator.curriculum]
sampler = {{ type = "difficulty_pool" }}
gates.mixed = {{ type = "advantage_range" }}
[[orchestrator.post_batch_filters]]
type = "repetition"
window = 2
"""
NEEDS_VARIABLES = """
import os

assert os.environ["FROM_FILE"] == "a b"
assert os.environ["FROM_WORDS"] == "c=d"
"""


def test_a_nested_file_runs_with_its_curriculum_and_the_variables_reach_the_environment(
    prime: Prime, workspace: Path, tiny_model: Path
) -> None:
    module = workspace / "environments" / "reverse_text" / "reverse_text.py"
    module.write_text(module.read_text() + NEEDS_VARIABLES)
    (workspace / "some.env").write_text("FROM_FILE='a b'\nFROM_WORDS=overridden\n")
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model))
    done = prime("rl", "run", "run.toml", "-e", "FROM_WORDS=c=d")
    assert done.returncode == 0, done.stderr
    assert "`trainer.model.compile` does nothing here" in done.stderr
    run = workspace / "outputs" / "rl" / "run"
    assert "c=d" not in (run / "config.json").read_text()
    records = [r for r in read_metrics(run / "metrics.jsonl")[0] if r["source"] == "orchestrator"]
    assert [record["step"] for record in records] == [1, 2, 3]
    for record in records:  # what is refused is without an advantage, and nothing else is
        refused = 1 - record["curriculum/reverse-text/admission_rate"]
        assert record["groups/zero_advantage"] == pytest.approx(refused)
    assert records[0]["curriculum/reverse-text/pool_unseen"] > records[-1]["curriculum/reverse-text/pool_unseen"]
    assert all(record["filter/repetition"] == 0 for record in records)
    assert all(record["concurrency/limit"] >= 1 for record in records)
