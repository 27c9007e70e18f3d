"""A run over two inference servers and their gateway, which get the trained adapter alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime

CONFIG = """
name = "run"
model = "{model}"
max_steps = 3
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
lora = {{ rank = 4 }}
[inference]
engine = "embedded"
servers = 2
weight_transfer = "adapter"
"""


@pytest.mark.slow
def test_two_servers_get_every_adapter_and_share_the_rollouts(prime: Prime, workspace: Path, tiny_model: Path) -> None:
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model))
    done = prime("rl", "run", "run.toml")
    assert done.returncode == 0, done.stderr
    run = workspace / "outputs" / "rl" / "run"
    records, _ = read_metrics(run / "metrics.jsonl")
    trained = [record for record in records if record["source"] == "trainer"]
    # The first batch was sampled by the very weights that train on it; later ones at most one adapter behind.
    assert trained[0]["mismatch_kl/max"] < 1e-6
    assert [record["step"] for record in trained] == [1, 2, 3]
    for name in ("inference_0", "inference_1", "gateway"):
        assert (run / "logs" / f"{name}.log").exists()
    assert json.loads((run / "adapters" / "step_3" / "adapter_config.json").read_text())["r"] == 4
