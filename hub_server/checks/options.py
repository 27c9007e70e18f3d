"""What an operator chooses about checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunnerOptions:
    """What an operator chooses: how many at once, and what checks may do. `isolated=False` runs them without."""

    at_once: int = 1
    isolated: bool = True
    network: bool = False
    time_s: float = 180
    memory_mib: int = 4096
