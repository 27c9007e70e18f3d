"""The way into one sandbox: the gateway of the node that holds it, to which a hub gives a token."""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import httpx

from prime_cli import __version__
from prime_cli.core.errors import BadInput, PrimeError
from prime_cli.core.files import file_written_aside
from prime_cli.sandboxes.connect import ConnectError, envelope, error_of, messages
from prime_cli.sandboxes.platform import SandboxEnded, in_sandbox

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

Progress = Callable[[int, int], None]

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
# A gateway says every few seconds that it is still there.
_SILENCE = httpx.Timeout(60.0, connect=10.0)
# Who types may think for as long as they like.
_ENDLESS = httpx.Timeout(None, connect=10.0)
_TRANSFER = httpx.Timeout(300.0, connect=10.0)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SERVICE = "command_session.CommandSession"


class TimedOut(PrimeError):
    """A command took longer than it was given, and was ended with all its processes."""

    exit_code = 124


@dataclass(frozen=True)
class Access:
    """Where a sandbox is reached, and by what right."""

    sandbox_id: str
    url: str
    token: str


@dataclass(frozen=True)
class RemoteCommand:
    """A command for a sandbox."""

    argv: Sequence[str]
    working_dir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    timeout_s: float | None = None
    stdin: bool = False


@dataclass(frozen=True)
class Began:
    """The command runs, under this process id of the sandbox."""

    pid: int


@dataclass(frozen=True)
class Wrote:
    """It wrote something to stdout (1) or stderr (2)."""

    stream: int
    data: bytes


@dataclass(frozen=True)
class Finished:
    """It ended; `remark` says how, where that is more than its exit code."""

    exit_code: int
    remark: str


Event = Began | Wrote | Finished


def access_to(client: HubClient, sandbox_id: str) -> Access:
    """Ask the hub for the way into a sandbox.

    Raises:
        PrimeError: there is none, or it has ended.
    """
    granted = in_sandbox(sandbox_id, lambda path: client.post(f"{path}/auth"))
    base = f"{str(granted['gateway_url']).rstrip('/')}/{granted['user_ns']}/{granted['job_id']}"
    return Access(sandbox_id, base, str(granted["token"]))


