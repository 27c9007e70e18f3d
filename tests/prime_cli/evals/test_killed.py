"""Evaluations that are killed at random moments, again and again, until they are done."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.prime_cli.evals import nursery
from tests.scripted_model import scripted_model

EXAMPLES, ROLLOUTS = 40, 3
LATENCY_S = 0.01
ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset

def alone(completion, answer, **_):
    return len(completion[-1]["content"]) / 10 if completion[-1]["content"] == answer else 0.0

def together(completions, **_) -> list[float]:
    return [len(completion[-1]["content"]) / len(completions) for completion in completions]

def load_environment():
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "answer": "x" * (i % 7)} for i in range(40)]
    data = Dataset.from_list(rows)
    return vf.SingleTurnEnv(dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[SCORE]))
"""


class Machine:
    """Starts evaluations in a nursery and kills them."""

    def __init__(self, address: str, python: Path, url: str, environments: Path) -> None:
        self._address = address
        self._python = python
        self._url = url
        self._environments = environments

    def run(self, folder: Path, environment: str, *, killed_after_s: float | None = None) -> int:
        """Run or go on with an evaluation; return its wait status."""
        folder.mkdir(exist_ok=True)
        request = {
            "python": str(self._python), "url": self._url, "folder": str(folder), "environment": environment,
            "search_path": str(self._environments),
            "settings": {"num_examples": -1, "rollouts_per_example": ROLLOUTS, "max_concurrent": 9},
        }  # fmt: skip
        with (folder / "stderr").open("ab") as log, nursery.ask(self._address, request, (0, 1, log.fileno())) as told:
            pid = nursery.number_from(told)
            if killed_after_s is not None:
                told.settimeout(killed_after_s)
                with contextlib.suppress(TimeoutError):
                    return nursery.number_from(told)
                told.settimeout(None)
                os.kill(pid, signal.SIGKILL)
            return nursery.number_from(told)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    scratch = tmp_path_factory.mktemp("nursery")
    address, script = str(scratch / "s"), Path(nursery.__file__)
    for name in ("alone", "together"):
        (scratch / f"{name}.py").write_text(ENVIRONMENT.replace("SCORE", name))
    python = scratch / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S {script} {address} "$@"\n')
    python.chmod(0o755)

    def answer(messages: list[dict[str, Any]]) -> str:
        time.sleep(LATENCY_S)
        return "x" * (int(messages[-1]["content"]) % 7 or 1)

    process = subprocess.Popen([sys.executable, str(script), address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        with scripted_model(answer) as url:
            yield Machine(address, python, url, scratch)
    finally:
        process.kill()
        process.wait()


def lines_of(folder: Path) -> list[bytes]:
    results = folder / "results.jsonl"
    return results.read_bytes().splitlines(keepends=True) if results.exists() else []


def scores_of(lines: list[bytes]) -> dict[int, list[float]]:
    scores: dict[int, list[float]] = {}
    for line in lines:
        rollout = json.loads(line)
        assert rollout["error"] is None, rollout["error"]
        scores.setdefault(rollout["example_id"], []).append(rollout["reward"])
    return {example: sorted(rewards) for example, rewards in scores.items()}


def finished(lines: list[bytes], environment: str) -> list[bytes]:
    """Return the lines that must survive: whole ones, and where rollouts are scored together, whole groups."""
    whole = [line for line in lines if line.endswith(b"\n")]
    if environment == "alone":
        return whole
    counts = Counter(json.loads(line)["example_id"] for line in whole)
    return [line for line in whole if counts[json.loads(line)["example_id"]] == ROLLOUTS]


def killed_until_done(machine: Machine, folder: Path, environment: str, chance: random.Random, longest_s: float) -> int:
    """Kill an evaluation at random moments until it ends by itself; check after each that nothing was lost."""
    kills, before = 0, list[bytes]()
    while True:
        after_s = chance.uniform(0, longest_s) if kills < 12 else None
        status = machine.run(folder, environment, killed_after_s=after_s)
        lines = lines_of(folder)
        assert finished(lines, environment)[: len(before)] == before
        if status == 0:
            return kills
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, (folder / "stderr").read_text()
        kills += 1
        before = finished(lines, environment)
        if lines and chance.random() < 0.3:  # as after a loss of power
            with (folder / "results.jsonl").open("ab") as file:
                file.write(lines[0][: chance.randrange(1, len(lines[0]))])


def check_kills(machine: Machine, scratch: Path, num_kills: int, seed: int) -> None:
    chance, kills, evaluation = random.Random(seed), 0, 0
    whole = {}
    for environment in ("alone", "together"):
        began = time.monotonic()
        assert machine.run(scratch / environment, environment) == 0, (scratch / environment / "stderr").read_text()
        whole[environment] = scores_of(lines_of(scratch / environment)), time.monotonic() - began
    while kills < num_kills:
        environment = ("alone", "together")[evaluation % 2]
        folder = scratch / f"killed-{evaluation}"
        expected, seconds = whole[environment]
        kills += killed_until_done(machine, folder, environment, chance, seconds)
        assert scores_of(lines_of(folder)) == expected
        metadata, uninterrupted = (
            json.loads((path / "metadata.json").read_text()) for path in (folder, scratch / environment)
        )
        assert metadata["num_rollouts"] == EXAMPLES * ROLLOUTS
        for figure in ("avg_reward", "avg_metrics", "pass_at_k", "estimates"):
            assert metadata[figure] == uninterrupted[figure]
        evaluation += 1


def test_what_was_finished_survives_five_kills_once_and_the_scores_are_those_of_an_uninterrupted_run(
    machine: Machine, tmp_path: Path
) -> None:
    check_kills(machine, tmp_path, 5, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_was_finished_survives_a_hundred_kills_at_random_moments(machine: Machine, tmp_path: Path) -> None:
    check_kills(machine, tmp_path, 100, seed=2)
