"""A check as the page of a version shows it: a badge, a reason, and what was found as names and values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hub_server.checks.answers import Badge, badge_of
from hub_server.checks.tables import Check


@dataclass(frozen=True)
class ShownCheck:
    """What a page says of the newest check of a version."""

    badge: Badge
    reason: str
    finished_at: datetime | None
    found: list[tuple[str, str]]


def shown_check(check: Check | None) -> ShownCheck:
    """Return what to show of a check; of a version without one, that it was not checked yet."""
    if check is None:
        return ShownCheck(badge_of(None), "", None, [])
    found = [(name, text) for name, text in _rows(check.facts) if text]
    return ShownCheck(badge_of(check), check.facts.get("reason", ""), check.finished_at, found)


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    rewards = [f"{reward['name']} × {reward['weight']:g}" for reward in facts.get("rewards", [])]
    timings = [f"{name.removesuffix('_s')} {seconds} s" for name, seconds in facts.get("timings", {}).items()]
    sizes = f"{facts['num_train']} to train, {facts['num_eval']} to evaluate" if "num_train" in facts else ""
    memory = facts.get("peak_memory_bytes", 0) // 1024**2
    return [
        ("Environment", facts.get("environment_type") or ""),
        ("Examples", sizes),
        ("Rewards", ", ".join(rewards)),
        ("Tools", ", ".join(facts.get("tools", []))),
        ("One rollout", _rollout(facts.get("rollout", {}))),
        ("verifiers", facts.get("verifiers") or ""),
        ("Python", facts.get("python") or ""),
        ("Time", ", ".join(timings)),
        ("Memory", f"{memory} MiB" if memory else ""),
    ]


def _rollout(rollout: dict[str, Any]) -> str:
    if not rollout:
        return ""
    if rollout["status"] != "passed":
        return f"{rollout['status']}: {rollout['reason']}"
    calls = rollout["model_calls"]
    return f"reward {rollout['reward']:.3g} after {calls} call{'' if calls == 1 else 's'} of a scripted model"
