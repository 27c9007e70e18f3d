"""Gives every request of a rollout a seed of its own; used by `worker.py`, in the workspace's interpreter.

The library hands the rollouts of a group the same sampling arguments, so a seed among them would make all alike. Here
each rollout carries its own, in its input until it starts and in the context of its task from then on; its n-th
request to the model, whoever makes it, is given seed + n.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import count
from typing import Any

_KEY = "_prime_rollout_seed"
_seeds: ContextVar[Iterator[int] | None] = ContextVar("seeds of the requests of this rollout", default=None)


def with_seeds(inputs: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return the inputs with a seed in each."""
    return [{**row, _KEY: seed} for row, seed in zip(inputs, seeds, strict=True)]


def watch_rollouts(environment: Any) -> None:
    """Let the rollouts of `environment` take the seeds out of their inputs, before its own code sees them."""
    rollout = environment.rollout

    @functools.wraps(rollout)
    async def seeded(input: Any, *arguments: Any, **named: Any) -> Any:  # noqa: A002 - the library's name
        seed = input.get(_KEY)
        if seed is None:
            return await rollout(input, *arguments, **named)
        own = {key: value for key, value in input.items() if key != _KEY}
        token = _seeds.set(count(seed))
        try:
            return await rollout(own, *arguments, **named)
        finally:
            _seeds.reset(token)

    environment.rollout = seeded


def watch_requests(client: Any) -> None:
    """Let the requests that go through `client` carry the next seed of the rollout that makes them."""
    get_response = client.get_response

    @functools.wraps(get_response)
    async def seeded(prompt: Any, model: Any, sampling_args: Any, *arguments: Any, **named: Any) -> Any:
        seeds = _seeds.get()
        if seeds is not None and (sampling_args or {}).get("seed") is None:
            sampling_args = {**(sampling_args or {}), "seed": next(seeds)}
        return await get_response(prompt, model, sampling_args, *arguments, **named)

    client.get_response = seeded
