"""Runs: totals over the traces that name one, made when they are asked for; and search in what a run said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlalchemy.orm import Session

from hub_server.blobs import BlobStore
from hub_server.traces.errors import TraceRefusal
from hub_server.traces.service import Filters, nodes_of, opened_moment, sealed_cursor, trace_conditions
from hub_server.traces.tables import Trace, TraceUpload

_EXCERPT = 80
_TRACES_PER_SEARCH = 500


@dataclass(frozen=True)
class Search:
    """What to look for in the messages of a run: a text as it stands, in one field."""

    query: str
    field: str = "content"
    role: str | None = None
    limit: int = 50
    cursor: str | None = None


def list_runs(session: Session, owner_id: str, filters: Filters) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of runs, the one that got a trace last first, and the cursor of the next."""
    conditions = [*trace_conditions(owner_id, filters), Trace.run_id.is_not(None)]
    newest = func.max(TraceUpload.created_at)
    grouped = select(Trace.run_id, newest).join(Trace.upload).where(*conditions).group_by(Trace.run_id)
    if filters.cursor:
        moment, last = opened_moment(filters.cursor)
        grouped = grouped.having(or_(newest < moment, and_(newest == moment, Trace.run_id > last)))
    rows = session.execute(grouped.order_by(newest.desc(), Trace.run_id).limit(filters.limit + 1)).all()
    page = [
        _summary(session, [*conditions, Trace.run_id == run_id], str(run_id)) for run_id, _ in rows[: filters.limit]
    ]
    if len(rows) <= filters.limit:
        return page, None
    return page, sealed_cursor(rows[filters.limit - 1][1].isoformat(), rows[filters.limit - 1][0])


def get_run(session: Session, owner_id: str, run_id: str) -> dict[str, Any]:
    """Return the totals of one run.

    Raises:
        TraceRefusal: the owner has no trace in it (404).
    """
    conditions = [Trace.owner_id == owner_id, Trace.run_id == run_id]
    if session.scalar(select(Trace.trace_id).where(*conditions).limit(1)) is None:
        raise TraceRefusal("run_not_found", f"run {run_id} not found", 404)
    return _summary(session, conditions, run_id)


def steps_of(session: Session, owner_id: str, run_id: str) -> dict[str, Any]:
    """Return the training steps of a run, oldest first; none for a run that is not there."""
    wanted = (
        select(Trace.run_step, func.count(), func.count(Trace.episode_id.distinct()), func.avg(Trace.reward))
        .where(Trace.owner_id == owner_id, Trace.run_id == run_id, Trace.run_step.is_not(None))
        .group_by(Trace.run_step)
        .order_by(Trace.run_step)
    )
    items = [
        {"step": step, "trace_count": traces, "episode_count": episodes, "avg_reward": reward}
        for step, traces, episodes, reward in session.execute(wanted)
    ]
    return {
        "step_min": items[0]["step"] if items else None,
        "step_max": items[-1]["step"] if items else None,
        "step_count": len(items),
        "items": items,
    }


def search_run(session: Session, blobs: BlobStore, owner_id: str, filters: Filters, search: Search) -> dict[str, Any]:
    """Return the first match in each message of the run's traces that has one, and how many traces were read.

    The documents are read one after the other, so a page looks at a bounded number of them and the cursor goes on.
    """
    ordered = select(Trace).join(Trace.upload).where(*trace_conditions(owner_id, filters)).order_by(Trace.trace_id)
    start = ("", -1)
    if search.cursor:
        _, position = opened_moment(search.cursor)
        trace_id, _, node = position.rpartition(" ")
        start = (trace_id, int(node) if node.lstrip("-").isdigit() else -1)
        ordered = ordered.where(Trace.trace_id >= trace_id)
    traces = session.scalars(ordered.limit(_TRACES_PER_SEARCH + 1)).all()
    found: list[dict[str, Any]] = []
    for trace in traces[:_TRACES_PER_SEARCH]:
        skipped = start[1] if trace.trace_id == start[0] else -1
        for match in _matches(blobs, trace, search, skipped):
            if len(found) == search.limit:
                return _found(found, _after(found[-1]), None if search.cursor else len(traces))
            found.append(match)
    more = traces[_TRACES_PER_SEARCH] if len(traces) > _TRACES_PER_SEARCH else None
    cursor = _after({"trace_id": more.trace_id, "node_idx": -1}) if more is not None else None
    return _found(found, cursor, None if search.cursor else min(len(traces), _TRACES_PER_SEARCH))


