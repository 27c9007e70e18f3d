"""Demonstrations: read, rendered with the chat template, and masked so that only the assistant's words count."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.errors import ConfigError
from prime_cli.environments.runtime import EnvironmentSpec, EnvironmentWorkers
from prime_cli.environments.target import EnvironmentTarget, find_target
from prime_cli.rl.transport import Sample
from prime_cli.sft.config import DataConfig

Messages = list[dict[str, Any]]


def load_conversations(
    data: DataConfig, *, log_directory: Path, note: Callable[[str], None] = lambda text: None
) -> list[Messages]:
    """Return the conversations of the configured source, each ending with an assistant's message.

    Raises:
        ConfigError: the file is missing, or a line of it is no conversation; names the line.
        PrimeError: the environment does not load, or its examples carry no answers.
    """
    if data.path is not None:
        return _read_file(data.path)
    assert data.env is not None, "the configuration holds one source"
    rows = asyncio.run(_environment_rows(find_target(data.env, note), data.args, log_directory))
    conversations = [conversation_of_example(row) for row in rows]
    known = [conversation for conversation in conversations if conversation is not None]
    if not known:
        raise ConfigError(
            f"the training examples of {data.env} carry no `answer` to learn from",
            hint="write demonstrations to a JSONL file and set data.path",
        )
    return known


def conversation_of_example(row: Mapping[str, Any]) -> Messages | None:
    """Return an environment's example as a conversation: its prompt, answered by its `answer`; None without one."""
    answer = row.get("answer")
    if not isinstance(answer, str) or not answer:
        return None
    return [*_messages(row["prompt"], "user"), {"role": "assistant", "content": answer}]


async def _environment_rows(
    target: EnvironmentTarget, args: dict[str, Any], log_directory: Path
) -> list[dict[str, Any]]:
    workers = EnvironmentWorkers(
        EnvironmentSpec(target.identity.name, args),
        python=target.python,
        log_directory=log_directory,
        search_path=target.search_path,
    )
    try:
        await workers.start()
        return await workers.examples("train")
    finally:
        await workers.close()


def _read_file(path: Path) -> list[Messages]:
    conversations = []
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    conversations.append(_conversation_of_line(line, f"{path}:{number}"))
    except FileNotFoundError:
        raise ConfigError(f"no such data file: {path}", hint="data.path names a JSONL file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="data.path names a JSONL file, in UTF-8") from None
    if not conversations:
        raise ConfigError(f"{path} holds no demonstrations")
    return conversations


def _conversation_of_line(line: str, where: str) -> Messages:
    expected = 'a line is {"messages": [...]} or {"prompt": ..., "completion": ...}'
    try:
        row = json.loads(line)
        if "messages" in row:
            conversation = _messages(row["messages"], "user")
        else:
            conversation = [*_messages(row["prompt"], "user"), *_messages(row["completion"], "assistant")]
        if not any(message["role"] == "assistant" for message in conversation):
            raise ConfigError(f"{where} has no assistant message to learn from", hint=expected)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where} is no demonstration: {error!r}", hint=expected) from None
    return conversation


def _messages(value: Any, role: str) -> Messages:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [{"role": str(message["role"]), "content": message["content"]} for message in value]


def render_samples(conversations: Sequence[Messages], tokenizer: Any, *, seq_len: int) -> list[Sample]:
    """Render conversations into samples whose assistant tokens, end marker included, carry cross-entropy weight 1.

    For each assistant message the template is rendered up to the generation prompt and up to the message's end; what
    lies between is learnt. Samples are cut at `seq_len`.

    Raises:
        ConfigError: the chat template rewrites earlier messages, so that the parts are not prefixes of the whole.
    """
    pieces: list[tuple[int, Messages, bool]] = []
    for index, conversation in enumerate(conversations):
        for position, message in enumerate(conversation):
            if message["role"] == "assistant":
                pieces.append((index, conversation[:position], True))
                pieces.append((index, conversation[: position + 1], False))
    texts = [
        tokenizer.apply_chat_template(messages, add_generation_prompt=generation, tokenize=False)
        for _, messages, generation in pieces
    ]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    spans: dict[int, list[tuple[list[int], list[int]]]] = {}
    for (index, _, _), before, until in zip(pieces[::2], ids[::2], ids[1::2], strict=True):
        spans.setdefault(index, []).append((before, until))
    return [_sample(spans[index], seq_len) for index in sorted(spans)]


def _sample(spans: Sequence[tuple[list[int], list[int]]], seq_len: int) -> Sample:
    token_ids = spans[-1][1]
    weights = [0.0] * len(token_ids)
    for before, until in spans:
        if token_ids[: len(before)] != before or token_ids[: len(until)] != until:
            raise ConfigError(
                "the chat template rewrites earlier messages, so the assistant's tokens cannot be told apart",
                hint="use a template under which a longer conversation begins with the tokens of a shorter one",
            )
        weights[len(before) : len(until)] = [1.0] * (len(until) - len(before))
    count = min(len(token_ids), seq_len)
    zeros = [0.0] * count
    return Sample(token_ids[:count], zeros, zeros, zeros, weights[:count])


def batches_forever(samples: Sequence[Sample], batch_size: int, seed: int) -> Iterator[list[Sample]]:
    """Yield batches for ever: each epoch is shuffled under the seed; its last batch is filled from the next one."""
    epoch = 0
    pending: list[Sample] = []
    while True:
        order = list(samples)
        random.Random(f"{seed}/{epoch}").shuffle(order)  # noqa: S311 - reproducible, not secret
        pending += order
        while len(pending) >= batch_size:
            yield pending[:batch_size]
            pending = pending[batch_size:]
        epoch += 1
