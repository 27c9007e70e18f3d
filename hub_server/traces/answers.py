"""How traces and episodes look on the wire; the names are the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hub_server.traces.tables import Episode, Trace


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Return what lists show of a trace."""
    return {
        "trace_id": trace.trace_id,
        "upload_id": trace.upload.digest,
        "episode_id": trace.episode_id,
        "created_at": trace.created_at.isoformat(),
        "ingested_at": trace.upload.created_at.isoformat(),
        "run_id": trace.run_id,
        "run_step": trace.run_step,
        "environment_id": trace.environment_id,
        "model": {"provider": trace.model_provider, "id": trace.model_id},
        "task_id": trace.task_id,
        "agent_name": trace.agent_name,
        "score": {"reward": trace.reward, "outcome": trace.outcome},
        "execution": {"has_error": trace.has_error, "is_truncated": trace.is_truncated},
        "duration_ms": trace.duration_ms,
        "total_tokens": trace.total_tokens,
        "size_bytes": trace.size_bytes,
        "context": trace.upload.context,
    }


def episode_facts(episode: Episode) -> dict[str, Any]:
    """Return what lists show of an episode."""
    return {
        "episode_id": episode.episode_id,
        "upload_id": episode.upload.digest,
        "schema_version": episode.upload.schema_version,
        "created_at": episode.created_at.isoformat(),
        "ingested_at": episode.upload.created_at.isoformat(),
        "run_id": episode.run_id,
        "environment_id": episode.environment_id,
        "outcome": episode.outcome,
        "has_error": episode.has_error,
        "error": {"type": episode.error_type, "message": episode.error_message},
    }


def members_facts(members: Sequence[Trace]) -> dict[str, Any]:
    """Return the totals of an episode's traces."""
    return {
        "trace_count": len(members),
        "total_tokens": sum(trace.total_tokens for trace in members),
        "total_duration_ms": sum(trace.duration_ms for trace in members),
        "any_trace_error": any(trace.has_error for trace in members),
        "agent_names": sorted({trace.agent_name for trace in members if trace.agent_name}),
    }
