"""`prime rl list`, `show`, `metrics`, `samples` and `export` on folders as runs leave them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from prime_cli.rl.hold import hold
from prime_cli.rl.run_directory import RunDirectory, create_run_directory
from prime_cli.rl.runs import facts_of, find_runs
from tests.running_hub import PRIME


def make_run(parent: Path, name: str, *, steps: int, finished: bool = True) -> RunDirectory:
    """Leave a run of three rollouts a step with weights of every second step."""
    config = {"model": "/models/tiny", "env": [{"id": "me/reverse-text"}], "max_steps": 4}
    run = create_run_directory(parent, name, config)
    for step in range(1, steps + 1):
        rollouts = [
            {"example_id": n, "reward": step / 10, "prompt": [{"role": "user", "content": f"question {n}"}],
             "completion": [{"role": "assistant", "content": f"answer {n} of step {step}"}], "policy_version": step - 1}
            for n in range(3)
        ]  # fmt: skip
        run.rollouts(step).write_text("".join(json.dumps(rollout) + "\n" for rollout in rollouts))
        run.append_metrics(step, "orchestrator", {"reward/mean": step / 10, "errors": 0})
        run.append_metrics(step, "trainer", {"loss/mean": 1 / step, "time/step": 0.5})
        if step % 2 == 0:
            run.weights(step).mkdir()
            (run.weights(step) / "config.json").write_text(json.dumps({"step": step}))
    run.set_status("trainer", f"waiting for batch {steps + 1}")
    if finished:
        run.summary.write_text("{}")
    return run


def prime(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `prime rl ...` in a workspace."""
    command = [*PRIME, "--output", "json", "rl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=dict(os.environ), check=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with two runs."""
    make_run(tmp_path / "outputs/rl", "first", steps=4)
    time.sleep(0.02)
    make_run(tmp_path / "outputs/rl", "second", steps=3, finished=False)
    return tmp_path


def test_runs_are_listed_newest_first_with_how_they_went(workspace: Path) -> None:
    rows = json.loads(prime(workspace, "list").stdout)["runs"]
    assert [(row["name"], row["state"], row["steps"], row["max_steps"]) for row in rows] == [
        ("second", "running", 3, 4), ("first", "finished", 4, 4)
    ]  # fmt: skip
    assert rows[1]["environment"] == "me/reverse-text"
    assert (rows[1]["first_reward"], rows[1]["last_reward"]) == (0.1, 0.4)
    assert rows[1]["exported_steps"] == [2, 4]


def test_a_run_that_nobody_works_on_any_more_is_stopped(workspace: Path) -> None:
    run = RunDirectory(workspace / "outputs/rl/second")
    long_ago = time.time() - 3600
    for path in run.path.rglob("*"):
        os.utime(path, (long_ago, long_ago))
    assert facts_of(run).state == "stopped"


def test_a_run_is_running_for_as_long_as_its_folder_is_held(workspace: Path) -> None:
    run = RunDirectory(workspace / "outputs/rl/second")
    with hold(run):
        assert facts_of(run).state == "running"
    assert facts_of(run).state == "stopped"


def test_a_run_is_shown_by_its_name_or_its_folder(workspace: Path) -> None:
    by_name = json.loads(prime(workspace, "show", "second").stdout)
    by_folder = json.loads(prime(workspace, "show", "outputs/rl/second").stdout)
    assert by_name["doing"] == by_folder["doing"] == {"trainer": "waiting for batch 4"}
    assert by_name["config"]["max_steps"] == 4


def test_metrics_of_both_processes_stand_in_one_record_per_step(workspace: Path) -> None:
    records = json.loads(prime(workspace, "metrics", "first", "--min-step", "2", "--max-step", "3").stdout)["metrics"]
    assert records == [
        {"step": 2, "reward/mean": 0.2, "errors": 0, "loss/mean": 0.5, "time/step": 0.5},
        {"step": 3, "reward/mean": 0.3, "errors": 0, "loss/mean": 1 / 3, "time/step": 0.5},
    ]
    last = json.loads(prime(workspace, "metrics", "first", "-m", "reward", "-n", "1").stdout)["metrics"]
    assert last == [{"step": 4, "reward/mean": 0.4}]


def test_rollouts_of_a_step_are_read_page_by_page(workspace: Path) -> None:
    shown = json.loads(prime(workspace, "samples", "first", "--step", "3", "-n", "2", "-p", "2").stdout)
    assert [row["example_id"] for row in shown["rollouts"]] == [2]
    assert shown["rollouts"][0]["reward"] == 0.3
    assert json.loads(prime(workspace, "samples", "first").stdout)["step"] == 4


def test_weights_are_exported_whole_into_a_new_folder(workspace: Path) -> None:
    told = json.loads(prime(workspace, "export", "first", "--to", "models/best", "--step", "2").stdout)
    assert told == {"path": "models/best", "step": 2}
    assert json.loads((workspace / "models/best/config.json").read_text()) == {"step": 2}
    assert json.loads(prime(workspace, "export", "first", "--to", "models/last").stdout)["step"] == 4
    assert sorted(path.name for path in (workspace / "models").iterdir()) == ["best", "last"]


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (("show", "frist"), "'frist' is not a run", "did you mean 'first'?"),
        (("samples", "first", "--step", "9"), "no rollouts of step 9", "1-4"),
        (("export", "first", "--to", "new", "--step", "3"), "no weights of step 3", "2, 4"),
        (("export", "first", "--to", "outputs"), "there already", "--to"),
        (("metrics", "first", "-m", "planets"), "no figure is called like planets", "loss/mean"),
    ],
)
def test_bad_input_is_one_line_with_a_hint(workspace: Path, arguments: tuple[str, ...], words: str, hint: str) -> None:
    refused = prime(workspace, *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert hint in refused.stderr
    assert not (workspace / "new").exists()


def test_an_empty_workspace_has_no_runs_and_says_how_to_make_one(tmp_path: Path) -> None:
    assert find_runs(tmp_path / "outputs/rl") == []
    told = subprocess.run([*PRIME, "rl", "list"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert told.returncode == 0
    assert "prime rl run" in told.stderr


def test_runs_are_drawn_side_by_side_in_the_terminal_and_as_a_picture(workspace: Path) -> None:
    done = prime(workspace, "plot", "first", "second", "--save", "curves.png")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [run["name"] for run in data["runs"]] == ["first", "second"]
    assert data["runs"][1]["metrics"]["reward/mean"] == [[1, 0.1], [2, 0.2], [3, pytest.approx(0.3)]]
    assert (workspace / "curves.png").read_bytes().startswith(b"\x89PNG")
