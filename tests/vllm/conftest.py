"""Tests against real vLLM in the interpreter that PRIME_VLLM_PYTHON names, else skipped. `make test-vllm` runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prime_cli.rl.inference.vllm import PYTHON_VARIABLE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = pytest.mark.skip(reason=f"{PYTHON_VARIABLE} names no interpreter with vLLM")
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(1200))
            if not os.environ.get(PYTHON_VARIABLE):
                item.add_marker(missing)
