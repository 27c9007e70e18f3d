"""The address under which others know a hub that stands behind a proxy."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from hub_server.errors import NotServing


def read_public_url(text: str) -> str | None:
    """Return the address without a slash at its end, None for an empty text.

    Raises:
        NotServing: it is not the address of a whole host.
    """
    if not text:
        return None
    parts = urlsplit(text)
    try:
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise NotServing(
            f"{text!r} cannot be the public URL of a hub",
            hint="give scheme and host, such as https://hub.example; a hub has a host of its own, not a path",
        )
    return f"{parts.scheme}://{parts.netloc}"


class PublicAddress:
    """Lets every request look as if it had come to the public URL: links, cookies and origins follow from that."""

    def __init__(self, app: ASGIApp, public_url: str) -> None:
        self._app = app
        parts = urlsplit(public_url)
        self._scheme, self._host = parts.scheme, parts.netloc.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under the public address."""
        if scope["type"] == "http":
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope = {**scope, "scheme": self._scheme, "headers": [*headers, (b"host", self._host)]}
        await self._app(scope, receive, send)
