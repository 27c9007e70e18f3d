"""The routes of the embedded server that take or give token ids, so that no turn is ever tokenised twice."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.completing import Asked, Reader, answered, answering
from prime_cli.rl.inference.engine import SlotEngine
from prime_cli.rl.inference.public_routes import chat_body
from prime_cli.rl.inference.token_protocol import (
    GenerateRequest,
    TokenChatRequest,
    TokenizeRequest,
    generate_response,
)

_CHAT, _GENERATE = "/v1/chat/completions/tokens", "/inference/v1/generate"


class TokenRoutes:
    """/v1/chat/completions/tokens, /inference/v1/generate and /tokenize over one engine."""

    def __init__(self, engine: SlotEngine, tokenizer: ChatTokenizer, model_name: str) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._model_name = model_name

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(_CHAT, self.chat, methods=["POST"]),
            Route(_GENERATE, self.generate, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
        ]

    def readers(self) -> dict[str, Reader]:
        """Return what understands the bodies of requests that come with others."""
        return {
            _CHAT: lambda body: self._asked_chat(TokenChatRequest.model_validate(body)),
            _GENERATE: lambda body: self._asked_tokens(GenerateRequest.model_validate(body)),
        }

    @answering
    async def chat(self, request: Request) -> Response:
        """Answer a chat completion whose prompt is given as tokens."""
        wanted = TokenChatRequest.model_validate_json(await request.body())
        return await answered(self._engine, self._asked_chat(wanted), request)

    @answering
    async def generate(self, request: Request) -> Response:
        """Complete token ids and answer with token ids."""
        wanted = GenerateRequest.model_validate_json(await request.body())
        return await answered(self._engine, self._asked_tokens(wanted), request)

    @answering
    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a text or of messages."""
        wanted = TokenizeRequest.model_validate_json(await request.body())
        tokens = self._tokenizer.tokenize(wanted)
        return JSONResponse(
            {"count": len(tokens), "max_model_len": self._engine.context_length, "tokens": tokens, "token_strs": None}
        )

    def _asked_chat(self, wanted: TokenChatRequest) -> Asked:
        return Asked(wanted.tokens, wanted.sampling(), chat_body(self._tokenizer, wanted, self._model_name))

    def _asked_tokens(self, wanted: GenerateRequest) -> Asked:
        body_of = partial(generate_response, model=self._model_name)
        return Asked(wanted.token_ids, wanted.sampling_params.sampling(), body_of)
