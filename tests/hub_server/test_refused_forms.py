"""Multipart forms that cannot be: read piece by piece, refused before anything of them is kept."""

from __future__ import annotations

import io

import pytest

from hub_server.errors import Malformed, Refusal, TooLarge
from hub_server.registry.multipart import FormReader
from hub_server.traces.documents import MAX_TRACES_IN_EPISODE, read_line
from hub_server.traces.errors import TraceRefusal

FORM = "multipart/form-data; boundary=x"


def part(name: str, data: str, filename: str = "") -> bytes:
    named = f'; filename="{filename}"' if filename else ""
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n{data}\r\n'.encode()


@pytest.mark.parametrize(
    ("kind", "words", "content_type", "data"),
    [
        (Malformed, "multipart/form-data form", "application/json", b"{}"),
        (Malformed, "multipart/form-data form", "multipart/form-data", b""),
        (Malformed, "the form cannot be read", FORM, b"no boundary"),
        (Malformed, "more than one file", FORM, part("content", "a", "a.whl") + part("content", "b", "b.whl")),
        (TooLarge, "a.whl is larger than the 10 bytes", FORM, part("content", "a" * 11, "a.whl")),
        (TooLarge, "more than 2000 fields", FORM, part("a", "b") * 2001),
        (TooLarge, "the fields of the form are over", FORM, part("a", "b" * 2 * 1024**2) * 3),
    ],
)
@pytest.mark.parametrize("piece", [1000, 10**9])
def test_a_form_that_cannot_be_is_refused_however_it_comes(
    kind: type[Refusal], words: str, content_type: str, data: bytes, piece: int
) -> None:
    kept = io.BytesIO()

    def read() -> None:
        form = FormReader(content_type, "content", kept, 10)
        for start in range(0, len(data), piece):
            form.feed(data[start : start + piece])

    with pytest.raises(kind, match=words):
        read()
    assert len(kept.getvalue()) <= 10


@pytest.mark.parametrize(
    ("code", "as_episode", "line"),
    [
        ("line_format_mismatch", True, b'{"id": "a", "nodes": []}'),
        ("invalid_trace", True, b'{"id": "a", "traces": [1]}'),
        ("too_many_traces_in_episode", True, b'{"id": "a", "traces": [' + b"{}," * MAX_TRACES_IN_EPISODE + b"{}]}"),
        ("invalid_trace", False, b'{"id": ""}'),
        ("invalid_trace", False, b'{"id": "' + b"a" * 201 + b'"}'),
        ("invalid_trace", False, b"1"),
    ],
)
def test_a_line_that_is_no_document_says_what_is_wrong(code: str, as_episode: bool, line: bytes) -> None:
    with pytest.raises(TraceRefusal, match="line 7 ") as refused:
        list(read_line(line, 7, as_episode=as_episode))
    assert (refused.value.code, refused.value.status) == (code, 400)
