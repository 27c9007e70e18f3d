"""Brings an evaluation from a hub into the workspace, so that it can be shown, drawn and compared like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import directory_written_aside
from prime_cli.evals.store import EvalDirectory
from prime_cli.hub.client import HubClient

FETCHED = Path("outputs/evals/hub")
_PAGE = 100


def fetch_evaluation(client: HubClient, evaluation_id: str, parent: Path = FETCHED) -> EvalDirectory:
    """Return the folder of an evaluation of the hub below `parent`, fetched unless it is there as the hub has it.

    Raises:
        HubError: there is no such evaluation, or it may not be seen.
        PrimeError: it has no rollouts, or cannot be written down.
    """
    facts = client.get(f"evaluations/{evaluation_id}")
    directory = EvalDirectory(parent / str(facts.get("evaluation_id") or evaluation_id))
    total = int(facts.get("total_samples") or 0)
    if not total:
        raise PrimeError(f"the evaluation {evaluation_id} has no rollouts on the hub")
    metadata = _metadata(facts, client.settings.base_url)
    if directory.metadata.is_file() and directory.read_metadata().get("fetched") == metadata["fetched"]:
        return directory
    try:
        with directory_written_aside(directory.path) as aside:
            for sample in _samples(client, evaluation_id):
                EvalDirectory(aside).append(sample)
            EvalDirectory(aside).write_metadata(metadata)
    except OSError as error:
        raise PrimeError(f"{directory.path} cannot be written: {error.strerror}") from None
    return directory


def _samples(client: HubClient, evaluation_id: str) -> Iterator[dict[str, Any]]:
    page = 1
    while True:
        found = client.get(f"evaluations/{evaluation_id}/samples", page=page, limit=_PAGE)
        yield from found.get("samples") or []
        if not found.get("has_more"):
            return
        page += 1


def _metadata(facts: dict[str, Any], base_url: str) -> dict[str, Any]:
    """Return what `metadata.json` would say: the settings that were pushed, and which state of the hub this is."""
    settings = facts.get("metadata") if isinstance(facts.get("metadata"), dict) else {}
    metrics = facts.get("metrics") if isinstance(facts.get("metrics"), dict) else {}
    names = facts.get("environment_names") or ["?"]
    return {
        "env_id": names[0],
        "model": facts.get("model_name"),
        **(settings or {}),
        "avg_reward": (metrics or {}).get("avg_reward"),
        "num_rollouts": facts.get("total_samples"),
        "fetched": {"from": base_url, "rollouts": facts.get("total_samples"), "updated": facts.get("updated_at")},
    }
