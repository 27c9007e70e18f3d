"""A hub and a gateway in one, of a few lines: what the command line needs of them; commands run right here."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "token-of-the-gateway"
ENFORCEMENT = {
    "level": "container",
    "backend": "bwrap",
    "limits": {"cpu_cores": 1.0, "memory_bytes": 2**30, "disk_bytes": 2**29},
    "held": {"cpu_cores": "not enforced", "memory_bytes": "enforced", "disk_bytes": "lowered"},
    "notes": ["its disk is in memory"],
}


@dataclass
class Refused:
    """What a route answers with, instead of what it should."""

    status: int
    body: dict[str, Any]


@dataclass
class SandboxService:
    """The rows of the hub, and what was asked of it."""

    url: str = ""
    root: Path = Path()
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    refusals: dict[str, Refused] = field(default_factory=dict)  # by a part of the path
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a row that is PENDING until somebody looks."""
        row = {
            "id": f"sb{len(self.rows)}", "name": body["name"], "dockerImage": body["docker_image"], "status": "PENDING",
            "cpuCores": body["cpu_cores"], "memoryGB": body["memory_gb"], "diskSizeGB": body["disk_size_gb"],
            "diskMountPath": "/", "gpuCount": 0, "timeoutMinutes": body["timeout_minutes"], "labels": body["labels"],
            "createdAt": "2026-01-02T03:04:05Z", "environmentVars": body.get("environment_vars"),
        }  # fmt: skip
        self.rows[row["id"]] = row
        return {**row, "gatewayAuth": {"token": TOKEN}}

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Answer a request of the platform."""
        parts = path.removeprefix("/api/v1/").split("/")
        if parts == ["sandbox"]:
            if method == "POST":
                return self.create(body)
            if method == "DELETE":
                known = [one for one in body["sandbox_ids"] if one in self.rows]
                failed = [
                    {"sandbox_id": one, "error": "not found"} for one in body["sandbox_ids"] if one not in self.rows
                ]
                return {"succeeded": known, "failed": failed, "message": ""}
            rows = [row for row in self.rows.values() if set(query.get("labels", [])) <= set(row["labels"])]
            return {"sandboxes": rows, "total": len(rows), "page": 1, "perPage": 50, "hasNext": False}
        if len(parts) < 2 or parts[1] not in self.rows:
            return Refused(404, {"detail": "sandbox not found"})
        row = self.rows[parts[1]]
        if parts[2:] == ["auth"]:
            return {"gateway_url": self.url, "user_ns": "sandboxes", "job_id": row["id"], "token": TOKEN}
        if parts[2:] == ["logs"]:
            return {"logs": "began\nwent on\n"}
        if parts[2:] == ["egress-policy"]:
            policy = body or {"allowlist": [], "denylist": None}
            return {"policy": policy, "generation": 2, "applied_generation": 2, "applied": True}
        if parts[2:] == ["expose"] and method == "POST":
            return {"exposure_id": "x1", "sandbox_id": row["id"], "url": f"{self.url}/exposed/x1/", **body}
        if row["status"] == "PENDING":
            row.update(status="RUNNING", enforcement=ENFORCEMENT, startedAt="2026-01-02T03:04:06Z")
        return row


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: SandboxService

    def do(self) -> None:
        url = urlsplit(self.path)
        body = self._body()
        is_json = "json" in self.headers.get("Content-Type", "") and body[:1] == b"{"
        self.service.asked.append((self.command, url.path, json.loads(body) if is_json else body))
        for part, refused in self.service.refusals.items():
            if part in url.path:
                return self._send(refused.status, refused.body)
        if url.path.startswith("/api/v1/"):
            parsed = json.loads(body) if body.strip() else None
            answered = self.service.answer(self.command, url.path, parse_qs(url.query), parsed)
            return (
                self._send(answered.status, answered.body)
                if isinstance(answered, Refused)
                else self._send(200, answered)
            )
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"code": "unauthenticated", "message": "wrong token"})
        return self._gateway(url.path.rsplit("/", 1)[1], parse_qs(url.query), body)

    do_GET = do_POST = do_PUT = do_DELETE = do

    def _gateway(self, method: str, query: dict[str, list[str]], body: bytes) -> None:
        if method == "Start":
            return self._start(json.loads(body[5:]), self.headers.get("Connect-Timeout-Ms"))
        if method == "SendSignal":
            asked = json.loads(body)
            os.killpg(self.service.running[asked["session"]["pid"]].pid, asked["signal"])
            return self._send(200, {})
        if method == "StreamInput":
            first, *others = _envelopes(body)
            stdin = self.service.running[first["start"]["session"]["pid"]].stdin
            for other in others:
                stdin.write(base64.b64decode(other["data"]["input"]["stdin"]))
            stdin.close()
            return self._send(200, b"")
        path = query["path"][0]
        file = self.service.root / path.lstrip("/")
        if method == "upload":
            boundary = self.headers["Content-Type"].split("boundary=")[1].encode()
            data = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--" + boundary, 1)[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            return self._send(200, {"success": True, "path": path, "size": len(data)})
        if not file.exists():
            return self._send(404, {"detail": f"{path}: no such file"})
        return self._send(200, file.read_bytes())

    def _start(self, asked: dict[str, Any], timeout_ms: str | None) -> None:
        spec = asked["command"]
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        process = subprocess.Popen(
            [spec["cmd"], *spec.get("args", [])], env={"PATH": os.environ["PATH"], **spec.get("envs", {})},
            cwd=spec.get("cwd"), stdin=subprocess.PIPE if asked.get("stdin") else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.service.running[process.pid] = process
        lock = threading.Lock()

        def tell(event: dict[str, Any], flags: int = 0) -> None:
            data = json.dumps(event).encode()
            data = struct.pack(">BI", flags, len(data)) + data
            with lock:
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                except OSError:
                    process.kill()

        def read(name: str, stream: Any) -> None:
            while data := os.read(stream.fileno(), 65536):
                tell({"event": {"data": {name: base64.b64encode(data).decode()}}})

        tell({"event": {"start": {"pid": process.pid}}})
        tell({"event": {"keepalive": {}}})
        readers = [
            threading.Thread(target=read, args=("stdout", process.stdout)),
            threading.Thread(target=read, args=("stderr", process.stderr)),
        ]
        for reader in readers:
            reader.start()
        try:
            code = process.wait(int(timeout_ms) / 1000 if timeout_ms else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        for reader in readers:
            reader.join()
        if code is None:
            tell({"error": {"code": "deadline_exceeded", "message": "too late"}}, 2)
        else:
            tell({"event": {"end": {"exitCode": code if code >= 0 else 128 - code, "exited": True}}})
            tell({}, 2)
        with contextlib.suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, status: int, body: dict[str, Any] | bytes) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if isinstance(body, dict) else "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


def _envelopes(body: bytes) -> Iterator[dict[str, Any]]:
    while body:
        (size,) = struct.unpack(">I", body[1:5])
        yield json.loads(body[5 : 5 + size])
        body = body[5 + size :]


@contextlib.contextmanager
def sandbox_service(root: Path) -> Iterator[SandboxService]:
    """Yield the service, which listens on loopback; files of its sandboxes lie under `root`."""
    service = SandboxService(root=root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": service}))
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        for process in service.running.values():
            process.kill()
        server.shutdown()
        server.server_close()
        thread.join()
