"""Results on disk, in verifiers' layout: `results.jsonl`, one rollout a line, and `metadata.json`.

A rollout is appended before it is counted, in one write to the operating system: what was shown survives the death of
this process at any moment. `metadata.json` is replaced whole, after the results were flushed to the disk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import file_written_aside, write_json_atomically
from prime_cli.environments.workspace import ENVIRONMENTS

RESULTS = "results.jsonl"
METADATA = "metadata.json"
BROKEN = "broken_lines.txt"
_BLOCK = 1 << 20


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

    @property
    def broken_lines(self) -> Path:
        """What was found among the results and is no rollout."""
        return self.path / BROKEN

    def append(self, rollout: Mapping[str, Any]) -> None:
        """Append one rollout, wholly or not at all.

        Raises:
            PrimeError: the disk is full, or the folder cannot be written to.
        """
        line = _line(rollout)
        try:
            with self.results.open("ab", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                try:
                    while line:
                        line = line[file.write(line) :]
                except OSError:
                    os.ftruncate(file.fileno(), end)
                    raise
        except OSError as error:
            raise _cannot_be_written(self.results, error) from None

    def hold(self) -> int:
        """Keep other processes from running this evaluation until the descriptor that is returned is closed.

        Raises:
            PrimeError: another process runs it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise PrimeError(
                f"another process runs the evaluation in {self.path}", hint="let it end, or stop it, then go on"
            ) from None
        except OSError:  # a file system without locks
            pass
        return descriptor

    def forget_results(self) -> None:
        """Remove the rollouts, of which none is worth keeping."""
        self.results.unlink(missing_ok=True)

    def select_lines(self, wanted: Iterable[bool]) -> None:
        """Keep those of the first lines for which `wanted` says so; a reader sees the old lines or the new ones.

        What is cut off at the end by a crash goes too.

        Raises:
            PrimeError: the disk is full, or the folder cannot be written to.
        """
        try:
            with (
                self.results.open("rb") as file,
                file_written_aside(self.results, mode=stat.S_IMODE(self.results.stat().st_mode)) as aside,
            ):
                aside.writelines(line for line, keep in zip(file, wanted, strict=False) if keep)
        except OSError as error:
            raise _cannot_be_written(self.results, error) from None

    def set_aside(self, line: bytes) -> None:
        """Keep a line of the results that cannot be read, beside them.

        Raises:
            PrimeError: the disk is full, or the folder cannot be written to.
        """
        try:
            with self.broken_lines.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise _cannot_be_written(self.broken_lines, error) from None

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Flush the results to the disk, then replace the metadata.

        Raises:
            PrimeError: the disk is full, or the folder cannot be written to.
        """
        try:
            if self.results.exists():
                with self.results.open("rb") as file:
                    os.fsync(file.fileno())
            write_json_atomically(self.metadata, dict(metadata))
        except OSError as error:
            raise _cannot_be_written(self.metadata, error) from None

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

    def lines(self) -> Iterator[bytes]:
        """Yield the whole lines of the results; a last one that was cut off by a crash is left out."""
        if self.results.exists():
            with self.results.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield all whole rollouts, one in memory at a time.

        Raises:
            PrimeError: a line is no rollout; says which.
        """
        for number, line in enumerate(self.lines(), 1):
            rollout = parsed_rollout(line)
            if rollout is None:
                raise PrimeError(
                    f"{self.results}, line {number} is no rollout",
                    hint="`prime eval run ... --resume FOLDER` sets it aside and runs what is missing again",
                )
            yield rollout

    def cut_off_half_a_line(self) -> None:
        """Remove a last line that a crash left half-written; what is appended would become part of it."""
        if not self.results.exists():
            return
        with self.results.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - _BLOCK)
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            file.truncate(end)


def parsed_rollout(line: bytes) -> dict[str, Any] | None:
    """Return the rollout that a line of the results holds, or None when it holds none."""
    try:
        rollout = json.loads(line)
    except ValueError:
        return None
    return rollout if isinstance(rollout, dict) else None


def _line(rollout: Mapping[str, Any]) -> bytes:
    return (json.dumps(rollout, default=str, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def _cannot_be_written(path: Path, error: OSError) -> PrimeError:
    return PrimeError(
        f"{path} cannot be written: {error.strerror}",
        hint="what is finished is kept; make room, then go on with `--resume FOLDER`"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else None,
    )


def outputs_root(module: str, override: Path | None, environments: Path = ENVIRONMENTS) -> Path:
    """Return where evaluations of an environment are filed: its own `outputs`, else the workspace's."""
    if override is not None:
        return override
    folder = environments / module
    return (folder if folder.is_dir() else Path()) / "outputs"


def new_eval_directory(root: Path, environment: str, model: str) -> EvalDirectory:
    """Create and return `<root>/evals/<environment>--<model>/<8 hex digits>`.

    Raises:
        PrimeError: the folder cannot be created.
    """
    path = _folder_of(root, environment, model) / secrets.token_hex(4)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise PrimeError(
            f"{path} cannot be created: {error.strerror}", hint="choose another folder with --output-dir"
        ) from None
    return EvalDirectory(path)


def evaluations_of(root: Path, environment: str, model: str) -> list[EvalDirectory]:
    """Return the evaluations of a model on an environment that are filed under `root`, newest first."""
    found = [EvalDirectory(path.parent) for path in _folder_of(root, environment, model).glob(f"*/{METADATA}")]
    return sorted(found, key=lambda directory: directory.metadata.stat().st_mtime, reverse=True)


def _folder_of(root: Path, environment: str, model: str) -> Path:
    return root / "evals" / f"{environment.replace('/', '--')}--{model.strip('./').replace('/', '--')}"


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
