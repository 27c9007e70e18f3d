"""Reading one line of an upload: which documents it holds, and the facts by which they are listed. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from hub_server.traces.errors import TraceRefusal

MAX_TRACES_IN_EPISODE = 1000
_LIMITS_REACHED = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
_LONGEST = {"environment_id": 300, "model_provider": 300, "model_id": 300, "task_id": 300, "outcome": 100,
            "run_type": 20}  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A document and the columns of its row; `data` is the JSON that is kept."""

    is_episode: bool
    identifier: str
    facts: dict[str, Any]
    data: bytes = field(repr=False)


def read_line(line: bytes, number: int, *, as_episode: bool) -> Iterator[Document]:
    """Yield the documents of a line: a trace, or an episode and its traces.

    A trace line is kept byte by byte. An episode is kept without its traces, which are named by their ids.

    Raises:
        TraceRefusal: the line is no such document.
    """
    try:
        document = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise TraceRefusal("invalid_trace", f"line {number} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise TraceRefusal("invalid_trace", f"line {number} is not a JSON object")
    if as_episode != isinstance(document.get("traces"), list):
        wanted = "episodes" if as_episode else "traces"
        raise TraceRefusal("line_format_mismatch", f"line {number} does not look like one of {wanted}")
    if not as_episode:
        yield Document(False, _id_of(document, number), _trace_facts(document, None), line)
        return
    members = document["traces"]
    if len(members) > MAX_TRACES_IN_EPISODE:
        raise TraceRefusal("too_many_traces_in_episode", f"line {number} has over {MAX_TRACES_IN_EPISODE} traces")
    if not all(isinstance(member, dict) for member in members):
        raise TraceRefusal("invalid_trace", f"line {number} has a trace that is not a JSON object")
    identifier = _id_of(document, number)
    ids = [_id_of(member, number) for member in members]
    yield Document(True, identifier, _episode_facts(document), _packed({**document, "traces": ids}))
    for member, member_id in zip(members, ids, strict=True):
        facts = _trace_facts(member, document)
        yield Document(False, member_id, {**facts, "episode_id": identifier}, _packed(member))


def _packed(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _id_of(document: dict[str, Any], number: int) -> str:
    identifier = document.get("id")
    if not isinstance(identifier, str) or not 0 < len(identifier) <= 200 or "\0" in identifier:
        raise TraceRefusal("invalid_trace", f"line {number} has a document without an `id` of 1 to 200 characters")
    return identifier


def _episode_facts(document: dict[str, Any]) -> dict[str, Any]:
    errors = _objects(document.get("errors"))
    last = errors[-1] if errors else _object(document.get("error"))
    members = _objects(document.get("traces"))
    moments = [_created_at(member) for member in members if _started(member) is not None]
    return _shortened({
        "created_at": min(moments, default=_created_at(document)),
        "run_id": _text(_object(document.get("run")).get("id"), 200),
        "environment_id": _text(_object(document.get("env")).get("id")),
        "outcome": _text(document.get("outcome")),
        "has_error": bool(errors) or bool(document.get("error")),
        "error_type": _text(last.get("type"), 200),
        "error_message": _text(last.get("message"), 10_000),
    })  # fmt: skip


def _trace_facts(trace: dict[str, Any], episode: dict[str, Any] | None) -> dict[str, Any]:
    outer = episode or {}
    run = _object(trace.get("run")) or _object(outer.get("run"))
    agent, task = _object(trace.get("agent")), _object(trace.get("task"))
    calls = _objects(trace.get("calls"))
    model = _object(trace.get("model"))
    called = next((call["model"] for call in reversed(calls) if call.get("model")), None)
    step = run.get("step", _object(run.get("work")).get("step"))
    return _shortened({
        "episode_id": _text(trace.get("episode_id"), 200),
        "created_at": _created_at(trace),
        "run_id": _text(run.get("id"), 200),
        "run_type": _text(run.get("type")),
        "run_step": step if _is_count(step) else None,
        "environment_id": _text((_object(trace.get("env")) or _object(outer.get("env"))).get("id")),
        "model_provider": _text(model.get("provider")),
        "model_id": _text(model.get("id") or _object(agent.get("config")).get("model") or called),
        "task_id": _text(task.get("key") or task.get("hash") or _object(task.get("data")).get("idx")),
        "agent_name": _text(agent.get("name"), 200),
        "reward": _reward(trace),
        "outcome": _text(trace.get("outcome")),
        "has_error": bool(trace.get("errors")) or bool(trace.get("error")),
        "is_truncated": _is_truncated(trace, calls),
        "duration_ms": _duration_ms(_object(trace.get("timing"))),
        "total_tokens": _total_tokens(calls),
    })  # fmt: skip


def _shortened(facts: dict[str, Any]) -> dict[str, Any]:
    for name, longest in _LONGEST.items():
        if isinstance(facts.get(name), str):
            facts[name] = facts[name][:longest]
    return facts


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any, longest: int = 300) -> str | None:
    if value is None or isinstance(value, (dict, list)):
        return None
    return str(value).replace("\0", "")[:longest] or None


def _number(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if usable and math.isfinite(value) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _started(trace: dict[str, Any]) -> float | None:
    return _number(_object(trace.get("timing")).get("start"))


def _created_at(document: dict[str, Any]) -> datetime:
    """Return when the work began, by the producer's clock; where it does not say, the present moment."""
    start = _started(document)
    try:
        if start is not None:
            return datetime.fromtimestamp(start, UTC)
        moment = datetime.fromisoformat(str(document.get("created_at")))
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _reward(trace: dict[str, Any]) -> float | None:
    scored = [reward for reward in _object(trace.get("rewards")).values() if isinstance(reward, dict)]
    if scored:
        return sum((_number(one.get("score")) or 0.0) * (_number(one.get("weight", 1.0)) or 0.0) for one in scored)
    return _number(trace.get("reward"))


def _is_truncated(trace: dict[str, Any], calls: list[dict[str, Any]]) -> bool:
    if trace.get("is_truncated") is True or trace.get("stop_condition") in _LIMITS_REACHED:
        return True
    last: dict[str, Any] = next((call for call in reversed(calls) if not call.get("error")), {})
    return last.get("finish_reason") == "length"


def _duration_ms(timing: dict[str, Any]) -> int:
    start = _number(timing.get("start"))
    ends = [_number(span.get("end")) for span in timing.values() if isinstance(span, dict)]
    last = max((end for end in ends if end), default=None)
    return max(0, round((last - start) * 1000)) if start is not None and last is not None else 0


def _total_tokens(calls: list[dict[str, Any]]) -> int:
    """Return the length of the longest sequence: context that is sent again with each call counts once."""
    totals = [0]
    for call in calls:
        usage = _object(call.get("usage"))
        counts = (usage.get("prompt_tokens"), usage.get("cached_input_tokens"), usage.get("completion_tokens"))
        totals.append(sum(int(count or 0) for count in counts if _is_count(count)))
    return max(totals)
