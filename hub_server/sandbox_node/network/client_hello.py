"""Whom a TLS client means to talk to, read from its first message, without a part in the talk (RFC 8446, 4.1.2)."""

from __future__ import annotations

from dataclasses import dataclass

# Post-quantum key shares make a hello of two kilobytes; one of this size is an attack on our memory.
MOST_BYTES = 32 * 1024
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _HOST_NAME = 0, 0
# RFC 9849, and the last form of the draft that came before it.
_ENCRYPTED_HELLOS = (0xFE0D, 0xFFCE)
_MOST_IN_RECORD = 2**14


class NotTLS(ValueError):
    """What was sent is no proper beginning of TLS."""


@dataclass(frozen=True)
class ClientHello:
    """What a client says at first.

    Attributes:
        server_name: the host that it names, in lower case; None where it names none.
        encrypted: part of the hello is hidden, so it may mean another host than it names.
    """

    server_name: str | None
    encrypted: bool


class HelloReader:
    """Reads a ClientHello from bytes as they come, however they are cut into records."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._message = bytearray()
        self._taken = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Take bytes; return the hello once it is whole.

        Raises:
            NotTLS: it is none.
        """
        self._taken += len(data)
        self._records += data
        while len(self._records) >= 5:
            kind, major, size = self._records[0], self._records[1], int.from_bytes(self._records[3:5], "big")
            if kind != _HANDSHAKE or major != 3 or not 0 < size <= _MOST_IN_RECORD:
                raise NotTLS("not a TLS handshake")
            if len(self._records) < 5 + size:
                break
            self._message += self._records[5 : 5 + size]
            del self._records[: 5 + size]
            # More may follow at once: a client that was here before sends early data.
            if (hello := self._hello()) is not None:
                return hello
        if self._records and self._records[0] != _HANDSHAKE:
            raise NotTLS("not a TLS handshake")
        if self._taken > MOST_BYTES:
            raise NotTLS("the ClientHello is too long")
        return None

    def _hello(self) -> ClientHello | None:
        """Return the hello if all of it has come."""
        message = self._message
        if message and message[0] != _CLIENT_HELLO:
            raise NotTLS("the handshake does not begin with a ClientHello")
        size = int.from_bytes(message[1:4], "big") if len(message) >= 4 else 0
        if size > MOST_BYTES:
            raise NotTLS("the ClientHello is too long")
        if len(message) < 4 or len(message) < 4 + size:
            return None
        try:
            return _parse(_Fields(bytes(message[4 : 4 + size])))
        except IndexError:
            raise NotTLS("the ClientHello is cut short") from None


class _Fields:
    """Fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self._at + size
        if end > len(self._data):
            raise IndexError
        self._at, piece = end, self._data[self._at : end]
        return piece

    def vector(self, size_of_length: int) -> bytes:
        """Return the next field that begins with its length."""
        return self.take(int.from_bytes(self.take(size_of_length), "big"))

    @property
    def left(self) -> bool:
        """Say whether more fields follow."""
        return self._at < len(self._data)


def _parse(hello: _Fields) -> ClientHello:
    """Read the body of a ClientHello."""
    hello.take(2 + 32)  # version and random
    hello.vector(1)  # session
    hello.vector(2)  # ciphers
    hello.vector(1)  # compression
    extensions: dict[int, bytes] = {}
    if hello.left:
        fields = _Fields(hello.vector(2))
        while fields.left:
            kind = int.from_bytes(fields.take(2), "big")
            if kind in extensions:
                raise NotTLS("the ClientHello has an extension twice")
            extensions[kind] = fields.vector(2)
    names = extensions.get(_SERVER_NAME)
    encrypted = any(kind in extensions for kind in _ENCRYPTED_HELLOS)
    return ClientHello(None if names is None else _parse_server_name(names), encrypted)


def _parse_server_name(extension: bytes) -> str:
    """Return the one host that the extension names."""
    names = _Fields(_Fields(extension).vector(2))
    kind, name = names.take(1)[0], names.vector(2)
    if kind != _HOST_NAME or names.left or not name.isascii():
        raise NotTLS("the ClientHello does not name one host")
    return name.decode("ascii").lower().rstrip(".")
