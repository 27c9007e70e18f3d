"""What the trainer saw of every token of a step, as JSON lines: to find out which tokens a figure comes from.

One line per sequence; `prime_cli.rl.tokens` says what is in it, reads it and shows it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from prime_cli.rl.tokens import SCHEMA_VERSION
from prime_cli.rl.trainer.micro_batches import MicroBatch


class TokenExport:
    """Collects the rows of one step on one rank.

    Args:
        origins: facts about each sample of the batch, which become part of its line.
    """

    def __init__(self, step: int, rank: int, origins: Sequence[Mapping[str, Any]] = ()) -> None:
        self._step = step
        self._rank = rank
        self._origins = origins
        self._lines: list[str] = []
        self._micro_step = 0

    def add(self, batch: MicroBatch, logprobs: torch.Tensor, entropies: torch.Tensor, dropped: torch.Tensor) -> None:
        """Take one micro batch; log-probabilities, entropies and what was dropped are [1, T]."""
        columns = _columns(batch, logprobs.detach(), entropies, dropped)
        for sample, document in zip(batch.samples, batch.documents, strict=True):
            places = document.places
            line = {
                "schema": SCHEMA_VERSION, "step": self._step, "rank": self._rank, "micro_step": self._micro_step,
                "sequence": sample, **(self._origins[sample] if self._origins else {}),
                **{name: [values[place] for place in places] for name, values in columns.items()},
            }  # fmt: skip
            self._lines.append(json.dumps(line, allow_nan=False))
        self._micro_step += 1

    def write(self, path: Path) -> None:
        """Write the lines to `path`, which appears whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".aside")
        aside.write_text("".join(f"{line}\n" for line in self._lines))
        os.replace(aside, path)


def _columns(
    batch: MicroBatch, logprobs: torch.Tensor, entropies: torch.Tensor, dropped: torch.Tensor
) -> dict[str, list[Any]]:
    """Return the columns of a whole row; what is not known of a token is None."""
    given = batch.columns
    scored = given.counted & (batch.position_ids > 0)
    sampled = ((given.rl_weights != 0) | (given.ref_kl_weights != 0)) & scored
    log_ratio = logprobs - given.inference_logprobs
    ratio = log_ratio.exp()
    return {
        "token_ids": _list(batch.token_ids),
        "position_ids": _list(batch.position_ids),
        "loss_mask": _list(given.counted),
        "advantages": _list(given.advantages),
        "inference_logprobs": _list(given.inference_logprobs, sampled),
        "trainer_logprobs": _list(logprobs, scored),
        "entropies": _list(entropies, scored),
        "mismatch_kl": _list(ratio - log_ratio - 1, sampled),
        "log_ratio": _list(log_ratio, sampled),
        "ratio": _list(ratio, sampled),
        "probability_delta": _list(logprobs.exp() - given.inference_logprobs.exp(), sampled),
        "dropped": _list(dropped),
        "rl_weights": _list(given.rl_weights),
        "ce_weights": _list(given.ce_weights),
        "ref_kl_weights": _list(given.ref_kl_weights),
        "ref_logprobs": _list(given.ref_logprobs, given.ref_kl_weights != 0),
    }


def _list(values_1T: torch.Tensor, known_1T: torch.Tensor | None = None) -> list[Any]:
    """Return a row as a list; None where it is not known or not finite."""
    values = values_1T[0].tolist()
    known = [True] * len(values) if known_1T is None else known_1T[0].tolist()
    return [
        None if not there or (isinstance(value, float) and not math.isfinite(value)) else _short(value)
        for value, there in zip(values, known, strict=True)
    ]


def _short(value: Any) -> Any:
    """Return a single-precision number in the digits that it has."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
