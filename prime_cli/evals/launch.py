"""From what a user asked for to finished evaluations: finds everything, starts what is needed, runs, tidies up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import terminate_as_interrupt
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.environments.target import EnvironmentTarget, find_target
from prime_cli.evals.endpoints import ChosenModel, ModelChoice, choose_model, served_folder
from prime_cli.evals.find import find_evaluation
from prime_cli.evals.permits import Permits
from prime_cli.evals.record import EvalProgress
from prime_cli.evals.request import EvalRequest
from prime_cli.evals.run import run_evaluation
from prime_cli.evals.settings import EvalSettings
from prime_cli.evals.store import EvalDirectory, evaluations_of, new_eval_directory, outputs_root, remove_if_empty
from prime_cli.evals.summary import EvalSummary

_OPEN_AT_ONCE = 4
"""Evaluations whose environments are loaded at the same time: each takes memory and seconds to import."""

Outcome = EvalSummary | PrimeError


class Watcher(Protocol):
    """Is told what happens; an evaluation is named by its place among the requests."""

    def note(self, place: int, text: str) -> None:
        """Say what is being done for it."""

    def progress(self, place: int, progress: EvalProgress) -> None:
        """Say how far it is."""

    def finished(self, place: int, outcome: Outcome) -> None:
        """Say what came out, or why nothing did."""


@dataclass(frozen=True)
class _Prepared:
    place: int
    request: EvalRequest
    target: EnvironmentTarget
    chosen: ChosenModel
    settings: EvalSettings
    directory: EvalDirectory
    is_new: bool


def launch_evaluations(
    requests: Sequence[EvalRequest], *, max_concurrent: int, watch: Watcher, stopped: Callable[[list[Path]], None]
) -> list[Outcome]:
    """Run all evaluations and return what came of each; one that fails does not end the others.

    They share `max_concurrent` rollouts. Those of remote models run beside each other, then those of one folder of
    weights after those of another, so that one folder is served at a time. `stopped` is told the folders with
    rollouts when an interrupt ends them early. A folder that was made for nothing is removed.

    Raises:
        KeyboardInterrupt: after everything that was started has ended.
    """
    outcomes: dict[int, Outcome] = {}

    def finish(place: int, outcome: Outcome) -> None:
        outcomes[place] = outcome
        watch.finished(place, outcome)

    prepared: list[_Prepared] = []
    try:
        preparing = _Preparation(watch)
        for place, request in enumerate(requests):
            try:
                prepared.append(preparing.prepare(place, request))
            except PrimeError as error:
                finish(place, error)
        with terminate_as_interrupt():
            for together in _by_folder(prepared):
                _run_together(together, max_concurrent, watch, finish)
    except KeyboardInterrupt:
        _remove_empty(prepared)
        stopped([one.directory.path for one in prepared if one.directory.path.exists()])
        raise
    _remove_empty([one for one in prepared if isinstance(outcomes[one.place], PrimeError)])
    return [outcomes[place] for place in range(len(requests))]


class _Preparation:
    """Finds what requests need; what several need is looked for once, and no two go on in one folder."""

    def __init__(self, watch: Watcher) -> None:
        self._watch = watch
        self._models: list[tuple[ModelChoice, ChosenModel]] = []
        self._targets: dict[tuple[str, Path], EnvironmentTarget] = {}
        self._taken: set[Path] = set()

    def prepare(self, place: int, request: EvalRequest) -> _Prepared:
        """Find the environment, the model, the settings and the folder; nothing is started.

        Raises:
            PrimeError: says which of them cannot be used.
        """
        resumed = find_evaluation(str(request.resume)) if isinstance(request.resume, Path) else None
        saved = resumed.read_metadata() if resumed is not None else {}
        target = self._target(place, request)
        chosen = self._model(request.model)
        settings = _settings(request, target, chosen, saved)
        root = outputs_root(target.identity.module, request.output_dir, request.environments)
        if resumed is not None:
            settings.check_resumes(saved)
        elif request.resume:
            resumed = self._newest_with(settings, root)
            if resumed is None:
                self._watch.note(place, "there is none with these settings to go on with: a new one is begun")
        directory = resumed or new_eval_directory(root, target.identity.name, chosen.label)
        self._taken.add(directory.path)
        return _Prepared(place, request, target, chosen, settings, directory, is_new=resumed is None)

    def _target(self, place: int, request: EvalRequest) -> EnvironmentTarget:
        key = (request.environment, request.environments)
        if key not in self._targets:
            found = find_target(request.environment, lambda text: self._watch.note(place, text), request.environments)
            self._targets[key] = found
        return self._targets[key]

    def _model(self, choice: ModelChoice) -> ChosenModel:
        chosen = next((chosen for asked, chosen in self._models if asked == choice), None)
        if chosen is None:
            chosen = choose_model(choice)
            self._models.append((choice, chosen))
        return chosen

    def _newest_with(self, settings: EvalSettings, root: Path) -> EvalDirectory | None:
        for directory in evaluations_of(root, settings.environment.name, settings.model):
            with contextlib.suppress(PrimeError):
                if directory.path not in self._taken and settings.goes_on_from(directory.read_metadata()):
                    return directory
        return None


def _by_folder(prepared: Sequence[_Prepared]) -> list[list[_Prepared]]:
    groups: dict[Path | None, list[_Prepared]] = {None: []}
    for one in prepared:
        groups.setdefault(one.chosen.folder.resolve() if one.chosen.folder else None, []).append(one)
    return [group for group in groups.values() if group]


def _run_together(
    together: Sequence[_Prepared], max_concurrent: int, watch: Watcher, finish: Callable[[int, Outcome], None]
) -> None:
    """Run evaluations of remote models, or of one folder of weights, beside each other."""
    try:
        with _served(together[0], watch) as served:
            asyncio.run(_run_all(together, served, max_concurrent, watch, finish))
    except PrimeError as error:  # of the server: an evaluation's own are its outcome
        for one in together:
            finish(one.place, error)


@contextlib.contextmanager
def _served(first: _Prepared, watch: Watcher) -> Iterator[ModelEndpoint | None]:
    if first.chosen.folder is None:
        yield None
        return
    watch.note(first.place, f"serving {first.chosen.folder}")
    with served_folder(first.chosen.folder, log_path=first.directory.path / "logs" / "inference.log") as served:
        yield served


async def _run_all(
    together: Sequence[_Prepared],
    served: ModelEndpoint | None,
    max_concurrent: int,
    watch: Watcher,
    finish: Callable[[int, Outcome], None],
) -> None:
    permits = Permits(max_concurrent)
    places = asyncio.Semaphore(_OPEN_AT_ONCE)

    async def run(one: _Prepared) -> None:
        async with places:
            watch.note(one.place, f"loading the environment {one.target.identity}")
            try:
                outcome: Outcome = await run_evaluation(
                    one.settings,
                    one.chosen.priced_endpoints_at(served),
                    one.directory,
                    lambda progress: watch.progress(one.place, progress),
                    python=one.target.python,
                    search_path=one.target.search_path,
                    permits=permits,
                    note=lambda text: watch.note(one.place, text),
                )
            except PrimeError as error:
                outcome = error
            finish(one.place, outcome)

    await asyncio.gather(*(run(one) for one in together))


def _remove_empty(prepared: Sequence[_Prepared]) -> None:
    for one in prepared:
        if one.is_new and one.directory.path.exists():
            remove_if_empty(one.directory)


def _settings(
    request: EvalRequest, target: EnvironmentTarget, chosen: ChosenModel, saved: Mapping[str, Any]
) -> EvalSettings:
    defaults: dict[str, Any] = {
        "num_examples": target.defaults.num_examples,
        "rollouts_per_example": target.defaults.rollouts_per_example,
    }
    if saved:
        names = (
            "num_examples",
            "rollouts_per_example",
            "env_args",
            "sampling_args",
            "split",
            "extra_env_kwargs",
            "name",
        )
        defaults |= {name: saved[name] for name in names if name in saved}
        defaults |= {"seed": saved.get("shuffle_seed"), "state_columns": tuple(saved.get("state_columns") or ())}
    return EvalSettings(
        environment=target.identity,
        model=chosen.label,
        max_concurrent=request.max_concurrent,
        num_workers=request.num_workers,
        retry_errors=request.retry_errors,
        **defaults | dict(request.given),
    )
