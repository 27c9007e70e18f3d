"""Learning from a teacher that the run serves itself, through the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.models.tiny_qwen3 import write_model
from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime

CONFIG = """
name = "run"
model = "{model}"
max_steps = 3
batch_size = 16
rollouts_per_example = 1
learning_rate = 1e-3
[teacher]
model = "teacher"
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 100 }}
[orchestrator]
env_workers = 1
algo = {{ type = "{kind}" }}
"""


@pytest.mark.parametrize("kind", ["opd", pytest.param("sft", marks=pytest.mark.slow)])
def test_a_policy_learns_from_a_teacher_that_the_run_serves(
    kind: str, prime: Prime, workspace: Path, tiny_model: Path
) -> None:
    write_model("tiny-qwen3", workspace / "teacher", seed=5)
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model, kind=kind))
    done = prime("rl", "run", "run.toml")
    assert done.returncode == 0, done.stderr
    run = workspace / "outputs" / "rl" / "run"
    records, _ = read_metrics(run / "metrics.jsonl")
    trained = [record for record in records if record["source"] == "trainer"]
    assert [record["progress/loss_tokens"] > 0 for record in trained] == [True] * 3
    assert all(record["optim/grad_norm"] > 0 for record in trained)
    assert (trained[0]["ref_kl/mean"] != 0) == (kind == "opd")
    assert (run / "logs" / "teacher.log").exists()
