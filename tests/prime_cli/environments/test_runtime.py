"""The door: real workers, a real environment, a scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from prime_cli.environments.runtime import (
    ClientType,
    EnvironmentFailed,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from tests.scripted_model import Refusal, scripted_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENVIRONMENT = '''
import asyncio, os, signal, sys, time
import workspace  # a module of its own that is called like one of ours
import verifiers as vf
from datasets import Dataset

print("an environment may print while it is imported")

def right(completion, answer, **_):
    """1 for the right answer; some answers break the scoring or the process."""
    text = completion[-1]["content"]
    if text == "break the score":
        raise RuntimeError("the judge is broken")
    if text == "no number":
        return None
    if text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "where":
        return float(os.getpid())
    return float(text == answer)

def longest(completions) -> list:
    lengths = [len(completion[-1]["content"]) for completion in completions]
    if max(lengths) > 20:
        raise RuntimeError("too long to compare")
    return [float(length == max(lengths)) for length in lengths]

class Squares(vf.SingleTurnEnv):
    @vf.teardown
    async def say_goodbye(self):
        print("goodbye", flush=True)

def load_environment(size: int = 6, fail: str = "", group: bool = False):
    print("and while it is loaded")
    if fail:
        raise ValueError(fail)
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": str(i * i)} for i in range(size)]
    data = Dataset.from_list(rows)
    rubric = vf.Rubric(funcs=[right, longest] if group else [right])
    return Squares(dataset=data, eval_dataset=data.select(range(3)), rubric=rubric)
'''


LAZY = """
import verifiers as vf
from datasets import Dataset

def out_of_reach():
    raise FileNotFoundError("the training set is out of reach")

def load_environment():
    rows = [{"prompt": [{"role": "user", "content": "1"}], "answer": "1"}]
    return vf.SingleTurnEnv(dataset=out_of_reach, eval_dataset=lambda: Dataset.from_list(rows), rubric=vf.Rubric())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "squares.py").write_text(ENVIRONMENT)
    (folder / "lazy.py").write_text(LAZY)
    (folder / "workspace.py").write_text("mine = True\n")
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    (folder / "fragile.py").write_text("import os, sys\nprint('about to fall over', flush=True)\nos._exit(3)\n")
    (folder / "empty.py").write_text("x = 1\n")
    return folder


@pytest.fixture(scope="module")
def model() -> Iterator[ModelEndpoint]:
    def answer(messages: list[dict[str, Any]]) -> str | Refusal:
        text = messages[-1]["content"]
        if text.startswith("slow"):
            time.sleep(3)
        if text.endswith("no such model"):
            return Refusal(404, "the server has no such model")
        return text.removeprefix("say ") if text.startswith("say ") else str(int(text) ** 2)

    with scripted_model(answer) as url:
        yield ModelEndpoint(url, "scripted")


def workers(folder: Path, logs: Path, name: str = "squares", **options: Any) -> EnvironmentWorkers:
    spec = EnvironmentSpec(name, options.pop("args", {}))
    return EnvironmentWorkers(spec, python=Path(sys.executable), log_directory=logs, search_path=[folder], **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EnvironmentWorkers]:
    """Two workers that the tests below share: to start them takes seconds."""
    door = workers(folder, tmp_path_factory.mktemp("logs"), num_workers=2)
    await door.start()
    yield door
    await door.close()
    assert door.pids == []


async def until_ready(door: EnvironmentWorkers, count: int) -> None:
    for _ in range(1200):
        if door.num_ready == count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{door.num_ready} workers are ready")


