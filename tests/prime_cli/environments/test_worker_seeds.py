"""Seeds on their way from a group to the requests of its rollouts."""

from __future__ import annotations

import asyncio
from typing import Any

from prime_cli.environments.worker_seeds import watch_requests, watch_rollouts, with_seeds


class Client:
    """Answers with the seed that it was asked with."""

    async def get_response(self, prompt: Any, model: str, sampling_args: dict[str, Any], **more: Any) -> Any:
        await asyncio.sleep(0)
        return sampling_args.get("seed")


class Environment:
    """Asks twice one after the other, and once more from a task of its own."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    async def rollout(self, row: dict[str, Any], client: Client, model: str, sampling_args: dict[str, Any]) -> Any:
        self.seen.append(row)
        answers = [await client.get_response("?", model, sampling_args) for _ in range(2)]
        later = asyncio.create_task(client.get_response(prompt="?", model=model, sampling_args=sampling_args))
        return [*answers, await later]


def run(inputs: list[dict[str, Any]], sampling_args: dict[str, Any]) -> tuple[list[Any], Environment]:
    environment, client = Environment(), Client()
    watch_rollouts(environment)
    watch_requests(client)

    async def group() -> list[Any]:
        return await asyncio.gather(*(environment.rollout(row, client, "m", sampling_args) for row in inputs))

    return asyncio.run(group()), environment


def test_every_request_of_a_rollout_has_a_seed_of_its_own_however_the_rollouts_interleave() -> None:
    row = {"prompt": "p", "example_id": 3}
    answers, environment = run(with_seeds([row] * 3, [100, 200, 300]), {"temperature": 1.0})
    assert answers == [[100, 101, 102], [200, 201, 202], [300, 301, 302]]
    assert environment.seen == [row] * 3, "the environment sees its own row"


def test_a_seed_that_was_asked_for_stays_and_without_any_there_is_none() -> None:
    assert run(with_seeds([{"prompt": "p"}], [100]), {"seed": 7})[0] == [[7, 7, 7]]
    assert run([{"prompt": "p"}], {})[0] == [[None, None, None]]
