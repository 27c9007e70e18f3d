"""The pages of an evaluation: its settings and figures with a table of rollouts, and one rollout to read."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response

from hub_server.access import PathEvaluation, Visitor
from hub_server.errors import NotFound
from hub_server.evaluations import sample_store, service
from hub_server.evaluations.tables import EvaluationSample
from hub_server.services import HubServices
from hub_server.web.browsing import PageNumber, Pager
from hub_server.web.plots import histogram
from hub_server.web.readable import messages_of, short_facts, text_of
from hub_server.web.rendering import page

router = APIRouter(include_in_schema=False)

_ROLLOUTS_ON_A_PAGE = 50
_BINS = 20
_LONG = ("answer", "error", "info")
# Shown elsewhere on the page, or for machines only.
_NOT_AMONG_FACTS = {"prompt", "completion", "reward", "sample_id", "example_id", "rollout_number", "tool_defs", *_LONG}


@router.get("/dashboard/evaluations/{evaluation_id}")
def evaluation_page(
    evaluation: PathEvaluation,
    user: Visitor,
    request: Request,
    services: HubServices,
    number: PageNumber = 1,
) -> Response:
    """One evaluation: what was measured, with which settings, and a page of its rollouts."""
    with services.database.read() as session:
        skipped = (number - 1) * _ROLLOUTS_ON_A_PAGE
        rows = sample_store.list_samples(session, evaluation.id, offset=skipped, limit=_ROLLOUTS_ON_A_PAGE)
        environments = service.environments_of(session, user, [evaluation])
        rewards = sample_store.count_rewards(session, evaluation.id, bins=_BINS)
    return page(
        request,
        "evaluation.html",
        evaluation=evaluation,
        environments=list(environments.values()),
        metrics=short_facts(evaluation.metrics),
        settings=short_facts(evaluation.details),
        rewards=histogram(rewards.low, rewards.high, rewards.counts) if rewards else None,
        rows=rows,
        pager=Pager(number, evaluation.total_samples, _ROLLOUTS_ON_A_PAGE),
    )


@router.get("/dashboard/evaluations/{evaluation_id}/samples/{identity}")
def sample_page(identity: str, evaluation: PathEvaluation, request: Request, services: HubServices) -> Response:
    """One rollout: its messages, its reward, and what else was kept of it."""
    with services.database.read() as session:
        row = sample_store.find_sample(session, evaluation.id, identity)
        if row is None:
            raise NotFound(f"rollout {identity} of evaluation {evaluation.id} not found")
        before, after = sample_store.neighbours(session, row)
        (place,) = sample_store.places_of(session, [row])
    sample: dict[str, Any] = json.loads(sample_store.read_sample(services.blobs, place))
    conversations = [(name.capitalize(), messages_of(sample.get(name))) for name in ("prompt", "completion")]
    return page(
        request,
        "sample.html",
        evaluation=evaluation,
        row=row,
        title=_title(row),
        before=before,
        after=after,
        conversations=[(heading, messages) for heading, messages in conversations if messages],
        long_facts=[(name.capitalize(), text_of(sample[name])) for name in _LONG if sample.get(name)],
        facts=short_facts({name: value for name, value in sample.items() if name not in _NOT_AMONG_FACTS}),
    )


def _title(row: EvaluationSample) -> str:
    example = f"example {row.example_id}" if row.example_id else ""
    rollout = f"rollout {row.rollout_number}" if row.rollout_number is not None else ""
    return ", ".join(part for part in (example, rollout) if part) or "a rollout"
