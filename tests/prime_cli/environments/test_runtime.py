"""The door: real workers, a real environment, a scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_cli.environments.runtime import (
    EnvironmentFailed,
    EnvironmentSpec,
    EnvironmentWorkerDied,
    EnvironmentWorkers,
    ModelEndpoint,
)
from tests.scripted_model import scripted_model

ENVIRONMENT = '''
import os, signal, sys
import verifiers as vf
from datasets import Dataset

print("an environment may print while it is imported")

def right(completion, answer, **_):
    """1 for the right answer; some answers break the scoring or the process."""
    text = completion[-1]["content"]
    if text == "break the score":
        raise RuntimeError("the judge is broken")
    if text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return float(text == answer)

def load_environment(size: int = 6, fail: str = ""):
    print("and while it is loaded")
    if fail:
        raise ValueError(fail)
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": str(i * i)} for i in range(size)]
    data = Dataset.from_list(rows)
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data.select(range(3)), rubric=vf.Rubric(funcs=[right]))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "squares.py").write_text(ENVIRONMENT)
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    (folder / "empty.py").write_text("x = 1\n")
    return folder


@pytest.fixture(scope="module")
def model() -> Iterator[ModelEndpoint]:
    def answer(messages: list[dict[str, Any]]) -> str:
        text = messages[-1]["content"]
        if text.startswith("slow"):
            time.sleep(30)
        return text.removeprefix("say ") if text.startswith("say ") else str(int(text) ** 2)

    with scripted_model(answer) as url:
        yield ModelEndpoint(url, "scripted")


def workers(folder: Path, logs: Path, name: str = "squares", **options: Any) -> EnvironmentWorkers:
    spec = EnvironmentSpec(name, options.pop("args", {}))
    return EnvironmentWorkers(spec, python=Path(sys.executable), log_directory=logs, search_path=[folder], **options)


def says(text: str) -> dict[str, Any]:
    return {"example_id": 0, "prompt": [{"role": "user", "content": f"say {text}"}], "answer": text}


def test_rows_come_out_and_scored_rollouts_come_back_in_order(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async def scenario() -> None:
        door = workers(folder, tmp_path, num_workers=2)
        try:
            info = await door.start()
            assert (info.num_train, info.num_eval, info.needs_group_scoring) == (6, 3, False)
            assert len(door.pids) == 2
            rows = await door.examples("train", limit=3, offset=2)
            assert [row["answer"] for row in rows] == ["4", "9", "16"]
            assert [row["example_id"] for row in rows] == [2, 3, 4]
            assert len(await door.examples("eval")) == 3
            groups = await asyncio.gather(*(door.run_group([row] * 4, model, {"max_tokens": 5}) for row in rows))
            assert [[output["reward"] for output in group] for group in groups] == [[1.0] * 4] * 3
            assert groups[0][0]["completion"][-1]["content"] == "4"
            single = await door.run_rollout(rows[0], model, {}, state_columns=["trajectory"])
            assert len(single["trajectory"]) == 1
        finally:
            await door.close()
        assert door.pids == []

    asyncio.run(scenario())
    assert "while it is loaded" in (tmp_path / "squares_worker_0.log").read_text()


def test_a_reward_function_that_raises_marks_the_rollout_instead_of_scoring_zero(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async def scenario() -> list[dict[str, Any]]:
        door = workers(folder, tmp_path)
        try:
            await door.start()
            return [await door.run_rollout(says(text), model, {}) for text in ("break the score", "fine")]
        finally:
            await door.close()

    broken, fine = asyncio.run(scenario())
    assert "the judge is broken" in broken["error"]["message"]
    assert fine["error"] is None
    assert fine["reward"] == 1.0


def test_a_worker_that_dies_fails_its_requests_and_is_replaced(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async def scenario() -> None:
        door = workers(folder, tmp_path)
        try:
            await door.start()
            first = door.pids
            with pytest.raises(EnvironmentWorkerDied, match="SIGKILL"):
                await door.run_rollout(says("die"), model, {})
            assert (await door.run_rollout(says("fine"), model, {}))["reward"] == 1.0
            assert door.pids != first
        finally:
            await door.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("broken", {}, "nothing_of_this_name"),
        ("empty", {}, "no load_environment"),
        ("not-there", {}, "no environment 'not-there' is installed"),
        ("squares", {"fail": "the data is missing"}, "the data is missing"),
        ("squares", {"unknown": 1}, "unexpected keyword argument 'unknown'"),
    ],
)
def test_an_environment_that_does_not_load_says_why_in_its_own_words(
    folder: Path, tmp_path: Path, name: str, args: dict[str, Any], says: str
) -> None:
    async def scenario() -> None:
        door = workers(folder, tmp_path, name, args=args)
        with pytest.raises(EnvironmentFailed) as caught:
            await door.start()
        assert says in caught.value.message
        assert "runners.py" not in caught.value.message
        assert door.pids == []

    asyncio.run(scenario())


def test_an_endpoint_that_is_down_is_reported_quickly_as_the_rollouts_error(folder: Path, tmp_path: Path) -> None:
    async def scenario() -> float:
        door = workers(folder, tmp_path)
        try:
            await door.start()
            started = time.monotonic()
            output = await door.run_rollout(says("x"), ModelEndpoint("http://127.0.0.1:9/v1", "none"), {})
            assert output["error"] is not None
            return time.monotonic() - started
        finally:
            await door.close()

    assert asyncio.run(scenario()) < 20


def test_a_group_that_takes_too_long_fails_and_the_worker_goes_on(
    folder: Path, tmp_path: Path, model: ModelEndpoint
) -> None:
    async def scenario() -> None:
        door = workers(folder, tmp_path)
        slow = {"example_id": 0, "prompt": [{"role": "user", "content": "slow"}], "answer": ""}
        try:
            await door.start()
            with pytest.raises(EnvironmentFailed, match="longer than"):
                await door.run_group([slow], model, {}, timeout_s=0.5)
            assert (await door.run_rollout(says("fine"), model, {}))["reward"] == 1.0
        finally:
            await door.close()

    asyncio.run(scenario())


def test_workers_end_when_their_parent_is_killed(folder: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers\n"
        "async def main():\n"
        f"    door = EnvironmentWorkers(EnvironmentSpec('squares'), python=Path(sys.executable), "
        f"log_directory=Path({str(tmp_path)!r}), search_path=[Path({str(folder)!r})])\n"
        "    await door.start()\n    print(door.pids[0], flush=True)\n    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )

    async def scenario() -> None:
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

    asyncio.run(scenario())
