"""How a training batch travels from the orchestrator to the trainer: arrays in a folder that is renamed into place.

Shapes: N tokens of all samples one after the other, M samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from prime_cli.core.files import directory_written_aside
from prime_cli.rl.run_directory import ORCHESTRATOR_STATE

COLUMNS = ("token_ids", "logprobs", "advantages", "rl_weights", "ce_weights", "ref_kl_weights", "ref_logprobs")
"""The columns of a sample, one entry per token each."""


@dataclass
class Sample:
    """One training sequence. All lists have one entry per token, prompt and completion alike.

    `rl_weights`, `ce_weights` and `ref_kl_weights` say how much each token counts in the three components of the loss
    (0: not at all); `logprobs` are those of the policy that sampled the token (0 where none did), `ref_logprobs` those
    of a teacher. Columns left out are 0 throughout.
    """

    token_ids: list[int]
    logprobs: list[float]
    advantages: list[float]
    rl_weights: list[float]
    ce_weights: list[float]
    temperature: float = 1.0
    ref_kl_weights: list[float] = field(default_factory=list)
    ref_logprobs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ref_kl_weights = self.ref_kl_weights or [0.0] * len(self.token_ids)
        self.ref_logprobs = self.ref_logprobs or [0.0] * len(self.token_ids)
        lengths = {len(getattr(self, name)) for name in COLUMNS}
        assert len(lengths) == 1, f"columns of different lengths: {lengths}"


@dataclass
class Batch:
    """The samples of one optimizer step, with facts about them for the record."""

    step: int
    samples: list[Sample]
    facts: dict[str, Any] = field(default_factory=dict)


def write_batch(batch: Batch, folder: Path, *, orchestrator: Mapping[str, Any] | None = None) -> None:
    """Write `batch` to `folder`, which appears complete or not at all.

    `orchestrator` is the state of the orchestrator at the cutting of this batch; a checkpoint of the step takes it in.
    """
    arrays = {
        "lengths": np.array([len(sample.token_ids) for sample in batch.samples], dtype=np.int64),
        "temperatures": np.array([sample.temperature for sample in batch.samples], dtype=np.float32),
    }
    for name in COLUMNS:
        dtype = np.int64 if name == "token_ids" else np.float32
        arrays[name] = _joined([getattr(sample, name) for sample in batch.samples], dtype)
    with directory_written_aside(folder) as aside:
        save_file(arrays, aside / "arrays.safetensors")
        (aside / "batch.json").write_text(json.dumps({"step": batch.step, "facts": batch.facts}))
        if orchestrator is not None:
            (aside / ORCHESTRATOR_STATE).write_text(json.dumps(orchestrator))


def read_batch(folder: Path) -> Batch:
    """Read what `write_batch` wrote."""
    arrays = load_file(folder / "arrays.safetensors")
    about = json.loads((folder / "batch.json").read_text())
    bounds = np.cumsum(arrays["lengths"])[:-1]
    columns = {name: np.split(arrays[name], bounds) for name in COLUMNS}
    samples = [
        Sample(temperature=float(arrays["temperatures"][i]), **{name: columns[name][i].tolist() for name in COLUMNS})
        for i in range(len(arrays["lengths"]))
    ]
    return Batch(about["step"], samples, about["facts"])


def _joined(columns: Sequence[Sequence[float]], dtype: type) -> np.ndarray[Any, Any]:
    return np.concatenate([np.asarray(column, dtype=dtype) for column in columns]) if columns else np.zeros(0, dtype)
