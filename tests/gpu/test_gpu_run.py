"""`prime rl run` with trainer and inference on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime, prime, workspace  # noqa: F401 - fixtures

CONFIG = """
name = "run"
model = "{model}"
max_steps = 3
batch_size = 32
rollouts_per_example = 8
learning_rate = 1e-4
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 100 }}
{more}
"""


@pytest.mark.parametrize("more", ["", "[trainer]\nlora = {{ rank = 8 }}"], ids=["full", "lora"])
def test_a_run_on_the_gpu_trains_with_little_mismatch(
    prime: Prime,  # noqa: F811
    workspace: Path,  # noqa: F811
    tiny_model: Path,
    more: str,
) -> None:
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model, more=more.format()))
    done = prime("rl", "run", "run.toml")
    assert done.returncode == 0, done.stderr
    records, _ = read_metrics(workspace / "outputs" / "rl" / "run" / "metrics.jsonl")
    trained = [record for record in records if record["source"] == "trainer"]
    assert [record["step"] for record in trained] == [1, 2, 3]
    assert all(record["mismatch_kl/mean"] < 0.01 for record in trained)
