"""Going on with a run: where from, whether the configuration allows it, and what lies beyond that step is removed.

--resume               the run of that configuration, from its last checkpoint
--resume 40            the same run, from step 40
--resume RUN[@40]      another run is read, from its last checkpoint or from step 40, and a new one is written
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, TextIO

from prime_cli.core.errors import BadInput, ConfigError
from prime_cli.core.files import remove_directory_at_once, write_json_atomically
from prime_cli.rl.checkpoint import check_checkpoint
from prime_cli.rl.hold import hold
from prime_cli.rl.run_directory import RL_FOLDERS, Attempt, RunDirectory, Start, create_run_directory
from prime_cli.rl.sinks.told import cut_metrics

LATEST = "latest"


class RunConfig(Protocol):
    """What the configurations of all kinds of training have."""

    @property
    def model(self) -> Path:
        """The folder of the model."""

    @property
    def name(self) -> str | None:
        """How runs are called."""

    @property
    def output_dir(self) -> Path:
        """Where they lie."""

    @property
    def max_steps(self) -> int:
        """Their last step."""

    @property
    def checkpoint_id(self) -> str | None:
        """The checkpoint whose weights they begin with."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return all keys."""


# A checkpoint is of these, so a run cannot go on with others.
_BOUND = (
    "model", "seed", "env", "env.*.id", "env.*.name", "env.*.args", "env.*.algo", "trainer.lora", "trainer.optim.type",
    "orchestrator.algo", "val", "val.num_examples", "data",
)  # fmt: skip
# Of these it is only bound to what is there at all, and else to the keys above.
_AS_A_WHOLE = ("env", "val")
# These say how a run is carried out, not what comes of it.
_FREE = (
    "max_steps", "name", "output_dir", "checkpoint_id", "checkpoints", "adapters", "eval", "val.interval",
    "val.rollouts_per_example", "val.eval_on_start", "val.data", "wandb", "tensorboard", "watchdog",
    "trainer.ranks", "trainer.batch_timeout_s", "trainer.activation_checkpointing", "orchestrator.env_workers",
    "orchestrator.policy_timeout_s", "inference", "max_inflight_rollouts", "env.*.timeout",
)  # fmt: skip


@dataclass(frozen=True)
class Resumption:
    """What is to be gone on with: `run` is the folder that is written on, or None for a new one."""

    source: RunDirectory
    step: int
    run: RunDirectory | None

    @property
    def start(self) -> Start:
        """Where the attempt begins."""
        return Start(str(self.source.checkpoint(self.step).resolve()), self.step)


def open_run_directory(
    config: RunConfig,
    name: str,
    resume: str | None,
    note: Callable[[str], None],
    *,
    folders: Sequence[str] = RL_FOLDERS,
) -> tuple[RunDirectory, TextIO]:
    """Return the folder that a run is written to, a new one or that of a run that goes on, and the hold on it.

    Args:
        name: what a new folder is called.
        folders: those that a new one has in it.
        resume: what to go on with, if anything.

    Raises:
        BadInput: there is no such run or checkpoint, or its launcher is at work.
        BadCheckpoint: the checkpoint is torn.
        ConfigError: the run cannot go on with this configuration.
    """
    settings = config.model_dump(mode="json")
    resumption = None if resume is None else find_resumption(resume, config)
    if resumption is not None:
        check_checkpoint(Path(resumption.start.checkpoint))
        changed = check_can_go_on(config, resumption)
        if changed:
            note(f"changed since step {resumption.step}: {', '.join(changed)}")
    if resumption is not None and resumption.run is not None:
        run = resumption.run
        lock = hold(run)
        go_back(run, resumption.step)
        write_json_atomically(run.config, settings)
        begin_attempt(run, resumption.start)
        note(f"run: {run.path}, from step {resumption.step}")
        return run, lock
    run = create_run_directory(config.output_dir, name, settings, folders=folders)
    note(f"run: {run.path}" + (f" ({name} is taken)" if run.path.name != name else ""))
    if resumption is not None:
        run.write_attempt(Attempt(1, resumption.start))
        note(f"from step {resumption.step} of {resumption.source.path}")
    elif config.checkpoint_id is not None:
        source, step = find_checkpoint(config.checkpoint_id, config.output_dir)
        check_checkpoint(source.checkpoint(step))
        run.write_attempt(Attempt(1, Start(str(source.checkpoint(step).resolve()), step, weights_only=True)))
        note(f"with the weights of step {step} of {source.path}")
    return run, hold(run)


