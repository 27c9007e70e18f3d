"""Conversations rendered with the chat template into token ids, with a mask of what is learnt.

What an assistant's message adds is what stands between the template up to the generation prompt, as an inference server
renders it, and the template up to the message's end. Some templates rewrite earlier messages when a conversation goes
on (they take the thoughts out of former turns): what the assistant saw then is no beginning of what is rendered later.
Such a conversation becomes several demonstrations, each a beginning that goes on as far as the template lets it, and
every message is learnt in the one in which the model would have written it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prime_cli.core.errors import ConfigError
from prime_cli.rl.transport import Sample
from prime_cli.sft.conversations import Conversation, Message

_AT_ONCE = 1024  # texts that are tokenised together
_ASSISTANT = "assistant"

Span = tuple[int, int]
"""Where a piece of text begins and ends."""


@dataclass(frozen=True)
class Demonstration:
    """Token ids, and for each whether it is learnt; kept small, a data set holds many."""

    token_ids: array[int]
    learnt: bytes

    def sample(self) -> Sample:
        """Return it as the trainer takes it."""
        zeros = [0.0] * len(self.token_ids)
        return Sample(self.token_ids.tolist(), zeros, zeros, zeros, [float(flag) for flag in self.learnt])


@dataclass
class Rendered:
    """Demonstrations, and what the limit on their length cost.

    Args:
        truncated: how many were longer than the limit; their ends are cut off.
        left_out: how many of these had nothing left to learn, and are not among the demonstrations.
    """

    demonstrations: list[Demonstration]
    truncated: int = 0
    left_out: int = 0


def render(
    conversations: Sequence[Conversation],
    tokenizer: Any,
    *,
    seq_len: int,
    roles: frozenset[str] = frozenset({_ASSISTANT}),
) -> Rendered:
    """Render conversations into demonstrations of at most `seq_len` tokens in which the words of `roles` are learnt.

    Raises:
        ConfigError: the template cannot render a conversation, or renders it so that nobody can tell who says what.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            "the model's tokenizer does not say which characters its tokens stand for",
            hint="fine-tuning needs a tokenizer of the `tokenizers` library, a folder with tokenizer.json",
        )
    rendered = Rendered([])
    pieces = [piece for conversation in conversations for piece in _pieces(conversation, tokenizer, roles)]
    for start in range(0, len(pieces), _AT_ONCE):
        some = pieces[start : start + _AT_ONCE]
        encoded = tokenizer([text for text, _ in some], add_special_tokens=False, return_offsets_mapping=True)
        for (_, spans), ids, offsets in zip(some, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            _add(rendered, ids, _mask(offsets, spans), seq_len)
    return rendered


def _add(rendered: Rendered, ids: Sequence[int], learnt: bytes, seq_len: int) -> None:
    if len(ids) > seq_len:
        rendered.truncated += 1
        ids, learnt = ids[:seq_len], learnt[:seq_len]
        if not any(learnt):
            rendered.left_out += 1
            return
    rendered.demonstrations.append(Demonstration(array("i", ids), learnt))


def _mask(offsets: Sequence[Span], spans: Sequence[Span]) -> bytes:
    """Return 1 for each token that begins within a span, else 0. Nothing predicts the first token, so it gets a 0."""
    mask = bytearray(len(offsets))
    remaining = iter(spans)
    span = next(remaining, None)
    for index, (start, _) in enumerate(offsets):
        while span is not None and start >= span[1]:
            span = next(remaining, None)
        if span is None:
            break
        mask[index] = index > 0 and start >= span[0]
    return bytes(mask)


def _pieces(conversation: Conversation, tokenizer: Any, roles: frozenset[str]) -> Iterator[tuple[str, list[Span]]]:
    """Yield texts, and where in each the words that are learnt stand.

    Each text is what the template makes of the conversation up to some message; a later one that only goes on takes
    its place.
    """
    template = _Template(conversation, tokenizer)
    text, spans = "", list[Span]()
    for position, message in enumerate(conversation.messages):
        if message["role"] not in roles:
            continue
        before, until = template.around(position)
        if text and not before.startswith(text):
            yield text, spans
            spans = []
        text = until
        # The line break that templates put behind the end marker is no word of anybody's.
        spans.append((len(before), len(before) + len(until[len(before) :].rstrip())))
    if text:
        yield text, spans


class _Template:
    """The chat template over the beginnings of one conversation."""

    def __init__(self, conversation: Conversation, tokenizer: Any) -> None:
        self._conversation = conversation
        self._tokenizer = tokenizer

    def around(self, position: int) -> tuple[str, str]:
        """Return the text before what message `position` adds, and the text until its end.

        Raises:
            ConfigError: the second does not begin with the first.
        """
        messages = self._conversation.messages
        is_reply = messages[position]["role"] == _ASSISTANT
        before = self._text(messages[:position], generation=is_reply) if position or is_reply else ""
        until = self._text(messages[: position + 1], generation=False)
        if not until.startswith(before):
            raise ConfigError(
                f"the chat template rewrites what stands before the message {position + 1} of a conversation, a "
                f"message of role {messages[position]['role']!r}, so its words cannot be told apart",
                hint="learn from the assistant only, or use a template under which a longer conversation begins with "
                "the text of a shorter one",
            )
        return before, until

    def _text(self, messages: list[Message], *, generation: bool) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=self._conversation.tools or None, add_generation_prompt=generation, tokenize=False
            )
        except Exception as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigError(
                f"the chat template cannot render messages of the roles {roles or '(none)'}: {error}",
                hint="compare the data with what the template of the model expects",
            ) from error
        return str(text)
