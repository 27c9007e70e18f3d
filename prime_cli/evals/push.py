"""Puts finished evaluations on a hub: settings and averages from `metadata.json`, every rollout from `results.jsonl`.

The folder remembers which evaluation of which hub it became, so a push that broke off, or is repeated after the
evaluation was resumed, goes on with that one and adds what is new.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput, HubError, PrimeError
from prime_cli.core.files import write_json_atomically
from prime_cli.environments.hub_catalog import fetch_details
from prime_cli.environments.metadata import read_metadata
from prime_cli.environments.resolve import EnvironmentId, parse_environment_id
from prime_cli.environments.workspace import local_environment_folder
from prime_cli.evals.batches import make_batches, read_lines, send_batches
from prime_cli.evals.find import evaluations_named
from prime_cli.evals.store import METADATA, EvalDirectory, default_roots, find_evaluations
from prime_cli.hub.client import HubClient, Progress

_REMEMBERED = "pushed.json"
_NOT_FOUND = 404


@dataclass(frozen=True)
class PushOptions:
    """What the evaluation is to be on the hub; None leaves it to the folder, or as it is."""

    environment: str | None = None
    evaluation_id: str | None = None
    name: str | None = None
    public: bool = False


@dataclass(frozen=True)
class Pushed:
    """What a push did. `too_large` are the lines of rollouts that are larger than a hub takes."""

    path: Path
    evaluation_id: str
    url: str
    added: int
    repeated: int
    too_large: list[int]


def directories_to_push(path: str | None) -> list[EvalDirectory]:
    """Return what `path` names by folder or id; without it the current folder's evaluation, else all of the workspace.

    Raises:
        PrimeError: there is none.
    """
    if path is not None:
        return evaluations_named(path)
    here = Path()
    found = [EvalDirectory(here)] if (here / METADATA).is_file() else find_evaluations(default_roots())
    if not found:
        raise PrimeError("there is no evaluation here", hint="run one with `prime eval run ENV -m MODEL`")
    return found


def push_evaluation(
    client: HubClient, directory: EvalDirectory, options: PushOptions, progress: Callable[[Path], Progress]
) -> Pushed:
    """Put one evaluation on the hub, all of it.

    Raises:
        BadInput: it is not said on which environment of the hub it ran.
        PrimeError: the folder is no evaluation, or holds no rollouts.
        HubError: the hub refused; what arrived before is kept there, and the same command goes on with it.
    """
    metadata = _plain(directory.read_metadata())
    if not directory.results.is_file():
        raise PrimeError(f"{directory.path} has no rollouts yet", hint="push it when `prime eval run` has some")
    evaluation_id = _known_evaluation(client, directory, options, metadata) or _begin(
        client, directory, options, metadata
    )
    total, done, too_large = directory.results.stat().st_size, 0, list[int]()
    report = progress(directory.results)

    def sent(batch: Any) -> None:
        nonlocal done
        done += batch.bytes_read
        report(done, total)

    added, repeated = send_batches(
        make_batches(read_lines(directory.results), too_large),
        lambda body: client.post_bytes(f"evaluations/{evaluation_id}/samples", body),
        sent,
    )
    ended = client.post(f"evaluations/{evaluation_id}/finalize", {"metrics": _metrics(metadata)})
    url = ended.get("viewer_url") or f"{client.settings.frontend_url}/dashboard/evaluations/{evaluation_id}"
    return Pushed(directory.path, evaluation_id, str(url), added, repeated, too_large)


def _known_evaluation(
    client: HubClient, directory: EvalDirectory, options: PushOptions, metadata: dict[str, Any]
) -> str | None:
    """Return the evaluation to go on with, brought up to date; None when there is none."""
    remembered = _remembered(directory).get(client.settings.base_url)
    evaluation_id = options.evaluation_id or remembered
    if evaluation_id is None:
        return None
    changes: dict[str, Any] = {"metadata": _settings(metadata), "metrics": _metrics(metadata)}
    if options.name:
        changes["name"] = options.name
    if options.public:
        changes["is_public"] = True
    try:
        client.put(f"evaluations/{evaluation_id}", changes)
    except HubError as error:
        if error.status == _NOT_FOUND and options.evaluation_id is None:
            return None
        raise
    return str(evaluation_id)


def _begin(client: HubClient, directory: EvalDirectory, options: PushOptions, metadata: dict[str, Any]) -> str:
    identity = _environment(options, metadata)
    body: dict[str, Any] = {
        "name": options.name or f"{identity.name}--{metadata.get('model', 'unknown')}",
        "environments": [_reference(client, identity, metadata)],
        "model_name": metadata.get("model"),
        "dataset": identity.name,
        "framework": "verifiers",
        "metadata": _settings(metadata),
        "metrics": _metrics(metadata),
        "is_public": options.public,
    }
    evaluation_id = str(client.post("evaluations/", body)["evaluation_id"])
    remembered = {**_remembered(directory), client.settings.base_url: evaluation_id}
    # Results on a disk that cannot be written to are pushed all the same; a second push makes a second evaluation.
    with contextlib.suppress(OSError):
        write_json_atomically(directory.path / _REMEMBERED, remembered)
    return evaluation_id


def _environment(options: PushOptions, metadata: dict[str, Any]) -> EnvironmentId:
    """Return the environment on the hub: as asked for, as it was run, or as the local folder was published."""
    identity = parse_environment_id(options.environment or str(metadata.get("env_id", "")))
    if identity.owner is None and not options.environment:
        folder = local_environment_folder(identity.name)
        noted = read_metadata(folder) if folder else {}
        if noted.get("owner") and noted.get("name"):
            return EnvironmentId(str(noted["owner"]), str(noted["name"]), None)
    if identity.owner is None:
        raise BadInput(
            f"on which environment of the hub did {identity} run?",
            hint=f"say so by `--env OWNER/{identity.name}`, or publish it by `prime env upload {identity.name}`",
        )
    return identity


def _reference(client: HubClient, identity: EnvironmentId, metadata: dict[str, Any]) -> dict[str, str]:
    """Return the environment's id, and the version that was run if the hub has it."""
    ran = identity.version or (metadata.get("version_info") or {}).get("env_version")
    if ran:
        try:
            details = fetch_details(client, EnvironmentId(identity.owner, identity.name, str(ran)))
            return {"id": str(details.raw["id"]), "version_id": str(details.raw["version_id"])}
        except HubError as error:
            if error.status != _NOT_FOUND or identity.version:
                raise
    return {"id": str(fetch_details(client, EnvironmentId(identity.owner, identity.name, None)).raw["id"])}


def _metrics(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the averages: `avg_reward`, `avg_error`, and each metric under its own name."""
    averages = {name: value for name, value in metadata.items() if name.startswith("avg_")}
    by_name = averages.pop("avg_metrics", None)
    return {**averages, **(by_name if isinstance(by_name, dict) else {})}


def _settings(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if not name.startswith("avg_")}


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata with null for NaN, which Python writes and JSON does not have."""
    plain: dict[str, Any] = json.loads(json.dumps(metadata), parse_constant=lambda _: None)
    return plain


def _remembered(directory: EvalDirectory) -> dict[str, Any]:
    try:
        remembered = json.loads((directory.path / _REMEMBERED).read_text())
    except (OSError, ValueError):
        return {}
    return remembered if isinstance(remembered, dict) else {}
