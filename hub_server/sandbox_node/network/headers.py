"""Header fields as h11 has them: which of them are for the next hop only."""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

# RFC 9110, 7.6.1, and what clients say to proxies.
_OF_ONE_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate proxy-authentication-info "
    b"te trailer transfer-encoding upgrade expect".split()
)


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the fields that go on to the other end: those of one hop, and those that `Connection` names, stay.

    A body that comes in chunks goes on in chunks: the field that says so is added by the caller, who knows.
    """
    headers = list(headers)
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    # A client that names `Host` or a length as a field of one hop wants two parties to read one message differently.
    named -= {b"host", b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in _OF_ONE_HOP and name.lower() not in named]


def values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the values of a field, whose name is in lower case."""
    return [value for field, value in headers if field.lower() == name]
