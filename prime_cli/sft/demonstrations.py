"""From the configured sources to demonstrations in token ids: those to train on, by source, and those held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_cli.core.errors import ConfigError
from prime_cli.sft.batches import Mixture
from prime_cli.sft.config import SFTConfig
from prime_cli.sft.conversations import Conversation
from prime_cli.sft.data_config import DataConfig
from prime_cli.sft.rendering import Demonstration, Rendered, render
from prime_cli.sft.sources import load_conversations

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demonstrations:
    """What a run learns from, source by source, and what it is measured on."""

    training: list[list[Demonstration]]
    validation: list[Demonstration]

    def mixture(self, data: DataConfig, seed: int) -> Mixture:
        """Return how the sources make up an epoch."""
        probabilities = [source.probability for source in data.sources if source.probability is not None]
        return Mixture(
            counts=[len(source) for source in self.training],
            probabilities=probabilities or None,
            until_all_are_used_up=data.stopping_strategy == "all_exhausted",
            shuffle=data.shuffle,
            seed=seed if data.seed is None else data.seed,
        )


@dataclass(frozen=True)
class Conversations:
    """The sources as they were read: what each gives to train on, and what is held out."""

    training: list[list[Conversation]]
    validation: list[Conversation]


def read_conversations(config: SFTConfig, *, log_directory: Path, say: Say = lambda text: None) -> Conversations:
    """Read all sources and hold some conversations out.

    Raises:
        ConfigError: a source cannot be used, or nothing is left to train on.
    """
    sources = _read(config.data, log_directory, say)
    total, held_out = sum(map(len, sources)), config.num_validation
    if total <= held_out:
        raise ConfigError(
            f"{total} demonstrations leave none to train on after {held_out} for validation",
            hint="lower data.num_validation, or give more demonstrations",
        )
    shares = _shares([len(source) for source in sources], held_out)
    validation = [
        conversation for source, share in zip(sources, shares, strict=True) for conversation in source[:share]
    ]
    if config.val.data is not None:
        validation = [conversation for source in _read(config.val.data, log_directory, say) for conversation in source]
    training = [source[share:] for source, share in zip(sources, shares, strict=True)]
    if not all(training):
        raise ConfigError(
            "a source has nothing left to train on after the share for validation",
            hint="lower data.num_validation, or leave the small source out",
        )
    return Conversations(training, validation)


def render_conversations(read: Conversations, tokenizer: Any, config: SFTConfig, say: Say) -> Demonstrations:
    """Render what was read, and say what the sequence length cuts off.

    Raises:
        ConfigError: the chat template cannot render it, or all of a source is cut off.
    """
    roles, seq_len = config.data.loss_mask.roles, config.trainer.seq_len
    training = [render(source, tokenizer, seq_len=seq_len, roles=roles) for source in read.training]
    for source, rendered in zip(config.data.sources, training, strict=True):
        if not rendered.demonstrations:
            raise ConfigError(
                f"every demonstration of {source.label} has its answer beyond trainer.seq_len {seq_len}",
                hint="raise trainer.seq_len",
            )
    validation = render(read.validation, tokenizer, seq_len=seq_len, roles=roles)
    for text in _cuts(training, validation, seq_len):
        say(text)
    return Demonstrations([rendered.demonstrations for rendered in training], validation.demonstrations)


def _read(data: DataConfig, log_directory: Path, say: Say) -> list[list[Conversation]]:
    return [load_conversations(source, log_directory=log_directory, note=say) for source in data.sources]


def _shares(counts: Sequence[int], held_out: int) -> list[int]:
    """Divide `held_out` between sources in proportion to their size, the rest of the division to the first ones."""
    total = sum(counts)
    shares = [held_out * count // total for count in counts]
    for index in range(held_out - sum(shares)):
        shares[index % len(shares)] += 1
    return shares


def _cuts(training: Sequence[Rendered], validation: Rendered, seq_len: int) -> list[str]:
    everything = [*training, validation]
    truncated = sum(rendered.truncated for rendered in everything)
    left_out = sum(rendered.left_out for rendered in everything)
    if not truncated:
        return []
    total = sum(len(rendered.demonstrations) + rendered.left_out for rendered in everything)
    return [
        f"warning: {truncated:,} of {total:,} demonstrations are longer than trainer.seq_len {seq_len} and cut there"
        + (f"; {left_out:,} of them have nothing left to learn and are left out" if left_out else "")
    ]
