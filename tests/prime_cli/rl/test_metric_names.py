"""Every metric has its line in docs/metrics.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "metrics.md"
NAME = re.compile(r"^[a-z_]+(/[a-z_@]+|/\*)+$")


def documented() -> set[str]:
    """The names in the tables of the page, what stands in capitals as a star."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", "|".join(row.split("|")[1:3]))}
    return {re.sub(r"\b[A-Z][A-Z_]*\b", "*", name) for name in names}


def keys_in(path: Path) -> Iterator[str]:
    """The keys of the dictionaries that a module writes, those that look like metrics."""
    for node in ast.walk(ast.parse(path.read_text())):
        keys = node.keys if isinstance(node, ast.Dict) else [node.key] if isinstance(node, ast.DictComp) else []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = [node.slice]
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                text = key.value
            elif isinstance(key, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "*" for part in key.values)
            else:
                continue
            if NAME.match(text):
                yield text


def test_every_metric_that_the_code_writes_is_on_the_page() -> None:
    known = documented()
    modules = [path for package in ("rl", "sft") for path in (TOP / "prime_cli" / package).rglob("*.py")]
    written = {name: path.name for path in modules for name in keys_in(path)}
    assert {"reward/mean", "error/*", "optim/lr", "val/loss"} <= set(written)
    missing = {name: module for name, module in written.items() if name not in known}
    assert not missing, f"docs/metrics.md does not say what these are: {missing}"
