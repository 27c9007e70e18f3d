"""What an examination found: how bad it is, one line about it, and a command that mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["ok", "warning", "fails"]


@dataclass(frozen=True)
class Repair:
    """Something safe to do about a finding: `does` says what, for whoever reads that it was done."""

    does: str
    carry_out: Callable[[], object]


@dataclass(frozen=True)
class Finding:
    """One line of a report. `hint` is a command, or what else to do; `repair` is what `--fix` does about it."""

    check: str
    level: Level
    message: str
    hint: str | None = None
    repair: Repair | None = None

    def as_data(self) -> dict[str, Any]:
        """Return what `--output json` prints."""
        return {
            "check": self.check,
            "level": self.level,
            "message": self.message,
            "hint": self.hint,
            "can_be_fixed": self.repair is not None,
        }
