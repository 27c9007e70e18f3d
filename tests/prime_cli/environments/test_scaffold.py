from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.environments.check import check_project
from prime_cli.environments.project import read_project
from prime_cli.environments.scaffold import list_templates, write_environment

TEMPLATES = [template.name for template in list_templates()]


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_gives_an_environment_that_loads_and_passes_its_own_tests(template: str, tmp_path: Path) -> None:
    written = write_environment("my-task", tmp_path, template)
    project = read_project(written.path)
    assert (project.name, project.module, project.version) == ("my-task", "my_task", "0.1.0")
    check_project(project, Path(sys.executable), by_import=False)
    for path in written.path.rglob("*"):
        assert "${" not in path.name + (path.read_text() if path.is_file() and path.suffix != ".pyc" else "")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written.path)]
    tests = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert tests.returncode == 0, tests.stdout


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "my_task").mkdir()
    with pytest.raises(PrimeError, match="is there already"):
        write_environment("my-task", tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "my_task"]
    assert list((tmp_path / "my_task").iterdir()) == []


def test_an_unknown_template_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no template 'reverse-txt'") as caught:
        write_environment("my-task", tmp_path, "reverse-txt")
    assert caught.value.hint == "did you mean `reverse-text`?"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrimeError, match="cannot write"):
        write_environment("my-task", tmp_path / "file" / "deeper")