async def test_a_replacement_comes_up_although_all_who_waited_for_it_gave_up(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    door = workers(folder, tmp_path)
    try:
        await door.start()
        os.kill(door.pids[0], signal.SIGKILL)
        while door.num_ready:
            await asyncio.sleep(0.01)
        for _ in range(20):
            with pytest.raises(EnvironmentFailed, match="longer than"):
                await door.run_rollout(says("fine"), model, {}, timeout_s=0.01)
        await until_ready(door, 1)
        assert (await door.run_rollout(says("fine"), model, {}))["reward"] == 1.0
    finally:
        await door.close()


def says(text: str) -> dict[str, Any]:
    return {"example_id": 0, "prompt": [{"role": "user", "content": f"say {text}"}], "answer": text}


async def test_a_set_is_built_when_it_is_asked_for_unless_the_worker_must_not_fall_silent(
    folder: Path, tmp_path: Path
) -> None:
    door = workers(folder, tmp_path, "lazy")
    await door.start()
    try:
        assert await door.count("eval") == 1
        with pytest.raises(EnvironmentFailed, match="the training set is out of reach"):
            await door.count("train")
    finally:
        await door.close()
    with pytest.raises(EnvironmentFailed, match="the training set is out of reach"):
        await workers(folder, tmp_path, "lazy", silence_timeout_s=60).start()


async def test_rows_come_out_and_scored_rollouts_come_back_in_order(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    assert len(door.pids) == 2
    rows = await door.examples("train", limit=3, offset=2)
    assert [row["answer"] for row in rows] == ["4", "9", "16"]
    assert [row["example_id"] for row in rows] == [2, 3, 4]
    assert len(await door.examples("eval")) == 3
    groups = await asyncio.gather(*(door.run_group([row] * 4, model, {"max_tokens": 5}) for row in rows))
    assert [[output["reward"] for output in group] for group in groups] == [[1.0] * 4] * 3
    assert groups[0][0]["completion"][-1]["content"] == "4"


async def test_the_tokens_that_the_server_sampled_come_back_with_the_trajectory(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    sampling = {"logprobs": True, "extra_body": {"return_token_ids": True}}
    output = await door.run_rollout(says("x"), model, sampling, state_columns=["trajectory"])
    tokens = output["trajectory"][0]["tokens"]
    assert tokens["prompt_ids"] == [7, 8, 9]
    assert tokens["completion_ids"] == [ord("x")]
    assert tokens["completion_logprobs"] == [-0.5]
    assert tokens["completion_mask"] == [1]


async def test_an_empty_message_is_an_answer_where_it_was_sampled_and_an_error_where_that_cannot_be_told(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    sampling = {"logprobs": True, "extra_body": {"return_token_ids": True}}
    sampled = await door.run_rollout({**says(""), "answer": "x"}, model, sampling, state_columns=["trajectory"])
    assert sampled["error"] is None
    assert sampled["reward"] == 0.0
    assert sampled["trajectory"][0]["tokens"]["completion_ids"] == [0]
    unknown = await door.run_rollout(says(""), model, {})
    assert "EmptyModelResponseError" in str(unknown["error"])


async def test_requests_with_a_limit_of_time_are_spread_over_the_workers_too(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    requests = (door.run_rollout(says("where"), model, {}, timeout_s=30) for _ in range(8))
    assert {int(output["reward"]) for output in await asyncio.gather(*requests)} == set(door.pids)


async def test_a_reward_function_that_raises_marks_its_rollout_instead_of_scoring_zero(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    rows = [says(text) for text in ("break the score", "fine", "no number")]
    alone = [await door.run_rollout(row, model, {}) for row in rows]
    for broken, fine, no_number in (alone, await door.run_group(rows, model, {})):
        assert "the judge is broken" in broken["error"]["message"]
        assert "NoneType" in no_number["error"]["message"]
        assert fine["error"] is None
        assert fine["reward"] == 1.0


@pytest.mark.parametrize("client_type", ["openai_chat_completions", "openai_chat_completions_token"])
async def test_headers_of_the_endpoint_and_of_the_rollouts_state_go_with_every_request(
    door: EnvironmentWorkers, client_type: ClientType
) -> None:
    seen: list[dict[str, str]] = []
    with scripted_model(lambda _: "fine", headers=seen) as url:
        endpoint = ModelEndpoint(
            url, "scripted", client_type=client_type, headers={"X-Team": "blue"},
            headers_from_state={"X-Example": "example_id", "X-Session-ID": "trajectory_id", "X-None": "no_such_key"},
        )  # fmt: skip
        for number in (3, 4):
            output = await door.run_rollout({**says("fine"), "example_id": number}, endpoint, {})
            assert output["error"] is None
    assert [(headers["x-team"], headers["x-example"]) for headers in seen] == [("blue", "3"), ("blue", "4")]
    assert seen[0]["x-session-id"] != seen[1]["x-session-id"]
    assert "x-none" not in seen[0]


async def test_an_endpoint_that_is_down_is_reported_quickly_as_the_rollouts_error(door: EnvironmentWorkers) -> None:
    started = time.monotonic()
    output = await door.run_rollout(says("x"), ModelEndpoint("http://127.0.0.1:9/v1", "none"), {})
    assert "APIConnectionError" in output["error"]["message"]
    assert time.monotonic() - started < 6


async def test_an_error_of_the_server_is_the_rollouts_error_in_its_words(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    output = await door.run_rollout(says("no such model"), model, {})
    assert "the server has no such model" in output["error"]["message"]


async def test_a_group_that_takes_too_long_fails_and_the_worker_goes_on(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    slow = {"example_id": 0, "prompt": [{"role": "user", "content": "slow"}], "answer": ""}
    with pytest.raises(EnvironmentFailed, match="longer than"):
        await door.run_group([slow], model, {}, timeout_s=0.5)
    assert (await door.run_rollout(says("fine"), model, {}))["reward"] == 1.0


async def test_a_worker_that_dies_fails_its_requests_and_is_replaced(
    door: EnvironmentWorkers, model: ModelEndpoint
) -> None:
    first = set(door.pids)
    with pytest.raises(EnvironmentWorkerDied, match="SIGKILL"):
        await door.run_rollout(says("die"), model, {})
    assert (await door.run_rollout(says("fine"), model, {}))["reward"] == 1.0, "the other one goes on meanwhile"
    await until_ready(door, 2)
    outputs = await asyncio.gather(*(door.run_rollout(says("where"), model, {}) for _ in range(4)))
    assert len(door.pids) == 2
    assert len(set(door.pids) & first) == 1
    assert {int(output["reward"]) for output in outputs} == set(door.pids)


async def test_a_group_is_scored_together_interrupts_are_left_to_the_parent_and_closing_runs_the_teardown(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    door = workers(folder, tmp_path, args={"group": True})
    try:
        assert (await door.start()).needs_group_scoring
        os.kill(door.pids[0], signal.SIGINT)
        groups = ([says("a"), says("bbb")], [says("a"), says("b" * 30)])
        fine, broken = await asyncio.gather(*(door.run_group(group, model, {}) for group in groups))
        assert [(output["error"], output["reward"]) for output in fine] == [(None, 1.0), (None, 2.0)]
        assert all("too long to compare" in output["error"]["message"] for output in broken)
    finally:
        await door.close()
    log = (tmp_path / "squares_worker_0.log").read_text()
    assert "while it is loaded" in log
    assert "goodbye" in log


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("broken", {}, "nothing_of_this_name"),
        ("empty", {}, "no load_environment"),
        ("not-there", {}, "no environment 'not-there' is installed"),
        ("squares", {"fail": "the data is missing"}, "the data is missing"),
        ("squares", {"unknown": 1}, "has no argument 'unknown'; it takes: size, fail, group"),
    ],
)
async def test_an_environment_that_does_not_load_says_why_in_its_own_words(
    folder: Path, tmp_path: Path, name: str, args: dict[str, Any], words: str
) -> None:
    door = workers(folder, tmp_path, name, args=args)
    with pytest.raises(EnvironmentFailed) as caught:
        await door.start()
    assert words in caught.value.message
    assert "runners.py" not in caught.value.message
    assert "env_utils.py" not in caught.value.message
    assert door.pids == []


async def test_a_worker_that_keeps_dying_is_given_up(folder: Path, tmp_path: Path, model: ModelEndpoint) -> None:
    door = workers(folder, tmp_path, "fragile")
    with pytest.raises(EnvironmentWorkerDied, match="exit code 3") as caught:
        await door.start()
    assert "about to fall over" in str(caught.value.hint)
    for _ in range(2):
        with pytest.raises(EnvironmentWorkerDied, match="exit code 3"):
            await door.run_rollout(says("fine"), model, {})
    with pytest.raises(EnvironmentWorkerDied, match="3 times in a row"):
        await door.run_rollout(says("fine"), model, {})
    await door.close()


async def test_workers_end_when_their_parent_is_killed(folder: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers\n"
        "async def main():\n"
        f"    door = EnvironmentWorkers(EnvironmentSpec('squares'), python=Path(sys.executable), "
        f"log_directory=Path({str(tmp_path)!r}), search_path=[Path({str(folder)!r})])\n"
        "    await door.start()\n    print(door.pids[0], flush=True)\n    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(await parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the worker outlived its parent")
