"""A multipart form whose one file goes straight to where it will be kept, never whole through memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from hub_server.errors import Malformed, TooLarge

_MAX_FIELDS = 2000
_MAX_FIELD_BYTES = 4 * 1024**2  # all fields together; a README is among them


_FEED_BYTES = 1024**2  # so many go to a thread at once


async def feed_form(request: Request, form: FormReader) -> bytes:
    """Feed a form with the body of a request and return what is left, for the next visit to a thread.

    Raises:
        ClientDisconnect: the upload broke off.
    """
    gathered = bytearray()
    async for chunk in request.stream():
        gathered += chunk
        if len(gathered) >= _FEED_BYTES:
            await run_in_threadpool(form.feed, bytes(gathered))
            gathered.clear()
    return bytes(gathered)


class Sink(Protocol):
    """Takes the bytes of the file."""

    def write(self, data: bytes) -> None:
        """Append bytes."""


@dataclass
class FormReader:
    """Reads a form piece by piece: the bytes of the field `file_field` go to `sink`, the others to `fields`.

    Of a field that comes several times the first value is kept.
    """

    content_type: str
    file_field: str
    sink: Sink
    max_file_bytes: int
    on_file: Callable[[str], None] | None = None  # told the content encoding of the file before its first bytes
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    is_complete: bool = False
    _headers: dict[str, str] = field(default_factory=dict)
    _header: bytearray = field(default_factory=bytearray)
    _header_value: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)
    _name: str = ""
    _file_bytes: int = 0
    _field_bytes: int = 0
    _parts: int = 0

    def __post_init__(self) -> None:
        kind, options = parse_options_header(self.content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise Malformed("an upload is a multipart/form-data form, as twine and `uv publish` send it")
        self._parser = MultipartParser(
            options[b"boundary"],
            callbacks={
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header_value.extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._start_value,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_end": self._finish,
            },
        )

    def feed(self, data: bytes) -> None:
        """Read the next piece.

        Raises:
            Malformed: it is not such a form.
            TooLarge: the file or the fields are over their limits.
        """
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise Malformed(f"the form cannot be read: {error}") from None

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_FIELDS:
            raise TooLarge(f"the form has more than {_MAX_FIELDS} fields")
        self._headers.clear()
        self._value.clear()

    def _end_header(self) -> None:
        self._headers[self._header.decode("latin-1").lower()] = self._header_value.decode("latin-1")
        self._header.clear()
        self._header_value.clear()

    def _start_value(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", ""))
        self._name = options.get(b"name", b"").decode(errors="replace")
        if self._name == self.file_field:
            if self.filename is not None:
                raise Malformed("the form has more than one file; upload one at a time")
            self.filename = options.get(b"filename", b"").decode(errors="replace")
            if self.on_file is not None:
                self.on_file(self._headers.get("content-encoding", "").strip().lower())

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self.file_field:
            self._file_bytes += end - start
            if self._file_bytes > self.max_file_bytes:
                raise TooLarge(f"{self.filename} is larger than the {self.max_file_bytes} bytes that this hub takes")
            self.sink.write(data[start:end])
            return
        self._field_bytes += end - start
        if self._field_bytes > _MAX_FIELD_BYTES:
            raise TooLarge(f"the fields of the form are over {_MAX_FIELD_BYTES} bytes")
        self._value.extend(data[start:end])

    def _end(self) -> None:
        if self._name != self.file_field:
            self.fields.setdefault(self._name, self._value.decode(errors="replace"))

    def _finish(self) -> None:
        self.is_complete = True
