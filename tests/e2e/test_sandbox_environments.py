"""Sandboxes through the real hub and its node: the command line, verifiers' own environments, and the template."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prime_cli.environments.scaffold import write_environment
from tests.python_image import write_python_image
from tests.running_hub import PRIME, RunningHub, start_hub
from tests.scripted_model import ToolCall, scripted_model

TOOL_ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset


async def last_answer(completion, answer, **_):
    said = [message for message in completion if message["role"] == "tool"]
    return float(bool(said) and answer in str(said[-1]["content"]))


def load_environment():
    def settings(kind, answer):
        rows = Dataset.from_list([{"question": kind, "answer": answer}] * 3)
        return {"dataset": rows, "eval_dataset": rows, "max_turns": 5, "rubric": vf.Rubric(funcs=[last_answer])}

    shell = vf.SandboxEnv(**settings("bash", "kept"))
    python = vf.PythonEnv(pip_install_packages="", **settings("python", "Out[2]: 42"))
    return vf.EnvGroup([shell, python], env_names=["bash", "python"])
"""
PROJECT = """
[project]
name = "with-tools"
version = "0.1.0"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
STEPS = {
    "bash": [ToolCall("bash", {"command": "echo kept > /tmp/file"}), ToolCall("bash", {"command": "cat /tmp/file"})],
    "python": [ToolCall("python", {"code": "x = 20\nprint('set')"}), ToolCall("python", {"code": "x + 22"})],
}


@dataclass
class Service:
    """A hub with a node beside it, and commands that know no more of it than its URL and a key."""

    hub: RunningHub
    level: str
    images: Path

    def prime(self, *arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as a user of the hub."""
        known = {"PRIME_API_BASE_URL": self.hub.url, "PRIME_API_KEY": self.hub.key_of("someone")}
        return subprocess.run(
            [*PRIME, *arguments], cwd=cwd, env={**os.environ, **known}, input=stdin, capture_output=True, text=True
        )

    def told(self, *arguments: str, cwd: Path) -> dict[str, Any]:
        """Return the JSON that a command must give."""
        done = self.prime("--output", "json", *arguments, cwd=cwd)
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert isinstance(data, dict)
        return data

    def live(self, cwd: Path) -> list[str]:
        """Return the ids of the sandboxes that have not ended."""
        return [row["id"] for row in self.told("sandbox", "list", cwd=cwd)["sandboxes"]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The best sandboxes that this machine can give; `python:3.11-slim` is an image of its own Python."""
    folder = tmp_path_factory.mktemp("hub")
    hub = start_hub(folder / "data", "--sandboxes", "--sandboxes-min-level", "none")
    try:
        with hub.client(hub.key_of("someone")) as client:
            deadline = time.monotonic() + 30
            request = {"name": "first", "docker_image": "host", "cpu_cores": 1, "memory_gb": 0.5, "disk_size_gb": 1}
            while not (made := client.post("/sandbox", json={**request, "timeout_minutes": 5, "vm": True})).is_success:
                assert time.monotonic() < deadline, f"{made.text}\n{hub.log}"
                time.sleep(0.1)
            while (row := client.get(f"/sandbox/{made.json()['id']}").json())["status"] == "PENDING":
                time.sleep(0.05)
            client.delete(f"/sandbox/{row['id']}")
        yield Service(hub, row["enforcement"]["level"], folder / "data" / "sandboxes")
    finally:
        hub.end()


def test_a_sandbox_of_the_command_line_from_its_creation_to_its_end(service: Service, tmp_path: Path) -> None:
    made = service.told("sandbox", "create", "--memory-gb", "0.5", "--env", "WORD=hi", "-l", "mine", cwd=tmp_path)
    assert (made["status"], made["docker_image"]) == ("RUNNING", "host")
    here = made["id"]
    done = service.prime("sandbox", "run", here, "-w", "/tmp", "echo $WORD; pwd; echo no >&2; exit 7", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, "hi\n/tmp\n", "no\n")
    text = "".join(f"line {number}\n" for number in range(30_000))
    assert service.prime("sandbox", "run", "-i", here, "--", "cat", cwd=tmp_path, stdin=text).stdout == text
    (tmp_path / "sent").write_text(text)
    service.told("sandbox", "upload", here, "sent", "/tmp/deep/er/sent", cwd=tmp_path)
    assert service.prime("sandbox", "run", here, "wc -l < /tmp/deep/er/sent", cwd=tmp_path).stdout.strip() == "30000"
    service.told("sandbox", "download", here, "/tmp/deep/er/sent", "back", cwd=tmp_path)
    assert (tmp_path / "back").read_text() == text
    late = service.prime("sandbox", "run", "--timeout", "0.5", here, "echo begun; sleep 60", cwd=tmp_path)
    assert (late.returncode, late.stdout) == (124, "begun\n"), late.stderr
    assert service.told("sandbox", "delete", "-l", "mine", "-y", cwd=tmp_path)["succeeded"] == [here]
    gone = service.prime("sandbox", "run", here, "ls", cwd=tmp_path)
    assert gone.returncode == 1
    assert here in gone.stderr
    assert "Traceback" not in gone.stderr
    assert service.told("sandbox", "get", here, cwd=tmp_path)["status"] == "TERMINATED"


def test_words_go_in_and_out_of_a_command_one_by_one_and_ctrl_c_reaches_it(service: Service, tmp_path: Path) -> None:
    here = service.told("sandbox", "create", "--", "sh", "-c", "echo began; sleep 100", cwd=tmp_path)["id"]
    known = {"PRIME_API_BASE_URL": service.hub.url, "PRIME_API_KEY": service.hub.key_of("someone")}
    command = [
        *PRIME,
        "sandbox",
        "run",
        "-i",
        here,
        "--",
        "sh",
        "-c",
        "while read word; do echo got $word; done; exit 4",
    ]
    process = subprocess.Popen(
        command, env={**os.environ, **known}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for word in ("one", "two"):
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"got {word}\n"
    process.stdin.close()
    assert process.wait(10) == 4
    command = [*PRIME, "sandbox", "run", here, "trap 'echo asked; exit 5' INT; echo begun; while :; do sleep 0.1; done"]
    process = subprocess.Popen(command, env={**os.environ, **known}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "asked\n"
    assert process.wait(10) == 5
    assert service.told("sandbox", "logs", here, cwd=tmp_path) == {"logs": "began\n"}
    service.told("sandbox", "delete", here, cwd=tmp_path)


def test_the_environments_of_verifiers_work_with_a_url_and_a_key_alone(service: Service, tmp_path: Path) -> None:
    if service.level in ("none", "restricted"):
        pytest.skip(f"images of their own need the level container; this machine gives {service.level}")
    write_python_image(tmp_path / "python.tar")
    image = ["sandbox", "image", "import", "python.tar", "python:3.11-slim", "--data-dir", str(service.images)]
    service.told(*image, cwd=tmp_path)
    while {"name": "python:3.11-slim"} not in service.told("sandbox", "image", "list", "--hub", cwd=tmp_path)["images"]:
        time.sleep(0.5)  # the node tells it with its next heartbeat
    folder = tmp_path / "environments" / "with_tools"
    folder.mkdir(parents=True)
    (folder / "with_tools.py").write_text(TOOL_ENVIRONMENT)
    (folder / "pyproject.toml").write_text(PROJECT)

    def answer(messages: list[dict[str, Any]]) -> str | ToolCall:
        steps = STEPS[next(message["content"] for message in messages if message["role"] == "user")]
        done = sum(message["role"] == "tool" for message in messages)
        return steps[done] if done < len(steps) else "done"

    with scripted_model(answer, models=("m",)) as url:
        line = ["eval", "run", "with-tools", "-m", "m", "-b", url, "-n", "6", "-r", "2", "--plain"]
        done = service.prime(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rollouts = _results(tmp_path)
    assert len(rollouts) == 12
    assert [(row["error"], row["reward"]) for row in rollouts] == [(None, 1.0)] * 12
    assert service.live(tmp_path) == []


PROGRAMS = {
    "print their sum": "print(sum(map(int, input().split())))",
    "greatest minus": "1 / 0",
    "vowels": "print(len(input()))",
    "reverse order": "import sys\nprint(*reversed(input().split()))\nsys.exit(1)",
}


def test_the_template_judges_programs_in_sandboxes(service: Service, tmp_path: Path) -> None:
    write_environment("my-code", tmp_path / "environments", "code-tests")

    def answer(messages: list[dict[str, Any]]) -> str:
        asked = messages[-1]["content"]
        program = next((program for words, program in PROGRAMS.items() if words in asked), None)
        return f"So:\n```python\n{program}\n```" if program else "I do not know."

    with scripted_model(answer, models=("m",)) as url:
        line = ["eval", "run", "my-code", "-m", "m", "-b", url, "-n", "12", "-r", "1", "--plain"]
        args = ["-a", '{"num_tests": 4}', "-C", "verdicts,sandbox_id"]
        done = service.prime(*line, *args, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = {row["info"]["problem"]: row for row in _results(tmp_path)}
        assert rows["sum"]["reward"] == pytest.approx(1.1)
        assert rows["sum"]["verdicts"] == ["passed"] * 4
        assert (rows["spread"]["reward"], rows["spread"]["verdicts"]) == (pytest.approx(0.1), ["crashed"] * 4)
        assert rows["reverse-words"]["verdicts"] == ["crashed"] * 4
        assert set(rows["vowels"]["verdicts"]) <= {"wrong", "passed"}
        assert (rows["gcd"]["reward"], rows["gcd"]["sandbox_id"]) == (0.0, None)
        assert len({row["sandbox_id"] for row in rows.values() if row["sandbox_id"]}) == len(PROGRAMS)
        assert service.live(tmp_path) == []


def _results(folder: Path) -> list[dict[str, Any]]:
    """Return the rollouts of the evaluation that wrote last."""
    newest = max(folder.rglob("results.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in newest.open()]
