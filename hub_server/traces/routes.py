"""Routes of traces: uploading them, listing and reading them, and deleting them. All are private to their owner."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, StringConstraints
from starlette.requests import ClientDisconnect

from hub_server.access import Caller
from hub_server.accounts.tables import User
from hub_server.accounts.teams import owner_to_act_for
from hub_server.registry.multipart import FormReader, feed_form
from hub_server.services import HubServices, Services
from hub_server.traces import answers, ingest, runs, service
from hub_server.traces.errors import TraceRefusal
from hub_server.traces.tables import TraceUpload
from prime_cli.hub.models import Role

router = APIRouter(prefix="/api/v1", tags=["traces"])

_KEY = re.compile(r"sha256:[0-9a-f]{64}")
_CONTEXT_KEY = re.compile(r"context\.([A-Za-z0-9_.-]{1,100})")
# Packed bytes are never more than what they unpack to, but for some bytes of framing.
_MAX_PART_BYTES = ingest.MAX_UPLOAD_BYTES + 1024**2


Text = Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00]*$")]
Moment = Annotated[datetime, AfterValidator(service.in_utc)]
Limit = Annotated[int, Query(ge=1, le=100)]
Number = Annotated[float, Query(allow_inf_nan=False)]
Step = Annotated[int, Query(ge=0, lt=2**62)]


def owner_id_of(request: Request, user: Caller, services: HubServices) -> str:
    """Return whose traces the request is about: the caller's, or those of the team in X-Prime-Team-ID."""
    least = Role.READER if request.method == "GET" else Role.MEMBER
    with services.database.read() as session:
        return owner_to_act_for(session, user, team_id=request.headers.get("x-prime-team-id"), least=least).id


