"""Reads a file with evaluations: what holds for all, each `[[eval]]`, and each `[[ablation]]` with what it sweeps."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field

from prime_cli.core.config_file import ImpossibleSettings, Problem, read_model, read_toml, refuse, unknown_key
from prime_cli.evals.config import EvalKeys, merge
from prime_cli.evals.foreign import sift_table
from prime_cli.evals.request import MAX_CONCURRENT, EvalRequest, request_of

_TABLES = ("args", "sampling", "extra_env_kwargs")
_FIELDS = {
    str(name): field
    for field, about in EvalKeys.model_fields.items()
    for name in (about.validation_alias.choices if isinstance(about.validation_alias, AliasChoices) else (field,))
}


class AblationKeys(EvalKeys):
    """One evaluation for each combination of the values in `[ablation.sweep]`; it takes the keys of `[[eval]]` too."""

    sweep: dict[str, Any] = Field(
        min_length=1,
        description="A list of values for each key that varies; those of arguments stand in `[ablation.sweep.args]`.",
    )


class EvalFile(EvalKeys):
    """Evaluations that run beside each other. Keys at the top hold for all; an `[[eval]]` says what is its own.

    Tables are merged key by key. Options of the command line win over the file. Without `[[eval]]` and `[[ablation]]`
    the keys at the top are one evaluation.
    """

    eval: list[EvalKeys] = Field(default_factory=list, description="One evaluation each.")
    ablation: list[AblationKeys] = Field(default_factory=list, description="Several evaluations each.")


@dataclass(frozen=True)
class EvalPlan:
    """The evaluations of a file. `max_concurrent` is what they share; `warnings` are meant for the user."""

    requests: list[EvalRequest]
    max_concurrent: int
    warnings: list[str]


@dataclass(frozen=True)
class _Level:
    """What is said of one evaluation, and what of it varies."""

    where: str
    said: dict[str, Any]
    varies: dict[str, Any]


def read_eval_file(path: Path, given: Mapping[str, Any]) -> EvalPlan:
    """Read the evaluations of a file; `given` is what the command line says, which wins.

    Raises:
        ConfigError: with everything that is wrong with the file.
    """
    table, warnings, problems = _sifted(read_toml(path))
    for name in ("eval", "ablation"):
        if isinstance(table.get(name), dict):
            problems.append(Problem(name, f"is a single table; write [[{name}]]"))
    if problems:
        refuse(str(path), problems)
    file, problems = read_model(table, EvalFile)
    if file is None:
        refuse(str(path), problems)
    for_all, by_user = file.given(), EvalKeys.model_validate(dict(given)).given()
    levels = [_Level(f"eval[{index}]", one.given(), {}) for index, one in enumerate(file.eval)]
    for index, ablation in enumerate(file.ablation):
        found, wrong = _combinations(ablation, f"ablation[{index}]", by_user)
        levels, problems = levels + found, problems + wrong
    if not file.eval and not file.ablation:
        levels = [_Level("", {}, {})]
    requests = []
    for level in levels:
        request, wrong = _request(merge(for_all, level.said, by_user), level)
        problems += wrong
        requests += [request] if request is not None else []
    if problems:
        refuse(str(path), problems)
    at_once = merge(for_all, by_user).get("max_concurrent") or MAX_CONCURRENT
    return EvalPlan(_told_apart(requests), at_once, warnings)


def _sifted(table: dict[str, Any]) -> tuple[dict[str, Any], list[str], list[Problem]]:
    top = sift_table(table)
    warnings, problems = list(top.warnings), list(top.problems)
    for name in ("eval", "ablation"):
        if not isinstance(top.rest.get(name), list):
            continue
        kept = []
        for index, entry in enumerate(top.rest[name]):
            if isinstance(entry, dict):
                below = sift_table(entry, f"{name}[{index}].")
                warnings, problems, entry = warnings + below.warnings, problems + below.problems, below.rest
            kept.append(entry)
        top.rest[name] = kept
    return top.rest, warnings, problems


def _request(said: dict[str, Any], level: _Level) -> tuple[EvalRequest | None, list[Problem]]:
    keys, problems = read_model(said, EvalKeys)
    if keys is None:
        return None, [_below(level.where, problem) for problem in problems]
    varies = ", ".join(f"{key}={value}" for key, value in level.varies.items())
    try:
        return request_of(keys, " ".join(filter(None, (keys.name or keys.id, varies)))), []
    except ImpossibleSettings as error:
        return None, [_below(level.where, problem) for problem in error.problems]


def _below(where: str, problem: Problem) -> Problem:
    return Problem(".".join(filter(None, (where, problem.location))), problem.reason, problem.hint)


def _combinations(ablation: AblationKeys, where: str, by_user: Mapping[str, Any]) -> tuple[list[_Level], list[Problem]]:
    """Return a level for each combination of what the ablation sweeps."""
    said = ablation.given()
    problems: list[Problem] = []
    dimensions: list[list[tuple[str, Any, dict[str, Any]]]] = []
    for key, field, values in _dimensions(ablation.sweep):
        location = f"{where}.sweep.{key}"
        steps, wrong = _steps(key, field, values, location)
        fixed = [name for name, there in (("is given beside it", said), ("is given on the command line", by_user))
                 if any(_says(there, step) for _, _, step in steps)]  # fmt: skip
        problems += wrong + [Problem(location, f"is swept, and {reason}; leave one out") for reason in fixed]
        dimensions.append(steps)
    if problems:
        return [], problems
    levels = []
    for combination in itertools.product(*dimensions):
        varies = {name: value for name, value, _ in combination}
        levels.append(_Level(where, merge(said, *(step for _, _, step in combination)), varies))
    return levels, []


def _dimensions(sweep: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield what is swept: its key as the user wrote it, the name of its field, and the values."""
    for key, values in sweep.items():
        field = _FIELDS.get(key, key)
        if field in _TABLES and isinstance(values, dict):
            for inner, inner_values in values.items():
                yield f"{key}.{inner}", field, inner_values
        else:
            yield key, field, values


