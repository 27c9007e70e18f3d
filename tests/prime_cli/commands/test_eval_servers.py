"""`prime eval run` against servers that refuse, fail, and cost money."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import Refusal, Sized, scripted_model

ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

def right(completion, answer, **_):
    return float(completion[-1]["content"] == answer)

def load_environment(size: int = 40):
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": str(i * i)} for i in range(size)]
    data = Dataset.from_list(rows)
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[right]))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "environments" / "squares"
    folder.mkdir(parents=True)
    (folder / "squares.py").write_text(ENVIRONMENT)
    (folder / "pyproject.toml").write_text('[project]\nname = "squares"\nversion = "0.1.0"\n')
    return tmp_path


def evaluate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prime_cli.main", "eval", "run", "squares", "-n", "-1", "-r", "1", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)


def squared(messages: list[dict[str, Any]]) -> str:
    return str(int(messages[-1]["content"]) ** 2)


def rollouts_below(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.rglob("results.jsonl") for line in path.read_text().splitlines()]


@contextlib.contextmanager
def sometimes(refuse: Callable[[int], Refusal | None]) -> Iterator[str]:
    """Yield the URL of a server that asks `refuse` about each request by its number."""
    lock, count = threading.Lock(), iter(range(1_000_000))

    def answer(messages: list[dict[str, Any]]) -> str | Refusal:
        with lock:
            refusal = refuse(next(count))
        return refusal or squared(messages)

    with scripted_model(answer) as url:
        yield url


def test_requests_that_are_too_many_are_sent_again_and_counted(workspace: Path) -> None:
    first = time.monotonic()
    with sometimes(lambda number: Refusal(429, "slow down") if number % 4 == 1 and number < 20 else None) as url:
        done = evaluate(workspace, "-m", "m", "-b", url, "--max-retries", "0", "--output", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_rollouts"], summary["num_errors"], summary["reward_mean"]) == (40, 0, 1.0)
    assert "rate limited" in done.stderr
    assert time.monotonic() - first > 1


@pytest.mark.slow
def test_what_failed_for_a_passing_reason_is_run_again(workspace: Path) -> None:
    # The client asks three times by itself, after the first that it does not count.
    with sometimes(lambda number: Refusal(500, "oh no") if number < 4 else None) as url:
        done = evaluate(workspace, "-m", "m", "-b", url, "-c", "1", "-a", '{"size": 3}', "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_errors"] == 0
    assert [rollout.get("retries", 0) for rollout in rollouts_below(workspace)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("status", "says", "at_most"),
    [
        (401, "refuses the API key: no, no", 40),
        pytest.param(404, "does not know the model 'm': no, no", 100, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_fails_everything_alike_is_told_in_one_line_and_leaves_nothing(
    workspace: Path, status: int, says: str, at_most: int
) -> None:
    asked = []

    def refuse(number: int) -> Refusal:
        asked.append(number)
        return Refusal(status, "no, no")

    with sometimes(refuse) as url:
        done = evaluate(workspace, "-m", "m", "-b", url, "-c", "8", "-a", '{"size": 1000}')
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "error:" in line and says in line]
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(asked) <= at_most
    assert not list(workspace.rglob("outputs"))


@pytest.mark.slow
def test_a_server_that_goes_away_stops_it_and_what_is_finished_is_kept(workspace: Path) -> None:
    with sometimes(lambda number: Refusal(500, "gone") if number >= 20 else None) as url:
        arguments = ["-m", "m", "-b", url, "-c", "4", "--max-retries", "0"]
        done = evaluate(workspace, *arguments)
        assert done.returncode == 1
        assert "does not answer as it should: gone" in done.stderr
        assert "--resume" in done.stderr
    rollouts = rollouts_below(workspace)
    assert sum(rollout["error"] is None for rollout in rollouts) >= 17
    assert len(rollouts) < 40
    folder = str(next(workspace.rglob("results.jsonl")).parent)
    with sometimes(lambda _: None) as url:
        again = evaluate(workspace, "-m", "m", "-b", url, "--resume", folder, "--retry-errors", "--output", "json")
    assert again.returncode == 0, again.stderr
    assert (json.loads(again.stdout)["num_errors"], len(rollouts_below(workspace))) == (0, 40)


@pytest.mark.slow
def test_a_rollout_that_takes_too_long_fails_and_the_others_go_on(workspace: Path) -> None:
    def answer(messages: list[dict[str, Any]]) -> str:
        if messages[-1]["content"] == "1":
            time.sleep(8)
        return squared(messages)

    with scripted_model(answer) as url:
        done = evaluate(workspace, "-m", "m", "-b", url, "-a", '{"size": 4}', "--timeout", "4", "--output", "json")
    summary = json.loads(done.stdout)
    assert (summary["num_rollouts"], summary["num_errors"], summary["reward_mean"]) == (4, 1, 1.0)
    assert "took longer than 4 s" in next(iter(summary["errors"]))


@pytest.mark.slow
def test_an_evaluation_stops_before_it_costs_too_much_and_goes_on_with_more(workspace: Path) -> None:
    with scripted_model(lambda messages: Sized(squared(messages), prompt_tokens=1000)) as url:
        (workspace / "configs").mkdir()
        (workspace / "configs" / "endpoints.toml").write_text(
            f'[[endpoint]]\nendpoint_id = "priced"\nmodel = "m"\nurl = "{url}"\nprice = {{ input = 1, output = 0 }}\n'
        )
        done = evaluate(workspace, "-m", "priced", "-c", "8", "--max-cost", "0.0105", "--output", "json")
        assert done.returncode == 3, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["num_rollouts"], summary["cost"]) == (10, pytest.approx(0.010))
        assert "--resume" in done.stderr
        again = evaluate(workspace, "-m", "priced", "--max-cost", "1", "--resume", summary["path"], "--output", "json")
        assert again.returncode == 0, again.stderr
        assert (json.loads(again.stdout)["num_rollouts"], json.loads(again.stdout)["cost"]) == (
            40,
            pytest.approx(0.040),
        )
        unpriced = evaluate(workspace, "-m", "m", "-b", url, "--max-cost", "1")
    assert unpriced.returncode == 2
    assert "price" in unpriced.stderr
