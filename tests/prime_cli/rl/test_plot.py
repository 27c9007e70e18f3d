"""The curves of runs: which figures, of which steps, and how they are drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.rl.plot import REWARD, THE_TEN, read_curves, save_curves, smoothed, terminal_curves
from prime_cli.rl.run_directory import RunDirectory, create_run_directory

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def make_run(folder: Path, name: str, rewards: list[float]) -> RunDirectory:
    run = create_run_directory(folder, name, {})
    for step, reward in enumerate(rewards, 1):
        run.append_metrics(step, "orchestrator", {REWARD: reward, "errors": 0, "off_policy/mean": 0.5})
        run.append_metrics(step, "trainer", {"entropy/mean": 1 / step})
    return run


def test_the_ten_are_those_that_the_page_of_metrics_begins_with() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^\| \d+ \| `([^`]+)`", page, re.MULTILINE) == list(THE_TEN)


def test_curves_hold_the_steps_that_have_a_figure_and_the_rewards_of_evaluations(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", [0.2, 0.4])
    run.append_metrics(3, "orchestrator", {REWARD: 0.9})
    reward = {"mean": 0.7, "n": 8, "low": 0.5, "high": 0.9}
    run.append_metrics(2, "eval", {f"eval/words/reward/{name}": value for name, value in reward.items()})
    curves = read_curves(run)
    assert curves.figures[REWARD] == [(1, 0.2), (2, 0.4), (3, 0.9)]
    assert curves.figures["entropy/mean"] == [(1, 1.0), (2, 0.5)]
    assert "optim/grad_norm" not in curves.figures
    assert curves.evaluations == {"eval/words": [(2, 0.7)]}
    assert curves.intervals == {"eval/words": [(2, 0.5, 0.9)]}


def test_several_runs_are_drawn_in_characters_with_their_names(tmp_path: Path) -> None:
    runs = [read_curves(make_run(tmp_path, name, [0.2, 0.4, 0.9])) for name in ("before", "after")]
    text = terminal_curves(runs, colour=False)
    for expected in ("mean reward per step", "before", "after", "step"):
        assert expected in text
    assert "\x1b" not in text
    assert "entropy/mean" in terminal_curves(runs, "entropy/mean", colour=False)


def test_pictures_are_written_in_either_format_and_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [read_curves(make_run(tmp_path, name, [0.2, 0.4, 0.9])) for name in ("before", "after")]
    for name, magic in (("ten.png", b"\x89PNG"), ("ten.svg", b"<?xml")):
        save_curves(runs, tmp_path / "new" / name, [REWARD, "errors"])
        assert (tmp_path / "new" / name).read_bytes().startswith(magic)
    first = (tmp_path / "new" / "ten.svg").read_bytes()
    save_curves(runs, tmp_path / "new" / "ten.svg", [REWARD, "errors"])
    assert (tmp_path / "new" / "ten.svg").read_bytes() == first
    with pytest.raises(BadInput, match="no name of a picture"):
        save_curves(runs, tmp_path / "curve.docx", [REWARD])


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="not a run directory"):
        read_curves(RunDirectory(tmp_path))
    with pytest.raises(PrimeError, match="no finished step"):
        read_curves(create_run_directory(tmp_path, "new", {}))
    with pytest.raises(BadInput, match="no figure loss") as refusal:
        read_curves(make_run(tmp_path, "run", [0.1]), ["loss"])
    assert "entropy/mean" in str(refusal.value.hint)


def test_smoothing_is_a_running_mean() -> None:
    assert smoothed([1.0, 2.0, 3.0, 4.0], steps=2) == [1.0, 1.5, 2.5, 3.5]