def _found(items: list[dict[str, Any]], cursor: str | None, examined: int | None) -> dict[str, Any]:
    coverage = None if examined is None else {
        "examined_traces": examined, "unindexed_trace_ids": [], "partial_index": False
    }  # fmt: skip
    return {"items": items, "next_cursor": cursor, "coverage": coverage}


def _after(match: dict[str, Any]) -> str:
    # The moment is there because all cursors have one form.
    return sealed_cursor("1970-01-01T00:00:00+00:00", f"{match['trace_id']} {match['node_idx']}")


def _matches(blobs: BlobStore, trace: Trace, search: Search, after: int) -> Sequence[dict[str, Any]]:
    matches = []
    for node in nodes_of(blobs, trace)[after + 1 :]:
        message = node["message"]
        value = message.get(search.field)
        if value is None or (search.role is not None and message["role"] != search.role):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        start = text.find(search.query)
        if start >= 0:
            excerpt_start = max(0, start - _EXCERPT)
            end = start + len(search.query)
            matches.append({
                "trace_id": trace.trace_id,
                "upload_id": trace.upload.digest,
                "generation": 1,
                "episode_id": trace.episode_id,
                "node_idx": node["node_idx"],
                "role": str(message["role"] or ""),
                "field": search.field,
                "representation": "text" if isinstance(value, str) else "json",
                "match_start": start,
                "match_end": end,
                "excerpt": text[excerpt_start : end + _EXCERPT],
                "excerpt_start": excerpt_start,
            })  # fmt: skip
    return matches


def _summary(session: Session, conditions: Sequence[ColumnElement[bool]], run_id: str) -> dict[str, Any]:
    totals = session.execute(
        select(
            func.min(Trace.created_at), func.max(Trace.created_at), func.max(TraceUpload.created_at), func.count(),
            func.count(Trace.episode_id.distinct()), func.avg(Trace.reward), func.min(Trace.run_step),
            func.max(Trace.run_step), func.count(Trace.run_step.distinct()),
            func.max(case((Trace.has_error, 1), else_=0)),
        ).join(Trace.upload).where(*conditions)
    ).one()  # fmt: skip
    uploads = select(TraceUpload).join(Trace, Trace.upload_key == TraceUpload.id).where(*conditions)
    first = session.scalars(uploads.order_by(TraceUpload.created_at).limit(1)).one()
    last = session.scalars(uploads.order_by(TraceUpload.created_at.desc()).limit(1)).one()
    return {
        "run_id": run_id,
        "first_trace_created_at": totals[0].isoformat(),
        "last_trace_created_at": totals[1].isoformat(),
        "last_trace_ingested_at": totals[2].isoformat(),
        "trace_count": totals[3],
        "episode_count": totals[4],
        "avg_reward": totals[5],
        "step_min": totals[6],
        "step_max": totals[7],
        "step_count": totals[8],
        "has_error": bool(totals[9]),
        "first_user_id": first.uploaded_by,
        "environment_ids": _distinct(session, Trace.environment_id, conditions),
        "model_ids": _distinct(session, Trace.model_id, conditions),
        "context": last.context,
    }


def _distinct(session: Session, column: Any, conditions: Sequence[ColumnElement[bool]]) -> list[str]:
    there = select(column).join(Trace.upload).where(*conditions, column.is_not(None)).distinct().order_by(column)
    return list(session.scalars(there.limit(100)))