def filters_of(
    request: Request,
    run_id: Text | None = None,
    upload_id: Annotated[list[Text] | None, Query(max_length=100)] = None,
    environment_id: Text | None = None,
    model_id: Text | None = None,
    model_provider: Text | None = None,
    task_id: Text | None = None,
    episode_id: Text | None = None,
    outcome: Text | None = None,
    has_error: bool | None = None,
    is_truncated: bool | None = None,
    run_step: Step | None = None,
    reward_min: Number | None = None,
    reward_max: Number | None = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    sort: Literal["created_at", "-created_at", "created_at:asc", "created_at:desc"] = "-created_at",
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> service.Filters:
    """Return what the query asks for; each `context.KEY` is one more condition."""
    context = {match[1]: value for key, value in request.query_params.items() if (match := _CONTEXT_KEY.fullmatch(key))}
    if any("\0" in value for value in context.values()):
        raise TraceRefusal("invalid_filter", "a value of the context holds a zero byte")
    equal = {
        "run_id": run_id, "environment_id": environment_id, "model_id": model_id, "model_provider": model_provider,
        "task_id": task_id, "episode_id": episode_id, "outcome": outcome, "has_error": has_error,
        "is_truncated": is_truncated, "run_step": run_step,
    }  # fmt: skip
    return service.Filters(
        equal=equal,
        upload_ids=upload_id or (),
        reward_min=reward_min,
        reward_max=reward_max,
        created_after=created_after,
        created_before=created_before,
        context=context,
        oldest_first=sort in ("created_at", "created_at:asc"),
        limit=limit,
        cursor=cursor,
    )


OwnerId = Annotated[str, Depends(owner_id_of)]
QueryFilters = Annotated[service.Filters, Depends(filters_of)]
Cursor = Annotated[str | None, Query(max_length=2000)]


@router.post("/traces")
async def upload_traces(owner_id: OwnerId, user: Caller, request: Request, services: HubServices) -> dict[str, Any]:
    """Store the lines of the part `traces`, all or none; the same bytes again change nothing."""
    key = request.headers.get("idempotency-key", "")
    if not _KEY.fullmatch(key):
        raise TraceRefusal("invalid_idempotency_key", "Idempotency-Key must be sha256: and 64 hex digits")
    line_format = request.headers.get("x-prime-line-format", "trace")
    if line_format not in ("trace", "episode"):
        raise TraceRefusal("line_format_mismatch", f"the line format {line_format!r} is neither trace nor episode")
    digest = key.removeprefix("sha256:")
    with services.blobs.writer() as writer:
        sink = ingest.LineSink(writer, as_episodes=line_format == "episode")
        form = FormReader(request.headers.get("content-type", ""), "traces", sink, _MAX_PART_BYTES, on_file=sink.open)
        await _receive(request, form)
        return await run_in_threadpool(_commit, services, user, owner_id, digest, line_format, form, sink)


@router.get("/traces")
def list_traces(owner_id: OwnerId, filters: QueryFilters, services: HubServices) -> dict[str, Any]:
    """List traces, newest first."""
    with services.database.read() as session:
        page, cursor = service.list_traces(session, owner_id, filters)
        return {"items": [answers.trace_facts(trace) for trace in page], "next_cursor": cursor}


@router.delete("/traces", status_code=202)
def delete_run(owner_id: OwnerId, run_id: Text, services: HubServices) -> dict[str, Any]:
    """Delete all traces of a run."""
    with services.database.write() as session:
        service.delete_run(session, owner_id, run_id)
    return {"status": "deleted"}


@router.get("/traces/{trace_id}", response_model=None)
def trace_details(
    owner_id: OwnerId, trace_id: str, services: HubServices, raw: bool = False
) -> dict[str, Any] | Response:
    """Return what lists show of a trace, or with `raw` the document as it came."""
    with services.database.read() as session:
        trace = service.get_trace(session, owner_id, trace_id)
        if raw:
            return Response(service.read_document(services.blobs, trace), media_type="application/json")
        return answers.trace_facts(trace)


@router.delete("/traces/{trace_id}", status_code=202)
def delete_trace(owner_id: OwnerId, trace_id: str, services: HubServices) -> dict[str, Any]:
    """Delete a trace."""
    with services.database.write() as session:
        service.delete_trace(session, owner_id, trace_id)
    return {"status": "deleted"}


@router.get("/traces/{trace_id}/nodes")
def trace_nodes(
    owner_id: OwnerId,
    trace_id: str,
    services: HubServices,
    role: Annotated[list[Text] | None, Query(max_length=20)] = None,
    sampled: bool | None = None,
    after: Annotated[int | None, Query(ge=-1)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """List the messages of a trace in the order of its steps."""
    if after is not None and cursor is not None:
        raise TraceRefusal("invalid_filter", "give `after` or `cursor`, not both")
    with services.database.read() as session:
        nodes = service.nodes_of(services.blobs, service.get_trace(session, owner_id, trace_id))
    wanted = [
        node
        for node in nodes
        if (not role or node["message"]["role"] in role) and (sampled is None or node["sampled"] is sampled)
    ]
    start = service.sealed_cursor(after) if after is not None else cursor
    return {**service.slice_after(wanted, "node_idx", start, limit), "partial_index": False}


@router.get("/traces/{trace_id}/calls")
def trace_calls(
    owner_id: OwnerId,
    trace_id: str,
    services: HubServices,
    model: Annotated[list[Text] | None, Query(max_length=20)] = None,
    finish_reason: Annotated[list[Text] | None, Query(max_length=20)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """List the model calls of a trace in order."""
    with services.database.read() as session:
        calls = service.calls_of(services.blobs, service.get_trace(session, owner_id, trace_id))
    wanted = [
        call
        for call in calls
        if (not model or call["model"] in model) and (not finish_reason or call["finish_reason"] in finish_reason)
    ]
    return {**service.slice_after(wanted, "call_idx", cursor, limit), "partial_index": False}


@router.get("/episodes")
def list_episodes(owner_id: OwnerId, filters: QueryFilters, services: HubServices) -> dict[str, Any]:
    """List episodes, newest first."""
    with services.database.read() as session:
        page, cursor = service.list_episodes(session, owner_id, filters)
        return {"items": [answers.episode_facts(episode) for episode in page], "next_cursor": cursor}


@router.get("/episodes/{episode_id}", response_model=None)
def episode_details(
    owner_id: OwnerId, episode_id: str, services: HubServices, raw: bool = False
) -> dict[str, Any] | Response:
    """Return an episode with the totals of its traces, or with `raw` its envelope, which names them."""
    with services.database.read() as session:
        episode = service.get_episode(session, owner_id, episode_id)
        if raw:
            return Response(service.read_document(services.blobs, episode), media_type="application/json")
        members = service.members_of(session, episode)
        return {**answers.episode_facts(episode), "traces": answers.members_facts(members)}


@router.get("/episodes/{episode_id}/traces")
def episode_traces(owner_id: OwnerId, episode_id: str, filters: QueryFilters, services: HubServices) -> dict[str, Any]:
    """List the traces of an episode, newest first."""
    of_it = service.Filters(**{**vars(filters), "equal": {**filters.equal, "episode_id": episode_id}})
    with services.database.read() as session:
        service.get_episode(session, owner_id, episode_id)
        page, cursor = service.list_traces(session, owner_id, of_it)
        return {"items": [answers.trace_facts(trace) for trace in page], "next_cursor": cursor}


@router.get("/runs")
def list_runs(
    owner_id: OwnerId,
    services: HubServices,
    run_type: Annotated[list[Literal["eval", "train", "unknown"]] | None, Query()] = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """List runs with the totals of their traces, the one that got a trace last first."""
    filters = service.Filters(
        run_types=run_type or (), created_after=created_after, created_before=created_before, limit=limit, cursor=cursor
    )
    with services.database.read() as session:
        page, following = runs.list_runs(session, owner_id, filters)
        return {"items": page, "next_cursor": following}


@router.get("/runs/{run_id}")
def run_details(owner_id: OwnerId, run_id: str, services: HubServices) -> dict[str, Any]:
    """Return the totals of a run."""
    with services.database.read() as session:
        return runs.get_run(session, owner_id, run_id)


@router.get("/runs/{run_id}/steps")
def run_steps(owner_id: OwnerId, run_id: str, services: HubServices) -> dict[str, Any]:
    """Return the training steps of a run, oldest first."""
    with services.database.read() as session:
        return runs.steps_of(session, owner_id, run_id)


@router.get("/runs/{run_id}/search")
def search_run(
    owner_id: OwnerId,
    run_id: str,
    query: Annotated[str, Query(min_length=3, max_length=1000)],
    services: HubServices,
    field: Literal["content", "reasoning_content", "tool_calls"] = "content",
    role: Text | None = None,
    run_step: Step | None = None,
    has_error: bool | None = None,
    reward_min: Number | None = None,
    reward_max: Number | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Find a text, as it stands, in the messages of a run."""
    filters = service.Filters(
        equal={"run_id": run_id, "run_step": run_step, "has_error": has_error},
        reward_min=reward_min,
        reward_max=reward_max,
    )
    search = runs.Search(query=query, field=field, role=role, limit=limit, cursor=cursor)
    with services.database.read() as session:
        return runs.search_run(session, services.blobs, owner_id, filters, search)


async def _receive(request: Request, form: FormReader) -> None:
    try:
        rest = await feed_form(request, form)
    except ClientDisconnect:
        raise TraceRefusal("malformed_encoding", "the upload broke off") from None
    await run_in_threadpool(form.feed, rest)


def _commit(
    services: Services,
    user: User,
    owner_id: str,
    digest: str,
    line_format: str,
    form: FormReader,
    sink: ingest.LineSink,
) -> dict[str, Any]:
    if not form.is_complete or form.filename is None:
        raise TraceRefusal("malformed_encoding", "the form ends too early, or has no part `traces`")
    schema_version, context = ingest.read_metadata(form.fields.get("metadata"))
    sink.close()
    if sink.digest != digest:
        raise TraceRefusal("digest_mismatch", f"the lines have sha256 {sink.digest}, announced was {digest}")
    receipt = {"upload_id": digest, "status": "committed"}
    with services.database.read() as session:
        if ingest.find_upload(session, owner_id, digest, line_format) is not None:
            return receipt
    sink.writer.keep()
    with services.database.write() as session:
        if ingest.find_upload(session, owner_id, digest, line_format) is None:
            upload = TraceUpload(
                owner_id=owner_id,
                digest=digest,
                line_format=line_format,
                schema_version=schema_version,
                context=context,
                uploaded_by=user.id,
                blob_sha256=sink.writer.sha256,
            )
            ingest.commit(session, upload, sink)
    return receipt
