"""Evaluations side by side: what is drawn of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.evals.plot import as_data, bins_of, lines_of, save_plot, terminal_histogram, terminal_scores
from prime_cli.evals.scores import Scores, read_scores
from tests.prime_cli.evals.evaluations import FAILED, write_evaluation


@pytest.fixture
def evaluations(tmp_path: Path) -> list[Scores]:
    first = write_evaluation(tmp_path, "aaaa", {e: [0.0, 1.0] for e in range(6)}, model="small")
    second = write_evaluation(tmp_path, "bbbb", {e: [1.0, float(e > 1)] for e in range(6)}, model="large")
    return [read_scores(one) for one in (first, second)]


def test_every_evaluation_is_a_line_with_its_interval(evaluations: list[Scores]) -> None:
    assert [(line.label, line.estimate.mean) for line in lines_of(evaluations)] == [
        ("small", 0.5), ("large", pytest.approx(10 / 12))
    ]  # fmt: skip
    text = terminal_scores(evaluations, colour=False)
    assert "small  0.500 [" in text
    assert "mean reward, 95 % interval" in text


def test_runs_of_one_model_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [read_scores(write_evaluation(tmp_path, name, {0: [1.0]})) for name in ("aaaa", "bbbb")]
    assert [line.label for line in lines_of(runs)] == ["small aaaa", "small bbbb"]


def test_with_a_tag_each_value_is_a_line_of_each_evaluation(tmp_path: Path) -> None:
    run = write_evaluation(tmp_path, "aaaa", {e: [float(e % 2)] for e in range(6)})
    scores = [read_scores(run, by="info.difficulty")]
    assert [(line.label, line.estimate.mean, line.estimate.groups) for line in lines_of(scores)] == [
        ("easy  small", 0.0, 3), ("hard  small", 1.0, 3)
    ]  # fmt: skip


def test_few_values_are_bins_of_their_own_and_many_are_sorted_into_twenty(tmp_path: Path) -> None:
    few = read_scores(write_evaluation(tmp_path, "aaaa", {0: [0.0, 1.0, 1.0, 1.0]}))
    assert bins_of([few]) == ([0.0, 1.0], [[0.25, 0.75]], True)
    many = read_scores(write_evaluation(tmp_path, "bbbb", {e: [e / 100] for e in range(101)}))
    positions, shares, is_few = bins_of([many])
    assert (len(positions), is_few) == (20, False)
    assert sum(shares[0]) == pytest.approx(1)
    assert positions[0] == pytest.approx(0.025)


def test_pictures_and_drawings_are_made(evaluations: list[Scores], tmp_path: Path) -> None:
    for name, magic in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        save_plot(evaluations, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert "share of rollouts of large by reward" in terminal_histogram(evaluations, colour=False)
    assert as_data(evaluations)["evaluations"][0]["histogram"] == {"values": [0.0, 1.0], "shares": [0.5, 0.5]}


def test_an_evaluation_without_a_score_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="no score to draw"):
        terminal_scores([read_scores(write_evaluation(tmp_path, "aaaa", {0: [FAILED]}))])
