"""What an interpreter has of what it should have: the extras of this tool, and the versions that it is tested with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from prime_cli.core.errors import PrimeError
from prime_cli.core.resources import resource_path

DISTRIBUTION = "prime-lab"
EVALUATING = ("verifiers>=0.1.14,<0.3.2.dev0", "renderers>=0.1.6")
"""What the workspace's interpreter needs to run environments."""

_VERSIONS = """
import importlib.metadata, json
print(json.dumps({d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}))
"""
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Unmet:
    """A requirement that an interpreter does not meet; `found` is the version it has, None when it has none."""

    requirement: Requirement
    found: str | None

    def __str__(self) -> str:
        """Return it as a reader wants it: `mcp<2 (2.3 is installed)`."""
        wanted = f"{self.requirement.name}{self.requirement.specifier}"
        return f"{wanted} ({self.found} is installed)" if self.found else f"{wanted} (not installed)"


def installed_versions(python: Path) -> dict[str, str]:
    """Return the version of every distribution that `python` has, by normalised name.

    Raises:
        PrimeError: the interpreter does not run.
    """
    try:
        process = subprocess.run(
            [str(python), "-c", _VERSIONS], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        found: Mapping[str, str] = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise PrimeError(f"the interpreter {python} does not run: {error}") from None
    return {canonicalize_name(name): version for name, version in found.items()}


def tested_set() -> dict[str, Requirement]:
    """Return the versions that this tool is tested with, by normalised name: what constraints.txt says."""
    lines = resource_path("constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def of_extra(extra: str) -> list[Requirement]:
    """Return what an extra of this tool requires here, in the words of its own package.

    Raises:
        PrimeError: this tool runs from files that no installer knows of.
    """
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise PrimeError(
            f"{DISTRIBUTION} is not installed as a package, so what it needs is not known",
            hint="install it with `pip install -e '.[hub,lab]' -c constraints.txt`",
        ) from None
    requirements = [Requirement(line) for line in lines]
    return [r for r in requirements if r.marker and "extra" in str(r.marker) and r.marker.evaluate({"extra": extra})]


def unmet(requirements: Iterable[Requirement], versions: Mapping[str, str]) -> list[Unmet]:
    """Return those of `requirements` that `versions` do not meet."""
    found = [(each, versions.get(canonicalize_name(each.name))) for each in requirements]
    return [
        Unmet(each, has) for each, has in found if has is None or not each.specifier.contains(has, prereleases=True)
    ]


def outside_tested_set(versions: Mapping[str, str]) -> list[Unmet]:
    """Return what is installed in versions other than those this tool is tested with; what is missing is not."""
    installed = [requirement for name, requirement in tested_set().items() if name in versions]
    return unmet(installed, versions)


def pinned(name: str) -> str:
    """Return the requirement of one distribution as the tested set has it: `torch==2.13.0`."""
    return str(tested_set()[canonicalize_name(name)])
