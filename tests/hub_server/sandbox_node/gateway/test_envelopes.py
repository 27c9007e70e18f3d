"""Envelopes are read however their bytes are cut, and messages have the numbers of the wire."""

from __future__ import annotations

import contextlib
import gzip
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_server.sandbox_node.gateway import messages
from hub_server.sandbox_node.gateway.envelopes import EnvelopeReader, RpcError, envelope


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_messages_are_found_however_the_body_is_cut(said: list[tuple[bytes, bool]], data: st.DataObject) -> None:
    body = b"".join(envelope(gzip.compress(one), 1) if packed else envelope(one) for one, packed in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    reader = EnvelopeReader(gzip=True)
    found = []
    for start, end in pairwise([0, *cuts, len(body)]):
        found += list(reader.feed(body[start:end]))
    reader.finish()
    assert found == [one for one, _ in said]


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_messages_or_refused(body: bytes) -> None:
    reader = EnvelopeReader(gzip=True)
    found: list[bytes] = []
    with contextlib.suppress(RpcError):
        found += reader.feed(body)
        reader.finish()
    assert sum(map(len, found)) <= 200 * 1100, "gzip cannot make more of it"


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (messages.StartRequest(command={"cmd": "a", "args": ["b"]}, stdin=True, session_uuid="u"),
         b"\x0a\x06\x0a\x01a\x12\x01b\x20\x01\x2a\x01u"),
        (messages.StartRequest(command={"cmd": "a", "envs": {"k": "v"}, "cwd": "/", "user": "u"}),
         b"\x0a\x11\x0a\x01a\x1a\x06\x0a\x01k\x12\x01v\x22\x01/\x2a\x01u"),
        (messages.StartResponse(event={"start": {"pid": 300}}), b"\x0a\x05\x0a\x03\x08\xac\x02"),
        (messages.StartResponse(event={"data": {"stderr": b"x"}}), b"\x0a\x05\x12\x03\x12\x01x"),
        (messages.StartResponse(event={"end": {"exit_code": -1, "exited": True, "status": "s", "error": "e"}}),
         b"\x0a\x0c\x1a\x0a\x08\x01\x10\x01\x1a\x01s\x22\x01e"),
        (messages.StartResponse(event={"keepalive": {}}), b"\x0a\x02\x22\x00"),
        (messages.ConnectRequest(session={"session_uuid": "u"}), b"\x0a\x03\x1a\x01u"),
        (messages.ConnectRequest(session={"pid": 1}), b"\x0a\x02\x08\x01"),
        (messages.SendInputRequest(session={"pid": 1}, input={"stdin": b"x"}, input_uuid="i"),
         b"\x0a\x02\x08\x01\x12\x03\x0a\x01x\x1a\x01i"),
        (messages.SendSignalRequest(session={"pid": 1}, signal=15, signal_uuid="i"),
         b"\x0a\x02\x08\x01\x10\x0f\x1a\x01i"),
        (messages.ListResponse(sessions=[{"command": {"cmd": "a"}, "pid": 1, "session_uuid": "u"}]),
         b"\x0a\x0a\x0a\x03\x0a\x01a\x10\x01\x22\x01u"),
    ],
)  # fmt: skip
def test_messages_are_written_as_on_the_wire(message: object, written: bytes) -> None:
    assert message.SerializeToString() == written  # type: ignore[attr-defined]
