"""Commands, snippets and batches over plain HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

import httpx
import pytest

from hub_server.sandbox_node.gateway import command_sessions, commands, messages
from hub_server.sandbox_node.gateway.connect import ServerStream
from hub_server.sandbox_node.gateway.envelopes import envelope
from hub_server.sandbox_node.specification import End, EndKind
from hub_server.sandboxes.tokens import make_token
from tests.hub_server.sandbox_node.gateway.conftest import SECRET, Served


async def test_a_command_answers_with_output_and_exit_code(gateway: Served) -> None:
    asked = {"command": "echo $A $OF_SANDBOX; pwd; echo bad >&2; exit 3", "env": {"A": "b c"}, "working_dir": "/usr"}
    answer = await gateway.post("exec", json={**asked, "sandbox_id": "sb-1", "timeout": 30})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["stdout"], said["stderr"], said["exit_code"]) == ("b c yes\n/usr\n", "bad\n", 3)


async def test_a_command_that_runs_too_long_is_killed_with_all_that_it_started(gateway: Served) -> None:
    marker = gateway.folder / "marker"
    asked = {"command": f"(sleep 0.6; touch {marker}) & sleep 30", "timeout": 0.2}
    answer = await gateway.post("exec", json=asked)
    assert answer.status_code == 408
    assert "longer than 0.2 s" in answer.json()["detail"]
    await asyncio.sleep(0.6)
    assert not marker.exists()


async def test_too_much_output_is_cut_and_said_so(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_OUTPUT_BYTES", 1024**2)
    said = (await gateway.post("exec", json={"command": "yes"})).json()
    assert len(said["stdout"]) == 1024**2
    assert said["cut"]
    assert "at most 1 MiB are kept" in said["stderr"]


async def test_a_command_is_killed_when_its_client_goes_away(gateway: Served) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await gateway.post("exec", json={"command": "sleep 60"}, timeout=0.3)
    async with asyncio.timeout(5):
        while gateway.sandbox.sessions() or gateway.sandbox.attached:
            await asyncio.sleep(0.02)


async def test_a_wrong_request_is_refused_with_what_is_wrong(gateway: Served) -> None:
    wrong: list[tuple[Any, str]] = [
        ({}, "command"),
        ({"command": 5}, "command"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": "true", "timeout": "soon"}, "timeout"),
        ({"command": "true", "env": {"A": 1}}, "env.A"),
        ([], "object"),
    ]
    for asked, named in wrong:
        answer = await gateway.post("exec", json=asked)
        assert answer.status_code == 422
        assert named in answer.json()["detail"]
    assert (await gateway.post("exec", content=b"{")).status_code == 422


async def test_tokens_are_needed_and_open_one_sandbox(gateway: Served) -> None:
    asked = {"json": {"command": "true"}}
    for wrong in ("", "Bearer", "Bearer x", "Basic abc", f"Bearer {make_token(b'other', 'sb-1').text}"):
        refused = await gateway.post("exec", **asked, headers={"authorization": wrong})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    expired = make_token(SECRET, "sb-1", lifetime_s=-1).text
    assert (await gateway.post("exec", **asked, headers={"authorization": f"Bearer {expired}"})).status_code == 401
    other = make_token(SECRET, "sb-2").text
    refused = await gateway.post("exec", **asked, headers={"authorization": f"Bearer {other}"})
    assert refused.status_code == 403
    for path in ("/control/node", "/other/sb-1/exec", "/sandboxes/sb-1", "/sandboxes/sb-1/other", "/", "/sandboxes"):
        assert (await gateway.client.post(path, **asked)).status_code == 404
    assert (await gateway.get("exec")).status_code == 405


async def test_a_sandbox_that_is_gone_is_told_as_clients_expect(gateway: Served) -> None:
    unknown = {"authorization": f"Bearer {make_token(SECRET, 'sb-9').text}"}
    refused = await gateway.client.post("/sandboxes/sb-9/exec", json={"command": "true"}, headers=unknown)
    assert (refused.status_code, refused.json()["error"]) == (502, "sandbox_not_found")
    await gateway.sandbox.destroy(End(EndKind.DELETED, "it was deleted"))
    refused = await gateway.post("exec", json={"command": "true"})
    assert (refused.status_code, refused.json()["error"]) == (502, "sandbox_not_found")
    assert "it was deleted" in refused.json()["detail"]
    for answer in (
        await gateway.get("download", params={"path": "/etc/passwd"}),
        await gateway.get("read-file", params={"path": "/etc/passwd"}),
        await gateway.post("upload", params={"path": "/tmp/x"}, files={"file": b"x"}),
    ):
        assert (answer.status_code, answer.json()["error"]) == (410, "sandbox_terminated")


async def test_a_command_under_way_ends_as_gone_with_its_sandbox(gateway: Served) -> None:
    running = asyncio.create_task(gateway.post("exec", json={"command": "sleep 60"}))
    async with asyncio.timeout(5):
        while not gateway.sandbox.sessions():
            await asyncio.sleep(0.01)
    await gateway.sandbox.destroy(End(EndKind.OOM_KILLED, "it had no memory left"))
    answer = await running
    assert (answer.status_code, answer.json()["error"]) == (502, "sandbox_not_found")
    assert "no memory" in answer.json()["detail"]


async def test_a_sandbox_that_does_not_answer_holds_nobody_up(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "GRACE_S", 0.3)
    monkeypatch.setattr(command_sessions, "METHODS", {**command_sessions.METHODS, "Start": impatient_start()})
    agent = int((await gateway.post("exec", json={"command": "echo $PPID"})).json()["stdout"])
    os.kill(agent, signal.SIGSTOP)
    try:
        answer = await gateway.post("exec", json={"command": "true", "timeout": 0.1})
        assert (answer.status_code, answer.json()["detail"]) == (504, "the sandbox does not answer")
        body = envelope(messages.StartRequest(command={"cmd": "true"}).SerializeToString())
        headers = {"content-type": "application/connect+proto", "connect-timeout-ms": "100"}
        answer = await gateway.post("command_session.CommandSession/Start", content=body, headers=headers)
        assert b"deadline_exceeded" in answer.content
        with pytest.raises(httpx.ReadTimeout):
            await gateway.get("read-file", params={"path": "/etc/passwd"}, timeout=0.2)
        async with asyncio.timeout(5):
            while gateway.sandbox.attached:
                await asyncio.sleep(0.02)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert (await gateway.post("exec", json={"command": "echo again"})).json()["stdout"] == "again\n"
    async with asyncio.timeout(5):
        while gateway.sandbox.sessions():
            await asyncio.sleep(0.02)


def impatient_start() -> ServerStream:
    method = command_sessions.METHODS["Start"]
    assert isinstance(method, ServerStream)
    return replace(method, grace_s=0.2)


async def test_a_snippet_runs_on_the_fast_path(gateway: Served) -> None:
    code = "import os, sys; print(sys.stdin.read().upper(), os.getcwd(), os.environ['A']); sys.exit(4)"
    asked = {"code": code, "stdin": "grüß", "env": {"A": "1"}, "cwd": "/usr", "timeout_s": 20}
    said = (await gateway.post("run-code", json=asked)).json()
    assert (said["stdout"], said["exit_code"], said["timed_out"]) == ("GRÜSS /usr 1\n", 4, False)
    assert said["wall_s"] > 0
    slow = (await gateway.post("run-code", json={"code": "while True: pass", "timeout_s": 0.2})).json()
    assert (slow["timed_out"], slow["exit_code"]) == (True, 137)
    wrong = (await gateway.post("run-code", json={"code": "1/0"})).json()
    assert "ZeroDivisionError" in wrong["stderr"]
    assert wrong["exit_code"] == 1


async def test_a_batch_runs_one_program_on_many_inputs(gateway: Served) -> None:
    inputs = [str(number) for number in range(5)]
    asked = {"program": {"code": "print(int(input()) ** 2)"}, "inputs": [*inputs, "x"], "timeout_s": 10}
    results = (await gateway.post("run-batch", json=asked)).json()["results"]
    assert [one["stdout"] for one in results] == ["0\n", "1\n", "4\n", "9\n", "16\n", ""]
    assert [one["exit_code"] for one in results] == [0, 0, 0, 0, 0, 1]
    path = str(gateway.folder / "deep" / "program.sh")
    asked = {
        "program": {"argv": ["sh", path]},
        "files": {path: "read x; [ $x != 2 ] && echo got $x"},
        "inputs": ["1\n", "2\n", "3\n", "4\n"],
        "stop_at_first_failure": True,
    }
    results = (await gateway.post("run-batch", json=asked)).json()["results"]
    assert [one["stdout"] for one in results] == ["got 1\n", ""]
    for wrong in ({}, {"argv": []}, {"argv": ["a"], "code": "b"}):
        assert (await gateway.post("run-batch", json={"program": wrong, "inputs": []})).status_code == 422


async def test_a_batch_under_way_ends_as_gone_with_its_sandbox(gateway: Served) -> None:
    asked = {"program": {"argv": ["sleep", "60"]}, "inputs": ["", ""], "timeout_s": 90}
    running = asyncio.create_task(gateway.post("run-batch", json=asked))
    async with asyncio.timeout(5):
        while not gateway.sandbox.sessions():
            await asyncio.sleep(0.01)
    await gateway.sandbox.destroy(End(EndKind.DELETED, "it was deleted"))
    assert (await running).status_code == 502
