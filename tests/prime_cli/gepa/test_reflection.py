"""What is done about a reflection model that does not answer at once, and what the model is shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.evals.cost import PricedEndpoint
from prime_cli.gepa.adapter import LoopBridge, PromptAdapter
from prime_cli.gepa.examples import Example
from prime_cli.gepa.journal import Journal
from prime_cli.gepa.progress import Meter
from prime_cli.gepa.reflection import ReflectionModel
from prime_cli.gepa.rollouts import Outcome


class Server:
    """Answers with the replies given, one after another: status, headers, text."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], str]] = []
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status, headers, text = outer.replies.pop(0)
                data = json.dumps({"choices": [{"message": {"content": text}}], "error": {"message": text}}).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()


def ask(url: str, folder: Path, *, times: int = 1) -> tuple[list[str], list[float]]:
    """Ask the same so many times; return the answers and the waits between attempts."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> list[str]:
        journal = Journal(folder / "journal.jsonl")
        meter = Meter(10, lambda _: None)
        model = ReflectionModel(
            PricedEndpoint(ModelEndpoint(url, "teacher")), journal, meter, max_retries=2, sleep=sleep
        )
        try:
            return [await model.ask("improve") for _ in range(times)]
        finally:
            await model.close()
            journal.close()

    return asyncio.run(run()), waits


def test_a_busy_model_is_waited_for_as_long_as_it_says(server: Server, tmp_path: Path) -> None:
    server.replies = [(429, {"Retry-After": "7"}, "slow down"), (503, {}, "busy"), (200, {}, "better")]
    assert ask(server.url, tmp_path) == (["better"], [7.0, 2.0])


def test_an_answer_without_a_text_is_asked_for_again_and_then_refused(server: Server, tmp_path: Path) -> None:
    server.replies = [(200, {}, "<think>hm</think>"), (200, {}, "better")]
    assert ask(server.url, tmp_path)[0] == ["better"]
    server.replies = [(200, {}, "")] * 3
    with pytest.raises(PrimeError, match="answered without a text"):
        ask(server.url, tmp_path, times=2)


def test_each_answer_to_the_same_question_is_its_own_and_is_kept(server: Server, tmp_path: Path) -> None:
    server.replies = [(200, {}, "one"), (200, {}, "two")]
    assert ask(server.url, tmp_path, times=2)[0] == ["one", "two"]
    assert ask(server.url, tmp_path, times=2)[0] == ["one", "two"]
    assert len(server.asked) == 2


def test_a_model_that_is_down_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrimeError, match=r"the reflection model teacher at http://127.0.0.1:9/v1 does not answer"):
        ask("http://127.0.0.1:9/v1", tmp_path)


def test_a_reflection_sees_question_answer_expectation_reward_error_and_the_columns_asked_for() -> None:
    row = {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "2 + 2?"}], "answer": "4"}
    call = '{"name": "add", "arguments": "{}"}'
    completion = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "content": [{"type": "text", "text": "five"}, {"type": "image_url"}]},
    ]
    record = {"completion": completion, "turn": 3, "stop_condition": "max_turns_reached", "error": {"message": "late"}}
    outcome = Outcome(Example(0, row, "k"), 0.25, "late", record)
    adapter: Any = PromptAdapter.__new__(PromptAdapter)
    adapter._state_columns = ["turn", "missing"]
    from gepa.core.adapter import EvaluationBatch

    batch: Any = EvaluationBatch(outputs=[record], scores=[0.25], trajectories=[outcome])
    (shown,) = adapter.make_reflective_dataset({}, batch, ["system_prompt"])["system_prompt"]
    assert shown == {
        "query": "2 + 2?",
        "completion": f"assistant calls a tool: {call}\ntool: 5\nassistant: five\n[image_url]",
        "expected_answer": "4",
        "reward": 0.25,
        "error": "late",
        "stop_condition": "max_turns_reached",
        "turn": 3,
    }


def test_a_search_that_is_stopped_is_told_so_at_its_next_step() -> None:
    async def answer() -> int:
        return 1

    async def run() -> Any:
        bridge = LoopBridge(asyncio.get_running_loop())
        assert await asyncio.to_thread(lambda: bridge.call(answer())) == 1
        bridge.stop()
        return await asyncio.to_thread(_stopped, bridge, answer())

    assert asyncio.run(run()) is None


def _stopped(bridge: LoopBridge, coroutine: Any) -> Any:
    from prime_cli.gepa.adapter import SearchStopped

    with pytest.raises(SearchStopped) as stopped:
        bridge.call(coroutine)
    return stopped.value.reason
