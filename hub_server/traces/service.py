"""Finding traces, episodes and runs of one owner, reading their documents, and deleting them."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from hub_server.blobs import BlobStore
from hub_server.traces.errors import TraceRefusal
from hub_server.traces.ingest import let_go
from hub_server.traces.tables import Episode, Trace, TraceUpload

_EQUAL = ("run_id", "environment_id", "model_id", "model_provider", "task_id", "outcome", "has_error", "is_truncated",
          "episode_id", "run_step", "run_type")  # fmt: skip


@dataclass(frozen=True)
class Filters:
    """What to list. `equal`: columns and the value that they must have; None asks for nothing."""

    equal: Mapping[str, Any] = field(default_factory=dict)
    upload_ids: Sequence[str] = ()
    run_types: Sequence[str] = ()
    reward_min: float | None = None
    reward_max: float | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    oldest_first: bool = False
    limit: int = 50
    cursor: str | None = None


def list_traces(session: Session, owner_id: str, filters: Filters) -> tuple[list[Trace], str | None]:
    """Return a page of traces by their creation, and the cursor of the next one."""
    return _page(session, Trace, Trace.trace_id, trace_conditions(owner_id, filters), filters)


def list_episodes(session: Session, owner_id: str, filters: Filters) -> tuple[list[Episode], str | None]:
    """Return a page of episodes. Steps and context are those of their traces."""
    own = {name: value for name, value in filters.equal.items() if name != "run_step"}
    conditions = [Episode.owner_id == owner_id, *_shared(Episode, Filters(**{**vars(filters), "equal": own}))]
    step = filters.equal.get("run_step")
    if step is not None or filters.context:
        members = Filters(equal={"run_step": step}, context=filters.context)
        matching = select(Trace.episode_id).join(Trace.upload).where(*trace_conditions(owner_id, members))
        conditions.append(Episode.episode_id.in_(matching.where(Trace.episode_id.is_not(None))))
    return _page(session, Episode, Episode.episode_id, conditions, filters)


def get_trace(session: Session, owner_id: str, trace_id: str) -> Trace:
    """Return a trace.

    Raises:
        TraceRefusal: the owner has none of this id (404).
    """
    found = session.get(Trace, (owner_id, trace_id))
    if found is None:
        raise TraceRefusal("trace_not_found", f"trace {trace_id} not found", 404)
    return found


def get_episode(session: Session, owner_id: str, episode_id: str) -> Episode:
    """Return an episode.

    Raises:
        TraceRefusal: the owner has none of this id (404).
    """
    found = session.get(Episode, (owner_id, episode_id))
    if found is None:
        raise TraceRefusal("episode_not_found", f"episode {episode_id} not found", 404)
    return found


def members_of(session: Session, episode: Episode) -> list[Trace]:
    """Return the traces of an episode."""
    of_it = (Trace.owner_id == episode.owner_id, Trace.episode_id == episode.episode_id)
    return list(session.scalars(select(Trace).where(*of_it).order_by(Trace.created_at, Trace.trace_id)))


def read_document(blobs: BlobStore, row: Trace | Episode) -> bytes:
    """Return a document as it was kept."""
    return zlib.decompress(blobs.read(row.upload.blob_sha256, row.offset, row.length))


def nodes_of(blobs: BlobStore, trace: Trace) -> list[dict[str, Any]]:
    """Return the messages of a trace in the order of its steps."""
    nodes = _list_in(blobs, trace, "nodes")
    return [
        {
            "node_idx": number,
            "parent_idx": node.get("parent"),
            "timestamp": node.get("timestamp"),
            "sampled": bool(node.get("sampled")),
            "message": {"role": None, **(node["message"] if isinstance(node.get("message"), dict) else {})},
        }
        for number, node in enumerate(nodes)
    ]


def calls_of(blobs: BlobStore, trace: Trace) -> list[dict[str, Any]]:
    """Return the model calls of a trace in order."""
    calls = _list_in(blobs, trace, "calls")
    return [
        {
            "call_idx": number,
            "node_idx": call.get("node"),
            "time_start": _time_of(call).get("start"),
            "time_end": _time_of(call).get("end"),
            "model": call.get("model"),
            "endpoint": call.get("endpoint"),
            "finish_reason": call.get("finish_reason"),
        }
        for number, call in enumerate(calls)
    ]


def _time_of(call: dict[str, Any]) -> dict[str, Any]:
    time = call.get("time")
    return time if isinstance(time, dict) else {}


def delete_trace(session: Session, owner_id: str, trace_id: str) -> None:
    """Delete a trace.

    Raises:
        TraceRefusal: the owner has none of this id (404).
    """
    trace = get_trace(session, owner_id, trace_id)
    session.delete(trace)
    session.flush()
    let_go(session, {trace.upload_key})


def delete_run(session: Session, owner_id: str, run_id: str) -> None:
    """Delete all traces of a run with the episodes that have none left.

    Raises:
        TraceRefusal: the owner has no trace in it (404).
    """
    of_it = (Trace.owner_id == owner_id, Trace.run_id == run_id)
    uploads = set(session.scalars(select(Trace.upload_key).where(*of_it).distinct()))
    if not uploads:
        raise TraceRefusal("run_not_found", f"run {run_id} not found", 404)
    session.execute(delete(Trace).where(*of_it))
    left = select(Trace.episode_id).where(Trace.owner_id == owner_id, Trace.episode_id.is_not(None))
    empty = (Episode.owner_id == owner_id, Episode.run_id == run_id, Episode.episode_id.not_in(left))
    uploads |= set(session.scalars(select(Episode.upload_key).where(*empty).distinct()))
    session.execute(delete(Episode).where(*empty))
    let_go(session, uploads)


def trace_conditions(owner_id: str, filters: Filters) -> list[ColumnElement[bool]]:
    """Return the conditions on Trace, joined with its upload."""
    conditions = [Trace.owner_id == owner_id, *_shared(Trace, filters)]
    if filters.reward_min is not None:
        conditions.append(Trace.reward >= filters.reward_min)
    if filters.reward_max is not None:
        conditions.append(Trace.reward <= filters.reward_max)
    if filters.run_types:
        conditions.append(func.coalesce(Trace.run_type, "unknown").in_(filters.run_types))
    conditions += [TraceUpload.context[key].as_string() == value for key, value in filters.context.items()]
    return conditions


def in_utc(moment: datetime) -> datetime:
    """Return a moment in UTC, which one without an offset is already.

    Raises:
        ValueError: UTC has no such moment, before the first year or after the last.
    """
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("there is no such moment in UTC") from None


def slice_after(rows: Sequence[dict[str, Any]], key: str, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return a page of rows that are numbered by `key`."""
    after = _opened(cursor)[0] if cursor else -1
    if not isinstance(after, int):
        raise TraceRefusal("invalid_cursor", "the cursor is not one of this list")
    rest = [row for row in rows if row[key] > after]
    page = rest[:limit]
    return {"items": page, "next_cursor": sealed_cursor(page[-1][key]) if len(rest) > limit else None}


