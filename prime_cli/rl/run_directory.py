"""The folder of one run, and the only place where its layout is written down.

config.json            the resolved configuration
metrics.jsonl          one record per step and source (orchestrator, trainer)
rollouts/step_S.jsonl  the rollouts of batch S
rollouts/eval/step_S/  those of evaluations as of step S, a file for each environment; rollouts/val/ the same
batches/step_S/        what the orchestrator hands to the trainer; removed once trained
broadcasts/step_V/     weights of policy version V on their way to the inference server; removed once stale
checkpoints/step_N/    the whole state after step N, from which a run goes on
weights/step_N/        weights in Hugging Face layout
adapters/step_N/       the adapter alone, in PEFT layout, where one is trained
token_exports/step_S/  what the trainer saw of every token of batch S, a file per rank, where that is asked for
tensorboard/, wandb/   what these sinks keep, where they are asked for; sinks/NAME.offset: what they have had
status/NAME.json       what each process is doing, or waiting for
status/NAME.beat       touched every second by a process that lives
logs/NAME.log          output of each process; logs/attempt_K/ has those of earlier attempts
attempt.json           which attempt at the run this is, and where it began
lock                   held by the launcher for as long as it lives
summary.json           written last: how the run ended

A folder whose name begins with a dot is on its way to its name, or away from it.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically

ORCHESTRATOR_STATE = "orchestrator.json"
"""What the orchestrator writes of itself into the folder of a batch, and the trainer copies into a checkpoint."""

_STEP = re.compile(r"^step_(\d+)$")


@dataclass(frozen=True)
class Start:
    """Where an attempt at a run begins: a checkpoint, and the step that it is of.

    With `weights_only` the run is a new one that begins with the checkpoint's weights, at its own step 0.
    """

    checkpoint: str
    step: int
    weights_only: bool = False


@dataclass(frozen=True)
class Attempt:
    """Which attempt at a run this is, from 1, and where it began; without a start it began with the model's weights."""

    number: int = 1
    start: Start | None = None

    @property
    def steps_done(self) -> int:
        """The last step that is done already."""
        return 0 if self.start is None or self.start.weights_only else self.start.step


