"""First messages of TLS clients: as a library sends them, and as none does."""

from __future__ import annotations

import contextlib
import ssl


def hello_of(server_name: str | None) -> bytes:
    """Return what OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=server_name)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return out.read()


def made_hello(*extensions: tuple[int, bytes]) -> bytes:
    """Return a hello with these extensions, in one record."""
    fields = b"".join(number.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for number, data in extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + len(fields).to_bytes(2, "big") + fields
    return record(b"\x01" + len(body).to_bytes(3, "big") + body)


def record(message: bytes, kind: int = 22) -> bytes:
    return bytes([kind, 3, 1]) + len(message).to_bytes(2, "big") + message


def server_names(*names: bytes) -> tuple[int, bytes]:
    entries = b"".join(b"\0" + len(name).to_bytes(2, "big") + name for name in names)
    return 0, len(entries).to_bytes(2, "big") + entries
