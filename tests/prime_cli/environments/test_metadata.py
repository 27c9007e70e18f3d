from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.environments.metadata import EvalDefaults, eval_defaults, read_metadata, write_metadata
from prime_cli.environments.resolve import parse_environment_id
from tests.prime_cli.environments.conftest import MakeProject


def test_a_local_environment_gives_the_defaults_of_its_evaluation(
    make_project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project()
    monkeypatch.chdir(tmp_path)
    assert eval_defaults(parse_environment_id("tiny-sum")) == EvalDefaults(7, 2)
    assert eval_defaults(parse_environment_id("not-there")) == EvalDefaults(5, 3)


def test_what_was_noted_is_kept_when_more_is_noted(tmp_path: Path) -> None:
    assert read_metadata(tmp_path) == {}
    write_metadata(tmp_path, {"owner": "a", "origin": "b/c"}, event="pulled_at")
    path = write_metadata(tmp_path, {"owner": "d"}, event="pushed_at")
    assert path == tmp_path / ".prime" / ".env-metadata.json"
    noted = read_metadata(tmp_path)
    assert (noted["owner"], noted["origin"]) == ("d", "b/c")
    assert {"pulled_at", "pushed_at"} <= noted.keys()
