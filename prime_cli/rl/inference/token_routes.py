"""The routes of the embedded server that take or give token ids, so that no turn is ever tokenised twice."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from prime_cli.rl.inference.answers import answer
from prime_cli.rl.inference.chat import ChatTokenizer
from prime_cli.rl.inference.completing import answering, complete
from prime_cli.rl.inference.engine import SlotEngine
from prime_cli.rl.inference.public_routes import chat_answer
from prime_cli.rl.inference.token_protocol import (
    GenerateRequest,
    TokenChatRequest,
    TokenizeRequest,
    generate_response,
)


class TokenRoutes:
    """/v1/chat/completions/tokens, /inference/v1/generate and /tokenize over one engine."""

    def __init__(self, engine: SlotEngine, tokenizer: ChatTokenizer, model_name: str) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._model_name = model_name

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/chat/completions/tokens", self.chat, methods=["POST"]),
            Route("/inference/v1/generate", self.generate, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
        ]

    @answering
    async def chat(self, request: Request) -> Response:
        """Answer a chat completion whose prompt is given as tokens."""
        wanted = TokenChatRequest.model_validate_json(await request.body())
        completion = await complete(self._engine, wanted.tokens, wanted.sampling(), request)
        return chat_answer(self._tokenizer, wanted, completion, self._model_name)

    @answering
    async def generate(self, request: Request) -> Response:
        """Complete token ids and answer with token ids."""
        wanted = GenerateRequest.model_validate_json(await request.body())
        completion = await complete(self._engine, wanted.token_ids, wanted.sampling_params.sampling(), request)
        return answer(generate_response(completion, model=self._model_name), completion)

    @answering
    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a text or of messages."""
        wanted = TokenizeRequest.model_validate_json(await request.body())
        tokens = self._tokenizer.tokenize(wanted)
        return JSONResponse(
            {"count": len(tokens), "max_model_len": self._engine.context_length, "tokens": tokens, "token_strs": None}
        )
