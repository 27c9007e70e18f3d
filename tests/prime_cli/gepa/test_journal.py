"""Calls that were paid for."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.gepa.journal import Journal
from prime_cli.gepa.prompts import most_common_system_prompt, with_system_prompt

KEY = ("rollout", "prompt", "example")


def test_the_same_call_twice_is_two_calls_and_both_are_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for reward in (0.5, 1.0):
        journal.add(KEY, journal.next_number(KEY), {"reward": reward, "completion": "Zoë\n"})
    journal.close()
    again = Journal(tmp_path / "j")
    found = [again.find(KEY, again.next_number(KEY)) for _ in range(3)]
    assert [one and one["reward"] for one in found] == [0.5, 1.0, None]
    assert again.num_calls == 2


def test_a_line_that_was_cut_off_is_as_if_it_had_never_been(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.add(KEY, 0, {"reward": 0.5})
    journal.add(KEY, 1, {"reward": 1.0})
    journal.close()
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[:-3])
    again = Journal(tmp_path / "j")
    assert again.find(KEY, 1) is None
    again.add(KEY, 1, {"reward": 1.0})
    again.close()
    assert (tmp_path / "j").read_bytes() == data


def test_a_journal_that_was_tampered_with_is_refused_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"key": ["a"], "number": 0}\nnonsense\n')
    with pytest.raises(PrimeError, match="is damaged after byte 28"):
        Journal(tmp_path / "j")


def test_a_disk_that_is_full_is_one_clear_line_and_the_call_is_not_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(PrimeError, match="j cannot be written: "):
            journal.add(KEY, 0, {"reward": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.close()
    assert Journal(tmp_path / "j").num_calls == 0


def test_a_system_prompt_takes_the_place_of_the_one_that_is_there() -> None:
    user = {"role": "user", "content": "hi"}
    row = {"prompt": [{"role": "system", "content": "old"}, user], "answer": "x"}
    assert with_system_prompt(row, "new")["prompt"] == [{"role": "system", "content": "new"}, user]
    assert with_system_prompt({"prompt": [user]}, "new")["prompt"] == [{"role": "system", "content": "new"}, user]
    assert with_system_prompt(row, "") == row
    assert most_common_system_prompt([row, {"prompt": [user]}, row]) == ("old", 2)
