from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from prime_cli.core.errors import BadInput, ConfigError, PrimeError
from prime_cli.environments.project import (
    VersionPart,
    bump_version,
    find_project,
    next_version,
    raised_version,
    read_project,
)
from tests.prime_cli.environments.conftest import MakeProject


def test_a_name_a_path_and_the_current_folder_find_the_project(
    make_project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_project()
    monkeypatch.chdir(tmp_path)
    for name in ("tiny-sum", "tiny_sum", "environments/tiny_sum"):
        assert find_project(name).folder.resolve() == folder
    monkeypatch.chdir(folder)
    assert find_project(None).name == find_project("tiny-sum").name == "tiny-sum"


def test_an_unknown_name_offers_the_nearest(
    make_project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrimeError, match="no environment 'tiny-sun'") as caught:
        find_project("tiny-sun")
    assert caught.value.hint == "did you mean `tiny-sum`?"
    with pytest.raises(BadInput, match="which environment"):
        find_project(None)


def test_a_folder_without_pyproject_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match=r"has no pyproject\.toml"):
        read_project(tmp_path)
    with pytest.raises(PrimeError, match="no such folder"):
        read_project(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[project", "not valid TOML"),
        ("project = 1", "`project` must be a table"),
        ("[project]\nversion = '1'", "`project.name`"),
        ("[project]\nname = 'a'", "`project.version`"),
        ("[project]\nname = 'a'\nversion = 'one'", "`project.version`"),
        ("[project]\nname = 'a'\nversion = 1", "`project.version`"),
        ("[project]\nname = 'a'\nversion = '1'\nkeywords = 3", "`keywords` must be a list of strings"),
    ],
)
def test_a_pyproject_that_names_no_package_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_project(tmp_path)


def test_raising_the_version_keeps_comments_and_order(make_project: MakeProject) -> None:
    text = '# mine\n[project]\nname = "tiny-sum"  # short\nversion = "1.2"\n'
    folder = make_project(pyproject=text)
    assert bump_version(folder, "patch") == "1.2.1"
    assert (folder / "pyproject.toml").read_text() == text.replace('"1.2"', '"1.2.1"')


def test_a_failure_puts_the_version_back(make_project: MakeProject) -> None:
    project = read_project(make_project())

    def interrupted() -> None:
        with raised_version(project, "patch") as raised:
            assert raised.version == "0.1.1"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_project(project.folder).version == "0.1.0"


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        ("1.2.3", "patch", "1.2.4"),
        ("1.2.3", "rc", "1.2.3rc0"),
        ("1.2.3.rc4", "rc", "1.2.3rc5"),
        ("1.2.3b1", "rc", "1.2.3rc0"),
        ("1.2.3", "post", "1.2.3.post0"),
        ("1.2.3.post9", "post", "1.2.3.post10"),
        ("1!1.2rc1", "post", "1!1.2rc1.post0"),
    ],
)
def test_the_next_version(before: str, part: VersionPart, after: str) -> None:
    assert next_version(Version(before), part) == after
