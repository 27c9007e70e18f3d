"""One sample as a client sends it: who it is, what it scored, and its bytes. Pure: nothing is stored here.

Clients repeat batches whose answer they did not get, and send batches in any order. So a sample is known by what it
says of itself: its id, else its example and the number of its rollout, else its whole content.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from pydantic_core import from_json

from hub_server.errors import Malformed

_ROLLOUT_KEYS = ("rollout_number", "rollout_index", "rollout_idx", "rollout")
_MOST_DIGITS = 18
_SHOWN_ID_LENGTH = 100


@dataclass(frozen=True)
class Sample:
    """A sample that was read. `sort_key` orders samples by example, then rollout, whenever they came."""

    identity: str
    content_key: str
    sort_key: str
    example_id: str
    rollout_number: int | None
    reward: float | None
    failed: bool
    data: bytes


def read_batch(body: bytes) -> list[Sample]:
    """Return the samples of a request body `{"samples": [...]}`; one that is in it twice comes once.

    Raises:
        Malformed: it is no such body.
    """
    try:
        # NaN and infinities are no JSON, and halves of characters cannot be written: both are refused here.
        batch = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    samples = batch.get("samples") if isinstance(batch, dict) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise Malformed('the body must be {"samples": [{...}, ...]}')
    first_of: dict[str, Sample] = {}
    for sample in samples:
        read = _read(sample)
        first_of.setdefault(read.identity, read)
    return list(first_of.values())


def _read(sample: dict[str, Any]) -> Sample:
    data = json.dumps(sample, ensure_ascii=False, separators=(",", ":")).encode()
    content_key = _key(data)
    example, rollout = _example_id(sample), _rollout_number(sample)
    own_id = sample.get("sample_id", sample.get("id"))
    if isinstance(own_id, str) and own_id:
        identity = _key(f"id {own_id}".encode())
    elif example is not None and rollout is not None:
        identity = _key(f"rollout {rollout} of {example!r}".encode())
    else:
        identity = content_key
    failed = bool(sample.get("error"))
    return Sample(
        identity=identity,
        content_key=content_key,
        sort_key=f"{_sortable(example)}.{_sortable(rollout)}",
        example_id="" if example is None else str(example)[:_SHOWN_ID_LENGTH],
        rollout_number=rollout,
        reward=None if failed else _reward(sample),
        failed=failed,
        data=data,
    )


def _key(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _example_id(sample: dict[str, Any]) -> int | str | None:
    for name in ("example_id", "id"):
        value: object = sample.get(name)
        if isinstance(value, str) or _is_number(value):
            return value
    return None


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**_MOST_DIGITS


def _rollout_number(sample: dict[str, Any]) -> int | None:
    for name in _ROLLOUT_KEYS:
        value: object = sample.get(name)
        if _is_number(value):
            return value
    return None


def _sortable(value: int | str | None) -> str:
    """Return 19 characters that sort as numbers do; what is no number comes last, in an order of its own."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
        value = int(value)
    if isinstance(value, int) and value >= 0:
        return f"0{value:0{_MOST_DIGITS}d}"
    return f"1{_key(repr(value).encode())[:_MOST_DIGITS]}"


def _reward(sample: dict[str, Any]) -> float | None:
    for name in ("reward", "score"):
        value: object = sample.get(name)
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, bool) or _is_number(value):
            return float(value)
    return None
