from __future__ import annotations

import ast

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.source_check import LoaderState, check_source, loader_state


@pytest.mark.parametrize(
    "code",
    [
        "def load_environment(): ...",
        "from elsewhere import load_environment",
        "from elsewhere import make as load_environment",
        "load_environment = lambda: 1",
        "try:\n    import x\nexcept ImportError:\n    def load_environment(): ...",
        "if True:\n    pass\nelse:\n    def load_environment(): ...",
    ],
)
def test_every_way_to_bind_the_loader_counts(code: str) -> None:
    assert loader_state(ast.parse(code)) is LoaderState.DEFINED


@pytest.mark.parametrize("code", ["from elsewhere import *", "def __getattr__(name): ..."])
def test_what_only_an_import_can_tell_is_left_open(code: str) -> None:
    assert loader_state(ast.parse(code)) is LoaderState.UNDECIDED


@pytest.mark.parametrize("code", ["", "class A:\n    def load_environment(self): ...", "load_environment: int"])
def test_a_module_without_the_loader_is_refused(code: str) -> None:
    with pytest.raises(PrimeError, match="does not define `load_environment`"):
        check_source(code, "toy.py")


def test_a_syntax_error_is_told_with_its_line() -> None:
    with pytest.raises(PrimeError, match=r"toy\.py, line 2: .*\n  def \(:"):
        check_source("x = 1\ndef (:\n", "toy.py")
