"""Commands over the Connect protocol: run, attached to again, fed, signalled and killed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hub_server.sandbox_node import sessions
from hub_server.sandbox_node.gateway import command_sessions, messages
from hub_server.sandbox_node.gateway.envelopes import envelope
from hub_server.sandbox_node.specification import End, EndKind
from hub_server.sandboxes.tokens import make_token
from tests.hub_server.sandbox_node.gateway.conftest import SECRET, Served

SERVICE = "command_session.CommandSession"
STREAM = {"content-type": "application/connect+proto", "connect-protocol-version": "1"}


def shell(command: str, uuid: str | None = None, **more: Any) -> Any:
    spec = {"cmd": "/bin/bash", "args": ["-c", command], **more}
    return messages.StartRequest(command=spec, stdin=uuid is not None, session_uuid=uuid)


class Stream:
    """The answers of one call, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._chunks = response.aiter_raw()
        self._pending = b""
        self.end: dict[str, Any] | None = None

    async def next(self) -> Any:
        """The next event, past keepalives; None at the end, which is `end` then."""
        while True:
            if len(self._pending) >= 5:
                flags, length = struct.unpack_from(">BI", self._pending)
                if len(self._pending) >= 5 + length:
                    payload, self._pending = self._pending[5 : 5 + length], self._pending[5 + length :]
                    if flags == 2:
                        self.end = json.loads(payload)
                        return None
                    event = messages.StartResponse.FromString(payload).event
                    if event.WhichOneof("event") != "keepalive":
                        return event
                    continue
            self._pending += await anext(self._chunks)

    async def rest(self) -> list[Any]:
        """All events that are left."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


@asynccontextmanager
async def called(
    gateway: Served, method: str, message: Any, headers: dict[str, str] | None = None
) -> AsyncIterator[Stream]:
    """Call a method that streams."""
    url = f"/sandboxes/{gateway.sandbox.id}/{SERVICE}/{method}"
    content = envelope(message.SerializeToString())
    async with gateway.client.stream("POST", url, content=content, headers={**STREAM, **(headers or {})}) as response:
        assert response.status_code == 200
        yield Stream(response)


async def ran(gateway: Served, message: Any, method: str = "Start", **headers: str) -> tuple[list[Any], dict[str, Any]]:
    """Call a method that streams, to its end."""
    async with called(
        gateway, method, message, {name.replace("_", "-"): value for name, value in headers.items()}
    ) as stream:
        events = await stream.rest()
    assert stream.end is not None
    return events, stream.end


async def unary(gateway: Served, method: str, message: Any) -> httpx.Response:
    """Call a method that answers once."""
    headers = {"content-type": "application/proto"}
    return await gateway.post(f"{SERVICE}/{method}", content=message.SerializeToString(), headers=headers)


def code_of(end: dict[str, Any]) -> str:
    code: str = end["error"]["code"]
    return code


def output(events: list[Any], stream: str = "stdout") -> bytes:
    return b"".join(getattr(event.data, stream) for event in events)


def connect_to(uuid: str) -> Any:
    return messages.ConnectRequest(session={"session_uuid": uuid})


def send_input(uuid: str, data: bytes, input_uuid: str | None = None) -> Any:
    return messages.SendInputRequest(session={"session_uuid": uuid}, input={"stdin": data}, input_uuid=input_uuid)


def send_signal(uuid: str, signal: int, signal_uuid: str | None = None) -> Any:
    return messages.SendSignalRequest(session={"session_uuid": uuid}, signal=signal, signal_uuid=signal_uuid)


async def test_a_command_is_announced_heard_and_ended(gateway: Served) -> None:
    request = shell("echo $A $OF_SANDBOX; echo bad >&2; pwd; exit 3", envs={"A": "b"}, cwd="/usr")
    events, end = await ran(gateway, request)
    assert (events[0].WhichOneof("event"), end) == ("start", {})
    assert events[0].start.pid > 0
    assert (output(events), output(events, "stderr")) == (b"b yes\n/usr\n", b"bad\n")
    last = events[-1].end
    assert (last.exit_code, last.exited, last.status, last.error) == (3, True, "exit status 3", "")


async def test_a_signal_is_told_from_an_exit(gateway: Served) -> None:
    events, _ = await ran(gateway, shell("kill -TERM $$"))
    last = events[-1].end
    assert (last.exit_code, last.exited, last.status) == (143, False, "signal 15")


async def test_json_clients_see_zero_exit_codes(gateway: Served) -> None:
    body = envelope(json.dumps({"command": {"cmd": "true"}}).encode())
    answer = await gateway.post(f"{SERVICE}/Start", content=body, headers={"content-type": "application/connect+json"})
    assert b'"exitCode": 0' in answer.content
    assert (await gateway.post(f"{SERVICE}/List", json={})).json() == {"sessions": []}


async def test_a_program_or_folder_that_is_not_there_ends_the_command_only(gateway: Served) -> None:
    events, end = await ran(gateway, messages.StartRequest(command={"cmd": "/none"}))
    assert (events[-1].end.exit_code, end) == (127, {})
    assert b"/none" in output(events, "stderr")
    events, end = await ran(gateway, shell("true", cwd="/none"))
    assert (events[-1].end.exit_code, end) == (126, {})
    events, end = await ran(gateway, shell("true", user="nobody-of-this-name"))
    assert (events[-1].end.exit_code, end) == (126, {})
    assert b"no such user" in output(events, "stderr")


async def test_the_deadline_kills_the_command_with_all_that_it_started(gateway: Served) -> None:
    marker = gateway.folder / "marker"
    request = shell(f"echo on; (sleep 0.8; touch {marker}) & sleep 30")
    events, end = await ran(gateway, request, connect_timeout_ms="300")
    assert (output(events), code_of(end)) == (b"on\n", "deadline_exceeded")
    assert "longer than 0.3 s" in end["error"]["message"]
    await asyncio.sleep(0.7)
    assert not marker.exists()


async def test_what_a_command_left_running_lives_on(gateway: Served) -> None:
    marker = gateway.folder / "marker"
    request = shell(f"nohup sh -c 'sleep 0.4; touch {marker}' > /dev/null 2>&1 & echo started")
    events, _ = await ran(gateway, request)
    assert output(events) == b"started\n"
    async with asyncio.timeout(5):
        while not marker.exists():
            await asyncio.sleep(0.05)


async def test_without_a_name_a_command_is_killed_when_its_caller_goes_away(gateway: Served) -> None:
    async with called(gateway, "Start", shell("echo on; sleep 60")) as stream:
        await stream.next()
        assert len(gateway.sandbox.sessions()) == 1
    async with asyncio.timeout(5):
        while gateway.sandbox.sessions() or gateway.sandbox.attached:
            await asyncio.sleep(0.02)


async def test_a_named_command_outlives_its_caller_and_is_attached_to_again(gateway: Served) -> None:
    request = shell("while read x; do echo got $x; [ $x = end ] && exit 7; done", "u-1")
    async with called(gateway, "Start", request) as stream:
        pid = (await stream.next()).start.pid
        await unary(gateway, "SendInput", send_input("u-1", b"one\n"))
        assert (await stream.next()).data.stdout == b"got one\n"
    await unary(gateway, "SendInput", send_input("u-1", b"unheard\n"))
    await asyncio.sleep(0.2)
    for method, again in (("Connect", connect_to("u-1")), ("Start", request)):
        async with called(gateway, method, again) as stream:
            assert (await stream.next()).start.pid == pid, "it is the same process"
            await unary(gateway, "SendInput", send_input("u-1", b"two\n"))
            assert (await stream.next()).data.stdout == b"got two\n", "what came meanwhile is not told again"
    async with called(gateway, "Connect", messages.ConnectRequest(session={"pid": pid})) as stream:
        await stream.next()
        await unary(gateway, "SendInput", send_input("u-1", b"end\n"))
        assert (await stream.rest())[-1].end.exit_code == 7
    for method, again in (("Connect", connect_to("u-1")), ("Start", request)):
        events, end = await ran(gateway, again, method)
        assert ([event.WhichOneof("event") for event in events], end) == (["start", "end"], {})
        assert (events[0].start.pid, events[1].end.exit_code) == (pid, 7)


async def test_two_starts_of_one_name_at_once_make_one_process(gateway: Served) -> None:
    request = shell(f"echo x >> {gateway.folder}/started; sleep 0.3", "u-1")
    both = await asyncio.gather(*(ran(gateway, request) for _ in range(5)))
    assert len({events[0].start.pid for events, _ in both}) == 1
    assert {events[-1].end.exit_code for events, _ in both} == {0}
    assert (gateway.folder / "started").read_text() == "x\n"


async def test_a_name_belongs_to_one_command(gateway: Served) -> None:
    await ran(gateway, shell("true", "u-1"))
    _, end = await ran(gateway, shell("false", "u-1"))
    assert code_of(end) == "failed_precondition"
    _, end = await ran(gateway, shell("true", "u-1"), connect_timeout_ms="9000")
    assert end == {}, "another deadline is no other command"


async def test_input_is_sent_once_however_often_it_comes(gateway: Served) -> None:
    async with called(gateway, "Start", shell("while read x; do echo $x; done", "u-1")) as stream:
        await stream.next()
        for text, uuid in [(b"a\n", "1"), (b"a\n", "1"), (b"b\n", "2"), (b"a\n", "1"), (b"a\n", "3"), (b"c\n", None)]:
            assert (await unary(gateway, "SendInput", send_input("u-1", text, uuid))).status_code == 200
        heard = b""
        while not heard.endswith(b"c\n"):
            heard += (await stream.next()).data.stdout
    assert heard == b"a\nb\na\nc\n"
    await unary(gateway, "SendSignal", send_signal("u-1", 9))


async def test_input_that_was_given_up_is_sent_whole_and_once(gateway: Served) -> None:
    read_all = shell(f"until [ -e {gateway.folder}/go ]; do sleep 0.05; done; head -c 3000003 | md5sum", "u-1")
    data = os.urandom(3_000_000)
    async with called(gateway, "Start", read_all) as stream:
        await stream.next()
        url = f"{SERVICE}/SendInput"
        body = send_input("u-1", data, "1").SerializeToString()
        headers = {"content-type": "application/proto", "connect-timeout-ms": "200"}
        late = await gateway.post(url, content=body, headers=headers)
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        again = asyncio.create_task(unary(gateway, "SendInput", send_input("u-1", data, "1")))
        (gateway.folder / "go").touch()
        assert (await again).status_code == 200
        await unary(gateway, "SendInput", send_input("u-1", b"end"))
        wanted = hashlib.md5(data + b"end").hexdigest().encode()
        assert output(await stream.rest()).startswith(wanted)


async def test_input_ends_with_the_command_that_reads_it_not(gateway: Served) -> None:
    async with called(gateway, "Start", shell("sleep 0.5", "u-1")) as stream:
        await stream.next()
        sending = asyncio.create_task(unary(gateway, "SendInput", send_input("u-1", b"x" * 3_000_000)))
        await stream.rest()
        assert (await sending).status_code == 200
    assert (await unary(gateway, "SendInput", send_input("u-1", b"more"))).status_code == 200


async def test_a_stream_of_input_reaches_the_command(gateway: Served) -> None:
    async with called(gateway, "Start", shell("head -c 6; exit 4", "u-1")) as stream:
        await stream.next()
        said = [
            messages.StreamInputRequest(start={"session": {"session_uuid": "u-1"}}),
            messages.StreamInputRequest(data={"input": {"stdin": b"abc"}}),
            messages.StreamInputRequest(keepalive={}),
            messages.StreamInputRequest(data={"earlier_input": {"stdin": b"def"}}),
        ]
        body = b"".join(envelope(one.SerializeToString()) for one in said)
        answer = await gateway.post(f"{SERVICE}/StreamInput", content=body, headers=STREAM)
        assert answer.content == envelope(b"") + envelope(b"{}", 2)
        events = await stream.rest()
    assert (output(events), events[-1].end.exit_code) == (b"abcdef", 4)
    body = envelope(said[1].SerializeToString())
    answer = await gateway.post(f"{SERVICE}/StreamInput", content=body, headers=STREAM)
    assert json.loads(answer.content[5:])["error"]["code"] == "invalid_argument"


async def test_signals_are_sent_once(gateway: Served) -> None:
    # On stderr, bash tells of the `sleep` that the signal ended too.
    script = "exec 2> /dev/null; trap 'echo caught' TERM; echo ready; while :; do sleep 0.05; done"
    async with called(gateway, "Start", shell(script, "u-1")) as stream:
        await stream.next()
        assert (await stream.next()).data.stdout == b"ready\n"
        for uuids in (("1", "1", "1"), ("1", "2")):
            for uuid in uuids:
                await unary(gateway, "SendSignal", send_signal("u-1", 15, uuid))
            assert (await stream.next()).data.stdout == b"caught\n"
        await asyncio.sleep(0.2)
        await unary(gateway, "SendSignal", send_signal("u-1", 9))
        events = await stream.rest()
    assert (output(events), events[-1].end.exit_code) == (b"", 137)
    assert (await unary(gateway, "SendSignal", send_signal("u-1", 15))).status_code == 200, "it is known, and has ended"
    refused = await unary(gateway, "SendSignal", send_signal("u-1", 0))
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")


async def test_running_commands_are_listed(gateway: Served) -> None:
    await ran(gateway, shell("true", "ended"))
    async with called(gateway, "Start", shell("sleep 60", "u-1", envs={"A": "b"}, cwd="/usr")) as stream:
        pid = (await stream.next()).start.pid
        listed = messages.ListResponse.FromString((await unary(gateway, "List", messages.ListRequest())).content)
    (info,) = listed.sessions
    assert (info.pid, info.session_uuid, list(info.command.args)) == (pid, "u-1", ["-c", "sleep 60"])
    assert (dict(info.command.envs), info.command.cwd) == ({"A": "b"}, "/usr")


async def test_what_cannot_be_is_refused(gateway: Served) -> None:
    _, end = await ran(gateway, messages.StartRequest())
    assert code_of(end) == "invalid_argument"
    _, end = await ran(gateway, messages.StartRequest(command={"cmd": "true"}, pty={"size": {"cols": 80, "rows": 24}}))
    assert code_of(end) == "unimplemented"
    for message in (connect_to("none"), messages.ConnectRequest(session={"pid": 4_000_000})):
        _, end = await ran(gateway, message, "Connect")
        assert code_of(end) == "not_found"
    _, end = await ran(gateway, messages.ConnectRequest(), "Connect")
    assert code_of(end) == "invalid_argument"
    refused = await unary(gateway, "SendInput", send_input("none", b"x"))
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    async with called(gateway, "Start", shell("sleep 60")) as stream:
        session = {"pid": (await stream.next()).start.pid}
        for given, code in [
            ({"stdin": b"x"}, "failed_precondition"),
            ({"pty": b"x"}, "failed_precondition"),
            ({}, "invalid_argument"),
        ]:
            refused = await unary(gateway, "SendInput", messages.SendInputRequest(session=session, input=given))
            assert refused.json()["code"] == code
        refused = await unary(gateway, "Update", messages.UpdateRequest(session=session, pty={}))
        assert refused.json()["code"] == "unimplemented"


async def test_tokens_are_checked_before_anything_else(gateway: Served) -> None:
    other = f"Bearer {make_token(SECRET, 'sb-2').text}"
    for header, code, status in [
        ("", "unauthenticated", 401),
        ("Bearer x", "unauthenticated", 401),
        (other, "permission_denied", 403),
    ]:
        _, end = await ran(gateway, shell("true"), authorization=header)
        assert code_of(end) == code
        refused = await gateway.post(f"{SERVICE}/List", json={}, headers={"authorization": header})
        assert (refused.status_code, refused.json()["code"]) == (status, code)


async def test_a_sandbox_that_ends_under_way_is_not_found(gateway: Served) -> None:
    async with called(gateway, "Start", shell("sleep 60", "u-1")) as stream:
        await stream.next()
        await gateway.sandbox.destroy(End(EndKind.TIMEOUT, "its time was over"))
        assert await stream.rest() == []
    assert stream.end is not None
    assert code_of(stream.end) == "not_found"
    assert "its time was over" in stream.end["error"]["message"]
    _, end = await ran(gateway, shell("true"))
    assert code_of(end) == "not_found"
    unknown = {"authorization": f"Bearer {make_token(SECRET, 'sb-9').text}", "content-type": "application/json"}
    refused = await gateway.client.post(f"/sandboxes/sb-9/{SERVICE}/List", content=b"{}", headers=unknown)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


async def test_endless_output_is_cut(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_sessions, "MOST_OUTPUT_BYTES", 2 * 1024**2)
    events, end = await ran(gateway, shell("yes"))
    assert code_of(end) == "resource_exhausted"
    assert "more than 2 MiB" in end["error"]["message"]
    assert len(output(events)) <= 2 * 1024**2
    async with asyncio.timeout(5):
        while gateway.sandbox.sessions():
            await asyncio.sleep(0.02)


async def test_a_slow_reader_loses_nothing(gateway: Served) -> None:
    async with called(gateway, "Start", shell("head -c 20000000 /dev/zero | tr '\\0' x; echo end")) as stream:
        await stream.next()
        await asyncio.sleep(0.5)
        events = await stream.rest()
    assert len(output(events)) == 20_000_004
    assert events[-1].end.exit_code == 0


async def test_a_reader_that_does_not_read_holds_up_no_other_for_long(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_PATIENCE_S", 0.2)
    async with called(gateway, "Start", shell("head -c 40000000 /dev/zero; echo end", "u-1")) as stuck:
        pid = (await stuck.next()).start.pid
        await asyncio.sleep(1)
        assert gateway.sandbox.sessions() != [], "alone, it sets the pace"
        async with called(gateway, "Connect", connect_to("u-1")) as quick:
            assert (await quick.next()).start.pid == pid
            events = await quick.rest()
        assert (output(events)[-4:], events[-1].end.exit_code) == (b"end\n", 0)
        held = await stuck.rest()
        assert stuck.end is not None
        assert "another reader" in stuck.end["error"]["message"]
        assert 0 < len(output(held)) < 40_000_000
