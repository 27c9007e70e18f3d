"""From what was typed as ENVIRONMENT to something that the workers can load."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.environments.install import ensure_installed
from prime_cli.environments.installed import inspect_interpreter
from prime_cli.environments.metadata import EvalDefaults, eval_defaults
from prime_cli.environments.project import read_project
from prime_cli.environments.resolve import EnvironmentId, parse_environment_id
from prime_cli.environments.workspace import ENVIRONMENTS, search_path_of, workspace_python

_PROBE = (
    "import importlib.util, sys; sys.path[:0] = sys.argv[2:]; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
)


@dataclass(frozen=True)
class EnvironmentTarget:
    """An environment that can be imported by `python`, given `search_path`."""

    identity: EnvironmentId
    python: Path
    search_path: tuple[Path, ...]
    defaults: EvalDefaults


def locate_target(text: str, environments: Path = ENVIRONMENTS) -> EnvironmentTarget:
    """Say where the environment `text` is, or will be once it is installed: nothing is installed or imported.

    Raises:
        BadInput: the text is no name of an environment.
    """
    python = workspace_python()
    folder = Path(text).expanduser()
    if text.startswith((".", "/", "~")) or (folder / "pyproject.toml").is_file():
        identity = EnvironmentId(None, read_project(folder).name, None)
        return EnvironmentTarget(identity, python, (folder.resolve(),), eval_defaults(identity))
    identity = parse_environment_id(text)
    # With an owner it is the hub's copy that is asked for, whatever lies in the workspace.
    search_path = () if identity.owner else tuple(search_path_of(identity.name, environments))
    return EnvironmentTarget(identity, python, search_path, eval_defaults(identity, environments))


def find_target(text: str, note: Callable[[str], None], environments: Path = ENVIRONMENTS) -> EnvironmentTarget:
    """Find the environment `text`: a folder, a name of the workspace or of the interpreter, or owner/name[@version].

    One with an owner is installed from its hub first, unless it is there. `environments` is where those of the
    workspace lie.

    Raises:
        BadInput: the text is no name of an environment.
        PrimeError: there is no such environment; offers the nearest names.
    """
    located = locate_target(text, environments)
    ensure_installed(located.identity, note)
    if not _can_be_imported(located.python, located.identity.module, located.search_path):
        raise _unknown_environment(located.identity, located.python, environments)
    # What was just installed may bring defaults of its own.
    return replace(located, defaults=eval_defaults(located.identity, environments))


def _can_be_imported(python: Path, module: str, search_path: tuple[Path, ...]) -> bool:
    """Ask the interpreter; the module itself is not imported."""
    command = [str(python), "-c", _PROBE, module, *map(str, search_path)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def _unknown_environment(identity: EnvironmentId, python: Path, environments: Path) -> PrimeError:
    if (folder := environments / identity.module).is_dir():
        read_project(folder)  # says what is wrong with it
    local = [folder.parent.name.replace("_", "-") for folder in environments.glob("*/pyproject.toml")]
    known = sorted({*local, *inspect_interpreter(python).distributions})
    nearest = difflib.get_close_matches(identity.distribution, known, n=3)
    if nearest:
        hint = f"did you mean {' or '.join(repr(name) for name in nearest)}?"
    else:
        hint = f"install it with `prime env install OWNER/{identity.name}`, or write it with `prime env init`"
    return PrimeError(f"no environment {identity.name!r} is installed for {python}, nor in {environments}/", hint)
