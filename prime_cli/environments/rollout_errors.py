"""How a rollout's `error` reads, for whoever shows it, and the record of one that never came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prime_cli.core.errors import PrimeError


def error_text(error: Any) -> str:
    """Say in one line what went wrong in a rollout."""
    if isinstance(error, Mapping):
        error = next((error[key] for key in ("message", "error_chain_repr", "error") if error.get(key)), error)
    return next(iter(str(error).splitlines()), "unknown error")


def failed_rollout(example: Mapping[str, Any], error: PrimeError) -> dict[str, Any]:
    """Return the record of a rollout that ended with the environment's own exception, or with its process."""
    body = {"error": type(error).__name__, "message": error.message.splitlines()[0]}
    kept = {key: value for key, value in example.items() if key in ("example_id", "prompt", "answer", "info")}
    return {**kept, "completion": [], "reward": 0.0, "error": body, "metrics": {}}
