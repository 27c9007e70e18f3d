"""The part of `signal` that is written in C.

The module itself makes enumerations of all numbers; to import what that takes would be a third of the agent's start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
