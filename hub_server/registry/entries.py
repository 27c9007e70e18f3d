"""What a wheel lets be imported: the module of an environment's name, by which the library will look for it."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hub_server.errors import Malformed

_NATIVE = (".so", ".pyd")


def importable_modules(members: Iterable[str]) -> frozenset[str]:
    """Return the modules and packages that the files of a wheel make, at the top only.

    A folder with code in it but without an `__init__` is one too, as a part of a namespace: it is named `folder/`.
    """
    found = set()
    for member in members:
        *folders, file = _installed_as(member)
        module = _module_of(file)
        if module is None or not all(folder.isidentifier() for folder in folders):
            continue
        if not folders:
            found.add(module)
        elif len(folders) == 1 and module == "__init__":
            found.add(folders[0])
        else:
            found.add(f"{folders[0]}/")
    return frozenset(found)


def check_entry(environment_name: str, filename: str, modules: frozenset[str]) -> None:
    """Check that a wheel has the module that the library imports for an environment of this name.

    Raises:
        Malformed: it has not; names what it has instead.
    """
    if not _entries(environment_name).isdisjoint(modules):
        return
    module = str(canonicalize_name(environment_name)).replace("-", "_")
    there = ", ".join(sorted(name.rstrip("/") for name in modules)[:3]) or "nothing that can be imported"
    raise Malformed(
        f"the wheel {filename!r} has no module {module}.py or {module}/__init__.py, by which the environment "
        f"{environment_name!r} is imported; it has {there}"
    )


def is_library(environment_name: str, filename: str, modules: frozenset[str], requires_dist: list[str]) -> bool:
    """Say whether a wheel that an installer's tool uploads is a plain library, which environments of an index may need.

    Such a wheel can be imported, but not by its own name, as PyYAML by `yaml`, and does not need `verifiers`: one that
    does was meant to be an environment.

    Raises:
        Malformed: it is neither a library nor an environment.
    """
    needs_verifiers = any(canonicalize_name(Requirement(text).name) == "verifiers" for text in requires_dist)
    if modules and not needs_verifiers and _entries(environment_name).isdisjoint(modules):
        return True
    check_entry(environment_name, filename, modules)
    return False


def _entries(environment_name: str) -> set[str]:
    return {text.replace("-", "_") for text in (environment_name, str(canonicalize_name(environment_name)))}


def _installed_as(member: str) -> list[str]:
    """Return the parts of the path under which an installer writes a file of a wheel."""
    first, *rest = member.split("/")
    if first.endswith(".data") and len(rest) > 1 and rest[0] in ("purelib", "platlib"):
        return rest[1:]
    return [first, *rest]


def _module_of(file: str) -> str | None:
    """Return the name by which Python imports a file, None for what it does not import."""
    name, dot, suffix = file.partition(".")
    is_code = suffix == "py" or (dot and file.endswith(_NATIVE))
    return name if is_code and name.isidentifier() else None
