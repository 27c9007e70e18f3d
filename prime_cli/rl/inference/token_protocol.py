"""The routes that take and give token ids, in the shapes that vLLM and the environment library know."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.protocol import ChatRequest, SamplingRequest


class TokenChatRequest(ChatRequest):
    """A chat completion whose prompt is `tokens`; the messages only say what was asked, nothing is rendered."""

    tokens: list[int] = Field(min_length=1)


class GenerateRequest(BaseModel):
    """Tokens in, tokens out."""

    model_config = ConfigDict(extra="ignore")

    token_ids: list[int] = Field(min_length=1)
    sampling_params: SamplingRequest = SamplingRequest()
    model: str | None = None
    stream: Literal[False] | None = False


class TokenizeRequest(BaseModel):
    """A text, or messages to be rendered with the chat template."""

    model_config = ConfigDict(extra="ignore")

    prompt: str | None = None
    add_special_tokens: bool = True
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give `prompt` or `messages`")
        return self


def generate_response(completion: Completion, *, model: str) -> dict[str, Any]:
    """Return the body of `/inference/v1/generate`: ids, log-probabilities, and which version sampled which tokens."""
    scored = zip(completion.token_ids, completion.logprobs, strict=True)
    return {
        "request_id": f"generate-{uuid.uuid4().hex}",
        "model": model,
        "prompt_token_ids": None,
        "usage": {
            "prompt_tokens": len(completion.prompt_ids),
            "completion_tokens": len(completion.token_ids),
            "total_tokens": len(completion.prompt_ids) + len(completion.token_ids),
        },
        "output_mode": "tokens",
        "choices": [
            {
                "index": 0,
                "finish_reason": completion.finish_reason,
                "token_ids": completion.token_ids,
                "logprobs": {
                    "content": [{"token_id": token, "logprob": value, "top_logprobs": []} for token, value in scored]
                },
                "weight_versions": version_spans(completion.versions),
            }
        ],
    }


def version_spans(versions: list[int]) -> list[dict[str, Any]]:
    """Return runs of equal versions as vLLM writes them: {version, start, end}, the end not included."""
    spans: list[dict[str, Any]] = []
    for index, version in enumerate(versions):
        if spans and spans[-1]["version"] == str(version):
            spans[-1]["end"] = index + 1
        else:
            spans.append({"version": str(version), "start": index, "end": index + 1})
    return spans
