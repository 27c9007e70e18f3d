"""The commands that open the viewer, where there is no terminal to open it on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prime_cli.core import output
from prime_cli.main import app
from tests.prime_cli.viewer.material import a_run, an_evaluation


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_mode", output.OutputMode())


def test_lab_alone_prints_its_help() -> None:
    result = CliRunner().invoke(app, ["lab"])
    assert result.exit_code == 0
    assert "doctor" in result.stdout


def test_eval_view_lists_the_evaluations(tmp_path: Path) -> None:
    an_evaluation(tmp_path / "outputs" / "evals" / "multiply--tiny" / "0123abcd")
    result = CliRunner().invoke(app, ["eval", "view"])
    assert result.exit_code == 0
    assert "0123abcd" in result.stdout


def test_rl_view_prints_what_show_or_list_print(tmp_path: Path) -> None:
    a_run(tmp_path / "outputs" / "rl")
    assert "12/12" in CliRunner().invoke(app, ["rl", "view"]).stdout
    result = CliRunner().invoke(app, ["--output", "json", "rl", "view", "reverse-text"])
    assert json.loads(result.stdout)["state"] == "finished"
    assert CliRunner().invoke(app, ["rl", "view", "none"]).exit_code != 0
