"""Which names an environment may have: it becomes a Python package that is imported beside many others."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import keyword
import re
import sys

from prime_cli.core.errors import BadInput
from prime_cli.environments.resolve import EnvironmentId
from prime_cli.environments.source_check import LoaderState, module_file_defines_loader

_NAME = re.compile(r"[a-z](?:[a-z0-9]|[-_](?=[a-z0-9]))*")
_MAX_LENGTH = 60


def check_new_name(name: str) -> EnvironmentId:
    """Return the identity of a new environment called `name`.

    Raises:
        BadInput: the name is no valid package name, is a keyword, or would hide a module that others import.
    """
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        suggestion = _suggest(name)
        rule = "start with a letter; then lower-case letters and digits, with single dashes between them"
        raise BadInput(f"{name!r} is not a valid package name", hint=f"try `{suggestion}`" if suggestion else rule)
    identity = EnvironmentId(None, re.sub(r"[-_]+", "-", name), None)
    module = identity.module
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        raise BadInput(f"{name!r} is a keyword of Python and cannot be imported", hint=f"try `{name}-env`")
    if module in sys.stdlib_module_names:
        raise BadInput(f"{name!r} would hide the module {module!r} of Python itself", hint=f"try `{name}-env`")
    if _is_taken(identity):
        raise BadInput(f"{name!r} would hide the installed package {module!r}", hint=f"try `{name}-env`")
    return identity


def _suggest(name: str) -> str | None:
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower())
    text = "-".join(words).lstrip("0123456789-")[:_MAX_LENGTH].rstrip("-")
    return text if text and text != name else None


def _is_taken(identity: EnvironmentId) -> bool:
    """Say whether the name belongs to something installed that is not itself an environment of this name."""
    if identity.distribution in _own_requirements():
        return True
    try:
        spec = importlib.util.find_spec(identity.module)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    return module_file_defines_loader(spec.origin) is not LoaderState.DEFINED


def _own_requirements() -> set[str]:
    """Return what this tool and its extras depend on, installed or not: an environment must not take those names."""
    try:
        requirements = importlib.metadata.requires("prime-lab") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    names = {re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in requirements}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names} | {"prime-lab", "prime-cli", "datasets"}


def nearest(name: str, known: list[str]) -> str | None:
    """Return the known name that is most like `name`, or None when none is."""
    found = difflib.get_close_matches(name, known, n=1)
    return found[0] if found else None
