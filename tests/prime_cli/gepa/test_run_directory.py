"""The folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.gepa.run_directory import GepaDirectory, gepa_directory_at, new_gepa_directory, unfinished_runs


def test_a_folder_in_which_something_lies_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="is not an empty folder"):
        gepa_directory_at(tmp_path)
    directory = gepa_directory_at(tmp_path / "new")
    directory.write_config({"config": {}, "given": []})
    with pytest.raises(BadInput, match="has a run in it already"):
        gepa_directory_at(directory.path)


def test_a_run_that_paid_for_nothing_is_removed_with_the_folders_that_were_made_for_it_only(tmp_path: Path) -> None:
    named = gepa_directory_at(tmp_path / "somewhere" / "named")
    assert named.remove_if_nothing_was_paid()
    assert (tmp_path / "somewhere").is_dir()
    made = new_gepa_directory(tmp_path / "outputs", "owner/env", "./models/tiny/")
    assert made.path.parent.name == "owner--env--models--tiny"
    made.journal.write_text("")
    assert made.remove_if_nothing_was_paid()
    assert not (tmp_path / "outputs").exists()
    paid = new_gepa_directory(tmp_path / "outputs", "env", "model")
    paid.journal.write_text("{}\n")
    assert not paid.remove_if_nothing_was_paid()
    assert paid.journal.exists()


def test_the_last_run_that_did_not_end_is_the_one_to_go_on_with(tmp_path: Path) -> None:
    runs = [new_gepa_directory(tmp_path, "env", "model") for _ in range(2)]
    for run in runs:
        run.write_config({"config": {}, "given": []})
    assert {run.path for run in unfinished_runs([tmp_path])} == {run.path for run in runs}
    runs[0].write_summary("prompt", {"completed_at": "now"})
    assert [run.path for run in unfinished_runs([tmp_path])] == [runs[1].path]


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    directory = GepaDirectory(tmp_path)
    with directory.hold(), pytest.raises(BadInput, match="worked on by another process"):
        directory.hold()


def test_a_folder_that_is_no_run_and_a_file_that_was_broken_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match="is no run of `prime gepa run`"):
        GepaDirectory(tmp_path).read_config()
    (tmp_path / "config.json").write_text('{"config": ')
    with pytest.raises(PrimeError, match="cannot be read"):
        GepaDirectory(tmp_path).read_config()
