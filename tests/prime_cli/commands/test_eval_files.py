"""`prime eval run FILE.toml`: several evaluations at once, as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import scripted_model

ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

def right(completion, answer, **_):
    return float(completion[-1]["content"] == answer)

def load_environment(size: int = 4):
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": str(i * i)} for i in range(size)]
    data = Dataset.from_list(rows)
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[right]))
"""
FILE = """
model = "mine"
num_examples = -1
rollouts_per_example = 1
max_concurrent = 6
verbose = true

[[eval]]
env_id = "squares"
name = "all of them"
env_args = { size = 60 }

[[eval]]
id = "broken"

[[ablation]]
id = "squares"
[ablation.sweep.args]
size = [2, 3]
"""


@pytest.fixture
def workspace(tmp_path: Path, url: str) -> Path:
    for name, text in (("squares", ENVIRONMENT), ("broken", "import nothing_of_this_name\n")):
        folder = tmp_path / "environments" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(text)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "0.1.0"\n')
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "scripted"\nurl = "{url}"\n'
    )
    (tmp_path / "evals.toml").write_text(FILE)
    return tmp_path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def answer(messages: list[dict[str, Any]]) -> str:
        number = int(messages[-1]["content"])
        time.sleep(0.3 if number >= 30 else 0)
        return "wrong" if number == 1 else str(number**2)

    with scripted_model(answer) as url:
        yield url


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]


def test_the_evaluations_of_a_file_make_one_list_and_one_that_cannot_be_run_leaves_the_others(workspace: Path) -> None:
    (workspace / "two.toml").write_text(
        'model = "mine"\nverbose = true\n[[eval]]\nid = "square"\n[[eval]]\nid = "squares"'
    )
    command = [
        sys.executable,
        "-m",
        "prime_cli.main",
        "eval",
        "run",
        "two.toml",
        "-n",
        "2",
        "-r",
        "1",
        "--output",
        "json",
    ]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "`verbose` is ignored: what an environment writes is kept" in done.stderr
    assert "square: no environment 'square' is installed" in done.stderr
    assert "did you mean 'squares'?" in done.stderr
    first, second = json.loads(done.stdout)
    assert "no environment" in first["error"]
    assert (second["name"], second["model"], second["reward_mean"], second["error"]) == ("squares", "mine", 0.5, None)
    assert len(rows(workspace / second["path"])) == 2


@pytest.mark.slow
def test_a_file_is_stopped_and_goes_on_and_one_that_fails_leaves_the_others(workspace: Path) -> None:
    command = [sys.executable, "-m", "prime_cli.main", "eval", "run", "evals.toml", "--output", "json"]
    process = subprocess.Popen(command, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while sum(path.read_text().count("\n") for path in workspace.rglob("results.jsonl")) < 30:
        assert time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on: prime eval run evals.toml --output json --resume\n" in stderr
    before = {path.parent: rows(path.parent) for path in workspace.rglob("results.jsonl")}

    done = subprocess.run([*command, "--resume"], cwd=workspace, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert "error: broken: " in done.stderr
    assert "No module named 'nothing_of_this_name'" in done.stderr
    outcomes = json.loads(done.stdout)
    assert [outcome["name"] for outcome in outcomes] == ["all of them", "broken", "squares size=2", "squares size=3"]
    assert [outcome["error"] is None for outcome in outcomes] == [True, False, True, True]
    assert [outcome.get("num_rollouts") for outcome in outcomes] == [60, None, 2, 3]
    assert outcomes[2]["reward_mean"] == 0.5
    after = {
        workspace / outcome["path"]: rows(workspace / outcome["path"]) for outcome in outcomes if "path" in outcome
    }
    assert before.keys() <= after.keys()
    assert all(after[path][: len(had)] == had for path, had in before.items())
    assert json.loads((workspace / outcomes[0]["path"] / "metadata.json").read_text())["name"] == "all of them"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.toml"], 1, "no such file: none.toml"),
        (["evals.toml", "-a", '{"size": 1}'], 1, "size` is swept, and is given on the command line"),
        (["evals.toml", "--resume", "outputs"], 2, "one folder cannot be gone on with by several"),
        (["evals.toml", "--hosted"], 2, "--hosted cannot be had here"),
        (["squares"], 2, "no model is named"),
        pytest.param(
            ["squares", "-m", "mine", "-x", '{"max_turn": 1}'], 1, "no attribute 'max_turn'; did you mean 'max_turns'?",
            marks=pytest.mark.slow,
        ),
        (["squares", "-m", "mine", "--api-client-type", "renderer"], 2, "needs the model's tokenizer"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(workspace: Path, arguments: list[str], code: int, says: str) -> None:
    command = [sys.executable, "-m", "prime_cli.main", "eval", "run", *arguments]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=120)
    assert says in done.stderr
    assert done.returncode == code
    assert not list(workspace.rglob("outputs"))
