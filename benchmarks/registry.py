"""The hub's index and uploads beside pypiserver, in one run on this machine.

    python benchmarks/registry.py [--json] [--check] [--files N]

Goal: the JSON page of a project with 2,000 files in 10 ms (median) or less, and its HTML page
ahead of pypiserver, which has no other. Uploads stand beside each other without a goal: ours are checked to their last
byte and on disk when they are answered, theirs neither. pypiserver is installed into a temporary environment from the
package index that pip is set to. Both servers run with their defaults, each alone while it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from running_hub import make_wheel, start_hub

GOAL_PAGE_MS = 10.0
PAGE_REQUESTS = 200
UPLOADS = 100
CLIENTS = 2
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
Row = dict[str, float]
_thread = threading.local()
Upload = Callable[[str, bytes], None]


def measure_hub(folder: Path, files: int) -> dict[str, Row]:
    """Return the figures of our hub."""
    hub = start_hub(folder / "hub", "--no-rate-limits")
    try:
        slug = httpx.get(
            f"{hub.url}/api/v1/user/whoami", headers={"Authorization": f"Bearer {hub.admin_key}"}, trust_env=False
        ).json()["data"]["slug"]
        url, auth = f"{hub.url}/index/{slug}/legacy/", ("__token__", hub.admin_key)
        fill(lambda name, data: upload(url, auth, name, data), files)
        page = f"{hub.url}/index/{slug}/simple/many-files/"
        return {
            "page, JSON": time_page(page, JSON_TYPE, "identity"),
            "page, JSON, gzip": time_page(page, JSON_TYPE, "gzip"),
            "page, HTML": time_page(page, "text/html", "identity"),
            "upload": time_uploads(lambda name, data: upload(url, auth, name, data)),
        }
    finally:
        hub.end()


def measure_pypiserver(folder: Path, files: int) -> dict[str, Row]:
    """Return the figures of pypiserver, with the same wheels."""
    with pypiserver(folder) as url:
        fill(lambda name, data: (folder / "packages" / name).write_bytes(data) and None, files)
        page = f"{url}/simple/many-files/"
        return {
            "page, HTML": time_page(page, "text/html", "identity"),
            "upload": time_uploads(lambda name, data: upload(f"{url}/", None, name, data)),
        }


@contextmanager
def pypiserver(folder: Path) -> Iterator[str]:
    """Install pypiserver and run it on an empty folder of packages."""
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "pypiserver[cache]", "setuptools<81"], check=True, capture_output=True)
    (folder / "packages").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["run", "-i", "127.0.0.1", "-p", str(port), "-P", ".", "-a", ".", str(folder / "packages")]
    log = (folder / "pypiserver.log").open("wb")
    process = subprocess.Popen([python.with_name("pypi-server"), *options], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(url, trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        else:
            raise RuntimeError(f"pypiserver did not start: {(folder / 'pypiserver.log').read_text()}")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)
        log.close()


def fill(publish: Upload, files: int) -> None:
    """Publish `files` versions of one project."""
    for number in range(files):
        publish(*make_wheel("many-files", f"0.{number}.0"))


def upload(url: str, auth: tuple[str, str] | None, name: str, data: bytes) -> None:
    """Send one wheel as twine does, on a connection that is kept for each thread."""
    if not hasattr(_thread, "client"):
        _thread.client = httpx.Client(timeout=60, trust_env=False)
    form = {":action": "file_upload", "protocol_version": "1", "filetype": "bdist_wheel"}
    sent = _thread.client.post(url, data=form, files={"content": (name, data)}, auth=auth)
    sent.raise_for_status()


def time_page(url: str, accept: str, encoding: str) -> Row:
    """Return the median time of a page as one client sees it, and how many a second several clients get."""
    headers = {"Accept": accept, "Accept-Encoding": encoding}

    def read(count: int) -> list[float]:
        times = []
        with httpx.Client(headers=headers, timeout=120, trust_env=False) as client:
            for _ in range(count):
                started = time.perf_counter()
                with client.stream("GET", url) as response:
                    response.raise_for_status()
                    for _chunk in response.iter_raw():
                        pass
                times.append(1000 * (time.perf_counter() - started))
        return times

    first = read(1)[0]
    count = PAGE_REQUESTS if first < 1000 else 10
    median = statistics.median(read(count))
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(read, [count] * CLIENTS))
    return {"p50_ms": median, "per_s": CLIENTS * count / (time.perf_counter() - started), "first_ms": first}


def time_uploads(publish: Upload) -> Row:
    """Return the median time of an upload and how many a second several clients get."""
    wheels = [make_wheel(f"sent-{number}", "0.1.0") for number in range(UPLOADS)]

    def send(wheel: tuple[str, bytes]) -> float:
        started = time.perf_counter()
        publish(*wheel)
        return 1000 * (time.perf_counter() - started)

    half = UPLOADS // 2
    median = statistics.median(send(wheel) for wheel in wheels[:half])
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(send, wheels[half:]))
    return {"p50_ms": median, "per_s": (UPLOADS - half) / (time.perf_counter() - started)}


def missed(ours: dict[str, Row], theirs: dict[str, Row]) -> list[str]:
    """Return in words what fell short of the goals."""
    short = []
    if ours["page, JSON"]["p50_ms"] > GOAL_PAGE_MS:
        short.append(f"the JSON page takes {ours['page, JSON']['p50_ms']:.1f} ms, goal {GOAL_PAGE_MS} ms")
    page, their_page = ours["page, HTML"], theirs["page, HTML"]
    if page["p50_ms"] > their_page["p50_ms"] or page["per_s"] < their_page["per_s"]:
        short.append(f"the HTML page takes {page['p50_ms']:.1f} ms, pypiserver {their_page['p50_ms']:.1f} ms")
    return short


def main() -> None:
    """Print both servers' figures; with --check exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--files", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PRIME_HOME"] = folder
        ours = measure_hub(Path(folder), options.files)
        theirs = measure_pypiserver(Path(folder), options.files)
    short = missed(ours, theirs)
    if options.json:
        print(json.dumps({"files": options.files, "hub": ours, "pypiserver": theirs, "missed": short}, indent=2))
    else:
        for server, rows in (("prime hub", ours), ("pypiserver", theirs)):
            for name, row in rows.items():
                print(f"{server:12}{name:18}{row['p50_ms']:9.2f} ms{row['per_s']:9.1f} /s")
        print(f"goal: the JSON page of {options.files} files in {GOAL_PAGE_MS:.0f} ms, HTML ahead of pypiserver")
        print("\n".join(f"missed: {words}" for words in short) or "met")
    if options.check and short:
        sys.exit(1)


if __name__ == "__main__":
    main()
