"""Evaluations on a hub: the list, and their rollouts brought here, where they are read like others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import NotLoggedIn
from prime_cli.hub.client import HubClient, connect
from prime_cli.viewer.reading.rollout_index import index_cache

_LISTED = 100
_PAGE = 200


@dataclass(frozen=True)
class HubEvaluation:
    """An evaluation of the hub, as its list says."""

    id: str
    environment: str
    model: str
    score: float | None
    rollouts: int
    status: str
    date: str
    facts: Mapping[str, Any]

    @property
    def results(self) -> Path:
        """Where its rollouts are kept here."""
        return index_cache() / "hub" / f"{self.id}.jsonl"


def list_hub_evaluations() -> tuple[str, list[HubEvaluation]] | None:
    """Return the hub's address and one's newest evaluations there, or None where nobody is logged in.

    Raises:
        PrimeError: the hub does not answer.
    """
    try:
        client = connect()
    except NotLoggedIn:
        return None
    with client:
        found = client.get("evaluations/", limit=_LISTED)
        return client.settings.base_url, [_evaluation(row) for row in found.get("evaluations") or []]


def fetch_rollouts(evaluation: HubEvaluation, cancelled: Callable[[], bool]) -> None:
    """Bring the rollouts here, page by page; when all of them are here already, nothing is asked.

    Raises:
        PrimeError: the hub does not answer.
    """
    path = evaluation.results
    if path.is_file() and sum(1 for _ in path.open("rb")) == evaluation.rollouts:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    page, here, total = 1, 0, 1
    with connect() as client, path.open("wb", buffering=0) as file:
        while here < total and not cancelled():
            rows, total = _page(client, evaluation.id, page)
            if not rows:
                return
            file.write(b"".join(json.dumps(_as_rollout(row)).encode() + b"\n" for row in rows))
            here, page = here + len(rows), page + 1


def _page(client: HubClient, evaluation: str, page: int) -> tuple[list[dict[str, Any]], int]:
    found = client.get(f"evaluations/{evaluation}/samples", page=page, limit=_PAGE)
    return found.get("samples") or [], int(found.get("total") or 0)


def _as_rollout(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of the hub as a line of results.jsonl; what it was stored with beside it stays."""
    return {key: value for key, value in row.items() if value is not None}


def _evaluation(row: Mapping[str, Any]) -> HubEvaluation:
    score = row.get("avg_score")
    return HubEvaluation(
        id=str(row.get("evaluation_id")),
        environment=", ".join(row.get("environment_names") or []) or "?",
        model=str(row.get("model_name") or "?"),
        score=float(score) if isinstance(score, int | float) else None,
        rollouts=int(row.get("total_samples") or 0),
        status=str(row.get("status") or ""),
        date=str(row.get("created_at") or "")[:16].replace("T", " "),
        facts=row,
    )
