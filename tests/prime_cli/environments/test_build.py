from __future__ import annotations

from pathlib import Path

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.build import build_wheel
from prime_cli.environments.project import read_project
from prime_cli.environments.publish import project_beside, runtime_hint
from prime_cli.environments.wheel_facts import read_wheel
from tests.prime_cli.environments.conftest import GOOD, MakeProject
from tests.running_hub import make_wheel


def test_a_wheel_is_built_without_the_network_and_twice_the_same(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project = read_project(make_project())
    first = build_wheel(project)
    assert first.path == project.folder / "dist" / "tiny_sum-0.1.0-py3-none-any.whl"
    assert first.path.stat().st_size == first.size_bytes
    assert (first.name, first.version, first.keywords) == ("tiny-sum", "0.1.0", ["toy"])
    assert build_wheel(project).sha256 == first.sha256
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name]


def test_a_failing_build_shows_its_last_lines_and_leaves_no_wheel(make_project: MakeProject) -> None:
    folder = make_project()
    text = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(text.replace('keywords = ["toy"]', 'readme = "missing.md"'))
    with pytest.raises(PrimeError, match=r"(?s)building tiny-sum failed.*missing"):
        build_wheel(read_project(folder))
    assert not (folder / "dist").exists()


def test_a_wheel_without_the_module_is_refused(make_project: MakeProject) -> None:
    folder = make_project()
    text = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(text.replace('"tiny_sum.py", ', ""))
    with pytest.raises(PrimeError, match=r"holds no module tiny_sum\.py"):
        build_wheel(read_project(folder))
    assert not (folder / "dist").exists()


def test_a_wheel_made_elsewhere_must_hold_an_environment(tmp_path: Path) -> None:
    name, data = make_wheel("toy", "1.0")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PrimeError, match="does not define `load_environment`"):
        read_wheel(tmp_path / name)
    for name in ("toy.whl", "toy.zip"):
        with pytest.raises(PrimeError, match="not the file name of a wheel"):
            read_wheel(tmp_path / name)
    with pytest.raises(PrimeError, match="no such file"):
        read_wheel(tmp_path / "toy-2.0-py3-none-any.whl")
    (tmp_path / "toy-3.0-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(PrimeError, match="not a readable wheel"):
        read_wheel(tmp_path / "toy-3.0-py3-none-any.whl")


def test_a_wheel_in_dist_finds_its_project_unless_that_moved_on(make_project: MakeProject, tmp_path: Path) -> None:
    folder = make_project()
    wheel = build_wheel(read_project(folder))
    beside = project_beside(wheel)
    assert beside is not None
    assert beside.folder == folder.resolve()
    make_project(version="0.2.0")
    with pytest.raises(PrimeError, match=r"not of version 0\.2\.0"):
        project_beside(wheel)
    alone = tmp_path / "elsewhere" / "deep" / wheel.path.name
    alone.parent.mkdir(parents=True)
    wheel.path.rename(alone)
    assert project_beside(read_wheel(alone)) is None


@pytest.mark.parametrize(
    ("requirement", "hint"),
    [
        ("verifiers>=0.1.14,<0.3.2.dev0", "VERIFIERS_V0"),
        ("verifiers>=0.2.1,<0.3.2.dev0", "VERIFIERS_V0"),
        ("verifiers>=0.4", "VERIFIERS_V1"),
        ("verifiers==0.1.5", "VERIFIERS_V0"),
        ("verifiers", None),
        ("verifiers @ https://example.org/verifiers.whl", None),
        ("datasets>=4", None),
    ],
)
def test_the_generation_of_the_library_is_read_from_the_requirement(
    requirement: str, hint: str | None, tmp_path: Path
) -> None:
    about = f"Metadata-Version: 2.1\nName: toy\nVersion: 1.0\nRequires-Dist: {requirement}\n"
    name, data = make_wheel("toy", "1.0", code=GOOD, metadata=about)
    (tmp_path / name).write_bytes(data)
    assert runtime_hint(read_wheel(tmp_path / name)) == hint
