"""Taking an upload: unpacked, split, read and stored as it comes, with one line in memory; committed in one moment."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from hub_server.blobs import BlobWriter
from hub_server.traces.documents import Document, read_line
from hub_server.traces.errors import TraceRefusal
from hub_server.traces.tables import Episode, Trace, TraceUpload

MEBIBYTE = 1024**2
MAX_UPLOAD_BYTES = 256 * MEBIBYTE
MAX_LINE_BYTES = 64 * MEBIBYTE
MAX_DOCUMENTS = 100_000
MAX_LINES = 1_000_000  # empty ones among them: they cost time, too
_CHUNK = MEBIBYTE
_COMPRESSION_LEVEL = 4
_IDS_PER_QUERY = 500


@dataclass
class LineSink:
    """Takes the bytes of the part `traces`, packed or not, and stores their documents in `writer`."""

    writer: BlobWriter
    as_episodes: bool
    rows: list[tuple[Document, int, int, int]] = field(default_factory=list)  # with size, offset and length
    _digest: Any = field(default_factory=hashlib.sha256)
    _unpacker: Any = None
    _is_open: bool = False
    _line: bytearray = field(default_factory=bytearray)
    _bytes: int = 0
    _lines: int = 0
    _seen: set[tuple[bool, str]] = field(default_factory=set)

    @property
    def digest(self) -> str:
        """The sha256 of the unpacked bytes so far."""
        return str(self._digest.hexdigest())

    def open(self, encoding: str) -> None:
        """Say how the part is packed.

        Raises:
            TraceRefusal: in a way that the hub does not know.
        """
        if encoding not in ("", "identity", "gzip"):
            raise TraceRefusal("malformed_encoding", f"the content encoding {encoding!r} is not gzip")
        self._unpacker = zlib.decompressobj(wbits=31) if encoding == "gzip" else None

    def write(self, data: bytes) -> None:
        """Read the next piece; a packed one never becomes more than a chunk at a time.

        Raises:
            TraceRefusal: it cannot be unpacked, or is over a limit.
        """
        if self._unpacker is None:
            self._take(data)
            return
        while data:
            if self._unpacker.eof:
                raise TraceRefusal("malformed_encoding", "there are bytes behind the end of the gzip part")
            try:
                self._take(self._unpacker.decompress(data, _CHUNK))
            except zlib.error as error:
                raise TraceRefusal("malformed_encoding", f"the gzip part cannot be read: {error}") from None
            data = self._unpacker.unconsumed_tail or self._unpacker.unused_data

    def close(self) -> None:
        """Read what is left.

        Raises:
            TraceRefusal: the packed bytes end too early, or there was no document.
        """
        if self._unpacker is not None and not self._unpacker.eof:
            raise TraceRefusal("malformed_encoding", "the gzip part ends too early")
        if self._line:
            self._end_line()
        if not self.rows:
            raise TraceRefusal("invalid_trace", "the upload has no line")

    def _take(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > MAX_UPLOAD_BYTES:
            raise TraceRefusal("upload_too_large", f"the upload is over {MAX_UPLOAD_BYTES} bytes unpacked")
        self._digest.update(data)
        first, *rest = data.split(b"\n")
        self._line += first
        for piece in rest:
            self._end_line()
            self._line += piece
        if len(self._line) > MAX_LINE_BYTES:
            raise TraceRefusal("trace_too_large", f"line {self._lines + 1} is over {MAX_LINE_BYTES} bytes")

    def _end_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        self._lines += 1
        if self._lines > MAX_LINES:
            raise TraceRefusal("too_many_traces_in_upload", f"the upload has over {MAX_LINES} lines")
        if len(line) > MAX_LINE_BYTES:
            raise TraceRefusal("trace_too_large", f"line {self._lines} is over {MAX_LINE_BYTES} bytes")
        if line.strip():
            for document in read_line(line, self._lines, as_episode=self.as_episodes):
                self._store(document)

    def _store(self, document: Document) -> None:
        if (document.is_episode, document.identifier) in self._seen:
            code = "duplicate_episode_id" if document.is_episode else "duplicate_trace_id"
            raise TraceRefusal(code, f"line {self._lines} repeats the id {document.identifier!r}")
        self._seen.add((document.is_episode, document.identifier))
        if len(self._seen) > MAX_DOCUMENTS:
            raise TraceRefusal("too_many_traces_in_upload", f"the upload has over {MAX_DOCUMENTS} documents")
        packed = zlib.compress(document.data, _COMPRESSION_LEVEL)
        place = (len(document.data), self.writer.size, len(packed))
        self.writer.write(packed)
        self.rows.append((Document(document.is_episode, document.identifier, document.facts, b""), *place))


def read_metadata(text: str | None) -> tuple[int, dict[str, str]]:
    """Return schema version and context of the part `metadata`.

    Raises:
        TraceRefusal: it lacks or has another form.
    """
    try:
        metadata = from_json(text or "", allow_inf_nan=False)
    except ValueError:
        raise TraceRefusal("invalid_metadata", "the part `metadata` is not JSON, or it lacks") from None
    context = metadata.get("context", {}) if isinstance(metadata, dict) else None
    context = {} if isinstance(metadata, dict) and context is None else context
    if not isinstance(context, dict) or len(context) > 100 or len(text or "") > 64 * 1024:
        raise TraceRefusal("invalid_metadata", 'the part `metadata` must be {"schema_version": 1, "context": {...}}')
    if metadata.get("schema_version", 1) != 1:
        raise TraceRefusal("unsupported_schema_version", "this hub reads schema_version 1")
    if not all(isinstance(value, (str, int, float)) for value in context.values()) or "\\u0000" in (text or ""):
        raise TraceRefusal("invalid_metadata", "the values of `context` must be texts")
    return 1, {str(key): str(value) for key, value in context.items()}


def find_upload(session: Session, owner_id: str, digest: str, line_format: str) -> TraceUpload | None:
    """Return the upload of these bytes when it is there.

    Raises:
        TraceRefusal: it came in another line format (409).
    """
    where = (TraceUpload.owner_id == owner_id, TraceUpload.digest == digest)
    found = session.scalar(select(TraceUpload).where(*where))
    if found is not None and found.line_format != line_format:
        raise TraceRefusal("line_format_conflict", f"these bytes came before as {found.line_format} lines", 409)
    return found


def commit(session: Session, upload: TraceUpload, sink: LineSink) -> None:
    """Make the documents of an upload visible; those that were there under the same ids are replaced."""
    session.add(upload)
    session.flush()
    for table, key, is_episode in ((Episode, Episode.episode_id, True), (Trace, Trace.trace_id, False)):
        rows = [row for row in sink.rows if row[0].is_episode is is_episode]
        former: set[str] = set()
        for part in _parts([document.identifier for document, *_ in rows]):
            there = (table.owner_id == upload.owner_id, key.in_(part))
            former |= set(session.scalars(select(table.upload_key).where(*there)))
            session.execute(delete(table).where(*there))
        for document, size, offset, length in rows:
            own = {"episode_id": document.identifier} if is_episode else {
                "trace_id": document.identifier, "size_bytes": size
            }  # fmt: skip
            place = {"owner_id": upload.owner_id, "upload_key": upload.id, "offset": offset, "length": length}
            session.add(table(**{**document.facts, **own, **place}))
        session.flush()
        let_go(session, former)


def let_go(session: Session, upload_keys: set[str]) -> None:
    """Forget uploads of which nothing is left: their bytes go with the next collection, and they can come again."""
    for upload_key in upload_keys:
        left = any(
            session.scalar(select(table.upload_key).where(table.upload_key == upload_key).limit(1))
            for table in (Trace, Episode)
        )
        if not left:
            session.execute(delete(TraceUpload).where(TraceUpload.id == upload_key))


def _parts(identifiers: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(identifiers), _IDS_PER_QUERY):
        yield identifiers[start : start + _IDS_PER_QUERY]
