"""The methods of `command_session.CommandSession`: commands that run inside, attached or not.

A command that was started with a session_uuid outlives the connection that started it, and is found again by that name.
One without is the caller's own: when the caller goes away, it is killed, since nobody would ever see how it ends.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from hub_server.sandbox_node.errors import Gone
from hub_server.sandbox_node.gateway import messages
from hub_server.sandbox_node.gateway.connect import Call, ClientStream, Method, ServerStream, Unary
from hub_server.sandbox_node.gateway.envelopes import Code, RpcError
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Follower, Session
from hub_server.sandbox_node.specification import MEBIBYTE, Command, Ended

SERVICE = "command_session.CommandSession"
MOST_OUTPUT_BYTES = 256 * MEBIBYTE  # of a command without a name, whose caller collects it all
_GRACE_S = 5.0  # in which the agent kills what ran too long, and says so


async def start(call: Call, message: Any) -> AsyncGenerator[Any, None]:
    """Start a command, or attach to the one of this session_uuid, and yield what happens to it."""
    if message.HasField("pty"):
        raise RpcError(Code.UNIMPLEMENTED, "terminals are not offered here; start the command without a pty")
    spec = message.command
    if not spec.cmd:
        raise RpcError(Code.INVALID_ARGUMENT, "the command is empty")
    command = Command(
        argv=[spec.cmd, *spec.args],
        cwd=spec.cwd or None,
        env=dict(spec.envs),
        user=spec.user or None,
        timeout_s=call.timeout_s,
        stdin=message.stdin,
    )
    session, follower = await call.sandbox.start_followed(command, message.session_uuid or None)
    most_bytes = None if message.session_uuid else MOST_OUTPUT_BYTES
    try:
        async for event in _events(call.sandbox, session, follower, most_bytes):
            yield messages.StartResponse(event=event)
    finally:
        if not message.session_uuid:
            await session.signal(signal.SIGKILL)


async def connect(call: Call, message: Any) -> AsyncGenerator[Any, None]:
    """Attach to a command, and yield what happens to it from now on; how it ended when it has ended lately."""
    session = _find(call, message.session)
    async for event in _events(call.sandbox, session, session.follow(), None):
        yield messages.ConnectResponse(event=event)


async def _events(
    sandbox: Sandbox, session: Session, follower: Follower, most_bytes: int | None
) -> AsyncGenerator[dict[str, Any], None]:
    written = 0
    with follower:
        yield {"start": {"pid": session.pid}}
        async for event in follower:
            if isinstance(event, Ended):
                if session.lost:
                    raise Gone(await sandbox.end)
                yield {"end": _end(event, session)}
                return
            written += len(event.data)
            if most_bytes is not None and written > most_bytes:
                raise RpcError(
                    Code.RESOURCE_EXHAUSTED,
                    f"the command wrote more than {most_bytes // MEBIBYTE} MiB, and was killed; let it write to a file",
                )
            yield {"data": {event.stream: event.data}}


def _end(ended: Ended, session: Session) -> dict[str, Any]:
    if ended.timed_out:
        raise RpcError(
            Code.DEADLINE_EXCEEDED, f"the command ran longer than {session.command.timeout_s:g} s, and was killed"
        )
    end: dict[str, Any] = {"exit_code": ended.exit_code, "exited": ended.signal is None}
    end["status"] = f"exit status {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
    if ended.oom_killed:
        end["error"] = "a process of the command was killed, since the sandbox had no memory left"
    elif ended.cut:
        end["error"] = "the command wrote more than is kept, and was killed"
    return end


async def list_sessions(call: Call, message: Any) -> Any:
    """Return the commands that run now."""
    return messages.ListResponse(sessions=[_info(session) for session in call.sandbox.sessions()])


def _info(session: Session) -> Any:
    command = session.command
    program, *arguments = command.argv
    spec = messages.CommandSpec(cmd=program, args=arguments, envs=dict(command.env), cwd=command.cwd, user=command.user)
    return messages.CommandSessionInfo(command=spec, pid=session.pid, session_uuid=session.uuid)


async def send_input(call: Call, message: Any) -> Any:
    """Write to the standard input of a command; the same input_uuid again writes nothing."""
    await _write(_find(call, message.session), message.input, message.input_uuid or None)
    return messages.SendInputResponse()


async def stream_input(call: Call, requests: AsyncIterator[Any]) -> Any:
    """Write to the standard input of a command as input comes in; the end of the stream is the end of the input."""
    session: Session | None = None
    async for message in requests:
        kind = message.WhichOneof("event")
        if kind == "start":
            session = _find(call, message.start.session)
        elif kind == "data":
            if session is None:
                raise RpcError(Code.INVALID_ARGUMENT, "the stream does not start with the session to write to")
            earlier = message.data.HasField("earlier_input")
            await _write(session, message.data.earlier_input if earlier else message.data.input, None)
    if session is not None:
        await session.close_input()
    return messages.StreamInputResponse()


async def _write(session: Session, given: Any, uuid: str | None) -> None:
    kind = given.WhichOneof("input")
    if kind == "pty":
        raise RpcError(Code.FAILED_PRECONDITION, "the command has no terminal; send its input as stdin")
    if kind is None:
        raise RpcError(Code.INVALID_ARGUMENT, "the request has no input")
    if not session.command.stdin:
        raise RpcError(Code.FAILED_PRECONDITION, "the command was started without stdin")
    await session.write(given.stdin, uuid=uuid)


async def send_signal(call: Call, message: Any) -> Any:
    """Send a signal to a command; the same signal_uuid again sends nothing."""
    session = _find(call, message.session)
    if not 0 < message.signal < signal.SIGRTMIN:
        raise RpcError(Code.INVALID_ARGUMENT, f"{message.signal} is no signal that can be sent")
    await session.signal(message.signal, uuid=message.signal_uuid or None)
    return messages.SendSignalResponse()


async def update(call: Call, message: Any) -> Any:
    """Refuse to resize a terminal, since no command has one."""
    _find(call, message.session)
    raise RpcError(Code.UNIMPLEMENTED, "terminals are not offered here")


def _find(call: Call, selector: Any) -> Session:
    kind = selector.WhichOneof("selector")
    if kind is None:
        raise RpcError(Code.INVALID_ARGUMENT, "the request names no session, neither by pid nor by session_uuid")
    found: Session = call.sandbox.session(**{"pid" if kind == "pid" else "uuid": getattr(selector, kind)})
    return found


_KEEPALIVE: dict[str, Any] = {"event": {"keepalive": {}}}

METHODS: dict[str, Method] = {
    "List": Unary(messages.ListRequest, list_sessions),
    "Connect": ServerStream(messages.ConnectRequest, connect, messages.ConnectResponse(**_KEEPALIVE)),
    "Start": ServerStream(messages.StartRequest, start, messages.StartResponse(**_KEEPALIVE), _GRACE_S),
    "Update": Unary(messages.UpdateRequest, update),
    "StreamInput": ClientStream(messages.StreamInputRequest, stream_input),
    "SendInput": Unary(messages.SendInputRequest, send_input),
    "SendSignal": Unary(messages.SendSignalRequest, send_signal),
}
