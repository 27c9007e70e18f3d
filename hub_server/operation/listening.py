"""What servers of ours start with: an address, the lock of a data folder, and uvicorn with our habits."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from hub_server.errors import NotServing

_HUB_HINT = "see `prime hub status`, or use another `--data-dir`"


class Server(uvicorn.Server):
    """uvicorn, with two habits of our own: it says when it is ready, and a SIGTERM is a normal end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ended_by: int | None = None
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM for the time of serving; uvicorn itself would die of them after its shutdown."""

        def end(number: int, frame: FrameType | None) -> None:
            self.ended_by = self.ended_by or number
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bind before anything is written, so that a port in use leaves no trace.

    Raises:
        NotServing: the address is not this machine's, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        raise NotServing(f"{host!r} is not an address of this machine", hint="use `--host 127.0.0.1`") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(2048)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise NotServing(
                    f"port {port} of {host} is in use", hint="use `--port 0` for a free one, or another number"
                ) from None
            raise NotServing(f"cannot listen on {host} port {port}: {error.strerror}") from None
        yield listener


@contextlib.contextmanager
def only_server_of(data_dir: Path, what: str = "hub", hint: str = _HUB_HINT) -> Iterator[None]:
    """Hold the data folder's lock; the kernel gives it back however this process ends.

    Raises:
        NotServing: another process holds it.
    """
    with (data_dir / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotServing(f"another {what} is running on {data_dir}", hint=hint) from None
        yield


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL by which a server that listens on `host` is reached from its own machine."""
    port = listener.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"
