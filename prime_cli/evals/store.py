"""Results on disk, in verifiers' layout: `results.jsonl`, one rollout a line, and `metadata.json`.

A rollout is appended and flushed before it is counted, so what was shown is never lost. `metadata.json` is replaced
whole.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically

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
        """Append one rollout; it is on disk when this returns."""
        line = (json.dumps(rollout, default=str, ensure_ascii=False) + "\n").encode()
        descriptor = os.open(self.results, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata."""
        write_json_atomically(self.metadata, dict(metadata))

    def read_metadata(self) -> dict[str, Any]:
        """Return the metadata.

        Raises:
            PrimeError: the folder is no evaluation.
        """
        try:
            data: dict[str, Any] = json.loads(self.metadata.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise PrimeError(f"{self.path} is not an evaluation: it has no {METADATA}") from None
        except ValueError as error:
            raise PrimeError(f"{self.metadata} cannot be read: {error}") from None
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


def find_evaluations(roots: Iterable[Path]) -> list[EvalDirectory]:
    """Return all evaluations below the given output folders, newest first."""
    found = [EvalDirectory(path.parent) for root in roots for path in root.glob(f"evals/*/*/{METADATA}")]
    return sorted(found, key=lambda directory: directory.metadata.stat().st_mtime, reverse=True)


def default_roots() -> list[Path]:
    """Return where evaluations of this workspace lie."""
    return [Path("outputs"), *sorted(Path("environments").glob("*/outputs"))]
