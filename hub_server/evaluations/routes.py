"""Routes of evaluations. Their answers are not wrapped in `data`: the published clients read them as they stand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session
from starlette.requests import ClientDisconnect

from hub_server.access import Caller, PathEvaluation, Visitor
from hub_server.accounts.tables import User
from hub_server.blobs import BlobStore
from hub_server.errors import Malformed, NotAuthenticated
from hub_server.evaluations import answers, sample_store, service
from hub_server.evaluations.samples import read_batch
from hub_server.evaluations.tables import Evaluation
from hub_server.services import HubServices, Services, public_url
from prime_cli.hub.models import EvaluationChange, EvaluationEnd, NewEvaluation

router = APIRouter(prefix="/api/v1/evaluations", tags=["evaluations"])


@router.post("")
def begin_evaluation(body: NewEvaluation, user: Caller, request: Request, services: HubServices) -> dict[str, Any]:
    """Begin an evaluation; its samples come after."""
    with services.database.write() as session:
        return _shown(session, user, service.begin(session, user, body), request)


@router.get("")
def list_evaluations(
    user: Visitor,
    request: Request,
    services: HubServices,
    environment_name: Annotated[str | None, Query(max_length=200)] = None,
    suite_id: Annotated[str | None, Query(max_length=100)] = None,
    team_id: Annotated[str | None, Query(max_length=100)] = None,
    skip: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> dict[str, Any]:
    """List the caller's evaluations, newest first; of an environment or a suite also everybody's public ones."""
    mine_only = not environment_name and not suite_id
    if user is None and mine_only:
        raise NotAuthenticated("your own evaluations need an API key; run `prime login`")
    listing = service.Listing(
        environment_name=environment_name,
        suite_id=suite_id,
        team_id=team_id,
        mine_only=mine_only,
        limit=limit,
        skip=skip,
    )
    with services.database.read() as session:
        page, total = service.list_evaluations(session, user, listing)
        environments = service.environments_of(session, user, page)
        rows = [answers.evaluation_row(found, environments, public_url(request)) for found in page]
    return {"evaluations": rows, "total": total, "skip": skip, "limit": limit}


@router.get("/{evaluation_id}")
def evaluation_details(
    evaluation: PathEvaluation, user: Visitor, request: Request, services: HubServices
) -> dict[str, Any]:
    """Say all there is to say of an evaluation but its samples."""
    with services.database.read() as session:
        return _shown(session, user, evaluation, request)


@router.put("/{evaluation_id}")
def change_evaluation(
    body: EvaluationChange, evaluation: PathEvaluation, user: Caller, request: Request, services: HubServices
) -> dict[str, Any]:
    """Change what the body names, or end an evaluation that will not be completed."""
    with services.database.write() as session:
        return _shown(session, user, service.change(session, evaluation.id, body), request)


@router.post("/{evaluation_id}/samples")
async def add_samples(evaluation: PathEvaluation, request: Request, services: HubServices) -> dict[str, Any]:
    """Add a batch of samples `{"samples": [{...}, ...]}`; in any order, and as often as the client likes."""
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Malformed("the upload broke off; send it again") from None
    return await run_in_threadpool(_add, services, evaluation.id, body)


@router.get("/{evaluation_id}/samples")
def list_samples(
    evaluation: PathEvaluation,
    services: HubServices,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StreamingResponse:
    """Return the samples of one page, each as it was sent, by example and then by rollout."""
    with services.database.read() as session:
        rows = sample_store.list_samples(session, evaluation.id, offset=(page - 1) * limit, limit=limit)
        places = sample_store.places_of(session, rows)
    total = evaluation.total_samples
    more = page * limit < total
    about = {"total": total, "page": page, "limit": limit, "has_more": more, "hasMore": more}
    return StreamingResponse(_samples_text(services.blobs, places, about), media_type="application/json")


@router.post("/{evaluation_id}/finalize")
def finalize_evaluation(
    evaluation: PathEvaluation,
    user: Caller,
    request: Request,
    services: HubServices,
    body: EvaluationEnd | None = None,
) -> dict[str, Any]:
    """Complete an evaluation."""
    with services.database.write() as session:
        completed = service.complete(session, evaluation.id, body or EvaluationEnd())
        return _shown(session, user, completed, request)


def _add(services: Services, evaluation_id: str, body: bytes) -> dict[str, Any]:
    samples = read_batch(body)
    told = sample_store.add_samples(services.database, services.blobs, evaluation_id, samples)
    return {
        "evaluation_id": evaluation_id,
        "samples_added": told.added,
        "samples_repeated": told.repeated,
        "samples_differing": told.differing,
        "total_samples": told.total,
    }


def _samples_text(blobs: BlobStore, places: Sequence[sample_store.Place], about: dict[str, Any]) -> Iterator[bytes]:
    """Yield the answer sample by sample: a page of long rollouts is never in memory as a whole."""
    yield b'{"samples":['
    for number, place in enumerate(places):
        yield (b"," if number else b"") + sample_store.read_sample(blobs, place)
    yield b"]," + json.dumps(about).encode()[1:]


def _shown(session: Session, user: User | None, evaluation: Evaluation, request: Request) -> dict[str, Any]:
    environments = service.environments_of(session, user, [evaluation])
    return answers.evaluation_facts(evaluation, environments, public_url(request))
