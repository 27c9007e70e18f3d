"""Small environment projects that need neither verifiers nor the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = "def load_environment(**arguments):\n    return arguments\n"

MakeProject = Callable[..., Path]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Return a function that writes `environments/<module>` under the test's folder and returns it."""

    def make(name: str = "tiny-sum", code: str = GOOD, version: str = "0.1.0", pyproject: str | None = None) -> Path:
        module = name.replace("-", "_")
        folder = tmp_path / "environments" / module
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{module}.py").write_text(code)
        (folder / "README.md").write_text(f"# {name}\n")
        (folder / "pyproject.toml").write_text(
            pyproject
            or f'[project]\nname = "{name}"\nversion = "{version}"\ndescription = "A toy."\n'
            'requires-python = ">=3.10"\nkeywords = ["toy"]\n'
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            f'[tool.hatch.build]\ninclude = ["{module}.py", "pyproject.toml"]\ndev-mode-dirs = ["."]\n'
            "[tool.verifiers.eval]\nnum_examples = 7\nrollouts_per_example = 2\n"
        )
        return folder

    return make
