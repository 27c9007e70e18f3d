"""Requests that go to the embedded server as one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from prime_cli.environments.worker_together import Together
from prime_cli.rl.inference.serving import ServedModel, serve_model_folder

CHAT = {"messages": [{"role": "user", "content": "abc"}], "logprobs": True, "return_token_ids": True}
ENDLESS = {**CHAT, "max_tokens": 1000, "ignore_eos": True}


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    with serve_model_folder(tiny_model, log_path=tmp_path_factory.mktemp("logs") / "inference.log") as served:
        yield served


def running(served: ServedModel) -> int:
    return int(httpx.get(f"{served.admin_url}/health").json()["running"])


def until_running(served: ServedModel, count: int) -> None:
    deadline = time.monotonic() + 10
    while running(served) != count:
        assert time.monotonic() < deadline, f"{running(served)} requests run"
        time.sleep(0.05)


async def asked(served: ServedModel, *bodies: dict[str, Any], url: str | None = None) -> list[bytes | None]:
    async with aiohttp.ClientSession() as session:
        together = Together(session, url or served.base_url)
        address = f"{served.base_url}/chat/completions"
        return await asyncio.gather(*(together.ask(address, json.dumps(body).encode()) for body in bodies))


def test_each_of_many_requests_is_answered_as_it_is_alone(served: ServedModel) -> None:
    bodies = [{**CHAT, "seed": seed, "max_tokens": 2 + seed % 5} for seed in range(12)]
    for body, answer in zip(bodies, asyncio.run(asked(served, *bodies)), strict=True):
        assert answer is not None
        alone = httpx.post(f"{served.base_url}/chat/completions", json=body, timeout=60).json()
        varying = {"id": None, "created": None}
        assert json.loads(answer) | varying == alone | varying


def test_one_that_is_refused_leaves_the_others_alone(served: ServedModel) -> None:
    refused, answered = asyncio.run(asked(served, {"messages": []}, {**CHAT, "max_tokens": 2}))
    assert refused is None
    assert answered is not None


def test_a_server_that_is_down_answers_nothing(served: ServedModel, unused_tcp_port: int) -> None:
    assert asyncio.run(asked(served, CHAT, CHAT, url=f"http://127.0.0.1:{unused_tcp_port}/v1")) == [None, None]


def test_requests_that_nobody_waits_for_any_more_free_their_slots(served: ServedModel) -> None:
    async def give_up() -> None:
        async with aiohttp.ClientSession() as session:
            together = Together(session, served.base_url)
            address, body = f"{served.base_url}/chat/completions", json.dumps(ENDLESS).encode()
            asking = [asyncio.ensure_future(together.ask(address, body)) for _ in range(4)]
            await asyncio.to_thread(until_running, served, 4)
            asking[0].cancel()
            asking[1].cancel()
            await asyncio.to_thread(until_running, served, 2)
            for task in asking:
                task.cancel()
            await asyncio.to_thread(until_running, served, 0)

    asyncio.run(give_up())
