"""`prime eval` as a user calls it, against a scripted model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documented_files import assert_documented
from tests.scripted_model import Refusal, scripted_model

ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

def right(completion, answer, **_):
    return float(completion[-1]["content"] == answer)

def load_environment(size: int = 10):
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": str(i * i)} for i in range(size)]
    data = Dataset.from_list(rows)
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[right]))
"""
PYPROJECT = """
[project]
name = "squares"
version = "0.1.0"
[tool.verifiers.eval]
num_examples = 4
rollouts_per_example = 2
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "environments" / "squares"
    folder.mkdir(parents=True)
    (folder / "squares.py").write_text(ENVIRONMENT)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def answer(messages: list[dict[str, Any]]) -> str:
        number = int(messages[-1]["content"])
        if number >= 50:
            time.sleep(0.2)
        return "wrong" if number == 1 else str(number**2)

    with scripted_model(answer) as url:
        yield url


def prime(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prime_cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_an_alias_is_evaluated_with_the_environments_own_defaults(workspace: Path, url: str) -> None:
    (workspace / "configs").mkdir()
    (workspace / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "scripted"\nurl = "{url}"\n'
    )
    done = prime(workspace, "eval", "run", "squares", "-m", "mine", "--output", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_rollouts"], summary["num_errors"], summary["reward_mean"]) == (8, 0, 0.75)
    # four examples, one wrong: sample variance 0.25, clustered by example
    assert summary["reward_standard_error"] == pytest.approx(0.25)
    assert summary["pass_at_k"] == {"1": 0.75, "2": 0.75}
    reward = summary["estimates"]["reward"]
    assert (reward["rollouts"], reward["examples"]) == (8, 4)
    folder = workspace / summary["path"]
    assert folder.parent.name == "squares--scripted"
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {"example_id", "prompt", "completion", "answer", "reward", "metrics", "error"} <= rows[0].keys()
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["env_id"], metadata["model"], metadata["avg_reward"]) == ("squares", "scripted", 0.75)
    assert_documented(folder, "An evaluation")
    table = prime(workspace, "eval", "run", "squares", "-m", "mine", "-n", "1", "-r", "1", "--plain")
    assert "reward\t1.000\t-\t1\t1" in table.stdout
    listed = json.loads(prime(workspace, "eval", "list", "--output", "json").stdout)
    assert listed["total"] == 2
    shown = prime(workspace, "eval", "view", str(folder), "--plain")
    assert shown.returncode == 0
    assert "squares" in shown.stdout


def test_a_url_is_asked_for_its_only_model_and_env_args_reach_the_environment(workspace: Path, url: str) -> None:
    arguments = ["-m", url, "-n", "-1", "-r", "1", "-a", '{"size": 3}', "-S", '{"temperature": 0.5}']
    done = prime(workspace, "eval", "run", "squares", *arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["num_rollouts"] == 3
    metadata = json.loads((workspace / summary["path"] / "metadata.json").read_text())
    assert metadata["env_args"] == {"size": 3}
    assert metadata["sampling_args"] == {"temperature": 0.5}


def test_a_seed_draws_the_examples_and_a_folder_or_no_command_will_do(workspace: Path, url: str) -> None:
    drawn = []
    for seed in ("1", "1", "2"):
        arguments = ["-m", url, "-n", "3", "-r", "1", "--seed", seed, "--output", "json"]
        done = prime(workspace, "eval", "environments/squares", *arguments)
        assert done.returncode == 0, done.stderr
        results = workspace / json.loads(done.stdout)["path"] / "results.jsonl"
        drawn.append({json.loads(line)["example_id"] for line in results.read_text().splitlines()})
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_misspelt_command_is_not_taken_for_an_environment(workspace: Path) -> None:
    done = prime(workspace, "eval", "lits")
    assert done.returncode == 2
    assert "list" in done.stderr


def test_an_interrupted_evaluation_goes_on_where_it_stopped(workspace: Path, url: str) -> None:
    arguments = ["squares", "-m", url, "-n", "-1", "-r", "1", "-c", "4", "-a", '{"size": 150}']
    code, _, results = stopped_at(60, signal.SIGKILL, workspace, "eval", "run", *arguments)
    assert code == -signal.SIGKILL
    first = results.read_text().splitlines()
    # what the interrupted one was told need not be told again
    again = ["eval", "squares", "-m", url, "--resume", str(results.parent)]
    code, stderr, _ = stopped_at(100, signal.SIGINT, workspace, *again, "-c", "4")
    assert code == 130
    assert "--resume" in stderr
    second = results.read_text().splitlines()
    assert 100 <= len(second) < 150
    done = prime(workspace, *again, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_rollouts"] == 150
    last = results.read_text().splitlines()
    assert last[: len(first)] == first
    assert last[: len(second)] == second
    assert sorted(json.loads(line)["example_id"] for line in last) == list(range(150))
    other = prime(workspace, *again, "-t", "5")
    assert other.returncode == 2
    assert "other settings" in other.stderr


def stopped_at(rollouts: int, number: signal.Signals, folder: Path, *arguments: str) -> tuple[int, str, Path]:
    """Run `prime` until that many rollouts are on disk, send it the signal; return exit code, stderr and results."""
    process = subprocess.Popen(
        [sys.executable, "-m", "prime_cli.main", *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        results = next(folder.rglob("results.jsonl"), None)
        if results is not None and results.read_text().count("\n") >= rollouts:
            break
        time.sleep(0.05)
    else:
        process.kill()
        raise AssertionError(f"not {rollouts} rollouts in time: {process.communicate()[1]}")
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    return process.returncode, stderr, results


def test_when_every_rollout_fails_the_exit_code_says_so_and_nothing_is_scored(workspace: Path) -> None:
    with scripted_model(lambda _: Refusal(400, "there is no such sampler")) as url:
        done = prime(workspace, "eval", "run", "squares", "-m", "gpt", "-b", url, "-n", "2", "-r", "1")
    assert done.returncode == 1
    assert "none: every rollout failed" in done.stdout
    assert "2 of 2 rollouts failed" in done.stderr
    assert "there is no such sampler" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["squares", "-m", "mone"], 2, "did you mean 'mine'"),
        (["squares", "-m", "gpt"], 2, "neither an endpoint's alias"),
        (["squares", "-m", "./environments"], 1, "not a model folder"),
        (["squares", "-m", "http://127.0.0.1:9/v1"], 1, "no OpenAI-compatible server answers"),
        (["squares", "-m", "gpt", "-b", "http://127.0.0.1:9/v1"], 1, "no OpenAI-compatible server answers"),
        (["squares", "-m", "mine", "-n", "0"], 2, "0 examples cannot be run"),
        (["squares", "-m", "mine", "--resume", "environments"], 1, "is not an evaluation"),
        (["square", "-m", "mine"], 1, "did you mean 'squares'?"),
        (["./configs", "-m", "mine"], 1, "pyproject.toml"),
        (["half-done", "-m", "mine"], 1, "environments/half_done has no pyproject.toml"),
        (["squares", "-m", "mine", "-a", "{"], 2, "--env-args is not JSON"),
        (["squares", "-m", "mine", "-S", "[1]"], 2, "not a JSON object"),
        (["squares", "-m", "mine", "--split", "test"], 2, "input should be 'train' or 'eval'"),
        (["nowhere", "-m", "mine"], 1, "no environment 'nowhere' is installed"),
        (["squares", "-m", "mine", "-a", '{"sice": 3}'], 1, "has no argument 'sice'; it takes: size"),
        (["a b", "-m", "mine"], 2, "not the name of an environment"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_nothing(
    workspace: Path, url: str, arguments: list[str], code: int, says: str
) -> None:
    (workspace / "configs").mkdir()
    (workspace / "environments" / "half_done").mkdir()
    (workspace / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "scripted"\nurl = "{url}"\n'
    )
    done = prime(workspace, "eval", "run", *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert 'File "/' not in done.stderr
    assert not list(workspace.rglob("outputs"))