class Gateway:
    """A connection to one sandbox. Use it in a `with` block; its methods may be called from several threads."""

    def __init__(self, access: Access) -> None:
        self.access = access
        on_this_machine = urlsplit(access.url).hostname in _LOOPBACK
        headers = {"Authorization": f"Bearer {access.token}", "User-Agent": f"prime-lab/{__version__}"}
        self._http = httpx.Client(headers=headers, timeout=_TIMEOUT, trust_env=not on_this_machine)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def run(self, command: RemoteCommand) -> Generator[Event, None, None]:
        """Start a command and yield what becomes of it, the end last. Closing the iterator ends the command.

        Raises:
            TimedOut: it took longer than it was given.
            SandboxEnded: the sandbox is no more.
            PrimeError: it could not be started, or the connection broke.
        """
        spec: dict[str, Any] = {
            "cmd": command.argv[0],
            "args": list(command.argv[1:]),
            "envs": dict(command.environment),
        }
        if command.working_dir is not None:
            spec["cwd"] = command.working_dir
        if command.user is not None:
            spec["user"] = command.user
        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        if command.timeout_s is not None:
            headers["Connect-Timeout-Ms"] = str(max(1, round(command.timeout_s * 1000)))
        try:
            with (
                self._explained(),
                self._http.stream(
                    "POST",
                    f"{self.access.url}/{_SERVICE}/Start",
                    content=envelope({"command": spec, "stdin": command.stdin}),
                    headers=headers,
                    timeout=_SILENCE,
                ) as response,
            ):
                if not response.is_success or "connect+json" not in response.headers.get("content-type", ""):
                    response.read()
                    raise self._connect_error(response)
                yield from self._events(messages(response.iter_raw()))
        except ConnectError as error:
            raise self._in_words(error, command) from None

    def stream_input(self, pid: int, pieces: Iterable[bytes]) -> None:
        """Write to the stdin of a command, and close it after the last piece."""

        def envelopes() -> Iterator[bytes]:
            yield envelope({"start": {"session": {"pid": pid}}})
            for piece in pieces:
                yield envelope({"data": {"input": {"stdin": base64.b64encode(piece).decode()}}})

        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        with self._explained():
            response = self._http.post(
                f"{self.access.url}/{_SERVICE}/StreamInput", content=envelopes(), headers=headers, timeout=_ENDLESS
            )
        if not response.is_success:
            raise self._connect_error(response)

    def send_signal(self, pid: int, number: int) -> None:
        """Send a signal to a command."""
        self._call("SendSignal", {"session": {"pid": pid}, "signal": number, "signalUuid": uuid.uuid4().hex})

    def upload(
        self, source: IO[bytes], remote_path: str, progress: Progress = lambda done, total: None
    ) -> dict[str, Any]:
        """Write what `source` holds to a file of the sandbox; folders above it are made.

        Raises:
            PrimeError: the sandbox refuses it.
        """
        name = os.path.basename(remote_path) or "file"
        counted = cast("IO[bytes]", _Counted(source, progress))
        with self._explained():
            response = self._http.post(
                f"{self.access.url}/upload",
                params={"path": remote_path, "sandbox_id": self.access.sandbox_id},
                files={"file": (name, counted, "application/octet-stream")},
                timeout=_TRANSFER,
            )
            self._check_file(response, remote_path)
        return dict(response.json())

    def download(self, remote_path: str, destination: IO[bytes], progress: Progress = lambda done, total: None) -> int:
        """Write a file of the sandbox to `destination` and return its size in bytes.

        Raises:
            PrimeError: there is no such file, or it cannot be read.
        """
        done = 0
        with (
            self._explained(),
            self._http.stream(
                "GET",
                f"{self.access.url}/download",
                params={"path": remote_path, "sandbox_id": self.access.sandbox_id},
                timeout=_TRANSFER,
            ) as response,
        ):
            if not response.is_success:
                response.read()
            self._check_file(response, remote_path)
            total = int(response.headers.get("Content-Length") or 0)
            for chunk in response.iter_bytes():
                destination.write(chunk)
                done += len(chunk)
                progress(done, total)
        return done

    def _events(self, answers: Iterator[dict[str, Any]]) -> Iterator[Event]:
        for answer in answers:
            event = answer.get("event") or {}
            if (start := event.get("start")) is not None:
                yield Began(int(start.get("pid", 0)))
            elif (data := event.get("data")) is not None:
                for stream, name in ((1, "stdout"), (2, "stderr"), (1, "pty")):
                    if name in data:
                        yield Wrote(stream, base64.b64decode(data[name]))
            elif (end := event.get("end")) is not None:
                yield Finished(int(end.get("exitCode", 0)), str(end.get("error") or ""))

    def _call(self, method: str, body: dict[str, Any]) -> None:
        with self._explained():
            response = self._http.post(
                f"{self.access.url}/{_SERVICE}/{method}", json=body, headers={"Connect-Protocol-Version": "1"}
            )
        if not response.is_success:
            raise self._connect_error(response)

    def _connect_error(self, response: httpx.Response) -> ConnectError:
        try:
            return error_of(response.json())
        except ValueError:
            return ConnectError("unknown", f"HTTP {response.status_code} {response.reason_phrase}")

    def _in_words(self, error: ConnectError, command: RemoteCommand) -> PrimeError:
        if error.code == "deadline_exceeded" and command.timeout_s is not None:
            return TimedOut(
                f"the command took longer than {command.timeout_s:g} s and was ended", hint="give more by --timeout"
            )
        if error.code == "not_found":
            return self._ended(error.words)
        if error.code == "invalid_argument":
            return BadInput(error.words)
        return PrimeError(f"the command could not be run: {error.words or error.code}")

    def _ended(self, words: str) -> SandboxEnded:
        sandbox_id = self.access.sandbox_id
        return SandboxEnded(
            f"sandbox {sandbox_id} runs no more" + (f": {words}" if words else ""),
            hint=f"`prime sandbox get {sandbox_id}` says why",
        )

    def _check_file(self, response: httpx.Response, remote_path: str) -> None:
        if response.is_success:
            return
        try:
            body = response.json()
        except ValueError:
            body = {}
        words = str(body.get("detail") or body.get("message") or "") if isinstance(body, dict) else ""
        if response.status_code == 410 or (
            isinstance(body, dict) and body.get("error") in ("sandbox_not_found", "sandbox_terminated")
        ):
            raise self._ended(words)
        if response.status_code == 404:
            raise PrimeError(words or f"there is no file {remote_path} in the sandbox")
        if response.status_code == 413:
            raise PrimeError(words or f"{remote_path} is larger than the sandbox takes")
        raise PrimeError(words or f"{remote_path}: HTTP {response.status_code} {response.reason_phrase}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn a connection that fails into one line."""
        place = "{0.scheme}://{0.netloc}".format(urlsplit(self.access.url))
        try:
            yield
        except httpx.ConnectError:
            raise PrimeError(
                f"no gateway answers at {place}", hint="the node of this sandbox is off, or out of reach from here"
            ) from None
        except httpx.TimeoutException:
            raise PrimeError(f"the gateway at {place} did not answer in time", hint="try again") from None
        except httpx.HTTPError as error:
            raise PrimeError(f"the connection to {place} broke: {error}", hint="try again") from None


class _Counted:
    """A file that tells how much of it was read."""

    def __init__(self, source: IO[bytes], progress: Progress) -> None:
        self._source, self._progress, self._done = source, progress, 0
        try:
            self._total = os.fstat(source.fileno()).st_size if source.seekable() else 0
        except OSError:
            self._total = 0
        if source.seekable():  # else its length is not known, and it goes in chunks
            self.fileno = source.fileno
            self.seek = source.seek
            self.tell = source.tell

    def read(self, size: int = -1) -> bytes:
        """Read on, and tell."""
        data = self._source.read(size)
        if data:  # the end is not told twice
            self._done += len(data)
            self._progress(self._done, self._total)
        return data


def download_to(gateway: Gateway, remote_path: str, path: Path, progress: Progress = lambda done, total: None) -> int:
    """Download to a file that appears whole or not at all; return its size in bytes.

    Raises:
        PrimeError: there is no such file in the sandbox, or the local one cannot be written.
    """
    try:
        with file_written_aside(path) as file:
            return gateway.download(remote_path, file, progress)
    except OSError as error:
        raise PrimeError(f"cannot write {path}: {error.strerror}") from None