def _steps(
    key: str, field: str, values: Any, location: str
) -> tuple[list[tuple[str, Any, dict[str, Any]]], list[Problem]]:
    """Return the values of one dimension: the name to show, the value, and what it says of an evaluation."""
    name = key.split(".", 1)[-1]
    if field not in EvalKeys.model_fields:
        return [], [unknown_key(location, key, list(_FIELDS))]
    if not isinstance(values, list) or not values:
        return [], [Problem(location, f"needs a list of values, found {values!r}")]
    steps, problems = [], []
    for value in values:
        said = {field: {name: value}} if "." in key else {field: value}
        keys, wrong = read_model(said, EvalKeys)
        if keys is None:
            problems += [Problem(location, problem.reason, problem.hint) for problem in wrong]
        else:
            steps.append((name, value, keys.given()))
    return steps, problems


def _says(level: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    """Say whether `level` says something of what `step` says."""
    for field, value in step.items():
        if field in level and (field not in _TABLES or value.keys() & level[field].keys()):
            return True
    return False


def _told_apart(requests: Sequence[EvalRequest]) -> list[EvalRequest]:
    """Give requests that are called the same the model beside the name, and then a number."""
    if len({request.model.model for request in requests}) > 1:
        called = Counter(request.label for request in requests)
        requests = [
            replace(one, label=f"{one.label} ({one.model.model})") if called[one.label] > 1 else one for one in requests
        ]
    seen: Counter[str] = Counter()
    numbered = []
    for one in requests:
        seen[one.label] += 1
        numbered.append(one if seen[one.label] == 1 else replace(one, label=f"{one.label} #{seen[one.label]}"))
    # What tells an evaluation from the others of its file stays with its results.
    return [
        one if one.label == one.environment else replace(one, given={**one.given, "name": one.label})
        for one in numbered
    ]
