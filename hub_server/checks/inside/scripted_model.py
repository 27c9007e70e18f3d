"""A model that gives the same answer to everything, behind an OpenAI-compatible server on this machine's loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "OK"
MODEL = "scripted"


class ScriptedModel:
    """Serves from the moment it is made; `calls` counts the completions that it was asked for."""

    def __init__(self, most_calls: int) -> None:
        self.calls = 0
        self.is_exhausted = False
        self._most_calls = most_calls
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def base_url(self) -> str:
        """The address to give to an OpenAI client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body for one request."""
        with self._lock:
            self.calls += 1
            self.is_exhausted = self.is_exhausted or self.calls > self._most_calls
        if self.is_exhausted:
            return 400, {"error": {"message": f"the scripted model gives {self._most_calls} answers and no more"}}
        facts = {"id": f"scripted-{self.calls}", "created": 0, "model": request.get("model") or MODEL}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        ending: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
        if path.endswith("/chat/completions"):
            choice = {**ending, "message": {"role": "assistant", "content": ANSWER}}
            return 200, {**facts, "object": "chat.completion", "choices": [choice], "usage": usage}
        if path.endswith("/completions"):
            choices = [{**ending, "text": ANSWER}]
            return 200, {**facts, "object": "text_completion", "choices": choices, "usage": usage}
        return 404, {"error": {"message": f"the scripted model has no {path}"}}


def _handler_of(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                request = json.loads(body)
            except ValueError:
                request = {}
            self._send(*model.answer(self.path, request if isinstance(request, dict) else {}))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Stay out of the log of the check."""

    return Handler
