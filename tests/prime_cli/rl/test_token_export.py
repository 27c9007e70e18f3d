"""Every token of a step, as the trainer saw it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from prime_cli.commands.rl import app
from prime_cli.core.errors import BadInput
from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.run_directory import RunDirectory, create_run_directory
from prime_cli.rl.tokens import exported_sequences, mean_mismatch, rows_of
from prime_cli.rl.trainer.micro_batches import micro_batches_of
from prime_cli.rl.trainer.token_export import TokenExport
from prime_cli.rl.transport import Sample
from tests.documented_files import assert_documented
from tests.prime_cli.rl.learners import a_learner, random_samples

COLUMNS = (
    "token_ids", "position_ids", "loss_mask", "advantages", "inference_logprobs", "trainer_logprobs", "entropies",
    "mismatch_kl", "log_ratio", "ratio", "probability_delta", "dropped", "rl_weights", "ce_weights", "ref_kl_weights",
    "ref_logprobs",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, tiny_model: Path) -> RunDirectory:
    return create_run_directory(tmp_path, "run", {"model": str(tiny_model)})


def test_the_exported_tokens_add_up_to_the_figures_of_the_step(run: RunDirectory, tiny_model: Path) -> None:
    samples = random_samples(9, seed=3)
    origins = [{"environment": "sums", "group": i, "example": 0} for i in range(9)]
    export = TokenExport(7, 0, origins)
    report = a_learner(tiny_model, micro_batch_tokens=64).step(samples, export)
    export.write(run.token_export(7, 0))
    records = exported_sequences(run, 7)
    assert [(record["sequence"], record["group"], record["step"]) for record in records] == [
        (i, i, 7) for i in range(9)
    ]
    assert assert_documented(run.path, "A training run") == {"token_exports/step_*/rank_*.jsonl"}
    for record, sample in zip(records, samples, strict=True):
        assert {len(record[name]) for name in COLUMNS} == {len(sample.token_ids)}
        assert record["token_ids"] == sample.token_ids
        assert record["rl_weights"] == sample.rl_weights
    mismatches = [kl for record in records for kl in record["mismatch_kl"] if kl is not None]
    assert math.isclose(sum(mismatches) / len(mismatches), report.mismatch_kl, rel_tol=1e-5)
    assert sum(map(sum, (record["dropped"] for record in records))) == round(report.masked_share * len(mismatches))
    counted = [entropy for record in records for entropy in record["entropies"] if entropy is not None]
    assert math.isclose(sum(counted) / len(counted), report.entropy, rel_tol=1e-5)


def test_ranks_write_a_file_each_and_are_read_as_one_batch(run: RunDirectory) -> None:
    samples = random_samples(6, seed=1)
    for rank in (0, 1):
        export = TokenExport(2, rank)
        for batch in micro_batches_of(samples, max_tokens=32, seq_len=64, rank=rank, ranks=2):
            zeros = torch.zeros(batch.token_ids.shape)
            export.add(batch, zeros, zeros, zeros.bool())
        export.write(run.token_export(2, rank))
    records = exported_sequences(run, 2)
    assert [record["sequence"] for record in records] == list(range(6))
    assert {record["rank"] for record in records} == {0, 1}


def test_what_is_not_finite_is_null_and_stands_out(run: RunDirectory) -> None:
    sample = Sample([1, 2, 3], [0.0, -1.0, -math.inf], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0] * 3)
    export = TokenExport(1, 0)
    (batch,) = micro_batches_of([sample], max_tokens=64, seq_len=64)
    logprobs = torch.tensor([[0.0, -1.0, -2.0]])
    export.add(batch, logprobs, logprobs, torch.tensor([[False, False, True]]))
    export.write(run.token_export(1, 0))
    (record,) = exported_sequences(run, 1)
    json.dumps(record, allow_nan=False)
    assert record["inference_logprobs"] == [None, -1.0, None]
    assert record["trainer_logprobs"] == [None, -1.0, -2.0]
    assert record["mismatch_kl"] == [None, 0.0, None]
    assert [row.style for row in rows_of(record)] == ["dim", "green", "bold white on red"]
    assert mean_mismatch(record) == math.inf


def test_a_step_that_was_not_exported_is_refused_with_those_that_were(run: RunDirectory) -> None:
    with pytest.raises(BadInput, match="no tokens of step 3") as refused:
        exported_sequences(run, 3)
    assert "none was exported; set trainer.token_export_interval" in str(refused.value.hint)
    TokenExport(5, 0).write(run.token_export(5, 0))
    with pytest.raises(BadInput) as refused:
        exported_sequences(run, 3)
    assert "those of 5" in str(refused.value.hint)


def test_a_sequence_is_shown_token_by_token_the_worst_one_first(run: RunDirectory, tiny_model: Path) -> None:
    token_ids = load_tokenizer(tiny_model)("Hi!?", add_special_tokens=False)["input_ids"]
    samples = [Sample(token_ids, [0.0, -1.0, -1.0, -1.0], [0.0, 1, 1, 1], [0.0, 1, 1, 1], [0.0] * 4)] * 2
    export = TokenExport(4, 0, [{"environment": "greetings", "group": 7, "example": i} for i in range(2)])
    logprobs = torch.tensor([[0.0, -1.0, -1.0, -1.0, -1.0, -1.0, -3.0]])  # they share their first token
    (batch,) = micro_batches_of(samples, max_tokens=64, seq_len=64)
    export.add(batch, logprobs, -logprobs, logprobs < -2)
    export.write(run.token_export(4, 0))
    shown = CliRunner().invoke(app, ["tokens", str(run.path), "4"])
    assert shown.exit_code == 0, shown.output
    assert "step 4, sequence 1 of 2 (environment greetings, group 7, example 1): 4 tokens" in shown.output
    assert "Hi!?" in shown.output
    (dropped,) = [line for line in shown.output.splitlines() if "dropped" in line]
    for cell in ("3", "'?'", "-1", "-3", "0.1353", "1.135"):
        assert cell in dropped.split()
