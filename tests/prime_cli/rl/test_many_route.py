"""Many requests in one, over an engine that is told what to answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from prime_cli.rl.inference.completing import Asked
from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.many_route import MANY, ManyRoute
from prime_cli.rl.inference.sampling import SamplingParameters

ENDINGS: dict[int, Completion | Exception] = {
    0: Completion([0], [5], [-0.5], [3]),
    1: Completion([1]),  # cancelled before it ran
    2: Completion([2], [5], [float("nan")], [3]),
    3: RuntimeError("out of memory"),
}


class Engine:
    """Ends every request at once, as `ENDINGS` says of the first token of its prompt."""

    def submit(
        self,
        prompt_ids: Sequence[int],
        parameters: SamplingParameters,
        on_done: Callable[[Completion | Exception], None],
    ) -> threading.Event:
        if prompt_ids[0] not in ENDINGS:
            raise ValueError("a token is a number from 0 to 3")
        on_done(ENDINGS[prompt_ids[0]])
        return threading.Event()


def read(body: dict[str, Any]) -> Asked:
    return Asked([body["first"]], SamplingParameters(), lambda completion: {"tokens": completion.token_ids})


def test_a_request_that_fails_has_a_line_of_its_own_and_the_others_theirs() -> None:
    client = TestClient(Starlette(routes=ManyRoute(Engine(), {"/read": read}).routes()))  # type: ignore[arg-type]
    requests = [{"path": "/read", "body": {"first": first}} for first in range(5)] + [{"path": "/other", "body": {}}]
    lines = client.post(MANY, json={"id": "x", "requests": requests}).text.splitlines()
    answers = {int(index): (status, json.loads(body)) for index, status, body in (line.split(" ", 2) for line in lines)}
    assert sorted(answers) == list(range(6))
    assert answers[0] == ("200", {"tokens": [5]})
    assert [answers[index][0] for index in range(1, 6)] == ["499", "503", "503", "400", "400"]
    assert "out of memory" in answers[3][1]["error"]["message"]
    assert "/other" in answers[5][1]["error"]["message"]
