"""`prime sandbox` against a service of a few lines: what it sends, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_cli.main import main
from tests.running_hub import PRIME
from tests.sandbox_service import Refused, SandboxService, sandbox_service

Prime = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxService]:
    """The service, with one sandbox `sb0` that runs."""
    with sandbox_service(tmp_path / "root") as running:
        monkeypatch.setenv("PRIME_API_BASE_URL", running.url)
        monkeypatch.setenv("PRIME_API_KEY", "key")
        sizes = {"cpu_cores": 1.0, "memory_gb": 1.0, "disk_size_gb": 5.0}
        running.create({"name": "first", "docker_image": "host", **sizes, "timeout_minutes": 60, "labels": ["a"]})
        running.answer("GET", "/api/v1/sandbox/sb0", {}, None)
        yield running


@pytest.fixture
def prime(service: SandboxService, tmp_path: Path) -> Prime:
    """Run a command."""

    def run(*arguments: str, stdin: str | bytes = "", **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PRIME, *arguments], capture_output=True, text=True, input=stdin, cwd=tmp_path, **options
        )

    return run


@pytest.fixture
def here(service: SandboxService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Prime:
    """Run a command in this process, which is quicker, where nothing streams."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["prime", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), captured.out, captured.err)

    return run


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert isinstance(data, dict)
    return data


def test_creating_waits_until_it_runs_and_says_what_it_got(prime: Prime, service: SandboxService) -> None:
    line = "sandbox create debian:12 --name mine --memory-gb 0.5 --env A=1 --env B=x=y --secret S=s -l t"
    done = prime(*line.split(), "--min-level", "container", "--network-allow", "pypi.org", "--", "sleep", "-x", "9")
    assert done.returncode == 0, done.stderr
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (shown["id"], shown["status"], shown["level"]) == ("sb1", "RUNNING", "container (bwrap)")
    assert shown["cpu"] == "1 cores, not enforced"
    assert shown["disk"] == "0.5 GiB of 5 asked for"
    assert shown["note"] == "its disk is in memory"
    body = next(body for method, path, body in service.asked if (method, path) == ("POST", "/api/v1/sandbox"))
    assert len(body.pop("idempotency_key")) == 32
    assert body == {
        "name": "mine", "docker_image": "debian:12", "start_command": {"executable": "sleep", "args": ["-x", "9"]},
        "cpu_cores": 1.0, "memory_gb": 0.5, "disk_size_gb": 5.0, "gpu_count": 0, "timeout_minutes": 60,
        "environment_vars": {"A": "1", "B": "x=y"}, "secrets": {"S": "s"}, "labels": ["t"],
        "network_allowlist": ["pypi.org"], "advanced_configs": {"min_level": "container"}, "vm": True,
    }  # fmt: skip


def test_a_command_without_an_image_runs_in_the_default_one(here: Prime, service: SandboxService) -> None:
    made = told(here("sandbox", "create", "--no-wait", "--output", "json", "--", "sleep", "9"))
    assert (made["docker_image"], made["status"], "gateway_auth" in made) == ("host", "PENDING", False)
    assert service.asked[0][2]["start_command"] == {"executable": "sleep", "args": ["9"]}


def test_a_sandbox_that_does_not_come_is_one_line_with_the_reason(here: Prime, service: SandboxService) -> None:
    gone = {"id": "sb9", "status": "ERROR", "errorType": "IMAGE_PULL_FAILED", "errorMessage": "no image nothing:1"}
    service.refusals["/api/v1/sandbox"] = Refused(200, gone)
    done = here("sandbox", "create", "nothing:1")
    assert done.returncode == 1
    assert "error: sandbox sb9 did not start: no image nothing:1 (IMAGE_PULL_FAILED)" in done.stderr
    assert "hint: the operator of the node adds images" in done.stderr


def test_listing_and_showing(here: Prime) -> None:
    listed = told(here("sandbox", "list", "--output", "json"))
    assert {key: listed[key] for key in ("total", "page", "per_page", "has_next")} == {
        "total": 1, "page": 1, "per_page": 50, "has_next": False,
    }  # fmt: skip
    assert listed["sandboxes"] == [
        {
            "id": "sb0", "name": "first", "image": "host", "status": "RUNNING",
            "resources": "1 cpu, 1 GiB, 5 GiB disk", "labels": ["a"], "created_at": "2026-01-02T03:04:05Z",
            "timeout_minutes": 60, "expires_at": "2026-01-02T04:04:06+00:00",
        }
    ]  # fmt: skip
    assert here("sandbox", "ls", "--plain", "-l", "a").stdout.splitlines()[1].startswith("sb0\tfirst\thost\tRUNNING")
    shown = told(here("sandbox", "get", "sb0", "--output", "json"))
    assert (shown["memory_gb"], shown["disk_size_gb"], shown["enforcement"]["level"]) == (1.0, 5.0, "container")
    assert told(here("sandbox", "logs", "sb0", "--output", "json")) == {"logs": "began\nwent on\n"}


