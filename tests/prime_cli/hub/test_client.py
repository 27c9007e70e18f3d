"""The client against servers that answer in every way a server can."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from prime_cli.core.context import load_settings
from prime_cli.core.errors import HubError, NotLoggedIn
from prime_cli.hub.client import HubClient, connect, hub_version


class Recorder:
    """A server of a few lines: gives one answer to everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {key.lower(): value for key, value in self.headers.items()}
                recorder.requests.append((self.command, self.path, headers, body))
                self.send_response(recorder.status)
                self.send_header("Content-Length", str(len(recorder.body)))
                self.end_headers()
                self.wfile.write(recorder.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def says(self, status: int, body: object) -> None:
        """Answer so from now on."""
        self.status, self.body = status, body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A server that answers as told."""
    running = Recorder()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def client(recorder: Recorder) -> Iterator[HubClient]:
    """A client of that server, with a key."""
    with HubClient(replace(load_settings(), base_url=recorder.url), "prime_k") as client:
        yield client


def refusal(call: Callable[[], object]) -> HubError:
    """Return the error that a call must end with."""
    with pytest.raises(HubError) as caught:
        call()
    return caught.value


def test_a_request_carries_the_key_and_a_json_type_even_without_a_body(client: HubClient, recorder: Recorder) -> None:
    client.post("/things/1/finalize")
    client.get("things", tags=["a", "b"], owner=None, mine=True)
    client.put("/things/1", {"a": 1})
    method, path, headers, body = recorder.requests[0]
    assert (method, path, body) == ("POST", "/api/v1/things/1/finalize", b"")
    assert headers["authorization"] == "Bearer prime_k"
    assert headers["content-type"] == "application/json"
    assert recorder.requests[1][1] == "/api/v1/things?tags=a&tags=b&mine=true"
    assert json.loads(recorder.requests[2][3]) == {"a": 1}


def test_the_words_of_the_hub_are_shown(client: HubClient, recorder: Recorder) -> None:
    recorder.says(409, {"detail": "content hash abc already exists"})
    error = refusal(lambda: client.post("/x"))
    assert (error.message, error.status) == ("content hash abc already exists", 409)
    recorder.says(422, {"detail": [{"loc": ["body", "name"], "msg": "too long"}, {"loc": ["body"], "msg": "bad"}]})
    assert refusal(lambda: client.post("/x")).message == "name: too long; bad"
    recorder.says(401, {"detail": "this API key was revoked"})
    error = refusal(lambda: client.get("/x"))
    assert (error.message, error.hint) == ("this API key was revoked", "run `prime login`")
    recorder.says(502, b"<html>bad gateway</html>")
    assert refusal(lambda: client.get("/x")).message == "HTTP 502 Bad Gateway"


def test_an_answer_that_no_hub_gives_is_said_to_be_one(client: HubClient, recorder: Recorder) -> None:
    for body in (b"<html>", b"[]", b'"x"'):
        recorder.says(200, body)
        assert "does not answer like a hub" in refusal(lambda: client.get("/x")).message
    recorder.says(200, b"")
    assert client.get("/x") == {}


def test_without_a_key_a_401_asks_for_a_login(recorder: Recorder) -> None:
    recorder.says(401, {"detail": "no key"})
    with HubClient(replace(load_settings(), base_url=recorder.url), None) as client, pytest.raises(NotLoggedIn):
        client.get("/x")
    assert "authorization" not in recorder.requests[0][2]
    with pytest.raises(NotLoggedIn):
        connect()


def test_a_hub_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("PRIME_API_BASE_URL", url)
    with connect(login_required=False) as client:
        error = refusal(lambda: client.get("/x"))
    assert error.message == f"no hub answers at {url}"
    assert "prime hub serve" in str(error.hint)
    assert "set-base-url" in str(error.hint)
    assert hub_version(url) is None


def test_an_upload_is_streamed_without_the_key(client: HubClient, recorder: Recorder, tmp_path: Path) -> None:
    data = b"x" * 700_000
    (tmp_path / "wheel").write_bytes(data)
    seen: list[tuple[int, int]] = []
    client.put_bytes(f"{recorder.url}/upload/token", tmp_path / "wheel", lambda done, total: seen.append((done, total)))
    method, path, headers, body = recorder.requests[0]
    assert (method, path, body) == ("PUT", "/upload/token", data)
    assert "authorization" not in headers
    assert headers["content-type"] == "application/octet-stream"
    assert "transfer-encoding" not in headers
    assert seen[-1] == (len(data), len(data))
    client.put_bytes(f"{recorder.url}/upload/token", b"small")
    assert recorder.requests[1][3] == b"small"


def test_a_download_appears_whole_or_not_at_all(client: HubClient, recorder: Recorder, tmp_path: Path) -> None:
    recorder.says(200, b"the bytes")
    target = tmp_path / "new" / "file.tar.gz"
    client.download(f"{recorder.url}/package", target)
    assert target.read_bytes() == b"the bytes"
    assert recorder.requests[0][2]["authorization"] == "Bearer prime_k"
    assert "other bytes" in refusal(lambda: client.download(f"{recorder.url}/p", target, sha256="0" * 64)).message
    recorder.says(404, {"detail": "not found"})
    assert refusal(lambda: client.download(f"{recorder.url}/p", target)).message == "not found"
    assert [path.name for path in target.parent.iterdir()] == ["file.tar.gz"]
    assert target.read_bytes() == b"the bytes"


def test_the_key_does_not_go_to_another_host(client: HubClient, tmp_path: Path) -> None:
    elsewhere = Recorder()
    try:
        client.download(f"{elsewhere.url}/package", tmp_path / "file")
        assert "authorization" not in elsewhere.requests[0][2]
    finally:
        elsewhere.server.shutdown()
        elsewhere.server.server_close()
