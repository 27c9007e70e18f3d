"""The OpenAI routes of the embedded server: messages or a prompt in, a completion out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from prime_cli.rl.inference.answers import answer, refusal
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.completing import Asked, Reader, answered, answering, complete
from prime_cli.rl.inference.engine import Completion, SlotEngine
from prime_cli.rl.inference.metrics import prometheus_text
from prime_cli.rl.inference.protocol import ChatRequest, CompletionRequest, chat_response, completion_response

_CHAT = "/v1/chat/completions"


class PublicRoutes:
    """/health, /metrics, /v1/models, /v1/chat/completions and /v1/completions over one engine."""

    def __init__(self, engine: SlotEngine, tokenizer: ChatTokenizer, model_name: str) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._model_name = model_name

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route(_CHAT, self.chat, methods=["POST"]),
            Route("/v1/completions", self.completion, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        """200 while the engine's thread lives, else 503."""
        if not self._engine.is_alive:
            return refusal("the engine has stopped", status=503, kind="server_error")
        statistics = self._engine.statistics
        return JSONResponse(
            {"status": "ok", "running": statistics.running, "waiting": statistics.waiting, "steps": statistics.steps}
        )

    async def metrics(self, request: Request) -> Response:
        """What runs and waits, in Prometheus' text, under vLLM's names."""
        text = prometheus_text(self._engine.statistics, num_slots=self._engine.num_slots, model=self._model_name)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """List the one model."""
        entry = {
            "id": self._model_name,
            "object": "model",
            "created": 0,
            "owned_by": "local",
            "max_model_len": self._engine.context_length,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    @answering
    async def chat(self, request: Request) -> Response:
        """Answer a chat completion."""
        wanted = ChatRequest.model_validate_json(await request.body())
        return await answered(self._engine, self._asked(wanted), request)

    def readers(self) -> dict[str, Reader]:
        """Return what understands the bodies of requests that come with others."""
        return {_CHAT: lambda body: self._asked(ChatRequest.model_validate(body))}

    def _asked(self, wanted: ChatRequest) -> Asked:
        prompt_ids = self._tokenizer.prompt_ids(wanted)
        return Asked(prompt_ids, wanted.sampling(), chat_body(self._tokenizer, wanted, self._model_name))

    @answering
    async def completion(self, request: Request) -> Response:
        """Complete token ids, and score them where `prompt_logprobs` is asked for."""
        wanted = CompletionRequest.model_validate_json(await request.body())
        scores = None
        if wanted.prompt_logprobs is not None:
            scores = await asyncio.to_thread(self._engine.score, wanted.prompt)
        completion = Completion(wanted.prompt)
        if scores is None or len(wanted.prompt) < self._engine.context_length:
            asked = Asked(wanted.prompt, wanted.sampling(), lambda completion: {})
            completion = await complete(self._engine, asked, request)
        text, _ = self._tokenizer.decode(completion, with_tokens=False)
        return answer(
            completion_response(completion, model=self._model_name, text=text, prompt_logprobs=scores), completion
        )


def chat_body(tokenizer: ChatTokenizer, wanted: ChatRequest, model_name: str) -> Callable[[Completion], dict[str, Any]]:
    """Return what makes the answer to a chat request of its completion."""

    def body_of(completion: Completion) -> dict[str, Any]:
        text, tokens = tokenizer.decode(completion, with_tokens=bool(wanted.logprobs))
        return chat_response(wanted, completion, model=model_name, text=text, tokens=tokens)

    return body_of
