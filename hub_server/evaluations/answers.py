"""How evaluations look on the wire; the names are the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub_server.evaluations.tables import Evaluation
from hub_server.registry.tables import Environment

_METADATA_IN_LISTS = ("num_examples", "rollouts_per_example")


def evaluation_facts(evaluation: Evaluation, environments: Mapping[str, Environment], base: str) -> dict[str, Any]:
    """Return all there is to say of an evaluation but its samples; `environments` are those the caller may see."""
    seen = [reference for reference in evaluation.environments if reference.environment_id in environments]
    names = [_name(environments[reference.environment_id]) for reference in seen]
    return {
        "evaluation_id": evaluation.id,
        "id": evaluation.id,
        "name": evaluation.name,
        "status": evaluation.status,
        "eval_type": _kind(evaluation),
        "is_hosted": False,
        "is_public": evaluation.is_public,
        "environments": [
            {"id": reference.environment_id, "name": name, "version_id": reference.version_id}
            for reference, name in zip(seen, names, strict=True)
        ],
        "environment_ids": [reference.environment_id for reference in seen],
        "environment_names": names,
        "version_id": seen[0].version_id if seen else None,
        "suite_id": evaluation.suite_id,
        "run_id": evaluation.run_id,
        "model_name": evaluation.model_name,
        "dataset": evaluation.dataset,
        "framework": evaluation.framework,
        "task_type": evaluation.task_type,
        "description": evaluation.description,
        "tags": evaluation.tags,
        "metadata": evaluation.details,
        "metrics": evaluation.metrics,
        "total_samples": evaluation.total_samples,
        "avg_score": evaluation.avg_score,
        "error_message": evaluation.error_message,
        "user_id": evaluation.owner_id,
        "owner": {"name": evaluation.owner.slug},
        "team_id": None,
        "viewer_url": f"{base}/dashboard/evaluations/{evaluation.id}",
        "created_at": evaluation.created_at.isoformat(),
        "updated_at": evaluation.updated_at.isoformat(),
        "finalized_at": evaluation.finalized_at.isoformat() if evaluation.finalized_at else None,
    }


def evaluation_row(evaluation: Evaluation, environments: Mapping[str, Environment], base: str) -> dict[str, Any]:
    """Return an evaluation as a row of a list: of its metadata, which can be long, only what lists show."""
    facts = evaluation_facts(evaluation, environments, base)
    metadata = facts["metadata"]
    return {**facts, "metadata": {name: metadata[name] for name in _METADATA_IN_LISTS if name in metadata}}


def _name(environment: Environment) -> str:
    return f"{environment.owner.slug}/{environment.name}"


def _kind(evaluation: Evaluation) -> str:
    if evaluation.suite_id:
        return "suite"
    return "training" if evaluation.run_id else "environment"
