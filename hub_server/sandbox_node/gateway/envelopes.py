"""The framing of the Connect protocol: a flag byte, a length of four bytes, and the message; and its errors.

RpcError    a call that failed, with its code as the protocol names it
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from enum import StrEnum

COMPRESSED = 0b01
END_OF_STREAM = 0b10
MOST_MESSAGE_BYTES = 32 * 1024**2
_HEADER = struct.Struct(">BI")


class Code(StrEnum):
    """The codes that this server gives; each stands for one HTTP status too."""

    CANCELED = "canceled"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    UNAUTHENTICATED = "unauthenticated"


HTTP_STATUS = {
    Code.CANCELED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class RpcError(Exception):
    """A call failed; `code` is the protocol's, and the text one line for the caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def as_json(self) -> dict[str, str]:
        """Return the error as the protocol writes it."""
        return {"code": str(self.code), "message": self.message}


def envelope(payload: bytes, flags: int = 0) -> bytes:
    """Return a message in its envelope."""
    return _HEADER.pack(flags, len(payload)) + payload


def end_of_stream(error: RpcError | None = None) -> bytes:
    """Return the envelope that ends a stream, well or with an error."""
    said = {} if error is None else {"error": error.as_json()}
    return envelope(json.dumps(said).encode(), END_OF_STREAM)


def gunzip(data: bytes) -> bytes:
    """Return what was compressed, without ever holding more than a message may be long.

    Raises:
        RpcError: it is damaged, or longer.
    """
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(data, MOST_MESSAGE_BYTES + 1)
    except zlib.error as error:
        raise RpcError(Code.INVALID_ARGUMENT, "the message is no valid gzip") from error
    if len(unpacked) > MOST_MESSAGE_BYTES:
        raise too_long()
    if not unpacker.eof:
        raise RpcError(Code.INVALID_ARGUMENT, "the message is no valid gzip")
    return unpacked


def too_long() -> RpcError:
    """Return the error for a message over the limit."""
    return RpcError(Code.RESOURCE_EXHAUSTED, f"a message may be {MOST_MESSAGE_BYTES // 1024**2} MiB long at most")


class EnvelopeReader:
    """Takes a body apart as it comes in."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete now.

        Raises:
            RpcError: the framing is wrong, or a message too long.
        """
        self._pending += data
        while len(self._pending) >= _HEADER.size:
            flags, length = _HEADER.unpack_from(self._pending)
            if length > MOST_MESSAGE_BYTES:
                raise too_long()
            end = _HEADER.size + length
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[_HEADER.size : end])
            del self._pending[:end]
            if flags & ~COMPRESSED:
                raise RpcError(Code.INVALID_ARGUMENT, f"an envelope with flags {flags:#04x} has no meaning here")
            if flags & COMPRESSED and not self._gzip:
                raise RpcError(Code.INTERNAL, "a compressed message came without connect-content-encoding: gzip")
            yield gunzip(payload) if flags & COMPRESSED else payload

    def finish(self) -> None:
        """Say that the body is over.

        Raises:
            RpcError: it ended within an envelope.
        """
        if self._pending:
            raise RpcError(Code.INVALID_ARGUMENT, "the request ended within a message")
