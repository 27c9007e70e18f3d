"""Evaluations on a hub: the list, and their rollouts brought here, where they are read like others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prime_cli.core.errors import NotLoggedIn
from prime_cli.evals.fetch import fetch_evaluation
from prime_cli.hub.client import connect
from prime_cli.viewer.reading.evaluations import Evaluation, read_evaluation

_LISTED = 100


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


def fetch(evaluation: HubEvaluation) -> Evaluation:
    """Bring an evaluation here, unless it is here as the hub has it.

    Raises:
        PrimeError: the hub does not answer, or it has no rollouts.
    """
    with connect(login_required=False) as client:
        return read_evaluation(fetch_evaluation(client, evaluation.id))


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
