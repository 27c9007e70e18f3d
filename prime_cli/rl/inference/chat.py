"""Between messages and token ids: the chat template on the way in, decoding on the way out."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from prime_cli.rl.inference.engine import Completion
from prime_cli.rl.inference.protocol import ChatRequest
from prime_cli.rl.inference.token_protocol import TokenizeRequest
from prime_cli.rl.inference.tool_calls import with_parsed_arguments

_REMEMBERED_PROMPTS = 4096


class ChatTokenizer:
    """Renders prompts with the model's chat template. The rollouts of a group share a prompt, so it is remembered."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self._remembered: OrderedDict[str, list[int]] = OrderedDict()

    def prompt_ids(self, request: ChatRequest) -> list[int]:
        """Return the token ids of the request's messages, ready for the model to answer.

        Raises:
            ValueError: a message that the template cannot render.
        """
        key = json.dumps([request.messages, request.tools, request.chat_template_kwargs])
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        ids = self._rendered(request.messages, request.tools, request.chat_template_kwargs, to_be_answered=True)
        self._remembered[key] = ids
        if len(self._remembered) > _REMEMBERED_PROMPTS:
            self._remembered.popitem(last=False)
        return list(ids)

    def tokenize(self, request: TokenizeRequest) -> list[int]:
        """Return the token ids of a text, or of messages.

        Raises:
            ValueError: a message that the template cannot render.
        """
        if request.messages is not None:
            return self._rendered(
                request.messages,
                request.tools,
                request.chat_template_kwargs,
                to_be_answered=request.add_generation_prompt,
            )
        ids: list[int] = self._tokenizer(request.prompt, add_special_tokens=request.add_special_tokens)["input_ids"]
        return ids

    def _rendered(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: dict[str, Any] | None,
        *,
        to_be_answered: bool,
    ) -> list[int]:
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                [_as_templates_expect(message) for message in messages],
                tools=tools,
                add_generation_prompt=to_be_answered,
                tokenize=True,
                return_dict=False,
                **(options or {}),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"the chat template cannot render these messages: {error}") from error
        return ids

    def decode(self, completion: Completion, *, with_tokens: bool) -> tuple[str, list[str] | None]:
        """Return the completion's text without chat markers and, if asked for, each token as a string."""
        visible = [token for token in completion.token_ids if token not in self._special_ids]
        text = self._tokenizer.decode(visible)
        tokens = self._tokenizer.convert_ids_to_tokens(completion.token_ids) if with_tokens else None
        if tokens is not None:
            tokens = [token if token is not None else "" for token in tokens]
        return text, tokens

    def eos_ids(self, model: Any) -> list[int]:
        """Return the ids that end a completion: the generation config's, else the tokenizer's."""
        configured = getattr(model.generation_config, "eos_token_id", None)
        if configured is None:
            configured = self._tokenizer.eos_token_id
        return list(configured) if isinstance(configured, list | tuple) else [int(configured)]


def _as_templates_expect(message: dict[str, Any]) -> dict[str, Any]:
    """Join a list of text parts into one string, and parse the arguments of tool calls."""
    if message.get("tool_calls"):
        message = with_parsed_arguments(message)
    content = message.get("content")
    if isinstance(content, list):
        unsupported = [part.get("type") for part in content if part.get("type") != "text"]
        if unsupported:
            raise ValueError(f"content of type {unsupported[0]!r} is not supported")
        return {**message, "content": "".join(part["text"] for part in content)}
    return message
