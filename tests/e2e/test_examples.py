"""The examples of docs/examples.md, shortened, by the commands and the configs that a user has."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).parents[2] / "templates" / "lab" / "configs"


@dataclass(frozen=True)
class Example:
    """A shortened example, and what it must show: how far the reward rises from its first steps to its last."""

    name: str
    steps: int
    rise: float


EXAMPLES = [Example("guess-letter", steps=40, rise=0.15), Example("look-up", steps=25, rise=0.2)]


@pytest.fixture
def prime(tmp_path: Path) -> Callable[..., Any]:
    """Run `prime ... --output json` in the workspace and return the object that it printed."""
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix}

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "prime_cli.main", "--output", "json", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    return run


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_reward_of_an_example_rises(example: Example, prime: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    prime("env", "init", example.name, "--template", example.name)
    prime("model", "init", "tiny-qwen3", "models/tiny-qwen3")
    prime("sft", "run", f"configs/sft/{example.name}.toml")
    shorter = ["--max_steps", str(example.steps), "--trainer.scheduler.decay_steps", "0"]
    run = prime("rl", "run", f"configs/rl/{example.name}.toml", *shorter)
    lines = (tmp_path / run["path"] / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["source"] == "orchestrator"]
    rewards = [record["reward/mean"] for record in records if "reward/mean" in record]
    assert len(rewards) == example.steps
    assert statistics.fmean(rewards[-8:]) > statistics.fmean(rewards[:8]) + example.rise
    # Turns extend their own tokens, as long as the policy writes nothing that decoding hides.
    assert statistics.fmean(record["samples_per_rollout"] for record in records[:8]) < 1.05
    assert records[-1]["turns/mean"] > 1
