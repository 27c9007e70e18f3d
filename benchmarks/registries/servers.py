"""Our hub, pypiserver and devpi-server: each started alone, on empty folders, as its own documentation says."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from running_hub import answer, start_hub

# waitress is the server that pypiserver prefers; setuptools, because devpi's framework still asks for it.
TOOLS = ["pypiserver[cache]", "waitress", "devpi-server", "setuptools<81", "uv"]
_START_S = 60


@dataclass(frozen=True)
class Server:
    """A registry that answers. `simple` is the URL of its index; `post` is where forms go, with `headers`."""

    name: str
    pid: int
    simple: str
    post: str
    headers: dict[str, str] = field(default_factory=dict)
    lay: Callable[[str, bytes], object] | None = None
    search: str = ""

    @property
    def memory_mib(self) -> float:
        """The memory that the server holds, with that of its children."""
        return sum(_memory_kib(pid) for pid in _family(self.pid)) / 1024


def install_tools(folder: Path) -> Path:
    """Install the other registries and uv into an environment of their own; return its folder of programs."""
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *TOOLS], check=True, capture_output=True)
    return folder / "bin"


def all_servers(tools: Path) -> dict[str, Callable[[Path], AbstractContextManager[Server]]]:
    """Return what starts each registry in a folder, by its name, ours first."""
    return {
        "prime hub": prime_hub,
        "devpi-server": lambda folder: devpi(folder, tools),
        "pypiserver": lambda folder: pypiserver(folder, tools),
    }


@contextmanager
def prime_hub(folder: Path) -> Iterator[Server]:
    """Run our hub on SQLite and a folder of blobs; one client sends more here than a hub takes from one by default."""
    hub = start_hub(folder / "hub", "--no-rate-limits")
    try:
        with hub.client(hub.admin_key) as client:
            slug = answer(client.get("/user/whoami"))["data"]["slug"]
        credentials = base64.b64encode(f"__token__:{hub.admin_key}".encode()).decode()
        yield Server(
            name="prime hub",
            pid=hub.process.pid,
            simple=f"{hub.url}/index/{slug}/simple/",
            post=f"{hub.url}/index/{slug}/legacy/",
            headers={"Authorization": f"Basic {credentials}"},
            search=f"{hub.url}/api/v1/environmentshub/?limit=20&search=",
        )
    finally:
        hub.end()


@contextmanager
def pypiserver(folder: Path, tools: Path) -> Iterator[Server]:
    """Run pypiserver with its cache on; whoever asks may upload."""
    packages = folder / "packages"
    packages.mkdir()
    port = _free_port()
    options = ["run", "-i", "127.0.0.1", "-p", str(port), "-P", ".", "-a", ".", str(packages)]
    with _running([tools / "pypi-server", *options], f"http://127.0.0.1:{port}/", folder / "pypiserver.log") as pid:
        url = f"http://127.0.0.1:{port}/"
        lay = lambda name, data: (packages / name).write_bytes(data)  # noqa: E731
        yield Server("pypiserver", pid, f"{url}simple/", url, lay=lay)


@contextmanager
def devpi(folder: Path, tools: Path) -> Iterator[Server]:
    """Run devpi-server with one index that mirrors nothing; uploads carry a token, as its own client's do."""
    data, port = folder / "devpi", _free_port()
    init = [tools / "devpi-init", "--serverdir", data, "--no-root-pypi", "--root-passwd", ""]
    subprocess.run(init, check=True, capture_output=True)
    url = f"http://127.0.0.1:{port}"
    command = [tools / "devpi-server", "--serverdir", data, "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, f"{url}/+api", folder / "devpi.log") as pid:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            token = client.post("/+login", json={"user": "root", "password": ""}).json()["result"]["password"]
            headers = {"X-Devpi-Auth": base64.b64encode(f"root:{token}".encode()).decode()}
            made = client.put("/root/bench", json={"type": "stage", "bases": [], "volatile": False}, headers=headers)
            made.raise_for_status()
        yield Server("devpi-server", pid, f"{url}/root/bench/+simple/", f"{url}/root/bench/", headers)


@contextmanager
def _running(command: list[object], url: str, log_path: Path) -> Iterator[int]:
    with log_path.open("wb") as log:
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        try:
            _wait_for(url, process, log_path)
            yield process.pid
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait_for(url: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(url, trust_env=False)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError(f"{urlsplit(url).netloc} did not start: {log_path.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _family(pid: int) -> list[int]:
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    return [pid, *(each for child in children for each in _family(child))]


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def _memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def clean_environment() -> dict[str, str]:
    """Return the environment without what would lead uv and pip elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
