"""Bodies of requests: JSON read against a model, and one file out of a multipart form as it comes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from hub_server.sandbox_node.gateway.refusals import BadRequest

MOST_JSON_BYTES = 64 * 1024**2
GRACE_S = 10.0  # for a sandbox to end what ran too long by itself
_CANCEL_S = 5.0
_MOST_DRAINED_BYTES = 64 * 1024**2
_MOST_PART_HEADER_BYTES = 16 * 1024

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")


async def read_json(request: Request, model: type[Model]) -> Model:
    """Return the body as a model.

    Raises:
        BadRequest: it is none; the detail names what is wrong.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_JSON_BYTES:
            raise BadRequest(f"a body may be {MOST_JSON_BYTES // 1024**2} MiB long at most", 413)
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise BadRequest(f"{where}: {wrong['msg']}" if where else wrong["msg"]) from error


async def drain(request: Request) -> None:
    """Read what is left of a body that is refused, within reason: a client reads no answer while it still writes."""
    drained = 0
    try:
        async for chunk in request.stream():
            drained += len(chunk)
            if drained > _MOST_DRAINED_BYTES:
                return
    except (ClientDisconnect, RuntimeError):
        return  # it has gone, or the body was read already


async def while_connected(request: Request, work: Coroutine[Any, Any, Result], within_s: float | None = None) -> Result:
    """Return what work results in; cancel it when the client goes away, after whose body this is called.

    Raises:
        ClientDisconnect: it went away.
        BadRequest: nothing came of the work for so long, since the sandbox does not answer.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        await asyncio.wait([working, leaving], timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        raise BadRequest("the sandbox does not answer", 504)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working], timeout=_CANCEL_S)


async def left(receive: Receive) -> None:
    """Return when the client has gone away; its body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


class FormFile:
    """The field `file` of a multipart form, without holding the form."""

    def __init__(self, request: Request) -> None:
        """Look at the headers.

        Raises:
            BadRequest: this is no multipart form.
        """
        content_type, parameters = parse_options_header(request.headers.get("content-type", ""))
        boundary = parameters.get(b"boundary")
        if content_type != b"multipart/form-data" or not boundary:
            raise BadRequest("a file is uploaded as multipart/form-data, in the field `file`")
        self._request = request
        self._data: list[bytes] = []
        self._header_name = self._header_value = b""
        self._is_file = self._seen = self._complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content of the field.

        Raises:
            BadRequest: the form is damaged, or has no such field.
        """
        try:
            async for chunk in self._request.stream():
                self._parser.write(chunk)
                data, self._data = self._data, []
                for piece in data:
                    yield piece
            self._parser.finalize()
        except MultipartParseError as error:
            raise BadRequest("the multipart form is damaged") from error
        if not self._complete:
            raise BadRequest("the multipart form ends early")
        if not self._seen:
            raise BadRequest("the multipart form has no field `file`")

    def _on_part_begin(self) -> None:
        self._is_file = False

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]
        self._bound_header()

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._bound_header()

    def _bound_header(self) -> None:
        if len(self._header_name) + len(self._header_value) > _MOST_PART_HEADER_BYTES:
            raise MultipartParseError("a header of a part is too long")

    def _on_header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition" and not self._seen:
            _, parameters = parse_options_header(self._header_value)
            self._is_file = parameters.get(b"name") == b"file"
            self._seen = self._is_file
        self._header_name = self._header_value = b""

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._data.append(data[start:end])

    def _on_part_end(self) -> None:
        self._is_file = False

    def _on_end(self) -> None:
        self._complete = True
