"""Rollouts on their way to a hub: from the lines of `results.jsonl` to bodies of at most 25 MiB, sent side by side.

Only the batches under way are in memory. Each rollout carries an id made of its content, so a batch that arrives twice
changes nothing, and a push that broke off is simply done again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import HubError, PrimeError

MAX_BATCH_BYTES = 25 * 1024**2
_WORKERS = 4
_ATTEMPTS = 5
_FIRST_WAIT_S = 1.0
_WORTH_A_RETRY = (None, 429, 502, 503, 504)
_HEAD, _TAIL = b'{"samples":[', b"]}"


@dataclass(frozen=True)
class Line:
    """One rollout as it is sent, and how many bytes of the file it took."""

    number: int
    data: bytes
    bytes_read: int


@dataclass(frozen=True)
class Batch:
    """A body to send, how many rollouts it has, and how many bytes of the file they took."""

    body: bytes
    num_samples: int
    bytes_read: int


def read_lines(results: Path) -> Iterator[Line]:
    """Yield the rollouts of `results.jsonl`; a last line that was cut off by a crash is left out.

    Raises:
        PrimeError: a line is no rollout.
    """
    seen: Counter[str] = Counter()
    rollouts: Counter[str] = Counter()
    with results.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                # NaN, which Python writes, is no JSON: it goes as null.
                sample = json.loads(line, parse_constant=lambda _: None)
            except ValueError as error:
                raise PrimeError(f"{results}, line {number}: {error}") from None
            if not isinstance(sample, dict):
                raise PrimeError(f"{results}, line {number} is no rollout")
            digest = hashlib.blake2b(line.strip(), digest_size=16).hexdigest()
            named = _named(sample, f"{digest}-{seen[digest]}", rollouts)
            seen[digest] += 1
            yield Line(number, json.dumps(named, ensure_ascii=False, separators=(",", ":")).encode(), len(line))


def make_batches(lines: Iterable[Line], too_large: list[int], max_bytes: int = MAX_BATCH_BYTES) -> Iterator[Batch]:
    """Yield the lines as bodies of at most `max_bytes`; what fits into none goes to `too_large` by its line number."""
    parts: list[bytes] = []
    size = read = 0
    for line in lines:
        if len(_HEAD) + len(line.data) + len(_TAIL) > max_bytes:
            too_large.append(line.number)
            continue
        if parts and len(_HEAD) + size + len(line.data) + len(_TAIL) > max_bytes:
            yield _batch(parts, read)
            parts, size, read = [], 0, 0
        parts.append(line.data)
        size += len(line.data) + 1  # and a comma
        read += line.bytes_read
    if parts:
        yield _batch(parts, read)


def send_batches(
    batches: Iterable[Batch],
    send: Callable[[bytes], dict[str, Any]],
    sent: Callable[[Batch], None],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[int, int]:
    """Send all batches, four at a time, each up to five times; return how many rollouts were new, and how many not.

    Raises:
        HubError: a batch was refused, or did not arrive; those after it are not sent.
    """
    added = repeated = 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        under_way: dict[Future[dict[str, Any]], Batch] = {}

        def take(done: Iterable[Future[dict[str, Any]]]) -> None:
            nonlocal added, repeated
            for future in done:
                batch, told = under_way.pop(future), future.result()
                new = int(told.get("samples_added", batch.num_samples))
                added, repeated = added + new, repeated + batch.num_samples - new
                sent(batch)

        try:
            for batch in batches:
                under_way[pool.submit(_send, batch.body, send, sleep)] = batch
                if len(under_way) == _WORKERS:
                    take(wait(under_way, return_when=FIRST_COMPLETED).done)
            while under_way:
                take(wait(under_way, return_when=FIRST_COMPLETED).done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return added, repeated


def _named(sample: dict[str, Any], sample_id: str, rollouts: Counter[str]) -> dict[str, Any]:
    """Return the rollout with the names that a hub orders and knows it by, where it has none of its own."""
    if "example_id" not in sample and "id" in sample:
        sample = {"example_id": sample["id"], **{key: value for key, value in sample.items() if key != "id"}}
    example = json.dumps(sample.get("example_id"))
    number = rollouts[example]
    rollouts[example] += 1
    return {"sample_id": sample_id, "rollout_number": number, **sample}


def _batch(parts: list[bytes], read: int) -> Batch:
    return Batch(_HEAD + b",".join(parts) + _TAIL, len(parts), read)


def _send(body: bytes, send: Callable[[bytes], dict[str, Any]], sleep: Callable[[float], None]) -> dict[str, Any]:
    for attempt in range(_ATTEMPTS - 1):
        try:
            return send(body)
        except HubError as error:
            if error.status not in _WORTH_A_RETRY:
                raise
        sleep(_FIRST_WAIT_S * 2**attempt)
    return send(body)
