"""The table that says how long a process of a run may be silent."""

from __future__ import annotations

from pydantic import Field

from prime_cli.core.config_file import StrictModel


class WatchdogConfig(StrictModel):
    """When a process that is stopped or stuck ends the run.

    Every process shows every second that it lives: an event loop by taking a turn, another by a thread. One that has
    not for `timeout_s` ends the run with its name; 0 waits for ever. A process that is still starting has
    `inference.startup_timeout_s` for its first sign of life.
    """

    timeout_s: float = Field(default=30.0, ge=0, description="seconds without a sign of life; 0 turns the watch off")
