"""`prime eval compare`, `show` and `plot` as a user calls them, in a workspace with evaluations."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.prime_cli.evals.evaluations import FAILED, write_evaluation
from tests.running_hub import PRIME


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    outputs = tmp_path / "outputs"
    write_evaluation(outputs, "aaaa0001", {e: [0.0, float(e % 3 > 1)] for e in range(20)})
    write_evaluation(outputs, "bbbb0002", {e: [FAILED] if e == 7 else [1.0, float(e % 3 > 0)] for e in range(20)})
    return tmp_path


def prime(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PRIME, *arguments], capture_output=True, text=True, cwd=folder, check=False)


def test_two_evaluations_are_compared_by_the_beginnings_of_their_ids(workspace: Path) -> None:
    done = prime(workspace, "eval", "compare", "aaaa", "bbbb", "--by", "info.difficulty", "--output", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["comparisons"][0]
    assert (found["pairing"]["pairs"], found["pairing"]["with_errors"], found["is_shown"]) == (19, 1, True)
    assert set(found["by_tag"]) == {"easy", "hard"}
    table = prime(workspace, "eval", "compare", "aaaa", "bbbb", "--format", "csv")
    row = next(csv.DictReader(table.stdout.splitlines()))
    assert float(row["difference"]) == found["difference"]
    text = prime(workspace, "eval", "compare", "aaaa", "bbbb", "-n", "2")
    assert "reward of B is higher by" in text.stdout
    assert "now passes" in text.stdout


def test_the_scores_of_one_are_shown_by_a_tag(workspace: Path) -> None:
    done = prime(workspace, "eval", "show", "bbbb", "--by", "difficulty", "--plain")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert ["difficulty=hard", "0.833", "18", "9"] in [[row[0], row[1], *row[3:]] for row in rows]
    assert "1 of 39 rollouts failed" in done.stderr


def test_evaluations_are_drawn_in_the_terminal_and_as_a_picture(workspace: Path) -> None:
    done = prime(workspace, "eval", "plot", "aaaa", "bbbb", "--save", "pictures/scores.svg")
    assert done.returncode == 0, done.stderr
    assert "small aaaa0001" in done.stdout
    assert "<svg" in (workspace / "pictures/scores.svg").read_text()
    refused = prime(workspace, "eval", "plot", "aaaa", "--save", "scores.pdf")
    assert (refused.returncode, "ends in .png or .svg" in refused.stderr) == (2, True)


def test_what_cannot_be_compared_is_one_line_and_a_usage_error(workspace: Path) -> None:
    write_evaluation(workspace / "outputs", "cccc0003", {0: [1.0]}, env_id="cubes")
    for arguments, words in (
        (("aaaa", "cccc"), "the environment is squares"),
        (("aaaa", "zzzz"), "no evaluation 'zzzz'"),
        (("aaaa", "bbbb", "--format", "pdf"), "no such format"),
    ):
        done = prime(workspace, "eval", "compare", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
