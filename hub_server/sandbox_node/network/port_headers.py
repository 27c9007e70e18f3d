"""The header fields of requests to an exposed port and of its answers, so that neither side learns or does too much.

What runs in the sandbox sees itself at `http://localhost:PORT`: it learns nothing of the node's names, of the proxies
before it and of its clients' addresses. Pages of all sandboxes come from the one origin of the node, so a sandbox gets
only cookies that it set itself, below its own path, and sets nothing that holds for the whole origin.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub_server.sandbox_node.network.headers import Headers

_ABOUT_THE_WAY = (b"x-forwarded-", b"x-real-", b"x-envoy-", b"cf-", b"true-client-ip", b"via", b"forwarded")
_OF_THE_ORIGIN = frozenset(
    [b"strict-transport-security", b"public-key-pins", b"expect-ct", b"alt-svc", b"clear-site-data", b"nel",
     b"report-to", b"reporting-endpoints", b"service-worker-allowed", b"origin-agent-cluster", b"server", b"date"]
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a port is, seen from outside and from inside.

    Attributes:
        origin: `scheme://host` as the client sees it.
        path: the path at which the port's own root is; it begins and ends with a slash.
        port: inside.
        authorized: the client's `Authorization` was for the node, and is not for the sandbox.
    """

    origin: bytes
    path: bytes
    port: int
    authorized: bool

    @property
    def inner_host(self) -> bytes:
        """Return the host as the sandbox sees it."""
        return b"localhost:%d" % self.port

    @property
    def _inner_origin(self) -> bytes:
        return b"http://" + self.inner_host

    @property
    def _cookies(self) -> bytes:
        """Return what the names of this port's cookies begin with, outside."""
        return b"at" + bytes(byte for byte in self.path if chr(byte).isalnum())[-16:] + b"-"

    def request_headers(self, headers: Headers) -> Headers:
        """Return the fields of a request as they go on."""
        kept: Headers = []
        for name, value in headers:
            name = name.lower()
            if name.startswith(_ABOUT_THE_WAY) or (name == b"authorization" and self.authorized):
                continue
            if name == b"cookie":
                value = self._own_cookies(value)
            elif name == b"origin" and value == self.origin:
                value = self._inner_origin
            elif name == b"referer":
                outer = self.origin + self.path
                value = self._inner_origin + b"/" + value[len(outer) :] if value.startswith(outer) else b""
            if value or name not in (b"cookie", b"referer"):
                kept.append((name, value))
        return kept

    def answer_headers(self, headers: Headers) -> Headers:
        """Return the fields of an answer as they go back."""
        kept: Headers = []
        for name, value in headers:
            name = name.lower()
            if name in _OF_THE_ORIGIN:
                continue
            if name == b"set-cookie":
                value = self._outer_cookie(value)
            elif name in (b"location", b"content-location"):
                value = self._outer_location(value)
            kept.append((name, value))
        return kept

    def _own_cookies(self, cookies: bytes) -> bytes:
        pairs = (pair.strip() for pair in cookies.split(b";"))
        return b"; ".join(pair[len(self._cookies) :] for pair in pairs if pair.startswith(self._cookies))

    def _outer_cookie(self, cookie: bytes) -> bytes:
        pair, *attributes = cookie.split(b";")
        kept = [one for one in attributes if one.strip().partition(b"=")[0].lower() not in (b"path", b"domain")]
        return b";".join([self._cookies + pair.strip(), *kept, b" Path=" + self.path])

    def _outer_location(self, location: bytes) -> bytes:
        location = location.removeprefix(self._inner_origin) or b"/"
        if location.startswith(b"/") and not location.startswith(b"//"):
            return self.path + location[1:]
        return location
