"""Results on disk, in verifiers' layout: `results.jsonl`, one rollout a line, and `metadata.json`.

A rollout is appended before it is counted, in one write to the operating system: what was shown survives the death of
this process at any moment. `metadata.json` is replaced whole, after the results were flushed to the disk.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically, write_text_atomically

RESULTS = "results.jsonl"
METADATA = "metadata.json"


@dataclass(frozen=True)
class EvalDirectory:
    """The folder of one evaluation."""

    path: Path

    @property
    def results(self) -> Path:
        """One rollout a line."""
        return self.path / RESULTS

    @property
    def metadata(self) -> Path:
        """Settings and averages."""
        return self.path / METADATA

    def append(self, rollout: Mapping[str, Any]) -> None:
        """Append one rollout.

        Raises:
            PrimeError: the disk is full, or the folder cannot be written to.
        """
        line = (json.dumps(rollout, default=str, ensure_ascii=False) + "\n").encode()
        try:
            with self.results.open("ab", buffering=0) as file:
                written = file.write(line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise PrimeError(f"{self.results} cannot be written: {error.strerror}") from None

    def replace_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """Replace all rollouts; a reader sees the old ones or the new ones."""
        lines = (json.dumps(rollout, default=str, ensure_ascii=False) + "\n" for rollout in rollouts)
        write_text_atomically(self.results, "".join(lines))

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Flush the results to the disk, then replace the metadata."""
        if self.results.exists():
            with self.results.open("rb") as file:
                os.fsync(file.fileno())
        write_json_atomically(self.metadata, dict(metadata))

    def read_metadata(self) -> dict[str, Any]:
        """Return the metadata.

        Raises:
            PrimeError: the folder is no evaluation.
        """
        try:
            data: dict[str, Any] = json.loads(self.metadata.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise PrimeError(
                f"{self.path} is not an evaluation: it has no {METADATA}",
                hint="`prime eval list` shows those there are",
            ) from None
        except (OSError, ValueError) as error:
            raise PrimeError(f"{self.metadata} cannot be read: {error}") from None
        if not isinstance(data, dict):
            raise PrimeError(f"{self.metadata} cannot be read: it holds no table")
        return data

    def read_rollouts(self) -> list[dict[str, Any]]:
        """Return all whole rollouts; a last line that was cut off by a crash is left out, and cut off the file."""
        if not self.results.exists():
            return []
        data = self.results.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.results, len(whole))
        return [json.loads(line) for line in whole.splitlines()]


def outputs_root(module: str, override: Path | None) -> Path:
    """Return where evaluations of an environment are filed: its own `outputs`, else the workspace's."""
    if override is not None:
        return override
    folder = Path("environments") / module
    return (folder if folder.is_dir() else Path()) / "outputs"


def new_eval_directory(root: Path, environment: str, model: str) -> EvalDirectory:
    """Create and return `<root>/evals/<environment>--<model>/<8 hex digits>`."""
    label = f"{environment.replace('/', '--')}--{model.strip('./').replace('/', '--')}"
    path = root / "evals" / label / secrets.token_hex(4)
    path.mkdir(parents=True)
    return EvalDirectory(path)


def remove_if_empty(directory: EvalDirectory) -> None:
    """Remove the folder of an evaluation that ended before its first rollout, and its parents if they are empty too."""
    if directory.results.exists():
        return
    shutil.rmtree(directory.path)
    for parent in list(directory.path.parents)[:3]:
        try:
            parent.rmdir()
        except OSError:
            return


def find_evaluations(roots: Iterable[Path]) -> list[EvalDirectory]:
    """Return all evaluations below the given output folders, newest first."""
    found = [EvalDirectory(path.parent) for root in roots for path in root.glob(f"evals/*/*/{METADATA}")]
    return sorted(found, key=lambda directory: directory.metadata.stat().st_mtime, reverse=True)


def evaluations_at(path: Path) -> list[EvalDirectory]:
    """Return the evaluation in `path`, or else all those below it, newest first.

    Raises:
        PrimeError: there is none.
    """
    if (path / METADATA).is_file():
        return [EvalDirectory(path)]
    below = [EvalDirectory(found.parent) for found in path.rglob(METADATA) if (found.parent / RESULTS).is_file()]
    if not below:
        EvalDirectory(path).read_metadata()
    return sorted(below, key=lambda directory: directory.metadata.stat().st_mtime, reverse=True)


def default_roots() -> list[Path]:
    """Return where evaluations of this workspace lie."""
    return [Path("outputs"), *sorted(Path("environments").glob("*/outputs"))]
