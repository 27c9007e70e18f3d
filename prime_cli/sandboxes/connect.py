"""The envelopes of the Connect protocol: a byte of flags, the length in four, and a message.

The specification of the protocol: https://connectrpc.com/docs/protocol
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

_END_OF_STREAM = 0x02
_HEADER = struct.Struct(">BI")


class ConnectError(Exception):
    """The other side ended a call with an error: its code, such as `not_found`, and its words."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code}: {words}" if words else code)
        self.code, self.words = code, words


def envelope(message: dict[str, Any]) -> bytes:
    """Return a message in its envelope."""
    payload = json.dumps(message).encode()
    return _HEADER.pack(0, len(payload)) + payload


def messages(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a streamed answer, however it was cut into chunks.

    Raises:
        ConnectError: the stream ends with an error, or without an end.
    """
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= _HEADER.size:
            flags, size = _HEADER.unpack_from(held)
            if len(held) < _HEADER.size + size:
                break
            message = json.loads(bytes(held[_HEADER.size : _HEADER.size + size]) or b"{}")
            del held[: _HEADER.size + size]
            if flags & _END_OF_STREAM:
                if error := message.get("error"):
                    raise error_of(error)
                return
            yield message
    raise ConnectError("unavailable", "the stream broke off")


def error_of(body: Any) -> ConnectError:
    """Return the error that a body `{code, message}` describes."""
    described = body if isinstance(body, dict) else {}
    return ConnectError(str(described.get("code") or "unknown"), str(described.get("message") or ""))
