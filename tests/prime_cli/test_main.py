"""The root command: what it imports, where it writes, how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from prime_cli.main import COMMANDS, hoist_global_options

HEAVY = ("httpx", "pydantic", "textual", "verifiers", "torch", "rich", "transformers", "fastapi", "sqlalchemy", "numpy")


def prime(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prime_cli.main", *arguments], capture_output=True, text=True, **options
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from prime_cli.main import main; sys.argv = ['prime', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("group", sorted(COMMANDS))
def test_the_help_of_a_group_imports_neither_torch_nor_verifiers_nor_textual(group: str) -> None:
    code = (
        "import sys; from prime_cli.main import main; sys.argv = ['prime', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "loaded = [n for n in ('torch', 'verifiers', 'textual', 'transformers', 'sqlalchemy') if n in sys.modules]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code, group, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: prime" in done.stdout


def test_every_command_in_the_table_exists_and_has_the_summary_it_is_listed_with() -> None:
    listed = prime("--help").stdout
    for name, (module, summary) in COMMANDS.items():
        assert isinstance(import_module(module).app, typer.Typer)
        assert name in listed
        assert summary.split()[0] in listed


def test_a_mistyped_command_is_a_usage_error_that_names_the_nearest() -> None:
    done = prime("evl")
    assert done.returncode == 2
    assert "Did you mean 'eval'" in done.stderr
    assert done.stdout == ""


def test_without_arguments_the_help_is_shown() -> None:
    done = prime()
    assert "Commands:" in done.stdout + done.stderr


def test_an_unknown_output_format_is_a_usage_error_with_a_hint() -> None:
    done = prime("model", "init", "tiny-qwen3", "nowhere", "--output", "yaml")
    assert done.returncode == 2
    assert "invalid output format 'yaml'" in done.stderr
    assert "hint:" in done.stderr


def test_an_error_under_json_output_is_an_object_on_stderr(tmp_path) -> None:
    done = prime("model", "init", "no-such-preset", str(tmp_path / "m"), "--output", "json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert json.loads(done.stderr)["error"].startswith("unknown model preset")


def test_no_color_is_honoured(tmp_path) -> None:
    done = prime("model", "init", "no-such-preset", str(tmp_path / "m"), "--plain")
    assert "\x1b[" not in done.stderr


def test_global_options_work_anywhere_but_not_behind_a_bare_double_dash() -> None:
    assert hoist_global_options(["env", "list", "--output", "json", "--plain"]) == [
        "--output", "json", "--plain", "env", "list",
    ]  # fmt: skip
    assert hoist_global_options(["x", "--", "--plain"]) == ["x", "--", "--plain"]
    assert hoist_global_options(["x", "--context=a"]) == ["--context=a", "x"]
