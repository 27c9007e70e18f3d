"""The way to a hub: one HTTP client that speaks the wire and turns every failure into one clear line."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from prime_cli import __version__
from prime_cli.core.context import Settings, load_settings
from prime_cli.core.credentials import load_api_key
from prime_cli.core.errors import HubError, NotLoggedIn

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all (0 when that is not known)."""

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_TRANSFER_TIMEOUT = httpx.Timeout(300.0, connect=10.0)
_CHUNK_BYTES = 256 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def connect(*, login_required: bool = True) -> HubClient:
    """Return a client for the hub of the settings in force, with the stored API key when there is one.

    Raises:
        NotLoggedIn: a key is required and none is stored.
    """
    settings = load_settings()
    api_key = load_api_key(settings)
    if login_required and not api_key:
        raise NotLoggedIn(settings.base_url)
    return HubClient(settings, api_key)


def hub_version(base_url: str) -> str | None:
    """Return the version of the hub that answers at `base_url`, None when none does."""
    try:
        answer = httpx.get(f"{base_url}/healthz", timeout=5.0, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return None
    return str(answer.get("version")) if isinstance(answer, dict) and answer.get("status") == "ok" else None


class HubClient:
    """A connection to one hub, as one user or as nobody. Use it in a `with` block."""

    def __init__(self, settings: Settings, api_key: str | None) -> None:
        self.settings = settings
        self.api_key = api_key
        headers = {"User-Agent": f"prime-lab/{__version__} python/{platform.python_version()}"}
        # A proxy of the environment never stands before a hub on this machine.
        on_this_machine = urlsplit(settings.base_url).hostname in _LOOPBACK
        self._http = httpx.Client(
            headers=headers, timeout=_TIMEOUT, follow_redirects=True, trust_env=not on_this_machine
        )

    def __enter__(self) -> HubClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, /, **params: Any) -> dict[str, Any]:
        """GET `path` (relative to `/api/v1`); parameters that are None are left out, lists are repeated."""
        return self._request("GET", path, params={key: value for key, value in params.items() if value is not None})

    def post(self, path: str, json: Any = None) -> dict[str, Any]:
        """POST `json` to `path`, without a body when it is None."""
        return self._request("POST", path, json=json)

    def post_bytes(self, path: str, data: bytes) -> dict[str, Any]:
        """POST a JSON text that is written already to `path`; it may be large."""
        return self._request("POST", path, content=data, timeout=_TRANSFER_TIMEOUT)

    def patch(self, path: str, json: Any = None) -> dict[str, Any]:
        """PATCH `path` with `json`."""
        return self._request("PATCH", path, json=json)

    def put(self, path: str, json: Any = None) -> dict[str, Any]:
        """PUT `json` to `path`."""
        return self._request("PUT", path, json=json)

    def delete(self, path: str, json: Any = None) -> dict[str, Any]:
        """DELETE `path`."""
        return self._request("DELETE", path, json=json)

    def put_bytes(self, url: str, data: bytes | Path, progress: Progress | None = None) -> dict[str, Any]:
        """PUT `data` (bytes, or a file by its path, streamed) to an absolute upload URL, which carries its own right.

        Raises:
            HubError: the upload was refused, or the connection broke.
        """
        total = len(data) if isinstance(data, bytes) else data.stat().st_size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(total)}
        with self._explained(url):
            response = self._http.put(
                url, content=_chunks(data, total, progress), headers=headers, timeout=_TRANSFER_TIMEOUT
            )
        return self._answer(response)

    def download(
        self, url: str, destination: Path, *, sha256: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Stream an absolute URL to the file `destination`, which appears whole or not at all.

        The API key goes along only when the URL belongs to this hub.

        Raises:
            HubError: the hub refused, the connection broke, or the bytes do not have the hash `sha256`.
        """
        aside = destination.with_name(f".{destination.name}.part")
        destination.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        try:
            with (
                self._explained(url),
                self._http.stream("GET", url, headers=self._authorization(url), timeout=_TRANSFER_TIMEOUT) as response,
            ):
                if not response.is_success:
                    response.read()
                    self._answer(response)
                total = int(response.headers.get("Content-Length") or 0)
                with aside.open("wb") as file:
                    for chunk in response.iter_bytes(_CHUNK_BYTES):
                        digest.update(chunk)
                        file.write(chunk)
                        if progress is not None:
                            progress(file.tell(), total)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise HubError(f"{destination.name} arrived with other bytes than the hub announced", hint="try again")
            os.replace(aside, destination)
        finally:
            aside.unlink(missing_ok=True)
        return destination

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        url = f"{self.settings.base_url}/api/v1/{path.lstrip('/')}"
        headers = {"Content-Type": "application/json", **self._authorization(url)}
        with self._explained(url):
            response = self._http.request(method, url, headers=headers, **options)
        return self._answer(response)

    def _authorization(self, url: str) -> dict[str, str]:
        here, there = urlsplit(self.settings.base_url), urlsplit(url)
        if self.api_key is None or (here.scheme, here.netloc) != (there.scheme, there.netloc):
            return {}
        return {"Authorization": f"Bearer {self.api_key}"}

    @contextlib.contextmanager
    def _explained(self, url: str) -> Iterator[None]:
        """Turn a connection that fails into one line that names the hub."""
        base_url = self.settings.base_url
        try:
            yield
        except httpx.ConnectError:
            raise HubError(
                f"no hub answers at {base_url}",
                hint="start one with `prime hub serve`, or set another with `prime config set-base-url URL`",
            ) from None
        except httpx.TimeoutException:
            raise HubError(f"the hub at {base_url} did not answer in time", hint="try again") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise HubError(f"{url!r} is not a URL", hint="see `prime config view`") from None
        except httpx.HTTPError as error:
            raise HubError(f"the connection to {base_url} broke: {error}", hint="try again") from None

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        """Return the JSON object of a response; `{}` for an empty one.

        Raises:
            HubError: a refusal, with the hub's own words; or an answer that no hub gives.
        """
        if response.status_code == httpx.codes.UNAUTHORIZED and self.api_key is None:
            raise NotLoggedIn(self.settings.base_url)
        try:
            data = response.json() if response.content.strip() else {}
        except ValueError:
            data = None
        if not response.is_success:
            words = _describe(data) or f"HTTP {response.status_code} {response.reason_phrase}"
            hint = "run `prime login`" if response.status_code == httpx.codes.UNAUTHORIZED else None
            raise HubError(words, hint, response.status_code)
        if not isinstance(data, dict):
            raise HubError(
                f"{self.settings.base_url} does not answer like a hub ({response.request.url.path})",
                hint="see `prime config view`, and set the hub with `prime config set-base-url URL`",
                status=response.status_code,
            )
        return data


def _describe(data: Any) -> str:
    """Return the words of an error body: `detail` as text, or one `place: problem` for each entry of its list."""
    detail = data.get("detail") if isinstance(data, dict) else None
    if isinstance(detail, list):
        return "; ".join(_describe_problem(item) for item in detail if isinstance(item, dict))
    return str(detail) if detail else ""


def _describe_problem(item: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in item.get("loc", []) if part != "body")
    words = str(item.get("msg", "")).removeprefix("Value error, ")
    return f"{place}: {words}" if place else words


def _chunks(data: bytes | Path, total: int, progress: Progress | None) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        if isinstance(data, Path):
            file = stack.enter_context(data.open("rb"))
            pieces: Iterator[bytes] = iter(lambda: file.read(_CHUNK_BYTES), b"")
        else:
            pieces = (data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))
        done = 0
        for piece in pieces:
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done, total)
