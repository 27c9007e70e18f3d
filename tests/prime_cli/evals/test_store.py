"""Results on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.evals.run import summarize
from prime_cli.evals.store import EvalDirectory, find_evaluations, new_eval_directory, outputs_root


def test_rollouts_are_appended_and_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    directory = EvalDirectory(tmp_path)
    directory.append({"example_id": 1})
    with directory.results.open("a") as file:
        file.write('{"example_id": 2, "half')
    assert directory.read_rollouts() == [{"example_id": 1}]
    directory.append({"example_id": 3})
    assert directory.read_rollouts() == [{"example_id": 1}, {"example_id": 3}]


def test_evaluations_are_filed_by_environment_and_model_and_found_newest_first(tmp_path: Path) -> None:
    first = new_eval_directory(tmp_path, "reverse-text", "./outputs/weights/step_1")
    assert first.path.parent.name == "reverse-text--outputs--weights--step_1"
    first.write_metadata({"env_id": "a"})
    second = new_eval_directory(tmp_path, "reverse-text", "openai/gpt")
    second.write_metadata({"env_id": "b"})
    first_mtime = first.metadata.stat().st_mtime
    import os

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


def test_failed_rollouts_are_counted_and_never_averaged(tmp_path: Path) -> None:
    rollouts = [
        {"example_id": 0, "reward": 1.0, "metrics": {"m": 1.0}, "error": None},
        {"example_id": 1, "reward": 0.5, "metrics": {"m": 0.0}, "error": None},
        {"example_id": 2, "reward": 0.0, "metrics": {}, "error": {"error": "Boom", "message": "boom"}},
    ]
    summary = summarize(tmp_path, rollouts, 1.0)
    assert summary.reward is not None
    assert summary.reward.mean == 0.75
    assert (summary.num_rollouts, summary.num_errors) == (3, 1)
    assert summary.errors == {"boom": 1}
    assert summary.metrics == {"m": 0.5}


def test_nothing_but_failures_has_no_reward(tmp_path: Path) -> None:
    summary = summarize(tmp_path, [{"example_id": 0, "reward": 0.0, "error": "x"}], 1.0)
    assert summary.reward is None
