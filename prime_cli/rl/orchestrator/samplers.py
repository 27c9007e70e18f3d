"""Which example of an environment is opened next.

OrderedSampler (ordered)                 each once per epoch, in the environment's order
ShuffledSampler (shuffled)               each once per epoch, in a fresh order
DifficultyPoolSampler (difficulty_pool)  at random, by how it went the last time
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prime_cli.rl.curriculum_config import PoolConfig, SamplerConfig
from prime_cli.rl.orchestrator.curriculum import Sampler

_UNSEEN = "unseen"
_UNSEEN_WEIGHT = 1.0


class OrderedSampler:
    """Gives indices below `count` for ever, in their order.

    Raises:
        ValueError: there is nothing to draw from.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError("the environment has no training examples")
        self._count = count
        self._drawn = 0

    def next(self) -> int:
        """Return the index of the example to open next."""
        self._drawn += 1
        return (self._drawn - 1) % self._count

    def told(self, example: int, rewards: Sequence[float]) -> None:
        """Nothing follows from rewards here."""

    def metrics(self) -> dict[str, float]:
        """Return how often the examples were gone through."""
        return {"epochs": self._drawn / self._count}

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the sampler of that state was."""
        self._drawn = int(state["drawn"])


class ShuffledSampler(OrderedSampler):
    """Gives indices below `count` for ever, each once per epoch; seed and epoch give the order of an epoch."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count)
        self._seed = seed
        self._order: list[int] = []
        self._order_of = -1

    def next(self) -> int:
        """Return the index of the example to open next."""
        epoch = self._drawn // self._count
        if epoch != self._order_of:
            self._order = list(range(self._count))
            random.Random(f"{self._seed}/{epoch}").shuffle(self._order)  # noqa: S311 - reproducible, not secret
            self._order_of = epoch
        return self._order[super().next()]


class DifficultyPoolSampler:
    """Draws an example with the weight of its pool, which its last mean reward decides; with replacement.

    A mean reward belongs to the first pool whose `max` it does not exceed, one above all of them to the last. An
    example that was not seen yet weighs 1. A draw takes the same time however many examples there are: first the pool,
    then one of its examples.
    """

    def __init__(self, count: int, pools: Mapping[str, PoolConfig], seed: int) -> None:
        if count < 1:
            raise ValueError("the environment has no training examples")
        self._bounds = sorted(pools.items(), key=lambda item: item[1].max)
        self._weights = {_UNSEEN: _UNSEEN_WEIGHT} | {name: pool.weight for name, pool in pools.items()}
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._last: dict[int, float] = {}
        self._seen: list[int] = []  # in the order in which they left the pool of the unseen
        self._members: dict[str, list[int]] = {name: [] for name in self._weights}
        self._members[_UNSEEN] = list(range(count))
        self._places = list(range(count))  # of each example, in the list of its pool
        self._pools = [_UNSEEN] * count
        self._drawn: Counter[str] = Counter()

    def next(self) -> int:
        """Return the index of the example to open next."""
        shares = {name: self._weights[name] * len(members) for name, members in self._members.items()}
        if not any(shares.values()):  # all that there is weighs nothing: better any example than none
            shares = {name: float(len(members)) for name, members in self._members.items()}
        pool = self._random.choices(list(shares), list(shares.values()))[0]
        self._drawn[pool] += 1
        return self._members[pool][self._random.randrange(len(self._members[pool]))]

    def told(self, example: int, rewards: Sequence[float]) -> None:
        """Put the example into the pool of its mean reward; it stays where it is when every rollout failed."""
        if rewards:
            self._last[example] = sum(rewards) / len(rewards)
            self._move(example, self._pool_of(self._last[example]))

    def metrics(self) -> dict[str, float]:
        """Return the share of examples in each pool, and the share of draws from it."""
        drawn = max(sum(self._drawn.values()), 1)
        sizes = {f"pool_{name}": len(members) / len(self._pools) for name, members in self._members.items()}
        return sizes | {f"drawn_{name}": self._drawn[name] / drawn for name in self._members}

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs: the generator's state, the last rewards, and the order within the pools.

        The order of the unseen follows from that in which the others were seen; so the state holds nothing of an
        example that was not.
        """
        version, words, gauss = self._random.getstate()
        return {
            "random": [version, list(words), gauss],
            "last": {str(example): reward for example, reward in self._last.items()},
            "members": {name: members for name, members in self._members.items() if name != _UNSEEN},
            "seen": self._seen,
            "drawn": dict(self._drawn),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the sampler of that state was."""
        version, words, gauss = state["random"]
        self._random.setstate((version, tuple(words), gauss))
        self._last = {int(example): float(reward) for example, reward in state["last"].items()}
        for example in state["seen"]:
            self._move(int(example), self._pool_of(self._last[int(example)]))
        self._members |= {name: list(members) for name, members in state["members"].items()}
        for name, members in self._members.items():
            for place, example in enumerate(members):
                self._pools[example], self._places[example] = name, place
        self._drawn = Counter(state["drawn"])

    def _pool_of(self, reward: float) -> str:
        return next((name for name, pool in self._bounds if reward <= pool.max), self._bounds[-1][0])

    def _move(self, example: int, pool: str) -> None:
        before, place = self._members[self._pools[example]], self._places[example]
        if self._pools[example] == pool:
            return
        if self._pools[example] == _UNSEEN:
            self._seen.append(example)
        last = before.pop()
        if last != example:  # the gap is filled with the last, so that nothing else moves
            before[place] = last
            self._places[last] = place
        self._pools[example], self._places[example] = pool, len(self._members[pool])
        self._members[pool].append(example)


def sampler_of(config: SamplerConfig, count: int, seed: int) -> Sampler:
    """Return the configured sampler of `count` examples; `seed` is that of the run."""
    own = seed if config.seed is None else config.seed
    if config.type == "difficulty_pool":
        return DifficultyPoolSampler(count, config.pools, own)
    return OrderedSampler(count) if config.type == "ordered" else ShuffledSampler(count, own)