def test_a_command_has_its_output_its_exit_code_and_its_words_as_they_are(prime: Prime) -> None:
    script = 'import sys; print(sys.argv[1:]); print("no", file=sys.stderr); sys.exit(7)'
    done = prime("sandbox", "run", "sb0", "--", "python3", "-c", script, "a b", "--output", "-w", "$HOME")
    assert (done.returncode, done.stdout, done.stderr) == (7, "['a b', '--output', '-w', '$HOME']\n", "no\n")


def test_one_text_goes_to_a_shell(prime: Prime) -> None:
    done = prime(
        "sandbox", "run", "sb0", "-w", "/usr", "-e", "WORD=hi", "echo $WORD | tr a-z A-Z; pwd; echo {1..3}; exit 3"
    )
    assert (done.returncode, done.stdout) == (3, "HI\n/usr\n1 2 3\n")


def test_output_comes_as_it_is_written_and_ctrl_c_goes_to_the_command(service: SandboxService) -> None:
    script = "trap 'echo asked; exit 5' INT; echo one; while :; do sleep 0.05; done"
    command = [*PRIME, "sandbox", "run", "sb0", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "asked\n"
    assert process.wait(10) == 5


def test_a_second_ctrl_c_ends_a_command_that_does_not_listen(service: SandboxService) -> None:
    command = [*PRIME, "sandbox", "run", "sb0", "trap '' INT; echo one; while :; do sleep 0.05; done"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 137


def test_stdin_goes_there_with_its_end(prime: Prime) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    done = prime("sandbox", "run", "-i", "sb0", "--", "sort", "-r", stdin=text)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(text.splitlines())


def test_without_the_option_stdin_stays_here(prime: Prime) -> None:
    assert prime("sandbox", "run", "sb0", "--", "cat", stdin="mine").stdout == ""


def test_a_reader_that_goes_away_ends_the_command(service: SandboxService) -> None:
    piped = " ".join([*PRIME, "sandbox", "run", "sb0", "--", "yes"]) + " | head -1"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("y\n", "")
    (process,) = service.running.values()
    assert process.wait(10) != 0


def test_a_command_that_takes_too_long_is_124(prime: Prime) -> None:
    done = prime("sandbox", "run", "--timeout", "0.2", "sb0", "echo begun; sleep 60")
    assert (done.returncode, done.stdout) == (124, "begun\n")
    assert "took longer than 0.2 s" in done.stderr
    done = prime("sandbox", "run", "--timeout", "0.2", "--output", "json", "sb0", "echo begun; sleep 60")
    assert done.returncode == 124
    assert json.loads(done.stdout) == {
        "exit_code": 124,
        "stdout": "begun\n",
        "stderr": "",
        "timed_out": True,
        "remark": None,
    }


def test_files_go_in_and_come_out(prime: Prime, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "mine.bin").write_bytes(data)
    sent = told(prime("sandbox", "upload", "sb0", "mine.bin", "/deep/er/there.bin", "--output", "json"))
    assert sent == {"sandbox_id": "sb0", "path": "/deep/er/there.bin", "size": 300_000}
    (tmp_path / "here").mkdir()
    got = told(prime("sandbox", "download", "sb0", "/deep/er/there.bin", "here", "--output", "json"))
    assert got == {"sandbox_id": "sb0", "path": "here/there.bin", "size": 300_000}
    assert (tmp_path / "here" / "there.bin").read_bytes() == data
    assert prime("sandbox", "upload", "sb0", "-", "/from-stdin", stdin="words").returncode == 0
    assert prime("sandbox", "download", "sb0", "/from-stdin", "-").stdout == "words"


def test_a_download_that_fails_leaves_what_was_there(here: Prime, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    done = here("sandbox", "download", "sb0", "/nothing", "kept")
    assert (done.returncode, (tmp_path / "kept").read_text()) == (1, "old")
    assert "error: /nothing: no such file" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_deleting(here: Prime, service: SandboxService) -> None:
    done = here("sandbox", "delete", "sb0,none", "--output", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"succeeded": ["sb0"], "failed": [{"sandbox_id": "none", "error": "not found"}]}
    asked = here("sandbox", "delete", "--label", "a")
    assert asked.returncode == 2
    assert "End sandbox sb0?" in asked.stderr
    assert here("sandbox", "delete", "--all", "-y").stdout == "Ended sb0\n"
    assert here("sandbox", "delete", "-l", "none", "-y").stdout == "There are none.\n"


def test_whom_it_may_reach(here: Prime, service: SandboxService) -> None:
    assert here("sandbox", "network", "sb0").stdout == "It may reach nobody.\n"
    assert "only" not in here("sandbox", "network", "sb0", "--allow", "a.org,b.org:443").stdout
    assert service.asked[-1][2] == {"allowlist": ["a.org", "b.org:443"], "denylist": None}
    assert here("sandbox", "network", "sb0", "--deny", "a.org").stdout == "It may reach all but a.org.\n"
    here("sandbox", "network", "sb0", "--allow", "all")
    assert service.asked[-1][2] == {"allowlist": None, "denylist": []}
    here("sandbox", "network", "sb0", "--deny", "all")
    assert service.asked[-1][2] == {"allowlist": [], "denylist": None}
    assert here("sandbox", "expose", "sb0", "8000").stdout.startswith(f"{service.url}/exposed/x1/\n")


def test_forgetting_the_tokens_of_the_sdk(here: Prime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    caches = [
        Path(os.environ["PRIME_HOME"]) / "sandbox_auth_cache.json",
        tmp_path / ".prime" / "sandbox_auth_cache.json",
    ]
    for cache in caches:
        cache.parent.mkdir(exist_ok=True)
        cache.write_text("{}")
    assert told(here("sandbox", "reset-cache", "-y", "--output", "json")) == {
        "removed": [str(cache) for cache in caches]
    }
    assert told(here("sandbox", "reset-cache", "--output", "json")) == {"removed": []}


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("create --env 1A=2", 2, "--env takes NAME=VALUE, found '1A'"),
        ("create --memory-gb 0", 2, "--memory-gb must be above 0"),
        ("create --gpu-count 1", 2, "sandboxes have no GPUs"),
        ("create --timeout-minutes 0", 2, "--timeout-minutes cannot be 0"),
        ("create --timeout-minutes 5 --idle-timeout-minutes 6", 2, "cannot be more than --timeout-minutes"),
        ("create --network-allow a.org --network-deny b.org", 2, "not both"),
        ("create --start-command x -- y", 2, "one start command"),
        ("get none", 1, "there is no sandbox 'none'"),
        ("run none ls", 1, "there is no sandbox 'none'"),
        ("run sb0", 2, "COMMAND"),
        ("run sb0 --bogus ls", 2, "No such option: --bogus"),
        ("run --timeout 0 sb0 ls", 2, "above 0"),
        ("upload sb0 . /there", 2, ". is a folder"),
        ("upload sb0 none /there", 2, "cannot read none"),
        ("download sb0 /none here", 1, "no such file"),
        ("delete", 2, "which sandboxes?"),
        ("delete sb0 --all", 2, "which sandboxes?"),
        ("network sb0 --allow a.org --deny b.org", 2, "not both"),
        ("network sb0 --allow all,a.org", 2, "`all` stands alone"),
        ("ssh sb0", 1, "sandboxes take no SSH"),
    ],
)
def test_what_cannot_be_is_one_line(here: Prime, line: str, code: int, words: str) -> None:
    done = here("sandbox", *line.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_what_a_gateway_refuses_is_one_line(prime: Prime, service: SandboxService) -> None:
    service.refusals["CommandSession"] = Refused(404, {"code": "not_found", "message": "it was idle for 5 minutes"})
    done = prime("sandbox", "run", "sb0", "ls")
    assert done.returncode == 1
    assert "sandbox sb0 runs no more: it was idle for 5 minutes" in done.stderr
    service.refusals = {"/download": Refused(410, {"error": "sandbox_terminated"})}
    assert "runs no more" in prime("sandbox", "download", "sb0", "/x", "y").stderr
    service.refusals = {"/upload": Refused(413, {"detail": "over 1 GiB"})}
    assert "over 1 GiB" in prime("sandbox", "upload", "sb0", "-", "/x").stderr


def test_a_gateway_out_of_reach_is_one_line(here: Prime, service: SandboxService) -> None:
    nowhere = {"gateway_url": "http://127.0.0.1:9", "user_ns": "u", "job_id": "j", "token": "t"}
    service.refusals["/auth"] = Refused(200, nowhere)
    done = here("sandbox", "run", "sb0", "ls")
    assert done.returncode == 1
    assert "no gateway answers at http://127.0.0.1:9" in done.stderr
