"""The folder of one run; the only place that knows its layout.

config.json             what was asked for, whole
examples.json           which examples are in which set
journal.jsonl           every rollout and every answer of the reflection model
system_prompt.txt       the best prompt
results.jsonl           one candidate a line
pareto_frontier.jsonl   the best candidates of each validation example
proposals.jsonl         one iteration a line, also those that led to nothing
held_out.jsonl          both prompts on each held-out example
metadata.json           settings and summary; `completed_at` is null until the end
logs/, gepa.log, gepa/  of the workers; messages and state of the gepa package
lock                    held by the process that works on the run
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.files import write_json_atomically, write_text_atomically

_CONFIG, _METADATA, _KIND = "config.json", "metadata.json", "gepa"


@dataclass(frozen=True)
class GepaDirectory:
    """The folder of one run."""

    path: Path

    @property
    def journal(self) -> Path:
        """Every call that was paid for."""
        return self.path / "journal.jsonl"

    @property
    def logs(self) -> Path:
        """What workers and servers write."""
        return self.path / "logs"

    @property
    def gepa_log(self) -> Path:
        """Messages of the gepa package."""
        return self.path / "gepa.log"

    @property
    def gepa_state(self) -> Path:
        """The gepa package's own files."""
        return self.path / _KIND

    @property
    def system_prompt(self) -> Path:
        """The best prompt."""
        return self.path / "system_prompt.txt"

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.read_metadata().get("completed_at"))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Keep what was asked for."""
        write_json_atomically(self.path / _CONFIG, dict(config))

    def read_config(self) -> dict[str, Any]:
        """Return what was asked for.

        Raises:
            PrimeError: the folder is no run.
        """
        try:
            return _table(self.path / _CONFIG)
        except (FileNotFoundError, NotADirectoryError):
            raise PrimeError(
                f"{self.path} is no run of `prime gepa run`: it has no {_CONFIG}",
                hint="give the folder that the run named when it stopped",
            ) from None

    def check_examples(self, examples: Mapping[str, Any]) -> None:
        """Keep which examples the run has, or check that they are those that it had.

        Raises:
            PrimeError: the environment has other examples now.
        """
        path = self.path / "examples.json"
        if not path.exists():
            write_json_atomically(path, dict(examples))
        elif _table(path) != examples:
            raise PrimeError(
                "the environment's examples are not those that the run began with, so it cannot go on",
                hint="install the version of the environment that it ran with, or begin a new run",
            )

    def write_results(self, **tables: Iterable[Mapping[str, Any]]) -> None:
        """Replace `<name>.jsonl` for each of the tables."""
        for name, rows in tables.items():
            text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            write_text_atomically(self.path / f"{name}.jsonl", text)

    def write_summary(self, system_prompt: str, metadata: Mapping[str, Any]) -> None:
        """Replace the best prompt, then the metadata."""
        write_text_atomically(self.system_prompt, system_prompt)
        write_json_atomically(self.path / _METADATA, dict(metadata))

    def read_metadata(self) -> dict[str, Any]:
        """Return the metadata, empty before there is any."""
        try:
            return _table(self.path / _METADATA)
        except FileNotFoundError:
            return {}

    def hold(self) -> TextIO:
        """Take hold of the run until the file that is returned is closed, or this process ends.

        Raises:
            BadInput: another process works on it.
        """
        file = (self.path / "lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise BadInput(f"{self.path} is being worked on by another process", hint="end that one first") from None
        return file

    def remove_if_nothing_was_paid(self) -> bool:
        """Remove the folder unless the journal holds a call, and the parents made for it that are empty then."""
        if self.journal.exists() and self.journal.stat().st_size:
            return False
        shutil.rmtree(self.path)
        made_for_it = self.path.parents[1].name == _KIND if len(self.path.parents) > 1 else False
        for parent in list(self.path.parents)[: 3 if made_for_it else 0]:
            try:
                parent.rmdir()
            except OSError:
                break
        return True


def new_gepa_directory(root: Path, environment: str, model: str) -> GepaDirectory:
    """Return the folder `<root>/gepa/<environment>--<model>/<8 hex digits>`, made."""
    label = f"{environment.replace('/', '--')}--{model.strip('./').replace('/', '--')}"
    return _made(root / _KIND / label / secrets.token_hex(4))


def gepa_directory_at(path: Path) -> GepaDirectory:
    """Return the folder `path`, made.

    Raises:
        BadInput: something is in it already.
    """
    if (path / _CONFIG).exists():
        raise BadInput(f"{path} has a run in it already", hint=f"to go on with it: prime gepa run --resume {path}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path} is not an empty folder", hint="name one that is, or one that is not there yet")
    return _made(path)


def unfinished_runs(roots: Iterable[Path]) -> list[GepaDirectory]:
    """Return the runs below the given output folders that did not come to their end, the last one first."""
    found = [GepaDirectory(path.parent) for root in roots for path in root.glob(f"{_KIND}/*/*/{_CONFIG}")]
    found = [directory for directory in found if not directory.is_finished]
    return sorted(found, key=lambda directory: (directory.path / _CONFIG).stat().st_mtime, reverse=True)


def _made(path: Path) -> GepaDirectory:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PrimeError(f"the folder {path} cannot be made: {error.strerror}") from None
    return GepaDirectory(path)


def _table(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise PrimeError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise PrimeError(f"{path} cannot be read: it holds no table")
    return data
