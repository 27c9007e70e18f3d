"""How a rollout's `error` reads, for whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def error_text(error: Any) -> str:
    """Say in one line what went wrong in a rollout."""
    if isinstance(error, Mapping):
        error = next((error[key] for key in ("message", "error_chain_repr", "error") if error.get(key)), error)
    return next(iter(str(error).splitlines()), "unknown error")
