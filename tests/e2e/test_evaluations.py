"""Evaluations beside a training, through the real commands and processes."""

from __future__ import annotations

import json
from pathlib import Path

from prime_cli.rl.run_directory import read_metrics
from tests.e2e.conftest import Prime

CONFIG = """
name = "run"
model = "{model}"
max_steps = 3
batch_size = 16
rollouts_per_example = 8
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 40 }}
[orchestrator]
env_workers = 1
[eval]
interval = 2
num_examples = 5
rollouts_per_example = 2
sampling = {{ temperature = 0.0 }}
[val]
num_examples = 4
interval = 100
"""


def test_a_run_evaluates_at_the_start_at_intervals_and_at_the_end_and_never_trains_on_what_it_holds_out(
    prime: Prime, workspace: Path, tiny_model: Path
) -> None:
    (workspace / "run.toml").write_text(CONFIG.format(model=tiny_model))
    done = prime("rl", "run", "run.toml")
    assert done.returncode == 0, done.stderr
    run = workspace / "outputs" / "rl" / "run"
    records = [record for record in read_metrics(run / "metrics.jsonl")[0] if record["source"] == "eval"]
    steps = {
        name: sorted(record["step"] for record in records if f"{name}/reverse-text/reward/n" in record)
        for name in ("eval", "val")
    }
    assert steps == {"eval": [0, 2, 3], "val": [0, 3]}
    last = next(record for record in records if record["step"] == 3 and "eval/reverse-text/pass@2" in record)
    assert last["eval/reverse-text/rollouts"] == 10
    assert last["eval/reverse-text/policy_version/start"] == last["eval/reverse-text/policy_version/end"] == 3
    stored = (run / "rollouts" / "eval" / "step_3" / "reverse-text.jsonl").read_text().splitlines()
    assert len(stored) == 10
    held_out = read_prompts(run / "rollouts" / "val" / "step_3" / "reverse-text.jsonl")
    trained = {prompt for step in (1, 2, 3) for prompt in read_prompts(run / "rollouts" / f"step_{step}.jsonl")}
    assert len(held_out) == 4
    assert not held_out & trained
    shown = prime("rl", "show", "run")
    assert "eval/reverse-text" in shown.stdout
    assert prime("rl", "plot", "outputs/rl/run", "--save", "curve.png").returncode == 0


def read_prompts(path: Path) -> set[str]:
    return {json.dumps(json.loads(line)["prompt"]) for line in path.read_text().splitlines()}
