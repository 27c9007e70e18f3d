"""Whole runs whose rollouts vLLM samples, with updates while it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import prime, workspace  # noqa: F401 - fixtures

CONFIG = """
name = "run"
model = "{model}"
max_steps = 3
batch_size = 16
rollouts_per_example = 8
learning_rate = 1e-3
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 100 }}
[orchestrator]
env_workers = 1
client_type = "openai_chat_completions_token"
{orchestrator}
[trainer]
seq_len = 512
{trainer}
[inference]
engine = "vllm"
num_slots = 64
startup_timeout_s = 900
{inference}
"""


@pytest.mark.parametrize(
    ("orchestrator", "trainer", "inference", "largest_mismatch"),
    [
        ("max_off_policy_steps = 0", "", "", 1e-6),  # each batch is sampled by the weights that train on it
        ("", "lora = { rank = 4 }", 'weight_transfer = "adapter"\nservers = 2', 1.0),
    ],
    ids=["weights-in-step", "adapters-on-two-servers"],
)
def test_a_run_trains_on_what_vllm_samples_and_updates_it_while_it_serves(
    prime: Any,  # noqa: F811
    workspace: Path,  # noqa: F811
    tiny_model: Path,
    orchestrator: str,
    trainer: str,
    inference: str,
    largest_mismatch: float,
) -> None:
    text = CONFIG.format(model=tiny_model, orchestrator=orchestrator, trainer=trainer, inference=inference)
    (workspace / "run.toml").write_text(text)
    done = prime("rl", "run", "run.toml", timeout=1100)
    assert done.returncode == 0, done.stderr
    records, _ = read_metrics(workspace / "outputs" / "rl" / "run" / "metrics.jsonl")
    trained = [record for record in records if record["source"] == "trainer"]
    assert [record["step"] for record in trained] == [1, 2, 3]
    assert trained[0]["mismatch_kl/max"] < 1e-6, "the first batch was sampled by the weights that train on it"
    assert all(record["mismatch_kl/mean"] < 1e-2 for record in trained)
    assert all(record["mismatch_kl/max"] < largest_mismatch for record in trained)
