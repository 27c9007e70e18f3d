"""From what a user asked for to a finished run: finds everything, starts what is needed, runs, tidies up."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.config_file import load_config, validate_config
from prime_cli.core.config_layers import merge
from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.processes import terminate_as_interrupt
from prime_cli.environments.target import EnvironmentTarget, find_target
from prime_cli.evals.cost import PricedEndpoint
from prime_cli.evals.endpoints import ChosenModel, EndpointsFile, ModelChoice, choose_model, served_folder
from prime_cli.evals.run import RATE_LIMIT_PATIENCE_S
from prime_cli.evals.store import default_roots, outputs_root
from prime_cli.gepa.config import GepaConfig
from prime_cli.gepa.plan import Plan
from prime_cli.gepa.progress import Meter, Observer
from prime_cli.gepa.run import Models, Note, prepared, run_gepa
from prime_cli.gepa.run_directory import (
    GepaDirectory,
    gepa_directory_at,
    new_gepa_directory,
    unfinished_runs,
)
from prime_cli.gepa.summary import GepaSummary

_SIZES = ("num_train", "num_val", "num_test")
# What may differ when a run goes on: it changes neither which calls are made, nor what comes of them.
_CHANGEABLE = ("api_base_url", "api_key_var", "endpoints_path", "env_dir_path", "run_dir", "save_results", "verbose")
_CHANGEABLE_SEARCH = ("max_calls", "max_cost", "max_concurrent", "num_workers", "max_retries")


@dataclass(frozen=True)
class GepaRequest:
    """A run as asked for; `given` are those sizes of sets that were, and `resume` the run to go on with."""

    config: GepaConfig
    given: frozenset[str]
    resume: GepaDirectory | None = None


def new_request(tables: dict[str, Any], source: str) -> GepaRequest:
    """Return the request that the tables of a file and the command line make.

    Raises:
        ConfigError: they are wrong; says where.
    """
    config = validate_config(tables, GepaConfig, source=source)
    return GepaRequest(config, frozenset(_SIZES) & config.gepa.model_fields_set)


def resumed_request(path: Path | None, tables: dict[str, Any], source: str) -> GepaRequest:
    """Return the request to go on with the run in `path`, or with the last one that did not come to its end.

    `tables` are what is to be different now.

    Raises:
        PrimeError: there is no such run.
        BadInput: something else is to be different than what may be.
    """
    directory = GepaDirectory(path) if path is not None else next(iter(unfinished_runs(default_roots())), None)
    if directory is None:
        raise PrimeError("no run here is unfinished", hint="name the folder of a run: --resume DIR")
    saved = directory.read_config()
    before = validate_config(saved["config"], GepaConfig, source=str(directory.path))
    data = before.model_dump(mode="json")
    merge(data, tables)
    config = validate_config(data, GepaConfig, source=source)
    different = _differences(before.model_dump(mode="json"), config.model_dump(mode="json"))
    if different:
        raise BadInput(
            f"that run had other settings: {'; '.join(different)}",
            hint=f"leave them out, or begin a new run; what may differ: {', '.join(_CHANGEABLE_SEARCH)}, and where the "
            "models are",
        )
    return GepaRequest(config, frozenset(saved["given"]), directory)


def plan_gepa(request: GepaRequest, *, note: Note) -> Plan:
    """Return what the budget would buy; the environment is loaded, and no model is asked.

    Raises:
        PrimeError: as `launch_gepa`, as far as it concerns the environment.
    """
    targets = _find_targets(request.config, note)

    async def look() -> Plan:
        with tempfile.TemporaryDirectory(prefix="prime-gepa-") as logs:
            async with prepared(request.config, request.given, targets, Path(logs), note) as ready:
                return ready.plan

    with terminate_as_interrupt():
        return asyncio.run(look())


def launch_gepa(
    request: GepaRequest,
    *,
    observe: Observer,
    note: Note,
    show_plan: Callable[[Plan], None],
    stopped: Callable[[Path], None],
) -> GepaSummary:
    """Run, and return what came out.

    `stopped` is told the folder when the run ends early and can be resumed. One that was made for nothing is removed.

    Raises:
        PrimeError: the environment, a model, the settings or the folder cannot be used; says which.
        KeyboardInterrupt: after everything that was started has ended.
    """
    config = request.config
    targets = _find_targets(config, note)
    chosen, reflection = _choose_models(config)
    if config.gepa.max_cost is not None and not all(map(_is_priced, (chosen, reflection))):
        raise BadInput(
            "the run is to cost no more than a sum, and the price of a model is not known",
            hint="say it in its entry of endpoints.toml: price = { input = 0.15, output = 0.6 } for a million tokens",
        )
    with _folder(request, targets, chosen) as directory:
        try:
            with directory.hold(), _opened(chosen, reflection, directory, note) as models, terminate_as_interrupt():
                summary = asyncio.run(_run(request, targets, models, directory, observe, note, show_plan))
        except (KeyboardInterrupt, PrimeError):
            is_gone = request.resume is None and directory.remove_if_nothing_was_paid()
            if not is_gone and config.save_results:
                stopped(directory.path)
            raise
    return summary


async def _run(
    request: GepaRequest,
    targets: list[EnvironmentTarget],
    models: Models,
    directory: GepaDirectory,
    observe: Observer,
    note: Note,
    show_plan: Callable[[Plan], None],
) -> GepaSummary:
    config = request.config
    meter = Meter(config.gepa.max_calls, observe, config.gepa.max_cost)
    note(f"loading the environment {config.label}")
    async with prepared(config, request.given, targets, directory.logs, note) as ready:
        show_plan(ready.plan)
        asked = {"config": config.model_dump(mode="json"), "given": sorted(request.given)}
        if request.resume is not None:
            _check_initial_prompt(request.resume, ready.initial_prompt)
        directory.write_config({**asked, "initial_prompt": ready.initial_prompt})
        return await run_gepa(config, ready, models, directory, meter, note)


def _check_initial_prompt(directory: GepaDirectory, text: str) -> None:
    if directory.read_config().get("initial_prompt", text) != text:
        raise PrimeError(
            "the initial prompt is not the one that the run began with, so it cannot go on",
            hint=f"{directory.path / 'config.json'} has the one that it began with",
        )


def _find_targets(config: GepaConfig, note: Note) -> list[EnvironmentTarget]:
    return [find_target(environment.id, note, config.env_dir_path) for environment in config.env]


@contextlib.contextmanager
def _folder(request: GepaRequest, targets: list[EnvironmentTarget], chosen: ChosenModel) -> Iterator[GepaDirectory]:
    config = request.config
    if request.resume is not None:
        yield request.resume
    elif not config.save_results:
        with tempfile.TemporaryDirectory(prefix="prime-gepa-") as folder:
            yield GepaDirectory(Path(folder))
    elif config.run_dir is not None:
        yield gepa_directory_at(config.run_dir)
    else:
        root = (
            outputs_root(targets[0].identity.module, None, config.env_dir_path)
            if len(targets) == 1
            else Path("outputs")
        )
        yield new_gepa_directory(root, config.label, chosen.label)


def _choose_models(config: GepaConfig) -> tuple[ChosenModel, ChosenModel]:
    def choose(name: str, base_url: str | None) -> ChosenModel:
        key, aliases = config.api_key_var, config.endpoints_path
        return choose_model(ModelChoice(name, base_url=base_url, api_key_variable=key, endpoints_file=aliases))

    chosen = choose(config.model, config.api_base_url)
    name = config.reflection_model
    if name is None or name == config.model:
        return chosen, chosen
    elsewhere = name.startswith(("http://", "https://")) or name in _aliases(config.endpoints_path)
    return chosen, choose(name, None if elsewhere else config.api_base_url)


def _is_priced(model: ChosenModel) -> bool:
    return bool(model.prices) and None not in model.prices


def _aliases(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {entry.endpoint_id for entry in load_config(path, EndpointsFile).endpoint}


@contextlib.contextmanager
def _opened(chosen: ChosenModel, reflection: ChosenModel, directory: GepaDirectory, note: Note) -> Iterator[Models]:
    with contextlib.ExitStack() as stack:

        def opened(model: ChosenModel, log: str) -> list[PricedEndpoint]:
            if model.folder is None:
                return model.priced_endpoints_at(None)
            note(f"serving {model.folder}")
            served = stack.enter_context(served_folder(model.folder, log_path=directory.logs / log))
            return model.priced_endpoints_at(served)

        endpoints = opened(chosen, "inference.log")
        teachers = endpoints if reflection is chosen else opened(reflection, "reflection.log")
        patient = [one.with_patience(RATE_LIMIT_PATIENCE_S) for one in endpoints]
        yield Models(patient, teachers[0], chosen.label, reflection.label)


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    pairs = [(key, before[key], after[key]) for key in before if key not in (*_CHANGEABLE, "gepa")]
    pairs += [
        (f"gepa.{key}", value, after["gepa"][key])
        for key, value in before["gepa"].items()
        if key not in _CHANGEABLE_SEARCH
    ]
    return [f"{key} was {old!r}, now {new!r}" for key, old, new in pairs if old != new]
