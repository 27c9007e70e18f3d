"""`prime gepa` as a user calls it, against scripted models."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_cli import main as root
from tests.prime_cli.gepa.scripted import answer, write_workspace
from tests.scripted_model import Refusal, scripted_model

SIZES = ["-n", "10", "-N", "6", "--num-test", "8", "-B", "90", "--seed", "1"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return write_workspace(tmp_path)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted_model(answer) as url:
        yield url


def prime(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prime_cli.main", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def killed_with(calls: int, number: signal.Signals, folder: Path, *arguments: str) -> tuple[int, str, Path]:
    """Run `prime` until that many calls are in the journal, send it the signal; return exit code, stderr, folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "prime_cli.main", *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        journal = next(folder.rglob("journal.jsonl"), None)
        if journal is not None and journal.read_bytes().count(b"\n") >= calls:
            process.send_signal(number)
            break
        time.sleep(0.002)
    _, stderr = process.communicate(timeout=60)
    assert journal is not None, stderr
    return process.returncode, stderr, journal.parent


def test_a_prompt_is_found_across_a_kill_and_loads_where_verifiers_loads_one(workspace: Path, url: str) -> None:
    (workspace / "shout.toml").write_text(
        'model = "nobody"\n[gepa]\nmax_calls = 90\nnum_val = 9\nnum_train = 10\nnum_test = 8\nseed = 1\n'
        '[sampling]\ntemperature = 0.5\n[[env]]\nenv_id = "shouting"\nenv_args = { size = 60 }\n'
    )
    # what is on the command line wins over the file
    code, _, folder = killed_with(30, signal.SIGKILL, workspace, "gepa", "run", "shout.toml", "-m", url, "-N", "6")
    assert code == -signal.SIGKILL
    before = (folder / "journal.jsonl").read_bytes()
    done = prime(workspace, "gepa", "run", "--resume", "--output", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert workspace / summary["path"] == folder
    assert folder.parent == workspace / "environments/shouting/outputs/gepa/shouting--scripted"
    journal = (folder / "journal.jsonl").read_bytes()
    assert journal.startswith(before[: before.rfind(b"\n") + 1])
    assert summary["replayed_calls"] == sum(b'["rollout"' in line for line in before.split(b"\n")[:-1])
    assert summary["replayed_calls"] > 20
    assert summary["held_out"]["verdict"] == "gain"
    assert summary["calls"] <= 90

    program = "import sys, verifiers as vf; print(vf.SystemMessage.from_path(sys.argv[1]).content)"
    command = [sys.executable, "-c", program, str(folder / "system_prompt.txt")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)
    assert loaded.stdout.rstrip("\n") == summary["system_prompt"]
    check_files(folder, summary)


def check_files(folder: Path, summary: dict[str, Any]) -> None:
    """Check that the files have the rows and keys that verifiers' own tools write."""
    metadata = json.loads((folder / "metadata.json").read_text())
    names = (
        "schema_version eval_kind framework optimizer optimization_target env_id model reflection_model num_candidates "
        "best_idx best_score total_metric_calls initial_prompt_sha256 best_prompt_sha256 system_prompt_path "
        "results_path completed_at config"
    )
    assert set(names.split()) <= metadata.keys()
    assert (metadata["schema_version"], metadata["env_id"]) == ("verifiers.gepa.v1", "shouting")
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert [row["example_id"] for row in rows] == list(range(metadata["num_candidates"]))
    (best,) = [row for row in rows if row["info"]["is_best"]]
    assert best["reward"] == best["score"] == metadata["best_score"] == summary["best_score"]
    assert best["info"]["system_prompt"] == (folder / "system_prompt.txt").read_text()
    assert best["info"]["diff_from_initial"].startswith("--- initial/system_prompt.txt")
    frontier = [json.loads(line) for line in (folder / "pareto_frontier.jsonl").read_text().splitlines()]
    assert [row["valset_row"] for row in frontier] == list(range(6))
    assert all(row["num_best_candidates"] == len(row["best_candidates"]) for row in frontier)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_as_one_that_was_not(tmp_path: Path, url: str) -> None:
    arguments = ["gepa", "run", "shouting", "-m", url, *SIZES]
    whole = json.loads(prime(write_workspace(tmp_path / "whole"), *arguments, "--output", "json").stdout)
    rng = random.Random(0)
    for number in range(4):
        workspace = write_workspace(tmp_path / f"killed{number}")
        _, _, folder = killed_with(rng.randint(1, 100), signal.SIGKILL, workspace, *arguments)
        killed_with(rng.randint(1, 100), signal.SIGKILL, workspace, "gepa", "run", "--resume", str(folder))
        again = json.loads(prime(workspace, "gepa", "run", "--resume", str(folder), "--output", "json").stdout)
        for name in ("candidates", "system_prompt", "held_out", "calls"):
            assert again[name] == whole[name]


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(workspace: Path, url: str) -> None:
    code, stderr, folder = killed_with(10, signal.SIGINT, workspace, "gepa", "shouting", "-m", url, *SIZES)
    assert code == 130
    assert f"prime gepa run --resume {folder.relative_to(workspace)}" in stderr
    assert 'File "/' not in stderr


def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str
) -> tuple[int, str, str]:
    """Call `prime` in this process; return the exit code and what it printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["prime", *arguments])
    with pytest.raises(SystemExit) as ended:
        root.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.mark.slow
def test_a_dry_run_of_a_file_shows_what_the_budget_buys_and_keeps_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "shout.toml").write_text(
        'model = "nobody"\n[gepa]\nmax_calls = 200\nnum_val = 9\nnum_train = 10\nstate_columns = ["turn"]\n'
        '[sampling]\ntemperature = 0.5\n[[env]]\nenv_id = "shouting"\nenv_args = { size = 40 }\n'
    )
    code, stdout, stderr = call(
        capsys, monkeypatch, workspace, "gepa", "run", "shout.toml", "-N", "5", "--dry-run", "--output", "json"
    )
    assert code == 0, stderr
    plan = json.loads(stdout)
    # 40 examples: 10 and 5 were asked for, and the rest is more than enough to hold out
    assert (plan["num_train"], plan["num_val"], plan["num_test"]) == (10, 5, 25)
    assert (plan["max_calls"], plan["floor"]) == (200, 5 + 6 + 5)
    assert not list(workspace.rglob("outputs"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "no environment is named"),
        (["shouting"], 2, "no model is named"),
        (["shoutin", "-m", "mine"], 1, "did you mean 'shouting'?"),
        (["shouting", "-m", "mone"], 2, "did you mean 'mine'"),
        (["shouting", "-m", "mine", "-M", "mone"], 2, "did you mean 'mine'"),
        (["shouting", "-m", "mine", "-M", "http://127.0.0.1:9/v1"], 1, "no OpenAI-compatible server answers"),
        (["shouting", "-m", "mine", "-B", "0"], 1, "`gepa.max_calls`: input should be greater than or equal to 1"),
        (["shouting", "-m", "mine", "-a", "{"], 2, "--env-args is not JSON"),
        (["shouting", "-m", "mine", "--num-test", "1"], 1, "too few to compare on"),
        (["broken.toml"], 1, "is not valid TOML"),
        (["nowhere.toml"], 1, "no such file: nowhere.toml"),
        (["misspelt.toml"], 1, "did you mean `num_train`?"),
        (["empty.toml", "-m", "mine"], 1, "`env` is required"),
        (["--resume", "environments"], 1, "is no run of `prime gepa run`"),
        (["--resume"], 1, "no run here is unfinished"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_nothing(
    workspace: Path,
    url: str,
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (workspace / "configs").mkdir()
    (workspace / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "scripted"\nurl = "{url}"\n'
    )
    (workspace / "broken.toml").write_text("model = ")
    (workspace / "empty.toml").write_text("")
    (workspace / "misspelt.toml").write_text('model = "mine"\n[gepa]\nnum_trian = 3\n[[env]]\nid = "shouting"\n')
    found, _, stderr = call(capsys, monkeypatch, workspace, "gepa", "run", *arguments)
    assert (found, says in stderr) == (code, True), stderr
    assert "Traceback" not in stderr
    assert not list(workspace.rglob("outputs"))


@pytest.mark.slow
def test_what_a_model_refuses_ends_the_run_with_its_words_and_leaves_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_key(messages: list[dict[str, Any]]) -> str | Refusal:
        return "OK" if messages[-1]["content"] == "Say OK." else Refusal(401, "wrong key")

    with scripted_model(wrong_key) as url:
        code, _, stderr = call(capsys, monkeypatch, workspace, "gepa", "run", "shouting", "-m", url, *SIZES)
    assert code == 1
    assert "6 of 6 rollouts got no answer" in stderr
    assert "wrong key" in stderr
    assert not list(workspace.rglob("outputs"))
