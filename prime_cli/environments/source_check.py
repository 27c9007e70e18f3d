"""Reads an environment's source, without running it, for what the library will look for: `load_environment`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from prime_cli.core.errors import PrimeError

LOADER = "load_environment"


class LoaderState(Enum):
    """What the source says about `load_environment`: it is there, it is not, or only an import can tell."""

    DEFINED = "defined"
    MISSING = "missing"
    UNDECIDED = "undecided"


def module_file(folder: Path, module: str) -> Path | None:
    """Return the file that `import module` would run for the project in `folder`, or None when there is none."""
    for base in (folder, folder / "src"):
        for candidate in (base / f"{module}.py", base / module / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def check_source(text: str, name: str) -> LoaderState:
    """Check the source of an environment's module; `name` is the file as the user knows it.

    Raises:
        PrimeError: it is not Python, or it does not define `load_environment`.
    """
    try:
        state = loader_state(ast.parse(text))
    except SyntaxError as error:
        code = (error.text or "").rstrip()
        shown = f"\n  {code.strip()}" if code.strip() else ""
        raise PrimeError(f"{name}, line {error.lineno}: {error.msg}{shown}") from None
    except ValueError as error:
        raise PrimeError(f"{name} is not Python: {error}") from None
    if state is LoaderState.MISSING:
        raise PrimeError(
            f"{name} does not define `{LOADER}`",
            hint=f"add `def {LOADER}(...)` that returns a verifiers environment; `prime env init` shows one",
        )
    return state


def module_file_defines_loader(path: str) -> LoaderState:
    """Return what the file at `path` says about `load_environment`; a file that cannot be read says nothing."""
    try:
        return loader_state(ast.parse(Path(path).read_text(encoding="utf-8")))
    except (OSError, SyntaxError, ValueError):
        return LoaderState.MISSING


def loader_state(tree: ast.Module) -> LoaderState:
    """Look for `load_environment` among the names that the module binds when it is imported."""
    state = LoaderState.MISSING
    for statement in _statements(tree.body):
        names = set(_bound_names(statement))
        if LOADER in names:
            return LoaderState.DEFINED
        if "*" in names or "__getattr__" in names:
            state = LoaderState.UNDECIDED
    return state


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those inside `if`, `try` and `with` included."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(statement, field, []))
        if isinstance(statement, ast.Try):
            for handler in statement.handlers:
                yield from _statements(handler.body)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            yield name