def sealed_cursor(*position: Any) -> str:
    """Return a position in a list as clients carry it."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _opened(cursor: str) -> list[Any]:
    try:
        position = from_json(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error):
        position = None
    if not isinstance(position, list) or not position:
        raise TraceRefusal("invalid_cursor", "the cursor is not one of this list")
    return position


def opened_moment(cursor: str) -> tuple[datetime, str]:
    """Return moment and id at which a list goes on.

    Raises:
        TraceRefusal: the cursor is not one of such a list.
    """
    position = _opened(cursor)
    try:
        moment, identifier = position
        return in_utc(datetime.fromisoformat(moment)), str(identifier)
    except (ValueError, TypeError):
        raise TraceRefusal("invalid_cursor", "the cursor is not one of this list") from None


def _shared(table: type[Trace] | type[Episode], filters: Filters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    for name in _EQUAL:
        if filters.equal.get(name) is not None:
            if not hasattr(table, name):
                raise TraceRefusal("invalid_filter", f"{name} is no filter of this list")
            conditions.append(getattr(table, name) == filters.equal[name])
    if filters.upload_ids:
        conditions.append(TraceUpload.digest.in_(filters.upload_ids))
    if filters.created_after is not None:
        conditions.append(table.created_at >= filters.created_after)
    if filters.created_before is not None:
        conditions.append(table.created_at < filters.created_before)
    return conditions


def _page(
    session: Session,
    table: Any,
    identifier: InstrumentedAttribute[str],
    conditions: list[ColumnElement[bool]],
    filters: Filters,
) -> tuple[list[Any], str | None]:
    created = table.created_at
    if filters.cursor:
        moment, last = opened_moment(filters.cursor)
        beyond = created > moment if filters.oldest_first else created < moment
        conditions = [*conditions, or_(beyond, and_(created == moment, identifier > last))]
    order = created.asc() if filters.oldest_first else created.desc()
    wanted: Select[Any] = select(table).join(table.upload).where(*conditions).order_by(order, identifier)
    rows = list(session.scalars(wanted.limit(filters.limit + 1)))
    page = rows[: filters.limit]
    if len(rows) <= filters.limit:
        return page, None
    return page, sealed_cursor(page[-1].created_at.isoformat(), getattr(page[-1], identifier.key))


def _list_in(blobs: BlobStore, trace: Trace, name: str) -> list[dict[str, Any]]:
    held = from_json(read_document(blobs, trace)).get(name)
    return [item if isinstance(item, dict) else {} for item in held] if isinstance(held, list) else []
