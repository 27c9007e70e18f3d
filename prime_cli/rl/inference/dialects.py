"""How the gateway asks the two kinds of engine, so that whoever asks the gateway cannot tell them apart."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from prime_cli.rl.inference.protocol import error_body
from prime_cli.rl.inference.replicas import Replica

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKEN_CHAT, GENERATE, TOKENIZE = "/v1/chat/completions/tokens", "/inference/v1/generate", "/tokenize"
DATA_ROUTES = (CHAT, COMPLETIONS, TOKEN_CHAT, GENERATE, TOKENIZE)

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens",
    "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip


_NO_PROMPT_LOGPROBS = "vLLM 0.32 ends when it is asked for prompt_logprobs under an adapter; score with merged weights"


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status == 200


class Dialect(Protocol):
    """Asks one kind of engine."""

    model: str  # what the policy is called there

    async def ask(self, replica: Replica, path: str, raw: bytes, body: dict[str, Any]) -> Reply:
        """Return the answer to a request of one of DATA_ROUTES, whose body is `raw`, parsed `body`."""


async def _post(session: aiohttp.ClientSession, url: str, data: bytes) -> Reply:
    async with session.post(url, data=data, headers={"Content-Type": "application/json"}) as response:
        return Reply(response.status, await response.read())


class EmbeddedDialect:
    """The embedded server answers every route as it is asked, and names the policy versions itself."""

    def __init__(self, session: aiohttp.ClientSession, model: str) -> None:
        self.model = model
        self._session = session

    async def ask(self, replica: Replica, path: str, raw: bytes, body: dict[str, Any]) -> Reply:
        """Hand the request on as it is."""
        return await _post(self._session, replica.url + path, raw)


class VllmDialect:
    """vLLM knows the policy by the name of its weights or of the adapter on them, and keeps a prefix cache.

    Prefixes are salted with the policy version, so that none is reused that an older policy computed. Answers get the
    versions before their first and after their last token, exact ones where vLLM says them. Chat completions from
    tokens are made of its token route, and of its parsers where there are tools.
    """

    def __init__(self, session: aiohttp.ClientSession, model: str) -> None:
        self.model = model
        self._served_as = model
        self._session = session

    async def ask(self, replica: Replica, path: str, raw: bytes, body: dict[str, Any]) -> Reply:
        """Ask as vLLM wants it, and complete its answer."""
        body = {**body, "model": self.model}
        if path == TOKENIZE:
            return await self._send(replica, path, body)
        if self.model != self._served_as and body.get("prompt_logprobs") is not None:
            return Reply(400, json.dumps(error_body(_NO_PROMPT_LOGPROBS)).encode())
        body["cache_salt"] = f"{body.get('cache_salt') or ''}policy-{replica.version}"
        first = replica.version
        if path == TOKEN_CHAT:
            return await self._chat_from_tokens(replica, body)
        reply = await self._send(replica, path, body)
        if not reply.ok:
            return reply
        # Appended to the text: parsing and writing every answer again would cost more than all the rest here.
        versions = json.dumps({"policy_versions": [first, replica.version]})[1:]
        return Reply(reply.status, reply.body.rstrip()[:-1] + b"," + versions.encode())

    async def _send(self, replica: Replica, path: str, body: dict[str, Any]) -> Reply:
        return await _post(self._session, replica.url + path, json.dumps(body).encode())

    async def _chat_from_tokens(self, replica: Replica, body: dict[str, Any]) -> Reply:
        has_tools = bool(body.get("tools"))
        wanted = {
            "model": body["model"],
            "token_ids": body.get("tokens"),
            "cache_salt": body["cache_salt"],
            "sampling_params": sampling_of_chat(body),
            "output_mode": "tokens" if has_tools else "text",
        }
        reply = await self._send(replica, GENERATE, wanted)
        if not reply.ok:
            return reply
        generated = json.loads(reply.body)
        message: dict[str, Any] = {"role": "assistant", "content": generated["choices"][0].get("text")}
        finish_reason = generated["choices"][0]["finish_reason"]
        if has_tools:
            reply = await self._send(replica, f"{CHAT}/derender", self._unparsed(generated, body))
            if not reply.ok:
                return reply
            parsed = json.loads(reply.body)["choices"][0]
            message = parsed["message"]
            finish_reason = "tool_calls" if message.get("tool_calls") else finish_reason
        answer = chat_of_generated(generated, body["tokens"], message, finish_reason, self._served_as)
        return Reply(reply.status, json.dumps(answer).encode())

    def _unparsed(self, generated: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        """Return what vLLM's parsers are given: the answer without the token that ended it."""
        (choice,) = generated["choices"]
        ended = choice["finish_reason"] == "stop" and isinstance(choice.get("stop_reason"), int | None)
        kept = choice["token_ids"][:-1] if ended else choice["token_ids"]
        chat = {k: v for k, v in body.items() if k in ("messages", "tools", "tool_choice", "chat_template_kwargs")}
        return {
            "model": body["model"],
            "generate_response": {**generated, "choices": [{**choice, "token_ids": kept, "logprobs": None}]},
            "prompt_token_ids": body["tokens"],
            "prompt_tokens": len(body["tokens"]),
            "chat_request": {**chat, "model": body["model"]},
        }


def sampling_of_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters of a chat request as the token route takes them."""
    parameters = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None:
        parameters["max_tokens"] = limit
    return {**parameters, "logprobs": 0}


def chat_of_generated(
    generated: dict[str, Any], prompt_ids: list[int], message: dict[str, Any], finish_reason: str, model: str
) -> dict[str, Any]:
    """Return the chat completion that says what the token route answered."""
    (choice,) = generated["choices"]
    scores = (choice.get("logprobs") or {}).get("content") or []
    tokens = [
        {"token": entry.get("token") or f"token_id:{entry.get('token_id')}", "logprob": entry["logprob"],
         "bytes": None, "top_logprobs": []}
        for entry in scores
    ]  # fmt: skip
    spans = choice.get("weight_versions") or []
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "prompt_token_ids": prompt_ids,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish_reason,
                "token_ids": choice["token_ids"],
                "logprobs": {"content": tokens},
            }
        ],
        "usage": generated.get("usage"),
        "policy_versions": [int(spans[0]["version"]), int(spans[-1]["version"])] if spans else None,
    }
