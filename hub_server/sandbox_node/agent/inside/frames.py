"""The frames between a node and its agent; both sides use this file.

A frame is its payload's length, a kind and the channel that it belongs to, then the payload, by kind. A
channel is one command, file transfer or connection. The node numbers those that it opens from 1; connections that come
from inside have numbers from FROM_INSIDE on. Bytes flow only as far as the reader gave credit, so that one slow reader
holds up its own channel and no other.
"""

from __future__ import annotations

import marshal
import struct

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from typing import Any

HEADER = struct.Struct("!IBI")
MOST_PAYLOAD = 8 * 1024**2
CHUNK = 64 * 1024
WINDOW = 256 * 1024
FROM_INSIDE = 0x80000000

# From the node to the agent.
START, PYTHON, INPUT, SIGNAL, STAT, READ, WRITE, CONNECT, LISTEN, CLOSE, WARM, PING = range(1, 13)
# From the agent to the node.
HELLO, STARTED, STDOUT, STDERR, ENDED, REPLY, FAILED, DATA, END_OF_DATA, ACCEPTED = range(65, 75)
# Both ways: so many bytes more may come on this channel.
CREDIT = 128

_CREDIT = struct.Struct("!I")
_OLD_MARSHAL = 2  # the same in all versions of Python
_ESCAPES = {number: f"\\u{number:04x}" for number in range(32)} | {ord('"'): '\\"', ord("\\"): "\\\\"}


def frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return HEADER.pack(len(payload), kind, channel) + payload


def request_frame(kind: int, channel: int, request: dict[str, Any]) -> bytes:
    """Return the frame of a request. The agent believes the node, so it is in the form that is read fastest."""
    return frame(kind, channel, marshal.dumps(request, _OLD_MARSHAL))


def requested(payload: bytes) -> dict[str, Any]:
    """Return what a request asks for; for the agent only, since bad data may do anything.

    Raises:
        Malformed: it is no request.
    """
    try:
        value = marshal.loads(payload)  # noqa: S302  of the node
    except (ValueError, EOFError, TypeError) as error:
        raise Malformed(str(error)) from None
    if not isinstance(value, dict):
        raise Malformed("no request")
    return value


def json_frame(kind: int, channel: int, value: dict[str, Any]) -> bytes:
    """Return one frame that carries JSON, as answers do, which the node does not believe."""
    return frame(kind, channel, as_json(value))


def as_json(value: object) -> bytes:
    """Return a value of an answer as JSON; to import `json` would be another third of the agent's start."""
    if isinstance(value, dict):
        return b"{" + b", ".join(as_json(key) + b": " + as_json(each) for key, each in value.items()) + b"}"
    if isinstance(value, str):
        # What is no Unicode, as in names of files, becomes an escape that JSON has too.
        return b'"' + value.translate(_ESCAPES).encode("utf-8", "backslashreplace") + b'"'
    words = {None: b"null", True: b"true", False: b"false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value).encode()


def credit_frame(channel: int, size: int) -> bytes:
    """Return the frame that lets `size` more bytes come."""
    return frame(CREDIT, channel, _CREDIT.pack(size))


def credit_of(payload: bytes) -> int:
    """Return how many bytes a CREDIT frame allows."""
    value: int = _CREDIT.unpack(payload)[0]
    return value


class Malformed(Exception):
    """What came is no frame."""


class Decoder:
    """Takes bytes as they come, and gives whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return the frames (kind, channel, payload) that `data` completes.

        Raises:
            Malformed: a payload is longer than any may be.
        """
        self._buffer += data
        found = []
        position = 0
        while len(self._buffer) - position >= HEADER.size:
            size, kind, channel = HEADER.unpack_from(self._buffer, position)
            if size > MOST_PAYLOAD:
                raise Malformed(f"a frame of {size} bytes")
            end = position + HEADER.size + size
            if len(self._buffer) < end:
                break
            found.append((kind, channel, bytes(self._buffer[position + HEADER.size : end])))
            position = end
        if position:
            del self._buffer[:position]
        return found
