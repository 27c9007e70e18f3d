"""What is measured: reading pages, sending wheels, installing. One client tells the median, several the throughput."""

from __future__ import annotations

import http.client
import os
import secrets
import statistics
import subprocess
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from running_hub import make_wheel

from registries.servers import Server, clean_environment

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
UV_ACCEPTS = f"{JSON_TYPE}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
CLIENTS = 4
_LONGEST_S = 10  # what takes long is done less often
_thread = threading.local()
Wheel = tuple[str, bytes]
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """The median in milliseconds for one client and, where it was measured, how many a second several clients get."""

    p50_ms: float
    per_s: float | None = None

    def is_ahead_of(self, other: Row) -> bool:
        """Say whether both figures are at least as good."""
        throughput = self.per_s is None or other.per_s is None or self.per_s >= other.per_s
        return self.p50_ms <= other.p50_ms and throughput


def time_page(url: str, accept: str, encoding: str, requests: int) -> Row:
    """Time one page, after it was read once."""
    headers = {"Accept": accept, "Accept-Encoding": encoding}

    def read(_number: int) -> float:
        started = time.perf_counter()
        _request("GET", url, headers)
        return time.perf_counter() - started

    read(0)
    return _timed(read, range(requests), range(CLIENTS * requests))


def time_uploads(server: Server, prefix: str, uploads: int) -> Row:
    """Time the first wheel of new projects; the wheels are made before the clock runs."""
    wheels = [make_wheel(f"{prefix}-{number}", "0.1.0") for number in range(4 * uploads)]
    return _timed(lambda wheel: _timed_upload(server, wheel), wheels[:uploads], wheels[uploads:])


def time_versions(server: Server, project: str, uploads: int) -> Row:
    """Time one more version of a project that has many."""
    wheels = [make_wheel(project, f"1.{number}.0") for number in range(4 * uploads)]
    return _timed(lambda wheel: _timed_upload(server, wheel), wheels[:uploads], wheels[uploads:])


def time_install(server: Server, requirement: str, uv: Path, repeats: int) -> Row:
    """Time `uv pip install` into fresh environments, with nothing in any cache."""
    times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=False)
            command = [uv, "pip", "install", "--python", f"{folder}/bin/python", "--no-cache", "--no-config"]
            started = time.perf_counter()
            subprocess.run(
                [*map(str, command), "--default-index", server.simple, requirement],
                check=True, capture_output=True, env=clean_environment(),
            )  # fmt: skip
            times.append(time.perf_counter() - started)
    return Row(1000 * statistics.median(times))


def time_flush(repeats: int) -> Row:
    """Time what a promise of safety costs on this disk: one small file, flushed, then named and its folder flushed."""
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(folder, os.O_RDONLY)

        def flush(number: int) -> float:
            started = time.perf_counter()
            with open(f"{folder}/{number}.part", "wb") as file:
                file.write(b"x" * 1000)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{folder}/{number}.part", f"{folder}/{number}")
            os.fsync(descriptor)
            return time.perf_counter() - started

        median = statistics.median([flush(number) for number in range(repeats)])
        os.close(descriptor)
    return Row(1000 * median)


def fill(server: Server, wheels: Iterator[Wheel], seconds: float) -> int:
    """Put wheels into a server until there are no more or the time is over; return how many are there.

    pypiserver serves a folder, so its wheels are laid into it; the others take them as uploads.
    """
    deadline, lock, count = time.monotonic() + seconds, threading.Lock(), 0

    def work() -> None:
        nonlocal count
        while time.monotonic() < deadline:
            with lock:
                wheel = next(wheels, None)
            if wheel is None:
                return
            server.lay(*wheel) if server.lay else upload(server, wheel)
            with lock:
                count += 1

    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(work) for _ in range(CLIENTS)]:
            done.result()
    return count


def upload(server: Server, wheel: Wheel) -> None:
    """Send one wheel by the form of twine and `uv publish`."""
    body, boundary = _form(*wheel)
    _request("POST", server.post, {**server.headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}, body)


def _timed_upload(server: Server, wheel: Wheel) -> float:
    started = time.perf_counter()
    upload(server, wheel)
    return time.perf_counter() - started


def _timed(act: Callable[[T], float], alone: Sequence[T], together: Sequence[T]) -> Row:
    times: list[float] = []
    started = time.perf_counter()
    for item in alone:
        if times and time.perf_counter() - started > _LONGEST_S:
            break
        times.append(act(item))
    started = time.perf_counter()

    def take(item: T) -> bool:
        if time.perf_counter() - started > _LONGEST_S:
            return False
        act(item)
        return True

    with ThreadPoolExecutor(CLIENTS) as pool:
        done = sum(pool.map(take, together))
    return Row(1000 * statistics.median(times), done / (time.perf_counter() - started))


def _form(filename: str, data: bytes) -> tuple[bytes, str]:
    name, version = filename.split("-")[:2]
    fields = {
        ":action": "file_upload",
        "protocol_version": "1",
        "metadata_version": "2.1",
        "filetype": "bdist_wheel",
        "name": name.replace("_", "-"),
        "version": version,
        "requires_python": ">=3.8",
    }
    boundary = secrets.token_hex(16)
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
             for key, value in fields.items()]  # fmt: skip
    head = "".join(parts) + (
        f'--{boundary}\r\nContent-Disposition: form-data; name="content"; filename="{filename}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode(), boundary


def _request(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> bytes:
    """Ask on a connection that each thread keeps; the standard library's client costs the least beside the server."""
    parts = urlsplit(url)
    kept: dict[str, http.client.HTTPConnection] = _thread.__dict__.setdefault("connections", {})
    connection = kept.setdefault(parts.netloc, http.client.HTTPConnection(parts.netloc, timeout=300))
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
    except (http.client.RemoteDisconnected, ConnectionError):  # it was idle for too long
        connection.close()
        connection.request(method, target, body, headers)
        response = connection.getresponse()
    data = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{method} {url} was answered with {response.status}: {data[:500]!r}")
    return data
