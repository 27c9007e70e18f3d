"""Reads what the probe says. It runs beside the environment's own code, so nothing of it is taken on trust."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from hub_server.checks.sandbox import Ended
from hub_server.checks.tables import CheckStatus

_STAGES = ("import", "load", "rollout")
_MOST_REASON = 1000
Name = Annotated[str, StringConstraints(max_length=200)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class _Report(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Reward(_Report):
    """A reward function and its weight."""

    name: Name
    weight: FiniteFloat


class Imported(_Report):
    """What is known once the module is imported."""

    verifiers: Name | None = None


class Loaded(_Report):
    """What is known once the environment is loaded."""

    environment_type: Name
    num_train: Count
    num_eval: Count
    rewards: list[Reward] = Field(max_length=100)
    tools: list[Name] = Field(max_length=100)


class RolledOut(_Report):
    """What one rollout gave."""

    reward: FiniteFloat
    metrics: dict[Name, FiniteFloat] = Field(max_length=100)
    model_calls: Count
    stop_condition: Name | None = None


_FACTS: dict[str, type[_Report]] = {"import": Imported, "load": Loaded, "rollout": RolledOut}


def read_reports(ended: Ended, facts: dict[str, Any]) -> CheckStatus:
    """Put what a probe reported into the facts of a check, and return what it amounts to."""
    begun = "import"
    for report in ended.results:
        kind, stage = next(iter(report.items()), (None, None))
        if stage not in _STAGES:
            continue
        begun = stage
        if kind == "done":
            try:
                found = _FACTS[stage].model_validate(report.get("facts"))
            except ValidationError as error:
                problem = error.errors()[0]
                place = ".".join(map(str, problem["loc"]))
                return _failed(facts, stage, f"what it says of itself cannot be ({place}): {problem['msg']}")
            took_s = report.get("took_s")
            facts["timings"][f"{stage}_s"] = float(took_s) if isinstance(took_s, (int, float)) else None
            if stage == "rollout":
                facts["rollout"] = {"status": CheckStatus.PASSED.value, **found.model_dump()}
                return CheckStatus.PASSED
            facts |= found.model_dump()
        elif kind in ("skipped", "failed"):
            reason = str(report.get("reason") or "")[:_MOST_REASON]
            if kind == "failed":
                return _failed(facts, stage, reason)
            if stage == "rollout":
                # All that could be run did run.
                facts["rollout"] = {"status": CheckStatus.SKIPPED.value, "reason": reason}
                return CheckStatus.PASSED
            facts |= {"stage": stage, "reason": reason}
            return CheckStatus.SKIPPED
    return _failed(facts, begun, ended.stopped_for or f"its process ended with exit code {ended.exit_code}")


def _failed(facts: dict[str, Any], stage: str, reason: str) -> CheckStatus:
    if stage == "rollout":
        facts["rollout"] = {"status": CheckStatus.FAILED.value, "reason": reason}
    facts |= {"stage": stage, "reason": reason}
    return CheckStatus.FAILED
