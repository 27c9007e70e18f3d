"""Groups in real workers: retried, limited, cancelled down to the server, alive again after a worker was stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkerDied, EnvironmentWorkers, ModelEndpoint
from prime_cli.environments.worker_limits import NotLimited, limit_rollouts
from prime_cli.rl.orchestrator.groups import OpenGroup
from prime_cli.rl.orchestrator.sources import WorkerGroups
from tests.scripted_model import Refusal, Sized, scripted_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENVIRONMENT = """
import time
import verifiers as vf
from datasets import Dataset

def turns(completion, **_):
    return float(sum(message["role"] == "assistant" for message in completion))

class Talk(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "go on"}]

def load_environment():
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "x"}]}])
    return Talk(dataset=data, rubric=vf.Rubric(funcs=[turns]))
"""
LIMITS = {"max_turns": 5, "max_input_tokens": 50, "max_output_tokens": 10, "max_total_tokens": 52}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "talk.py").write_text(ENVIRONMENT)
    return folder


@pytest.fixture(scope="module")
def asked() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
def model(asked: Counter[str]) -> Iterator[ModelEndpoint]:
    def answer(messages: list[dict[str, Any]]) -> Refusal | Sized:
        word = messages[0]["content"]
        asked[word] += 1
        if word == "flaky" and asked[word] % 3 == 1:
            return Refusal(404, "not this time")
        if word == "broken":
            return Refusal(404, "never")
        return {"wordy": Sized("abcd"), "wide": Sized("a", 50), "both": Sized("abc", 49)}.get(word, Sized("a"))

    with scripted_model(answer) as url:
        yield ModelEndpoint(url, "scripted")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EnvironmentWorkers]:
    workers = EnvironmentWorkers(
        EnvironmentSpec("talk", limits=LIMITS), python=Path(sys.executable), search_path=[folder], num_workers=2,
        log_directory=tmp_path_factory.mktemp("logs"), silence_timeout_s=2,
    )  # fmt: skip
    await workers.start()
    yield workers
    await workers.close()


def groups_of(workers: EnvironmentWorkers, model: ModelEndpoint, word: str, **options: Any) -> WorkerGroups:
    row = {"example_id": 0, "prompt": [{"role": "user", "content": word}]}
    return WorkerGroups(workers, [row], model, {"max_tokens": 8}, **options)


def a_group(size: int) -> OpenGroup:
    return OpenGroup(number=1, source="talk", example=0, size=size, version=0)


@pytest.mark.parametrize(
    ("word", "turns", "reached"),
    [
        ("short", 5, "max_turns_reached"),
        ("wordy", 3, "max_output_tokens_reached"),
        ("wide", 1, "max_input_tokens_reached"),
        ("both", 1, "max_total_tokens_reached"),
    ],
)
async def test_a_rollout_ends_with_the_turn_in_which_it_reaches_a_limit(
    workers: EnvironmentWorkers, model: ModelEndpoint, word: str, turns: int, reached: str
) -> None:
    row = {"example_id": 0, "prompt": [{"role": "user", "content": word}]}
    output = await workers.run_rollout(row, model, {"max_tokens": 8}, state_columns=["stop_condition", "trajectory"])
    assert (output["reward"], output["stop_condition"]) == (turns, reached)
    assert output["is_truncated"] == (reached != "max_turns_reached")
    if word == "wordy":
        last = output["trajectory"][-1]["completion"][-1]["content"]
        assert last == "ab", "no turn samples more than is left of the limit"


async def test_a_limit_that_an_environment_cannot_keep_is_refused_with_the_reason() -> None:
    with pytest.raises(NotLimited, match=r"object takes no turns .*max_turns"):
        limit_rollouts(object(), {"max_turns": 3})


async def test_rollouts_that_fail_are_run_again_and_only_those(
    workers: EnvironmentWorkers, model: ModelEndpoint, asked: Counter[str]
) -> None:
    rollouts = await groups_of(workers, model, "flaky", retries=3)(a_group(2))
    assert [rollout["error"] for rollout in rollouts] == [None, None]
    assert [rollout["reward"] for rollout in rollouts] == [5.0, 5.0]


async def test_after_the_last_retry_the_error_stays(
    workers: EnvironmentWorkers, model: ModelEndpoint, asked: Counter[str]
) -> None:
    await groups_of(workers, model, "broken")(a_group(1))
    once = asked["broken"]
    (rollout,) = await groups_of(workers, model, "broken", retries=2)(a_group(1))
    assert "never" in rollout["error"]["message"]
    assert asked["broken"] == once + 3 * once


async def test_a_cancelled_group_leaves_the_server_at_once(workers: EnvironmentWorkers) -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began.set()
        while await reader.read(1 << 16):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = ModelEndpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", "silent")
    task = asyncio.ensure_future(groups_of(workers, endpoint, "x")(a_group(1)))
    await asyncio.wait_for(began.wait(), 30)
    task.cancel()
    await asyncio.wait_for(left.wait(), 10)
    server.close()


async def test_a_stopped_worker_is_found_killed_and_replaced(workers: EnvironmentWorkers, model: ModelEndpoint) -> None:
    stopped, other = workers.pids
    os.kill(stopped, signal.SIGSTOP)
    both = await asyncio.gather(*(groups_of(workers, model, "short")(a_group(1)) for _ in range(2)))
    assert [rollout["error"] for (rollout,) in both] == [None, None], "what it took with it is done again"
    assert other in workers.pids
    assert stopped not in workers.pids


async def test_a_group_that_two_workers_die_of_has_failed(model: ModelEndpoint) -> None:
    class DyingWorkers:
        deaths = 0

        async def run_group(self, *_: Any, **__: Any) -> None:
            self.deaths += 1
            raise EnvironmentWorkerDied(f"death {self.deaths}")

    workers: Any = DyingWorkers()
    (rollout,) = await groups_of(workers, model, "short")(a_group(1))
    assert rollout["error"]["message"] == "death 2"
