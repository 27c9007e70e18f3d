"""Results on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.evals.store import (
    EvalDirectory,
    evaluations_at,
    find_evaluations,
    new_eval_directory,
    outputs_root,
    remove_if_empty,
)


def test_rollouts_are_appended_and_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    directory = EvalDirectory(tmp_path)
    directory.append({"example_id": 1})
    with directory.results.open("a") as file:
        file.write('{"example_id": 2, "half')
    assert list(directory.rollouts()) == [{"example_id": 1}]
    directory.cut_off_half_a_line()
    directory.append({"example_id": 3})
    assert list(directory.rollouts()) == [{"example_id": 1}, {"example_id": 3}]


def test_evaluations_are_filed_by_environment_and_model_and_found_newest_first(tmp_path: Path) -> None:
    first = new_eval_directory(tmp_path, "reverse-text", "./outputs/weights/step_1")
    assert first.path.parent.name == "reverse-text--outputs--weights--step_1"
    first.write_metadata({"env_id": "a"})
    second = new_eval_directory(tmp_path, "reverse-text", "openai/gpt")
    second.write_metadata({"env_id": "b"})
    first_mtime = first.metadata.stat().st_mtime
    os.utime(second.metadata, (first_mtime + 5, first_mtime + 5))
    assert [d.path for d in find_evaluations([tmp_path])] == [second.path, first.path]


def test_results_lie_beside_the_environment_where_the_workspace_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert outputs_root("reverse_text", None) == Path("outputs")
    (tmp_path / "environments" / "reverse_text").mkdir(parents=True)
    assert outputs_root("reverse_text", None) == Path("environments/reverse_text/outputs")
    assert outputs_root("reverse_text", Path("elsewhere")) == Path("elsewhere")


def test_a_folder_that_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="not an evaluation"):
        EvalDirectory(tmp_path).read_metadata()


def test_a_folder_above_several_evaluations_stands_for_all_of_them(tmp_path: Path) -> None:
    evaluations = [new_eval_directory(tmp_path, "a", model) for model in ("x", "y")]
    for evaluation in evaluations:
        evaluation.append({"example_id": 0})
        evaluation.write_metadata({"env_id": "a"})
    assert {found.path for found in evaluations_at(tmp_path)} == {evaluation.path for evaluation in evaluations}
    assert [found.path for found in evaluations_at(evaluations[0].path)] == [evaluations[0].path]


def test_an_evaluation_that_never_began_is_removed_with_its_empty_parents(tmp_path: Path) -> None:
    begun, not_begun = new_eval_directory(tmp_path, "a", "x"), new_eval_directory(tmp_path, "b", "x")
    begun.append({"example_id": 0})
    (not_begun.path / "logs").mkdir()
    remove_if_empty(begun)
    remove_if_empty(not_begun)
    assert [path.name for path in (tmp_path / "evals").iterdir()] == ["a--x"]
    assert begun.results.exists()


def test_metadata_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("[1]")
    with pytest.raises(PrimeError, match="cannot be read"):
        EvalDirectory(tmp_path).read_metadata()


def test_an_evaluation_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    directory = EvalDirectory(tmp_path / "one")
    held = directory.hold()
    with pytest.raises(PrimeError, match="another process runs the evaluation"):
        directory.hold()
    os.close(held)
    os.close(directory.hold())
