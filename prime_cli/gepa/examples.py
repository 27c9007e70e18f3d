"""Which examples are for what: to reflect on, to validate on, and held out. No example is in two of the sets."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prime_cli.core.errors import PrimeError

Row = Mapping[str, Any]
_DEFAULT_SHARES = {"train": 2, "val": 1, "test": 1}
_FEWEST = {"train": 1, "val": 1, "test": 2}


@dataclass(frozen=True)
class Example:
    """A row of the environment number `environment`; `key` is made of what the row says, so it outlives an order."""

    environment: int
    row: Row = field(repr=False)
    key: str


@dataclass(frozen=True)
class SplitSizes:
    """How many examples each set has."""

    train: int
    val: int
    test: int


@dataclass(frozen=True)
class Splits:
    """The examples of a run."""

    train: list[Example]
    val: list[Example]
    test: list[Example]

    @property
    def sizes(self) -> SplitSizes:
        """How many each set has."""
        return SplitSizes(len(self.train), len(self.val), len(self.test))

    def as_data(self) -> dict[str, list[str]]:
        """Return the keys of the examples, by which a resumed run knows that they are still the same."""
        return {name: [example.key for example in getattr(self, name)] for name in ("train", "val", "test")}


@dataclass(frozen=True)
class Pool:
    """The rows of an environment; `name` is for messages."""

    name: str
    train: Sequence[Row]
    eval: Sequence[Row]


def draw_splits(pools: Sequence[Pool], wanted: SplitSizes, given: frozenset[str], seed: int) -> Splits:
    """Draw the three sets from the environments in equal shares, without repetition.

    Validation and held-out examples come from the evaluation set, as far as it goes, those to reflect on from the
    training set. Sizes whose names (`num_train`, ...) are not in `given` shrink to what is there.

    Raises:
        PrimeError: an environment has too few examples, or prompts that take no system prompt.
    """
    splits = Splits([], [], [])
    for number, pool in enumerate(pools):
        share = SplitSizes(*(_share(getattr(wanted, name), number, len(pools)) for name in ("train", "val", "test")))
        drawn = _draw(number, pool, share, given, seed)
        splits.train.extend(drawn.train)
        splits.val.extend(drawn.val)
        splits.test.extend(drawn.test)
    return splits


def _draw(number: int, pool: Pool, share: SplitSizes, given: frozenset[str], seed: int) -> Splits:
    train, evaluation = _unique(number, pool.train, pool.name), _unique(number, pool.eval, pool.name)
    available = len(train | evaluation)
    sizes = _fitted(pool.name, share, given, available)
    rng = random.Random(f"{seed} {number}")  # noqa: S311 - no secret
    held = _shuffled(evaluation, rng) + _shuffled({k: e for k, e in train.items() if k not in evaluation}, rng)
    val, test = held[: sizes.val], held[sizes.val : sizes.val + sizes.test]
    rest = held[sizes.val + sizes.test :]
    rest.sort(key=lambda example: example.key not in train)  # stable: those of the training set first
    return Splits(rest[: sizes.train], val, test)


def _fitted(name: str, share: SplitSizes, given: frozenset[str], available: int) -> SplitSizes:
    sizes = {split: getattr(share, split) for split in _DEFAULT_SHARES}
    if sum(sizes.values()) > available:
        free = [split for split in sizes if f"num_{split}" not in given]
        left = available - sum(size for split, size in sizes.items() if split not in free)
        shares = sum(_DEFAULT_SHARES[split] for split in free)
        for split in free:
            sizes[split] = min(sizes[split], max(0, left) * _DEFAULT_SHARES[split] // shares)
        fewest = {split: _FEWEST[split] if split in free else sizes[split] for split in sizes}
        if left < 0 or any(sizes[split] < fewest[split] for split in sizes) or not free:
            needed = sum(fewest.values())
            parts = ", ".join(f"{fewest[split]} for {split}" for split in sizes)
            raise PrimeError(
                f"{name} has {available} different examples; {needed} are needed ({parts})",
                hint="ask for fewer by --num-train, --num-val and --num-test, or let the environment have more (-a)",
            )
    return SplitSizes(**sizes)


def _share(size: int, number: int, parts: int) -> int:
    return size // parts + (number < size % parts)


def _unique(number: int, rows: Sequence[Row], name: str) -> dict[str, Example]:
    found: dict[str, Example] = {}
    for row in rows:
        if not isinstance(row.get("prompt"), list):
            raise PrimeError(f"the prompts of {name} are plain text and take no system prompt")
        content = {key: value for key, value in row.items() if key != "example_id"}
        text = json.dumps([number, content], sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        found.setdefault(key, Example(number, row, key))
    return found


def _shuffled(examples: Mapping[str, Example], rng: random.Random) -> list[Example]:
    drawn = list(examples.values())
    rng.shuffle(drawn)
    return drawn
