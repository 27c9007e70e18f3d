"""How checks look on the wire, and as a badge in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hub_server.checks.tables import Check, CheckStatus
from hub_server.errors import Malformed

# What older clients call the states of a check, which they know as an action.
ACTION_STATUS = {
    CheckStatus.QUEUED: "PENDING",
    CheckStatus.RUNNING: "RUNNING",
    CheckStatus.PASSED: "SUCCESS",
    CheckStatus.FAILED: "FAILED",
    CheckStatus.SKIPPED: "CANCELLED",
    CheckStatus.ERROR: "FAILED",
}


@dataclass(frozen=True)
class Badge:
    """A check in two or three words; `tone` is good, bad or quiet."""

    text: str
    tone: str


def badge_of(check: Check | None) -> Badge:
    """Return the badge of a version by its newest check."""
    if check is None or check.status == CheckStatus.QUEUED:
        return Badge("not checked yet", "quiet")
    if check.status == CheckStatus.RUNNING:
        return Badge("being checked", "quiet")
    if check.status == CheckStatus.PASSED:
        rolled_out = check.facts.get("rollout", {}).get("status") == CheckStatus.PASSED
        return Badge("runs" if rolled_out else "loads", "good")
    if check.status == CheckStatus.FAILED:
        return Badge(f"fails at {check.facts.get('stage', 'check')}", "bad")
    return Badge("not checkable" if check.status == CheckStatus.SKIPPED else "check did not finish", "quiet")


def check_facts(check: Check | None) -> dict[str, Any] | None:
    """Return a check as part of a version's details."""
    if check is None:
        return None
    return {
        **check.facts,
        "id": check.id,
        "status": check.status,
        "badge": badge_of(check).text,
        "attempts": check.attempts,
        "queued_at": check.queued_at.isoformat(),
        "started_at": check.started_at.isoformat() if check.started_at else None,
        "finished_at": check.finished_at.isoformat() if check.finished_at else None,
    }


def check_summary(check: Check | None) -> dict[str, Any] | None:
    """Return a check as part of a row in a list of versions."""
    if check is None:
        return None
    return {
        "id": check.id, "status": check.status, "badge": badge_of(check).text, "reason": check.facts.get("reason")
    }  # fmt: skip


def action_status(check: Check | None) -> str | None:
    """Return the state of a check in the words of older clients."""
    return ACTION_STATUS[CheckStatus(check.status)] if check is not None else None


def states_of_action(status: str) -> tuple[str, ...]:
    """Return the states of checks that older clients call so.

    Raises:
        Malformed: there is no such word.
    """
    states = tuple(state.value for state, word in ACTION_STATUS.items() if word == status.upper())
    if not states:
        raise Malformed(f"no action status {status!r}; there are {', '.join(dict.fromkeys(ACTION_STATUS.values()))}")
    return states


def action_row(check: Check) -> dict[str, Any]:
    """Return a check as an action, as older clients list them."""
    release = check.release
    return {
        "id": check.id,
        "name": "check",
        "job_type": "CHECK",
        "status": action_status(check),
        "version": {
            "id": release.id, "semantic_version": release.semantic_version, "content_hash": release.content_hash
        },
        "trigger": check.trigger,
        "created_at": check.queued_at.isoformat(),
        "check": check_facts(check),
    }  # fmt: skip


def log_text(check: Check, tail_lines: int) -> str:
    """Return the last lines of a check's log, and at its end what came of it."""
    lines = check.log.splitlines()
    if check.finished_at is not None:
        stage, reason = check.facts.get("stage"), check.facts.get("reason")
        lines.append(f"{check.status}{f' at {stage}' if stage else ''}{f': {reason}' if reason else ''}")
    return "\n".join(lines[-tail_lines:])
