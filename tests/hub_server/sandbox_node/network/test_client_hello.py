"""Reading whom a TLS client names."""

from __future__ import annotations

import pytest

from hub_server.sandbox_node.network.client_hello import MOST_BYTES, ClientHello, HelloReader, NotTLS
from tests.hub_server.sandbox_node.network.hellos import hello_of, made_hello, record, server_names


def test_the_name_that_a_library_sends_is_read() -> None:
    assert HelloReader().feed(hello_of("Allowed.test")) == ClientHello("allowed.test", False)
    assert HelloReader().feed(hello_of(None)) == ClientHello(None, False)


def test_a_hello_is_read_however_it_is_cut_into_pieces_and_records() -> None:
    whole = hello_of("allowed.test")
    message = whole[5:]
    records = b"".join(record(message[at : at + 7]) for at in range(0, len(message), 7))
    for data in (whole, records):
        reader = HelloReader()
        answers = [reader.feed(data[at : at + 1]) for at in range(len(data))]
        assert answers[-1] == ClientHello("allowed.test", False)
        assert not any(answers[:-1])


def test_early_data_after_the_hello_is_no_part_of_it() -> None:
    assert HelloReader().feed(hello_of("allowed.test") + record(b"early", 23)) == ClientHello("allowed.test", False)


@pytest.mark.parametrize("extension", [0xFE0D, 0xFFCE])
def test_a_hello_that_hides_a_part_of_itself_is_told(extension: int) -> None:
    hello = HelloReader().feed(made_hello(server_names(b"public.test"), (extension, b"hidden")))
    assert hello == ClientHello("public.test", True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\x01\x03\x01",  # SSL 2
        record(b"\x02\0\0\x10"),  # a server's hello
        record(b"", 22) + b"\x16\x03\x01",
        bytes([22, 3, 1, 0xFF, 0xFF]),
        made_hello(server_names(b"one.test", b"two.test")),
        made_hello(server_names(b"one.test"), server_names(b"two.test")),
        made_hello(server_names("bücher.test".encode())),
        made_hello((0, b"\0\x09\0\0\xffx")),
        record(b"\x01" + (MOST_BYTES + 1).to_bytes(3, "big")),
        record(b"\x01\0\0\x04\x03\x03\0\0"),
    ],
)
def test_what_is_no_proper_hello_is_refused(data: bytes) -> None:
    with pytest.raises(NotTLS):
        HelloReader().feed(data)


def test_a_hello_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    reader = HelloReader()
    assert reader.feed(record(b"\x01\0\x70\0" + bytes(100))) is None
    endless = (record(b"x") for _ in range(MOST_BYTES))
    with pytest.raises(NotTLS, match="too long"):
        list(map(reader.feed, endless))