def find_resumption(wanted: str, config: RunConfig) -> Resumption:
    """Find what `--resume WANTED` means for a configuration; see the top of this module.

    Raises:
        BadInput: there is no such run or checkpoint; says which there are.
    """
    if wanted == LATEST or wanted.isdigit():
        run = _run_of(config)
        return Resumption(run, _step_of(run, None if wanted == LATEST else int(wanted)), run)
    source, step = find_checkpoint(wanted, config.output_dir)
    return Resumption(source, step, None)


def find_checkpoint(wanted: str, runs: Path) -> tuple[RunDirectory, int]:
    """Return the run and the step that `RUN` or `RUN@STEP` name; RUN is a folder, or a name under `runs`.

    Raises:
        BadInput: there is no such run or checkpoint; says which there are.
    """
    name, _, number = wanted.rpartition("@") if re.search(r"@\d+$", wanted) else (wanted, "", "")
    for path in (Path(name), runs / name):
        if (path / "config.json").is_file() and (path / "rollouts").is_dir():
            run = RunDirectory(path)
            return run, _step_of(run, int(number) if number else None)
    raise BadInput(f"{name!r} is not a run", hint="give the folder of a run; `prime rl list` shows those there are")


def check_can_go_on(config: RunConfig, resumption: Resumption) -> list[str]:
    """Return the keys that have changed since and change what comes of the run, so that somebody can be told.

    Raises:
        ConfigError: one has changed that the checkpoint is bound to, or there is nothing left to do.
    """
    before = json.loads(resumption.source.config.read_text())
    changed = sorted(_changed_keys(before, config.model_dump(mode="json")))
    bound = [key for key in changed if _is_one_of(key, _BOUND)]
    if bound:
        raise ConfigError(
            f"the run cannot go on with another {' and '.join(bound)}: its checkpoint is of the old one",
            hint="put back what was there (its config.json has it), or begin a new run; "
            "`checkpoint_id` begins one with the weights of another",
        )
    # One that was killed after its last step, before it said how it went, has that left to do.
    left = resumption.run is not None and not resumption.run.summary.exists()
    if config.max_steps < resumption.step or (config.max_steps == resumption.step and not left):
        raise ConfigError(
            f"step {resumption.step} is done and max_steps is {config.max_steps}: there is nothing left to do",
            hint="raise max_steps, as in `--max-steps 200`",
        )
    return [key for key in changed if not _is_one_of(key, _FREE)]


def go_back(run: RunDirectory, step: int) -> None:
    """Make the folder of a run what it was when the checkpoint of `step` was written.

    Figures and rollouts of later steps, and what was half written, are removed; logs go to `logs/attempt_K/`.
    """
    for name in ("batches", "broadcasts", "status"):
        shutil.rmtree(run.path / name, ignore_errors=True)
        (run.path / name).mkdir()
    for folder in (run.path / "checkpoints", run.path / "weights", run.path / "adapters"):
        for path in _later_steps(folder, step):
            remove_directory_at_once(path)
    for name in ("rollouts", "rollouts/eval", "rollouts/val", "token_exports"):
        for path in _later_steps(run.path / name, step):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for aside in [*run.path.glob(".*"), *run.path.glob("*/.*"), *run.path.glob("rollouts/*.aside")]:
        shutil.rmtree(aside, ignore_errors=True) if aside.is_dir() else aside.unlink(missing_ok=True)
    cut_metrics(run, step)
    run.summary.unlink(missing_ok=True)
    _set_logs_aside(run)


