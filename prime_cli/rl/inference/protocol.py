"""The OpenAI dialect that the embedded server speaks, with vLLM's additions for token ids."""

from __future__ import annotations

import time
import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.sampling import SamplingParameters
from prime_cli.rl.inference.tool_calls import assistant_message

MAX_COMPLETION_TOKENS_DEFAULT = 256


class SamplingRequest(BaseModel):
    """What every request may say about sampling; `n` above 1 and streaming are refused."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = None
    n: Literal[1] | None = 1
    stream: Literal[False] | None = False
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = False

    def sampling(self) -> SamplingParameters:
        """Return the request's sampling parameters; what is absent gets OpenAI's defaults."""
        return SamplingParameters(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=self.top_p or 1.0,
            top_k=max(self.top_k or 0, 0),
            max_tokens=self.max_completion_tokens or self.max_tokens or MAX_COMPLETION_TOKENS_DEFAULT,
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
        )


class ChatRequest(SamplingRequest):
    """The fields of a chat completion request that are honoured."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    logprobs: bool | None = False
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    return_token_ids: bool | None = False
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(SamplingRequest):
    """A completion of token ids; with `prompt_logprobs` (0: of the tokens themselves) the prompt is scored."""

    prompt: list[int] = Field(min_length=1)
    prompt_logprobs: Literal[0] | None = None


def chat_response(
    request: ChatRequest, completion: Completion, *, model: str, text: str, tokens: list[str] | None
) -> dict[str, Any]:
    """Return the body of a chat completion.

    `tokens` are the sampled tokens as strings, needed when log-probabilities were asked for. Every answer carries the
    policy versions of its first and last token, and with `return_token_ids` the exact ids of prompt and completion.
    """
    message = assistant_message(text, parse_tools=bool(request.tools) and request.tool_choice != "none")
    calls_tools = "tool_calls" in message and completion.finish_reason == "stop"
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if calls_tools else completion.finish_reason,
        "logprobs": None,
    }
    if request.logprobs and tokens is not None:
        choice["logprobs"] = {
            "content": [
                {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
                for token, logprob in zip(tokens, completion.logprobs, strict=True)
            ]
        }
    body: dict[str, Any] = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(completion.prompt_ids),
            "completion_tokens": len(completion.token_ids),
            "total_tokens": len(completion.prompt_ids) + len(completion.token_ids),
        },
        "policy_versions": [completion.versions[0], completion.versions[-1]],
    }
    if request.return_token_ids:
        body["prompt_token_ids"] = completion.prompt_ids
        choice["token_ids"] = completion.token_ids
    return body


def completion_response(
    completion: Completion, *, model: str, text: str, prompt_logprobs: list[float] | None
) -> dict[str, Any]:
    """Return the body of a completion, always with the token ids; `prompt_logprobs` are of all tokens but the first."""
    choice: dict[str, Any] = {
        "index": 0, "text": text, "finish_reason": completion.finish_reason, "token_ids": completion.token_ids,
        "prompt_token_ids": completion.prompt_ids, "logprobs": None, "prompt_logprobs": None,
    }  # fmt: skip
    if prompt_logprobs is not None:
        scored = zip(completion.prompt_ids[1:], prompt_logprobs, strict=True)
        choice["prompt_logprobs"] = [None, *({str(token): {"logprob": value}} for token, value in scored)]
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(completion.prompt_ids),
            "completion_tokens": len(completion.token_ids),
            "total_tokens": len(completion.prompt_ids) + len(completion.token_ids),
        },
    }


def error_body(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
