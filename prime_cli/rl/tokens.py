"""The exported tokens of a step: one JSON line per sequence that was trained on, with a list per column.

    schema, step, rank, micro_step, sequence     where it was; `sequence` is its number in the batch
    environment, group, example                  where it came from
    token_ids, position_ids                      every token, prompt and completion
    loss_mask                                    whether any part of the loss counts the token
    advantages, rl_weights, ce_weights, ref_kl_weights, ref_logprobs
                                                 what it was given
    inference_logprobs, trainer_logprobs         of the server that sampled it, and of the trainer before the step
    log_ratio, ratio, probability_delta          the trainer's over the server's, and the difference of probabilities
    mismatch_kl                                  ratio - log_ratio - 1
    entropies                                    of the policy at this place, in nats
    dropped                                      moved too far to be trained on

What is not known of a token, or is not finite, is null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from prime_cli.core.errors import BadInput
from prime_cli.rl.run_directory import RunDirectory

SCHEMA_VERSION = 1
_SLIGHT, _LARGE = 1e-3, 1e-2


@dataclass(frozen=True)
class TokenRow:
    """One token of a sequence, as a line about it says."""

    position: int
    token_id: int
    text: str
    counted: bool
    sampled: bool
    dropped: bool
    advantage: float
    inference_logprob: float | None
    trainer_logprob: float | None
    ratio: float | None
    mismatch_kl: float | None
    entropy: float | None

    @property
    def style(self) -> str:
        """Its colour: dim where nothing counts it, and from green to red by how far server and trainer are apart."""
        if not self.counted:
            return "dim"
        if self.dropped:
            return "bold white on red"
        if not self.sampled:
            return "cyan"
        return "green" if self.badness < _SLIGHT else "yellow" if self.badness < _LARGE else "red"

    @property
    def badness(self) -> float:
        """How far server and trainer are apart; infinite where either gave no finite number."""
        if not self.sampled:
            return 0.0
        return float("inf") if self.mismatch_kl is None else self.mismatch_kl


def exported_sequences(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    """Return the sequences of a step, of all ranks, in the order of the batch.

    Raises:
        BadInput: the step was not exported; names those that were.
    """
    paths = run.token_exports(step)
    if not paths:
        steps = run.token_export_steps()
        there = f"there are those of {', '.join(map(str, steps))}" if steps else "none was exported"
        hint = f"{there}; set trainer.token_export_interval before a run"
        raise BadInput(f"{run.path.name} has no tokens of step {step}", hint=hint)
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda record: int(record["sequence"]))


def mean_mismatch(record: dict[str, Any]) -> float:
    """Return the mean mismatch of a sequence over its sampled tokens; infinite where one is not finite."""
    sampled = [kl for i, kl in enumerate(record["mismatch_kl"]) if _is_sampled(record, i)]
    if any(kl is None for kl in sampled):
        return float("inf")
    return sum(sampled) / len(sampled) if sampled else 0.0


def rows_of(record: dict[str, Any], texts: list[str] | None = None) -> list[TokenRow]:
    """Return the tokens of a sequence; `texts` are what they read, their numbers else."""
    return [
        TokenRow(
            position=record["position_ids"][i],
            token_id=token_id,
            text=text if text is not None else f" {token_id}",
            counted=record["loss_mask"][i],
            sampled=_is_sampled(record, i),
            dropped=record["dropped"][i],
            advantage=record["advantages"][i] or 0.0,
            inference_logprob=record["inference_logprobs"][i],
            trainer_logprob=record["trainer_logprobs"][i],
            ratio=record["ratio"][i],
            mismatch_kl=record["mismatch_kl"][i],
            entropy=record["entropies"][i],
        )
        for i, (token_id, text) in enumerate(zip_longest(record["token_ids"], texts or []))
    ]


def texts_of(token_ids: list[int], model: Path) -> list[str] | None:
    """Return what each token reads by the tokenizer in a model's folder, or None when there is none any more."""
    if not model.is_dir():
        return None
    from prime_cli.models.folder import load_tokenizer

    tokenizer = load_tokenizer(model)
    return [tokenizer.decode([token_id]) for token_id in token_ids]


def _is_sampled(record: dict[str, Any], i: int) -> bool:
    """Say whether the policy sampled a token that it is trained on."""
    return bool(record["position_ids"][i] and (record["rl_weights"][i] or record["ref_kl_weights"][i]))
