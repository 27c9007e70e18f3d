"""The published SDK in an interpreter of its own, which stays for many snippets, since its import takes long."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import textwrap
import threading
from pathlib import Path
from typing import Any

from tests.published_tools import NOWHERE

# Reads snippets as JSON strings, one a line; answers each with what it put into `answer`, or with a traceback.
_LOOP = """
import asyncio, json, os, sys, time, traceback
from prime_sandboxes import *
replies, sys.stdout = sys.stdout, sys.stderr
client = SandboxClient(APIClient())
def create(**more):
    sandbox = client.create(CreateSandboxRequest(**{"name": "t", "docker_image": "host", **more}))
    client.wait_for_creation(sandbox.id)
    return sandbox.id
def raised(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except Exception as error:
        return [type(error).__name__, str(error)]
for line in sys.stdin:
    names = {**globals(), "answer": None}
    try:
        exec(json.loads(line), names)
        said = {"answer": names["answer"]}
    except BaseException:
        said = {"failed": traceback.format_exc()}
    print(json.dumps(said), file=replies, flush=True)
"""


class SdkSession:
    """One interpreter with the SDK, logged in by its environment alone."""

    def __init__(self, python: Path, url: str, key: str, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIME_", "PYTHON"))}
        environment = {
            **kept, "PRIME_API_BASE_URL": url, "PRIME_API_KEY": key, "HOME": str(home), "NO_PROXY": "127.0.0.1",
            "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE,
        }  # fmt: skip
        self.home = home
        self._log = (home / "log").open("w+")
        self._process = subprocess.Popen(
            [str(python), "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=environment, cwd=home,
        )  # fmt: skip

    def run(self, snippet: str) -> Any:
        """Run a snippet and return what it put into `answer`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(textwrap.dedent(snippet)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the interpreter of the SDK ended: {(self.home / 'log').read_text()}"
        said = json.loads(line)
        assert "failed" not in said, said.get("failed")
        return said["answer"]

    def close(self) -> None:
        """End the interpreter."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


class CuttableProxy:
    """Passes TCP connections on to a port, until they are cut all at once."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = _free_port()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Break all connections, and return how many there were."""
        with self._lock:
            broken, self._open = self._open, set()
        for connection in broken:
            connection.shutdown(socket.SHUT_RDWR)
        return len(broken)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client}
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(source, sink, client), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, client: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            self._open.discard(client)
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
