"""Documentation that cannot rot: the generated pages are current, and what pages name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.file_formats import SECTIONS
from prime_cli.main import COMMANDS

TOP = Path(__file__).parent.parent
PAGES = sorted([TOP / "README.md", TOP / "CHANGELOG.md", *(TOP / "docs").rglob("*.md")])


def test_the_generated_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, TOP / "docs/generate_reference.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_to_files_of_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_promise_in_the_specification_names_a_test_or_a_benchmark_that_exists() -> None:
    text = (TOP / "docs/SPECIFICATION.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line][1:]
    assert rows
    for row in rows:
        checks = re.findall(r"`((?:tests|benchmarks|Makefile)[^`]*)`", row)
        assert checks, f"no check named in: {row}"
        for check in checks:
            path, _, name = check.partition("::")
            assert (TOP / path).exists(), f"{path} does not exist"
            assert not name or f"def {name}(" in (TOP / path).read_text(), f"{check} does not exist"


def test_every_key_of_every_command_and_file_is_in_the_reference() -> None:
    reference = {path.stem: path.read_text() for path in (TOP / "docs/reference").glob("*.md")}
    for section in SECTIONS:
        for each in section.formats:
            names = [field.alias or name for name, field in each.model.model_fields.items()]
            assert all(f"| `{name}` |" in reference["files"] for name in names), each.path
    for name in COMMANDS:
        assert f"## prime {name}\n" in reference["cli"], name


def test_no_module_hides_behind_a_name_that_says_nothing() -> None:
    for package in ("prime_cli", "hub_server"):
        for path in (TOP / package).rglob("*"):
            assert path.stem not in {"utils", "helpers", "common", "misc"}, path
