"""How messages are written in a body: as protobuf or as its JSON, named by the content type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from hub_server.sandbox_node.gateway.envelopes import Code, RpcError


@dataclass(frozen=True)
class Codec:
    """One way to write messages."""

    name: str  # the end of the content type

    def decode(self, kind: Any, data: bytes) -> Any:
        """Return the message of a kind that was written so.

        Raises:
            RpcError: it is no such message.
        """
        try:
            if self.name == "json":
                return json_format.Parse(data or b"{}", kind(), ignore_unknown_fields=True)
            return kind.FromString(data)
        except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
            raise RpcError(Code.INVALID_ARGUMENT, f"this is no {kind.DESCRIPTOR.name} in {self.name}") from error

    def encode(self, message: Any) -> bytes:
        """Return the message so written."""
        if self.name == "json":
            text: str = json_format.MessageToJson(message, indent=None, always_print_fields_with_no_presence=True)
            return text.encode()
        written: bytes = message.SerializeToString()
        return written


_CODECS = {name: Codec(name) for name in ("proto", "json")}
UNARY = {f"application/{name}": codec for name, codec in _CODECS.items()}
STREAMING = {f"application/connect+{name}": codec for name, codec in _CODECS.items()}
