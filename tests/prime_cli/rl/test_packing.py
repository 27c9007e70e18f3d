"""Samples share rows and ranks; nothing that is computed depends on how."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from prime_cli.models.folder import load_causal_model
from prime_cli.rl.trainer.attention import Document, Documents, document_attention
from prime_cli.rl.trainer.head import head_logprobs
from prime_cli.rl.trainer.micro_batches import micro_batches_of
from prime_cli.rl.trainer.packing import pack, spread
from prime_cli.rl.trainer.policy import CannotPack, PolicyModel
from tests.prime_cli.rl.learners import a_learner, plain_logprobs, random_samples


def test_first_fit_decreasing_fills_the_first_row_with_room() -> None:
    assert pack([3, 8, 5, 2, 7], capacity=10) == [[1, 3], [4, 0], [2]]


def test_a_sample_longer_than_a_row_has_one_of_its_own() -> None:
    assert pack([12, 3], capacity=10) == [[0], [1]]


@pytest.mark.parametrize("seed", range(20))
def test_every_sample_is_in_exactly_one_row_and_ranks_have_as_many_rows(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 40) for _ in range(rng.randint(0, 30))]
    ranks = rng.randint(1, 5)
    rows = pack(lengths, capacity=64)
    assert all(sum(lengths[i] for i in row) <= 64 for row in rows)
    shares = spread(rows, [length + 0.01 * length**2 for length in lengths], ranks)
    assert len({len(share) for share in shares}) == 1
    assert sorted(i for share in shares for row in share for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 64 for share in shares for row in share)


def test_rows_are_shared_out_by_what_they_cost() -> None:
    lengths = [8, 1, 1, 1, 1, 1, 1, 8]
    shares = spread([[i] for i in range(8)], lengths, 2)
    assert [sum(lengths[row[0]] for row in share) for share in shares] == [11, 11]


def test_a_rank_without_work_gets_an_empty_row() -> None:
    assert spread([[0]], [5], 2) == [[[0]], [[]]]
    assert spread([], [], 2) == [[[]], [[]]]


def test_the_costliest_row_is_cut_in_two_before_any_rank_stays_empty() -> None:
    shares = spread([[0, 1, 2]], [5, 5, 5], 2)
    assert sorted(sorted(row) for share in shares for row in share) == [[0, 2], [1]]


@pytest.mark.parametrize("window", [None, 3])
def test_attention_within_documents_is_that_under_a_block_diagonal_mask(window: int | None) -> None:
    torch.manual_seed(0)
    lengths = [9, 8, 4, 4, 1]
    total = sum(lengths)
    documents = [Document(sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    query, key, value = torch.randn(1, 4, total, 8), torch.randn(1, 2, total, 8), torch.randn(1, 2, total, 8)
    out, _ = document_attention(
        None, query, key, value, None, scaling=0.3, documents=Documents(documents), sliding_window=window
    )
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    distance = torch.arange(total)[:, None] - torch.arange(total)
    mask = (number[:, None] == number) & (distance >= 0) & (distance < (window or total))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(out, expected.transpose(1, 2), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_documents_that_share_their_beginning_see_it_and_themselves(window: int | None) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 12, 8), torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8)
    documents = [Document(3, 5, 0, 3), Document(5, 9, 0, 3), Document(11, 1)]  # three shared, two and six own tokens
    out, _ = document_attention(
        None, query, key, value, None, scaling=0.3, documents=Documents(documents), sliding_window=window
    )
    for document in documents:
        places = document.places
        alone, _ = document_attention(
            None, query[:, :, places], key[:, :, places], value[:, :, places], None, scaling=0.3, sliding_window=window
        )
        torch.testing.assert_close(out[0, places], alone[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("prompts", [None, 2])
def test_packed_and_unpacked_log_probabilities_agree(tiny_model: Path, prompts: int | None) -> None:
    policy, model = PolicyModel(load_causal_model(tiny_model), chunk=7), load_causal_model(tiny_model)
    samples = random_samples(20, seed=4, longest=40, prompts=prompts)
    rows = micro_batches_of(samples, max_tokens=128, seq_len=64)
    assert max(len(row.documents) for row in rows) > 3
    seen = 0
    for row in rows:
        with torch.no_grad():
            logprobs, entropies = policy(row, torch.ones_like(row.token_ids, dtype=torch.bool))
        for document in row.documents:
            places = document.places
            own = slice(document.shared, None)  # one temperature holds for what is shared, and nobody asks for it
            with torch.no_grad():
                ids, temperature = row.token_ids[:, places], row.temperatures[:, places[-1]]
                alone = plain_logprobs(model(input_ids=ids).logits, ids, temperature)
            torch.testing.assert_close(logprobs[:, places][:, own], alone[0][:, own], atol=1e-5, rtol=0)
            torch.testing.assert_close(entropies[:, places][:, own], alone[1][:, own], atol=1e-5, rtol=0)
            seen += 1
    assert seen == len(samples)


def test_a_prompt_that_samples_share_stands_once_in_a_row() -> None:
    samples = random_samples(8, seed=1, prompts=1)
    prompt = next(at for at, weight in enumerate(samples[0].rl_weights) if weight)
    (row,) = micro_batches_of(samples, max_tokens=1000, seq_len=64)
    everything = sum(len(sample.token_ids) for sample in samples)
    assert row.token_ids.shape == (1, everything - 7 * prompt)
    assert row.real_tokens == everything


def test_a_family_too_large_for_a_row_repeats_its_prompt_in_the_next() -> None:
    samples = random_samples(8, seed=1, prompts=1)
    rows = micro_batches_of(samples, max_tokens=50, seq_len=64)
    assert len(rows) > 1
    assert all(row.token_ids.shape[1] <= 50 for row in rows)
    assert sum(len(row.documents) for row in rows) == len(samples)


def test_sharing_prompts_changes_nothing_in_the_gradient(tiny_model: Path) -> None:
    samples = random_samples(12, seed=3, prompts=2)
    gradients = []
    for capacity in (10_000, 8):  # all in one row, and each sample in a row of its own
        learner = a_learner(tiny_model, micro_batch_tokens=capacity)
        learner.accumulate(samples)
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()]))
    shared, alone = gradients
    assert float((shared - alone).norm() / alone.norm()) < 1e-6


def test_the_gradient_does_not_depend_on_how_the_batch_is_split(tiny_model: Path) -> None:
    samples = random_samples(12, seed=3)
    gradients, rows = [], []
    for capacity in (10_000, 90, 50):
        learner = a_learner(tiny_model, micro_batch_tokens=capacity)
        rows.append(len(micro_batches_of(samples, max_tokens=capacity, seq_len=64)))
        learner.accumulate(samples)
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()]))
    assert rows == [1, 2, 3]
    whole = gradients[0]
    for split in gradients[1:]:
        assert float((split - whole).norm() / whole.norm()) < 1e-6


def test_a_model_that_changes_its_logits_is_refused(tiny_model: Path) -> None:
    model = load_causal_model(tiny_model)
    model.lm_head.register_forward_hook(lambda module, inputs, output: torch.tanh(output))
    model.model.embed_tokens.weight.data.mul_(30)
    with pytest.raises(CannotPack, match="differ by"):
        PolicyModel(model, chunk=8)


def test_a_model_whose_attention_wants_more_than_ours_gives_is_refused(tiny_model: Path) -> None:
    from transformers import AttentionInterface

    def leaning(module: object, query: torch.Tensor, *rest: object, **more: object) -> object:
        return AttentionInterface()["sdpa"](module, query * 30, *rest, **more)

    AttentionInterface.register("leaning", leaning)
    model = load_causal_model(tiny_model)
    for layer in model.model.layers:
        layer.self_attn.v_proj.weight.data.mul_(50)
    model.set_attn_implementation("leaning")
    with pytest.raises(CannotPack, match="differ by"):
        PolicyModel(model, chunk=8)


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_chunked_head_equals_the_plain_one_in_both_passes(chunk: int, with_bias: bool) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(17, 6, requires_grad=True)
    bias = torch.randn(17, requires_grad=True) if with_bias else None
    targets, temperatures = torch.randint(0, 17, (10,)), torch.rand(10) + 0.5
    pull = torch.randn(10)
    wanted = [hidden, weight] + ([bias] if bias is not None else [])
    logprobs, entropies = head_logprobs(hidden, weight, bias, targets, temperatures, chunk=chunk)
    mine = torch.autograd.grad((logprobs * pull).sum(), wanted)
    plain = torch.log_softmax(torch.nn.functional.linear(hidden, weight, bias) / temperatures[:, None], -1)
    theirs = torch.autograd.grad((plain.gather(1, targets[:, None])[:, 0] * pull).sum(), wanted)
    torch.testing.assert_close(logprobs, plain.gather(1, targets[:, None])[:, 0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(entropies, -(plain.exp() * plain).sum(-1), atol=1e-5, rtol=1e-5)
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)
