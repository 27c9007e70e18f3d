"""An OpenAI-compatible server in a thread whose answers are a function of the messages."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """An answer with an error status."""

    status: int
    message: str


@dataclass(frozen=True)
class Sized:
    """An answer to a prompt of so many tokens, cut where the request says; a letter is a token."""

    text: str
    prompt_tokens: int = 3


@dataclass(frozen=True)
class ToolCall:
    """An answer that calls a tool."""

    name: str
    arguments: dict[str, Any]


Answer = Callable[[list[dict[str, Any]]], "str | Refusal | Sized | ToolCall"]


@contextlib.contextmanager
def scripted_model(
    answer: Answer, *, models: tuple[str, ...] = ("scripted",), headers: list[dict[str, str]] | None = None
) -> Iterator[str]:
    """Yield the base URL of a server that answers every chat completion with `answer(messages)`.

    The headers of each are put into `headers`, under names in lower case.

    Asked for token ids, it gives the prompt the ids 7, 8, 9 and each letter of the answer its code point; an empty
    answer has the id 0, as one that only ends.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if headers is not None:
                headers.append({name.lower(): value for name, value in self.headers.items()})
            text = answer(body["messages"])
            if isinstance(text, Refusal):
                self._send({"error": {"message": text.message}}, status=text.status)
            else:
                self._send(completion(body, _cut(text, body) if isinstance(text, Sized) else text))

        def _send(self, body: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _cut(answer: Sized, request: dict[str, Any]) -> Sized:
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    return Sized(answer.text[:limit], answer.prompt_tokens)


def completion(request: dict[str, Any], answer: str | Sized | ToolCall) -> dict[str, Any]:
    """Return a chat completion that says `answer`."""
    if isinstance(answer, ToolCall):
        called = completion(request, "")
        function = {"name": answer.name, "arguments": json.dumps(answer.arguments)}
        message = {"role": "assistant", "content": None}
        called["choices"][0]["message"] = {
            **message, "tool_calls": [{"id": "call", "type": "function", "function": function}],
        }  # fmt: skip
        return called
    sized = Sized(answer) if isinstance(answer, str) else answer
    text, prompt_tokens = sized.text, sized.prompt_tokens
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
    if request.get("return_token_ids"):
        body["prompt_token_ids"] = [7 + index % 3 for index in range(prompt_tokens)]
        letters = text or "\0"
        choice["token_ids"] = [ord(letter) for letter in letters]
        choice["logprobs"] = {
            "content": [{"token": letter, "logprob": -0.5, "bytes": None, "top_logprobs": []} for letter in letters]
        }
    usage = {
        "prompt_tokens": prompt_tokens, "completion_tokens": len(text), "total_tokens": prompt_tokens + len(text)
    }  # fmt: skip
    return {**body, "choices": [choice], "usage": usage}
