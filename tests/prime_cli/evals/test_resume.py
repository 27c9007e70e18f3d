"""What an evaluation keeps, and what it runs, when it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import BadInput
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.evals.resume import keep_finished
from prime_cli.evals.run import plan_work
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory

EXAMPLES = [{"example_id": number} for number in range(3)]


def stored(folder: Path, *rollouts: tuple[int, str | None]) -> EvalDirectory:
    directory = EvalDirectory(folder)
    for example, error in rollouts:
        directory.append({"example_id": example, "reward": 1.0, "error": error})
    return directory


def left(directory: EvalDirectory, *, whole_groups: bool, retry_errors: bool = True) -> list[tuple[int, int]]:
    """Return (example, rollouts) of the work that is left with two rollouts for each example."""
    kept = keep_finished(directory, range(3), 2, whole_groups=whole_groups, retry_errors=retry_errors)
    work = plan_work(EXAMPLES, 2, kept.rollouts_of, as_group=whole_groups)
    return [(unit.example["example_id"], unit.num_rollouts) for unit in work]


def test_missing_and_where_that_is_asked_for_failed_rollouts_are_run_again_one_by_one(tmp_path: Path) -> None:
    directory = stored(tmp_path, (0, None), (0, None), (1, None), (1, "boom"))
    assert left(directory, whole_groups=False) == [(1, 1), (2, 1), (2, 1)]
    assert [row["example_id"] for row in directory.rollouts()] == [0, 0, 1]


def test_a_failed_rollout_stays_with_its_error(tmp_path: Path) -> None:
    directory = stored(tmp_path, (0, None), (0, None), (1, None), (1, "boom"))
    assert left(directory, whole_groups=False, retry_errors=False) == [(2, 1), (2, 1)]
    assert [row["error"] for row in directory.rollouts()] == [None, None, None, "boom"]


@pytest.mark.parametrize("broken", [b'{"example_id": 1, "rew\n', b"\0\0\0\n", b"[1]\n", b"\n", b"\xff\n"])
def test_a_broken_line_in_the_middle_is_set_aside_and_its_rollout_run_again(tmp_path: Path, broken: bytes) -> None:
    directory = stored(tmp_path, (0, None), (0, None), (1, None))
    with directory.results.open("ab") as file:
        file.write(broken)
    stored(tmp_path, (2, None), (2, None))
    kept = keep_finished(directory, range(3), 2, whole_groups=False)
    assert kept.num_broken == 1
    assert kept.rollouts_of == {0: 2, 1: 1, 2: 2}
    assert [row["example_id"] for row in directory.rollouts()] == [0, 0, 1, 2, 2]
    assert directory.broken_lines.read_bytes() == broken


def test_a_group_that_is_scored_together_is_run_again_whole(tmp_path: Path) -> None:
    directory = stored(tmp_path, (0, None), (0, None), (1, None), (1, "boom"))
    assert left(directory, whole_groups=True) == [(1, 2), (2, 2)]
    assert [row["example_id"] for row in directory.rollouts()] == [0, 0]


def test_rollouts_that_nobody_asks_for_are_dropped(tmp_path: Path) -> None:
    directory = stored(tmp_path, (0, None), (7, None), (0, None), (0, None))
    assert left(directory, whole_groups=False) == [(1, 1), (1, 1), (2, 1), (2, 1)]
    assert [row["example_id"] for row in directory.rollouts()] == [0, 0]


def test_results_that_are_all_wanted_are_left_untouched(tmp_path: Path) -> None:
    directory = stored(tmp_path, (0, None), (1, None))
    before = directory.results.stat().st_ino
    left(directory, whole_groups=False)
    assert directory.results.stat().st_ino == before


def settings(**changes: Any) -> EvalSettings:
    return EvalSettings(EnvironmentId(None, "squares", None), "m", **changes)


def test_the_settings_must_agree_but_for_the_number_of_examples() -> None:
    saved = settings(num_examples=5).as_metadata()
    settings(num_examples=10, max_concurrent=1, num_workers=2).check_resumes(saved)
    with pytest.raises(BadInput, match=r"rollouts_per_example was 3, now 4; sampling_args was \{\}, now"):
        settings(rollouts_per_example=4, sampling_args={"temperature": 1}).check_resumes(saved)


@pytest.mark.parametrize("number", [0, -2])
def test_a_number_of_examples_that_cannot_be_run_is_refused(number: int) -> None:
    with pytest.raises(BadInput, match="cannot be run"):
        settings(num_examples=number)
