"""Evaluations beside a training, through the real commands and processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

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


SFT = """
name = "tuned"
model = "{model}"
max_steps = 4
batch_size = 4
[data]
env = "reverse-text"
args = {{ num_train = 40 }}
num_validation = 4
[eval]
interval = 2
num_examples = 5
sampling = {{ max_tokens = 8 }}
[[eval.env]]
id = "reverse-text"
"""


@pytest.mark.slow
def test_fine_tuning_is_evaluated_in_environments_under_the_weights_of_each_interval(
    prime: Prime, workspace: Path, tiny_model: Path
) -> None:
    (workspace / "sft.toml").write_text(SFT.format(model=tiny_model))
    done = prime("sft", "run", "sft.toml")
    assert done.returncode == 0, done.stderr
    run = workspace / "outputs" / "sft" / "tuned"
    records = [record for record in read_metrics(run / "metrics.jsonl")[0] if record["source"] == "eval"]
    name = "eval/reverse-text"
    versions = [
        tuple(record[key] for key in ("step", f"{name}/policy_version/start", f"{name}/policy_version/end"))
        for record in records
    ]
    assert versions == [(0, 0, 0), (2, 2, 2), (4, 4, 4)]
    assert [record[f"{name}/rollouts"] for record in records] == [5, 5, 5]
    assert len(read_prompts(run / "rollouts" / "eval" / "step_4" / "reverse-text.jsonl")) == 5
    assert f"{name} at step 4: reward" in done.stderr
    assert not (run / "broadcasts").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["prime_cli.sft.evaluator", "prime_cli.rl.inference.server"])
def test_a_process_of_the_evaluations_that_is_killed_ends_fine_tuning_with_its_name_and_nothing_left(
    workspace: Path, tiny_model: Path, victim: str
) -> None:
    (workspace / "sft.toml").write_text(SFT.format(model=tiny_model).replace("max_steps = 4", "max_steps = 1000000"))
    command = [sys.executable, "-m", "prime_cli.main", "sft", "run", "sft.toml"]
    process = subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 200
        while not (workspace / "outputs/sft/tuned/rollouts/eval/step_2").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        family = psutil.Process(process.pid).children(recursive=True)
        (target,) = [child for child in family if victim in child.cmdline()]
        target.kill()
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert ("evaluator process died" if victim.endswith("evaluator") else "the inference server") in told
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left


def read_prompts(path: Path) -> set[str]:
    return {json.dumps(json.loads(line)["prompt"]) for line in path.read_text().splitlines()}