@dataclass(frozen=True)
class RunDirectory:
    """Paths and atomic writes of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One JSON record per line."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """How the run ended; absent while it runs."""
        return self.path / "summary.json"

    def log(self, name: str) -> Path:
        """The log of the process `name`."""
        return self.path / "logs" / f"{name}.log"

    def ready(self, name: str) -> Path:
        """Where the server `name` writes its address when it is ready."""
        return self.path / "status" / f"{name}_ready.json"

    def rollouts(self, step: int) -> Path:
        """The rollouts of batch `step`, one JSON object per line."""
        return self.path / "rollouts" / f"step_{step}.jsonl"

    def eval_rollouts(self, name: str, step: int) -> Path:
        """The rollouts of the evaluation of `name` (eval/ENVIRONMENT, val/ENVIRONMENT) as of `step`."""
        kind, _, environment = name.partition("/")
        return self.path / "rollouts" / kind / f"step_{step}" / f"{environment}.jsonl"

    def batch(self, step: int) -> Path:
        """The folder with the training batch of `step`."""
        return self.path / "batches" / f"step_{step}"

    def state_beside_batch(self, step: int) -> dict[str, bytes]:
        """Return what the orchestrator wrote of itself as of the cutting of batch `step`, by file name."""
        path = self.batch(step) / ORCHESTRATOR_STATE
        return {path.name: path.read_bytes()} if path.exists() else {}

    def broadcast(self, version: int) -> Path:
        """The folder with the weights of policy `version` on their way to the inference server."""
        return self.path / "broadcasts" / f"step_{version}"

    @property
    def untied_model(self) -> Path:
        """The model as it is served where the server needs a head of its own in it."""
        return self.path / "untied_model"

    def weights(self, step: int) -> Path:
        """The exported weights after `step`."""
        return self.path / "weights" / f"step_{step}"

    def adapter(self, step: int) -> Path:
        """The exported adapter after `step`."""
        return self.path / "adapters" / f"step_{step}"

    @property
    def tensorboard(self) -> Path:
        """The event files."""
        return self.path / "tensorboard"

    @property
    def wandb_id(self) -> Path:
        """The id of this run at Weights & Biases."""
        return self.path / "wandb" / "id"

    def sink_offset(self, name: str) -> Path:
        """How many bytes of the metrics the sink `name` has had."""
        return self.path / "sinks" / f"{name}.offset"

    def sinks(self) -> list[str]:
        """Return the sinks that have had figures of this run."""
        return sorted(path.stem for path in (self.path / "sinks").glob("*.offset"))

    def token_export(self, step: int, rank: int) -> Path:
        """What the trainer's rank `rank` saw of the tokens of `step`, one sequence per line."""
        return self.path / "token_exports" / f"step_{step}" / f"rank_{rank}.jsonl"

    def token_exports(self, step: int) -> list[Path]:
        """The exported tokens of `step`, a file per rank."""
        return sorted((self.path / "token_exports" / f"step_{step}").glob("rank_*.jsonl"))

    def token_export_steps(self) -> list[int]:
        """Return the steps whose tokens were exported, ascending."""
        return sorted(_steps_in(self.path / "token_exports"))

    def checkpoint(self, step: int) -> Path:
        """The folder with the state after `step`."""
        return self.path / "checkpoints" / f"step_{step}"

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending."""
        return sorted(_steps_in(self.path / "checkpoints"))

    def adapter_steps(self) -> list[int]:
        """Return the steps whose adapters were exported, ascending."""
        return sorted(_steps_in(self.path / "adapters"))

    def read_attempt(self) -> Attempt:
        """Return which attempt at the run this is."""
        path = self.path / "attempt.json"
        if not path.exists():
            return Attempt()
        data = json.loads(path.read_text())
        start = data["start"]
        return Attempt(int(data["number"]), None if start is None else Start(**start))

    def write_attempt(self, attempt: Attempt) -> None:
        """Say which attempt at the run this is, before its processes start."""
        write_json_atomically(self.path / "attempt.json", asdict(attempt))

    def orchestrator_state(self, attempt: Attempt) -> dict[str, Any]:
        """Return what the orchestrator wrote of itself as of the checkpoint that an attempt goes on from.

        Raises:
            PrimeError: the checkpoint is not of a run with an orchestrator.
        """
        assert attempt.start is not None, "it goes on from a checkpoint"
        path = Path(attempt.start.checkpoint) / ORCHESTRATOR_STATE
        try:
            state: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            raise PrimeError(f"the checkpoint {path.parent} has no {ORCHESTRATOR_STATE}") from None
        return state

    def newest_broadcast(self) -> int | None:
        """Return the newest policy version that was broadcast, or None."""
        return max(_steps_in(self.path / "broadcasts"), default=None)

    def exported_steps(self) -> list[int]:
        """Return the steps whose weights were exported, ascending."""
        return sorted(_steps_in(self.path / "weights"))

    def drop_broadcasts_before(self, version: int) -> None:
        """Remove broadcasts older than `version`."""
        for old in _steps_in(self.path / "broadcasts"):
            if old < version:
                shutil.rmtree(self.broadcast(old), ignore_errors=True)

    def drop_traffic(self) -> None:
        """Remove what only travelled between the processes; called when the run is over."""
        for folder in ("batches", "broadcasts", self.untied_model.name):
            shutil.rmtree(self.path / folder, ignore_errors=True)

    def append_metrics(self, step: int, source: str, values: dict[str, float | int]) -> None:
        """Append one record; a single write per line, so that two processes may append at once."""
        record = {"step": step, "source": source, "time": time.time(), **values}
        line = (json.dumps(record) + "\n").encode()
        descriptor = os.open(self.metrics, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def set_status(self, name: str, doing: str) -> None:
        """Record what the process `name` is doing or waiting for, for whoever watches the run."""
        path = self.path / "status" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({"doing": doing, "since": time.time()}))
        os.replace(aside, path)

    def beat(self, name: str) -> Path:
        """The file that the process `name` touches as long as it lives; of several, `NAME_rank_1` and so on."""
        return self.path / "status" / f"{name}.beat"

    def last_beat(self, name: str) -> int | None:
        """Return when `name` last touched its file, in nanoseconds of the file system's clock, or None."""
        try:
            return self.beat(name).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def beats_of(self, name: str) -> dict[str, int]:
        """Return the last beat of the process `name` and of each of its ranks, those that have beaten."""
        paths = [self.beat(name), *(self.path / "status").glob(f"{name}_rank_*.beat")]
        beats = {path.stem: self.last_beat(path.stem) for path in paths}
        return {stem: beat for stem, beat in beats.items() if beat is not None}

    def forget_life(self) -> None:
        """Remove the beats and failures of processes that ended before; called before new ones start."""
        for pattern in ("*.beat", "*_failure.json"):
            for path in (self.path / "status").glob(pattern):
                path.unlink()

    def record_failure(self, name: str, error: PrimeError) -> None:
        """Record why the process `name` gives up, in words for the user."""
        write_json_atomically(self._failure(name), {"message": error.message, "hint": error.hint})

    def read_failure(self, name: str) -> tuple[str, str | None] | None:
        """Return (message, hint) of a process that gave up with an error of its own, else None."""
        try:
            failure = json.loads(self._failure(name).read_text())
        except FileNotFoundError:
            return None
        return str(failure["message"]), failure["hint"]

    def _failure(self, name: str) -> Path:
        return self.path / "status" / f"{name}_failure.json"

    def read_status(self, name: str) -> tuple[str, float] | None:
        """Return (what `name` does, seconds since), or None when it has not said anything yet."""
        try:
            status = json.loads((self.path / "status" / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return str(status["doing"]), time.time() - float(status["since"])


RL_FOLDERS = ("rollouts", "batches", "broadcasts", "weights", "status", "logs")
SFT_FOLDERS = ("rollouts", "broadcasts", "weights", "status", "logs")


def create_run_directory(
    parent: Path, name: str, config: dict[str, Any], *, folders: Sequence[str] = RL_FOLDERS
) -> RunDirectory:
    """Create the folder of a new run with its configuration in it; an existing run of that name gets a number behind.

    The folder appears whole, and a name goes to one run only, also when two are started at once.
    """
    parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=parent))
    aside.chmod(0o755)
    write_json_atomically(aside / "config.json", config)
    for folder in folders:
        (aside / folder).mkdir()
    for number in itertools.count(1):
        final = parent / (name if number == 1 else f"{name}-{number}")
        try:
            os.rename(aside, final)  # fails on a folder that holds anything, and a run's folder always does
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                shutil.rmtree(aside)
                raise
            continue
        return RunDirectory(final)
    raise AssertionError("counting does not end")


def read_metrics(path: Path, *, after_byte: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Read whole records of a metrics file from a byte offset on; return them and the offset to go on from."""
    try:
        with path.open("rb") as file:
            file.seek(after_byte)
            data = file.read()
    except FileNotFoundError:
        return [], after_byte
    end = data.rfind(b"\n") + 1
    return [json.loads(line) for line in data[:end].splitlines()], after_byte + end


def _steps_in(folder: Path) -> Iterator[int]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        match = _STEP.match(entry.name)
        if match:
            yield int(match.group(1))
