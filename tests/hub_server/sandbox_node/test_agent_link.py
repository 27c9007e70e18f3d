"""The link to an agent: frames, credit, and an agent that is not to be believed."""

from __future__ import annotations

import asyncio
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_server.sandbox_node.agent.inside import frames
from hub_server.sandbox_node.agent.inside.frames import Decoder, Malformed
from hub_server.sandbox_node.errors import NotStarted
from hub_server.sandbox_node.link import GONE, AgentLink, decoded
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.sessions import Output, Session
from hub_server.sandbox_node.specification import Command

FRAMES = st.lists(st.tuples(st.integers(1, 255), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=8)


@given(FRAMES, st.integers(1, 50))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[tuple[int, int, bytes]], step: int) -> None:
    data = b"".join(frames.frame(*each) for each in sent)
    decoder = Decoder()
    received = []
    for start in range(0, len(data), step):
        received += decoder.feed(data[start : start + step])
    assert received == sent


def test_a_frame_that_is_too_long_is_refused_before_it_came() -> None:
    with pytest.raises(Malformed):
        Decoder().feed(struct.pack("!IBI", frames.MOST_PAYLOAD + 1, frames.STDOUT, 1))


async def false_agent() -> tuple[AgentLink, int, int]:
    """Return a link and the two descriptors of whoever plays its agent (read, write)."""
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    return await AgentLink.over(ours_read, ours_write), theirs_read, theirs_write


async def test_an_agent_that_says_nothing_or_ends_is_no_sandbox() -> None:
    link, read_fd, write_fd = await false_agent()
    with pytest.raises(NotStarted, match="said nothing for"):
        await link.ready(0.1)
    os.close(write_fd)
    os.close(read_fd)
    with pytest.raises(NotStarted, match="ended before it was ready"):
        await link.ready(5)


@pytest.mark.parametrize(
    "said",
    [
        struct.pack("!IBI", 2**31, frames.STDOUT, 1),
        frames.frame(frames.HELLO, 0, b"[1, 2]"),
        frames.frame(frames.HELLO, 0, b"\xff"),
        frames.frame(frames.STDOUT, 1, bytes(frames.CHUNK)) * 40,
        frames.frame(frames.REPLY, 1, bytes(frames.CHUNK)) * 40,
        frames.frame(frames.STDOUT, 1) * 3_000,
        b"".join(frames.frame(frames.ACCEPTED, frames.FROM_INSIDE + number, b"{}") for number in range(2000)),
    ],
    ids=["endless frame", "no object", "no JSON", "more than it may", "many answers", "empty output", "connections"],
)
async def test_an_agent_that_breaks_the_rules_is_let_go(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub_server.sandbox_node.link._MOST_FRAMES", 1_000)
    link, read_fd, write_fd = await false_agent()
    channel = link.open()
    link.on_connection = lambda channel: None
    os.set_blocking(write_fd, False)
    written = 0
    while written < len(said) and not link.closed.done():
        try:
            written += os.write(write_fd, said[written : written + 65536])
        except BlockingIOError:
            pass
        except BrokenPipeError:
            break
        await asyncio.sleep(0.001)
    await asyncio.wait_for(link.closed, 5)
    while (await channel.receive()).kind != GONE:
        continue
    os.close(read_fd)
    os.close(write_fd)
    assert link.closed.done()


async def test_no_credit_lets_more_be_sent_than_the_window() -> None:
    link, read_fd, write_fd = await false_agent()
    channel = link.open()
    os.write(write_fd, frames.credit_frame(1, 2**31) * 3)
    await asyncio.sleep(0.05)
    sending = asyncio.ensure_future(channel.send_bytes(bytes(4 * frames.WINDOW)))
    taken = 0
    os.set_blocking(read_fd, False)
    for _ in range(100):
        await asyncio.sleep(0.001)
        try:
            taken += len(os.read(read_fd, 1_000_000))
        except BlockingIOError:
            continue
    assert frames.WINDOW <= taken < frames.WINDOW + 1000
    assert not sending.done()
    sending.cancel()
    link.close()
    os.close(read_fd)
    os.close(write_fd)


async def test_connections_go_both_ways_through_a_sandbox(plain_sandbox: Sandbox) -> None:
    code = (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nprint(server.getsockname()[1], flush=True)\n"
        "peer, _ = server.accept()\ndata = b''\nwhile part := peer.recv(65536): data += part\npeer.sendall(data[::-1])"
    )
    session, follower = await plain_sandbox.start_followed(Command(["python3", "-c", code]))
    with follower:
        said = await follower.next()
        assert isinstance(said, Output)
        stream = await plain_sandbox.connect(int(said.data))
        data = os.urandom(1_500_000)
        await stream.write(data)
        await stream.close_writing()
        back = b""
        while part := await stream.read():
            back += part
        stream.close()
        assert back == data[::-1]
        assert (await session.wait()).exit_code == 0
    with pytest.raises(ConnectionRefusedError):
        await plain_sandbox.connect(int(said.data))


@given(
    st.dictionaries(st.text(max_size=20), st.none() | st.booleans() | st.integers() | st.text(max_size=50), max_size=6)
)
def test_answers_are_json_whatever_they_say(said: dict[str, object]) -> None:
    [(_, _, payload)] = Decoder().feed(frames.json_frame(frames.REPLY, 7, said))
    assert decoded(payload) == said


def test_a_name_that_is_no_unicode_comes_through() -> None:
    [(_, _, payload)] = Decoder().feed(
        frames.json_frame(frames.REPLY, 7, {"name": b"\xff.txt".decode("utf-8", "surrogateescape")})
    )
    assert decoded(payload) == {"name": "\udcff.txt"}


def test_requests_come_out_as_they_went_in_and_nonsense_is_refused() -> None:
    request = {"argv": ["a", "ü\udcff"], "env": {"A": "b"}, "timeout_s": 1.5, "user": None, "stdin": True}
    [(_, _, payload)] = Decoder().feed(frames.request_frame(frames.START, 7, request))
    assert frames.requested(payload) == request
    for nonsense in (b"", b"\0", b"i\1", b"nonsense"):
        with pytest.raises(Malformed):
            frames.requested(nonsense)


@pytest.mark.parametrize("said", [b"{}", b'{"exit_code": "x"}', b"[]", b"\xff"])
async def test_a_session_of_an_agent_that_makes_no_sense_ends(said: bytes) -> None:
    link, read_fd, write_fd = await false_agent()
    session = Session(link.open(), Command(["true"]), None)
    os.write(write_fd, frames.json_frame(frames.STARTED, 1, {"pid": 5}) + frames.frame(frames.ENDED, 1, said))
    await session.started()
    session.pump(lambda ended: ended, lambda: None)
    assert (await asyncio.wait_for(session.wait(), 5)).exit_code == 137
    assert session.lost
    other, other_read, other_write = await false_agent()
    os.write(other_write, frames.frame(frames.STARTED, 1, said))
    with pytest.raises(NotStarted):
        await Session(other.open(), Command(["true"]), None).started()
    for fd in (read_fd, write_fd, other_read, other_write):
        os.close(fd)
