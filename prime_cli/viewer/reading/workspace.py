"""What there is to look at: evaluations, training runs and environments of a workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prime_cli.core.errors import PrimeError
from prime_cli.environments.local import LocalEnvironment, list_local
from prime_cli.evals.store import default_roots, evaluations_at, find_evaluations
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.runs import RunFacts, facts_of
from prime_cli.viewer.reading.evaluations import Evaluation, read_evaluation

RUN_FOLDERS = (Path("outputs/rl"), Path("outputs/sft"))


@dataclass(frozen=True)
class Scope:
    """What is shown: evaluations (of one path, or the workspace's), training runs, environments, the hub's."""

    evaluations: bool = True
    path: Path | None = None
    run_folders: Sequence[Path] = ()
    environments: bool = False
    hub: bool = True


@dataclass(frozen=True)
class Contents:
    """What was found, the newest first."""

    evaluations: list[Evaluation] = field(default_factory=list)
    runs: list[RunFacts] = field(default_factory=list)


def read_contents(scope: Scope) -> Contents:
    """Return what there is; what cannot be read is left out, or says so.

    Raises:
        PrimeError: nothing is where `scope` says that evaluations are.
    """
    directories = []
    if scope.evaluations:
        directories = find_evaluations(default_roots()) if scope.path is None else evaluations_at(scope.path)
    runs = sorted(_runs(scope.run_folders), key=lambda run: run.started, reverse=True)
    return Contents([read_evaluation(directory) for directory in directories], runs)


def read_environments() -> list[LocalEnvironment]:
    """Return the environments of the workspace; asks its interpreter, which takes a second."""
    try:
        return list_local()
    except PrimeError:
        return []


def _runs(folders: Sequence[Path]) -> Iterator[RunFacts]:
    for folder in folders:
        for path in folder.iterdir() if folder.is_dir() else ():
            if (path / "config.json").is_file() and (path / "rollouts").is_dir():
                try:
                    yield facts_of(RunDirectory(path))
                except (PrimeError, KeyError, ValueError, OSError):
                    continue  # half written, or by another version
