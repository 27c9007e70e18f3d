"""How a training batch travels from the orchestrator to the trainer: arrays in a folder that is renamed into place.

Shapes: N tokens of all samples one after the other, M samples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from prime_cli.core.files import directory_written_aside


@dataclass
class Sample:
    """One training sequence. All lists have one entry per token, prompt and completion alike.

    `rl_weights` and `ce_weights` say how much each token counts in the two components of the loss (0: not at all);
    `logprobs` are those of the policy that sampled the token (0 where none did).
    """

    token_ids: list[int]
    logprobs: list[float]
    advantages: list[float]
    rl_weights: list[float]
    ce_weights: list[float]
    temperature: float = 1.0

    def __post_init__(self) -> None:
        lengths = {
            len(column) for column in (self.token_ids, self.logprobs, self.advantages, self.rl_weights, self.ce_weights)
        }
        assert len(lengths) == 1, f"columns of different lengths: {lengths}"


@dataclass
class Batch:
    """The samples of one optimizer step, with facts about them for the record."""

    step: int
    samples: list[Sample]
    facts: dict[str, Any] = field(default_factory=dict)


def write_batch(batch: Batch, folder: Path) -> None:
    """Write `batch` to `folder`, which appears complete or not at all."""
    arrays = {
        "lengths": np.array([len(sample.token_ids) for sample in batch.samples], dtype=np.int64),
        "temperatures": np.array([sample.temperature for sample in batch.samples], dtype=np.float32),
        "token_ids": _joined([sample.token_ids for sample in batch.samples], np.int64),
        "logprobs": _joined([sample.logprobs for sample in batch.samples], np.float32),
        "advantages": _joined([sample.advantages for sample in batch.samples], np.float32),
        "rl_weights": _joined([sample.rl_weights for sample in batch.samples], np.float32),
        "ce_weights": _joined([sample.ce_weights for sample in batch.samples], np.float32),
    }
    with directory_written_aside(folder) as aside:
        save_file(arrays, aside / "arrays.safetensors")
        (aside / "batch.json").write_text(json.dumps({"step": batch.step, "facts": batch.facts}))


def read_batch(folder: Path) -> Batch:
    """Read what `write_batch` wrote."""
    arrays = load_file(folder / "arrays.safetensors")
    about = json.loads((folder / "batch.json").read_text())
    bounds = np.cumsum(arrays["lengths"])[:-1]
    columns = {
        name: np.split(arrays[name], bounds)
        for name in ("token_ids", "logprobs", "advantages", "rl_weights", "ce_weights")
    }
    samples = [
        Sample(
            token_ids=columns["token_ids"][i].tolist(),
            logprobs=columns["logprobs"][i].tolist(),
            advantages=columns["advantages"][i].tolist(),
            rl_weights=columns["rl_weights"][i].tolist(),
            ce_weights=columns["ce_weights"][i].tolist(),
            temperature=float(arrays["temperatures"][i]),
        )
        for i in range(len(arrays["lengths"]))
    ]
    return Batch(about["step"], samples, about["facts"])


def _joined(columns: Sequence[Sequence[float]], dtype: type) -> np.ndarray[Any, Any]:
    return np.concatenate([np.asarray(column, dtype=dtype) for column in columns]) if columns else np.zeros(0, dtype)
