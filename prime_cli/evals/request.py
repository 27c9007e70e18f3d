"""An evaluation as asked for, before anything was looked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.config_file import ImpossibleSettings, Problem
from prime_cli.environments.workspace import ENVIRONMENTS
from prime_cli.evals.config import EvalKeys
from prime_cli.evals.endpoints import ENDPOINTS_FILE, ModelChoice

MAX_CONCURRENT = 32
_ROLLOUTS_PER_WORKER = 256
_AS_THEY_ARE = (
    "num_examples", "rollouts_per_example", "split", "extra_env_kwargs", "independent_scoring", "name",
    "timeout_s", "max_retries", "max_cost",
)  # fmt: skip


@dataclass(frozen=True)
class EvalRequest:
    """An evaluation as asked for.

    `given` holds those fields of `EvalSettings` that the user chose; the others come from the evaluation that is
    resumed, else from the environment, else from the defaults. `resume` is the folder to go on with, or True for the
    newest with the same settings. `environments` is where those of the workspace lie. `label` is how it is shown.
    """

    environment: str
    model: ModelChoice
    given: Mapping[str, Any]
    max_concurrent: int = MAX_CONCURRENT
    num_workers: int = 1
    retry_errors: bool = False
    output_dir: Path | None = None
    resume: Path | bool = False
    environments: Path = ENVIRONMENTS
    label: str = ""


def request_of(keys: EvalKeys, label: str = "") -> EvalRequest:
    """Return what `keys` ask for.

    Raises:
        ImpossibleSettings: an environment or a model is not named, or keys do not go together.
    """
    environment, model = keys.id, keys.endpoint_id or keys.model
    if environment is None:
        raise ImpossibleSettings([Problem("", "no environment is named", "say which as `id`")])
    if model is None:
        raise ImpossibleSettings([Problem("", "no model is named", "say which as `model`, or with -m")])
    at_once = keys.max_concurrent or MAX_CONCURRENT
    num_workers = math.ceil(at_once / _ROLLOUTS_PER_WORKER) if keys.num_workers == "auto" else keys.num_workers or 1
    return EvalRequest(
        environment=environment,
        model=_model_choice(keys, model),
        given=_given_settings(keys),
        max_concurrent=at_once,
        num_workers=num_workers,
        retry_errors=bool(keys.retry_errors),
        output_dir=keys.output_dir,
        resume=keys.resume,
        environments=keys.env_dir_path or ENVIRONMENTS,
        label=label or keys.name or environment,
    )


def _model_choice(keys: EvalKeys, model: str) -> ModelChoice:
    return ModelChoice(
        model,
        model_name=keys.model_name,
        base_url=keys.api_base_url,
        api_key_variable=keys.api_key_var,
        endpoints_file=keys.endpoints_path or ENDPOINTS_FILE,
        provider=keys.provider,
        alias_only=keys.endpoint_id is not None,
        client_type=keys.api_client_type,
        tokenizer=keys.tokenizer,
        headers=keys.headers,
        headers_from_state=keys.headers_from_state,
    )


def _given_settings(keys: EvalKeys) -> dict[str, Any]:
    given = keys.given()
    settings = {name: given[name] for name in _AS_THEY_ARE if given.get(name) is not None}
    if keys.taskset or keys.harness:
        config = {name: table for name, table in (("taskset", keys.taskset), ("harness", keys.harness)) if table}
        settings["env_args"] = {**keys.args, "config": config}
    elif "args" in given:
        settings["env_args"] = keys.args
    if "sampling" in given:
        settings["sampling_args"] = given["sampling"]
    if "state_columns" in given:
        settings["state_columns"] = tuple(keys.state_columns)
    return settings | _seed(keys, given)


def _seed(keys: EvalKeys, given: Mapping[str, Any]) -> dict[str, Any]:
    if "shuffle_seed" in given and "shuffle" not in given:
        raise ImpossibleSettings([Problem("shuffle_seed", "does nothing without `shuffle`", "say `seed` in its place")])
    if "seed" in given:
        return {"seed": keys.seed}
    return {"seed": (keys.shuffle_seed or 0) if keys.shuffle else None} if "shuffle" in given else {}