def begin_attempt(run: RunDirectory, start: Start) -> Attempt:
    """Count one more attempt at a run, which begins at `start`."""
    attempt = Attempt(run.read_attempt().number + 1, start)
    run.write_attempt(attempt)
    return attempt


def how_to_go_on(run: RunDirectory, *, command: str = "prime rl run") -> str:
    """Say in a line how a run that has stopped is gone on with."""
    steps = run.checkpoint_steps()
    if not steps:
        return "it has no checkpoint yet, so it begins anew; [checkpoints] interval says how often one is written"
    return f"`{command} CONFIG --resume` goes on from step {steps[-1]}"


def _run_of(config: RunConfig) -> RunDirectory:
    """Return the newest run that a configuration has made."""
    found: list[tuple[float, RunDirectory]] = []
    wanted = _subject(config.model_dump(mode="json") | {"model": str(config.model.resolve())})
    for path in config.output_dir.glob("*/config.json"):
        before = json.loads(path.read_text())
        if config.name is not None:
            same = re.fullmatch(rf"{re.escape(config.name)}(-\d+)?", path.parent.name) is not None
        else:
            same = _subject(before) == wanted
        if same and before.get("name") == config.name:
            found.append((path.stat().st_mtime, RunDirectory(path.parent)))
    if not found:
        what = f"called {config.name}" if config.name else "of this model and its environments or data"
        raise BadInput(
            f"there is no run {what} under {config.output_dir}",
            hint="leave --resume out to begin one, or name its folder: --resume PATH/OF/RUN",
        )
    return max(found, key=lambda entry: entry[0])[1]


def _subject(settings: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a run is about: a model, and what it learns from."""
    return settings.get("model"), [entry.get("id") for entry in settings.get("env") or []], settings.get("data")


def _step_of(run: RunDirectory, wanted: int | None) -> int:
    steps = run.checkpoint_steps()
    if not steps:
        raise BadInput(
            f"{run.path} has no checkpoint to go on from",
            hint="leave --resume out to begin anew; [checkpoints] interval says how often one is written",
        )
    if wanted is None:
        return steps[-1]
    if wanted not in steps:
        raise BadInput(
            f"{run.path} has no checkpoint of step {wanted}", hint=f"there are those of {', '.join(map(str, steps))}"
        )
    return wanted


def _later_steps(folder: Path, step: int) -> Iterator[Path]:
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        match = re.match(r"^step_(\d+)(\.|$)", path.name)
        if match and int(match.group(1)) > step:
            yield path


def _set_logs_aside(run: RunDirectory) -> None:
    logs = run.path / "logs"
    target = logs / f"attempt_{run.read_attempt().number}"
    target.mkdir(parents=True, exist_ok=True)
    for log in logs.glob("*.log"):
        log.rename(target / log.name)


def _changed_keys(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        old, new, name = before.get(key), now.get(key), f"{prefix}{key}"
        if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            old, new = ({str(index): value for index, value in enumerate(values)} for values in (old, new))
        if isinstance(old, dict) and isinstance(new, dict) and not name.endswith(".args"):
            yield from _changed_keys(old, new, f"{name}.")
        elif old != new and key in before:  # what an older version did not know has its default there
            yield name


def _is_one_of(key: str, patterns: Sequence[str]) -> bool:
    """Say whether a key is one of the patterns, or in a table that one of them names whole."""
    parts = key.split(".")
    heads = [".".join(parts[: count + 1]) for count in range(len(parts))]
    whole = {pattern for pattern in patterns if pattern not in _AS_A_WHOLE}
    return (key in _AS_A_WHOLE and key in patterns) or any(
        fnmatchcase(head, pattern) for head in heads for pattern in whole
    )
