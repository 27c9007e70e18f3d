"""The loss against cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from prime_cli.rl.step_config import LossConfig
from prime_cli.rl.trainer.loss import TokenColumns, TokenTotals, loss_of
from tests.prime_cli.rl.learners import plain_logprobs


def columns(
    q: list[float],
    advantages: list[float],
    rl: list[float],
    ce: list[float] | None = None,
    *,
    ref_kl: list[float] | None = None,
    teacher: list[float] | None = None,
    documents: list[int] | None = None,
) -> TokenColumns:
    return TokenColumns(
        inference_logprobs=torch.tensor([[math.log(value) for value in q]]),
        advantages=torch.tensor([advantages]),
        rl_weights=torch.tensor([rl]),
        ce_weights=torch.tensor([ce or [0.0] * len(q)]),
        ref_kl_weights=torch.tensor([ref_kl or [0.0] * len(q)]),
        ref_logprobs=torch.tensor([[math.log(value) for value in teacher or [1.0] * len(q)]]),
        documents=torch.tensor([documents or [0] * len(q)]),
    )


def logs(p: list[float]) -> torch.Tensor:
    return torch.tensor([[math.log(value) for value in p]], requires_grad=True)


def test_on_policy_tokens_cost_minus_their_advantage() -> None:
    parts = loss_of(
        logs([0.5, 0.25]), columns([0.5, 0.25], [1.0, -2.0], [1, 1]), LossConfig(), totals=TokenTotals(rl=2)
    )
    assert parts.loss.item() == pytest.approx((-1.0 + 2.0) / 2)
    assert parts.mismatch_kl_sum == pytest.approx(0.0, abs=1e-6)


def test_the_ratio_and_the_kl_term_enter_as_written() -> None:
    p, q, advantage, tau = 0.5, 0.4, 1.5, 0.01
    parts = loss_of(logs([p]), columns([q], [advantage], [1]), LossConfig(kl_tau=tau), totals=TokenTotals(rl=1))
    log_ratio = math.log(p / q)
    assert parts.loss.item() == pytest.approx(-advantage * p / q + tau * log_ratio**2, rel=1e-5)
    assert parts.mismatch_kl_sum == pytest.approx(p / q - log_ratio - 1, rel=1e-4)


@pytest.mark.parametrize(
    ("p", "q", "advantage", "kept"),
    [
        (0.9, 0.5, 1.0, False),
        (0.9, 0.5, -1.0, True),
        (0.5, 0.9, -1.0, False),
        (0.5, 0.9, 1.0, True),
        (0.6, 0.5, 1.0, True),
    ],
)
def test_a_token_is_dropped_when_it_moved_too_far_the_way_its_advantage_pushes(
    p: float, q: float, advantage: float, kept: bool
) -> None:
    logprobs = logs([p])
    parts = loss_of(logprobs, columns([q], [advantage], [1]), LossConfig(kl_tau=0.0), totals=TokenTotals(rl=1))
    parts.loss.backward()
    assert parts.masked_tokens == (0 if kept else 1)
    expected = -advantage * p / q if kept else 0.0
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(("p", "kept"), [(0.55, True), (0.45, True), (0.62, False), (0.38, False)])
def test_ipo_drops_a_token_that_moved_too_far_either_way(p: float, kept: bool, advantage: float) -> None:
    config = LossConfig(type="ipo", ipo_threshold=0.1, kl_tau=0.0)
    parts = loss_of(logs([p]), columns([0.5], [advantage], [1]), config, totals=TokenTotals(rl=1))
    assert parts.loss.item() == pytest.approx(-advantage * p / 0.5 if kept else 0.0, rel=1e-5)
    assert parts.masked_tokens == (0 if kept else 1)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # pushed up far enough already
        (1.5, -2.0, 3.0, 3.0),  # the pessimistic side of the minimum
        (0.5, -2.0, 1.6, 0.0),
        (0.5, 2.0, -1.0, -1.0),
    ],
)
def test_a_clipped_ratio_takes_the_lower_of_both_gains(
    ratio: float, advantage: float, loss: float, gradient: float
) -> None:
    logprobs = logs([0.5 * ratio])
    config = LossConfig(type="ratio_clip", kl_tau=0.0)
    parts = loss_of(logprobs, columns([0.5], [advantage], [1]), config, totals=TokenTotals(rl=1))
    parts.loss.backward()
    assert logprobs.grad is not None
    assert parts.loss.item() == pytest.approx(loss, rel=1e-5)
    assert logprobs.grad.item() == pytest.approx(gradient, rel=1e-5)  # d(r A) / d(log p) = r A
    assert parts.masked_tokens == (gradient == 0.0)


def test_the_ratio_of_a_sequence_is_the_geometric_mean_over_its_own_tokens() -> None:
    # Two sequences in one row: ratios 2 and 8 make 4, ratios 1 and 4 (and a prompt token) make 2.
    q, ratios = [0.1, 0.1, 0.2, 0.2, 0.2], [2.0, 8.0, 5.0, 1.0, 4.0]
    logprobs = logs([a * b for a, b in zip(q, ratios, strict=True)])
    given = columns(q, [1.0, 1.0, 0.0, -3.0, -3.0], [1, 1, 0, 1, 1], documents=[0, 0, 1, 1, 1])
    config = LossConfig(type="sequence_ratio_clip", clip_low=0.5, clip_high=9.0, kl_tau=0.0)
    parts = loss_of(logprobs, given, config, totals=TokenTotals(rl=4))
    parts.loss.backward()
    assert parts.loss.item() == pytest.approx((-4 - 4 + 6 + 6) / 4, rel=1e-5)
    assert logprobs.grad is not None
    expected = [-4 / 4, -4 / 4, 0.0, 6 / 4, 6 / 4]  # each token of a sequence moves its ratio alike
    assert logprobs.grad[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_sequence_whose_ratio_is_out_of_bounds_teaches_nothing() -> None:
    logprobs = logs([0.4, 0.4])
    given = columns([0.1, 0.4], [1.0, 1.0], [1, 1])  # a ratio of 2
    config = LossConfig(type="sequence_ratio_clip", kl_tau=0.0)
    parts = loss_of(logprobs, given, config, totals=TokenTotals(rl=2))
    parts.loss.backward()
    assert logprobs.grad is not None
    assert parts.loss.item() == pytest.approx(-1.0004)
    assert logprobs.grad[0].tolist() == [0.0, 0.0]
    assert parts.masked_tokens == 2


def test_a_teacher_pulls_by_how_much_likelier_it_finds_the_token() -> None:
    p, q, teacher, tau = 0.5, 0.4, 0.8, 0.01
    logprobs = logs([p])
    given = columns([q], [0.0], [0], ref_kl=[1.0], teacher=[teacher])
    parts = loss_of(logprobs, given, LossConfig(kl_tau=tau), totals=TokenTotals(ref_kl=1))
    parts.loss.backward()
    gain, log_ratio = math.log(teacher / p) * p / q, math.log(p / q)
    assert parts.loss.item() == pytest.approx(-gain + tau * log_ratio**2, rel=1e-5)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-gain + 2 * tau * log_ratio, rel=1e-5)
    assert parts.ref_kl_sum == pytest.approx(math.log(p / teacher), rel=1e-5)


def test_a_teacher_does_not_pull_at_a_token_whose_probability_fell_too_far() -> None:
    given = columns([0.9], [0.0], [0], ref_kl=[1.0], teacher=[0.8])
    parts = loss_of(logs([0.5]), given, LossConfig(kl_tau=0.0), totals=TokenTotals(ref_kl=1))
    assert parts.loss.item() == 0.0
    assert parts.masked_tokens == 1


def test_the_components_add_up_each_over_its_own_tokens() -> None:
    given = columns([0.5, 1.0, 0.5], [3.0, 0, 0], [0.5, 0, 0], ce=[0, 2.0, 0], ref_kl=[0, 0, 1.0], teacher=[1, 1, 0.25])
    parts = loss_of(logs([0.5, 0.25, 0.5]), given, LossConfig(), totals=TokenTotals(rl=2, ce=4, ref_kl=5))
    assert parts.loss.item() == pytest.approx(0.5 * -3 / 2 + 2 * math.log(4) / 4 - math.log(0.25 / 0.5) / 5, rel=1e-5)


@pytest.mark.parametrize("kind", ["dppo", "ipo", "ratio_clip", "sequence_ratio_clip"])
def test_what_stands_in_a_token_without_weight_reaches_neither_loss_nor_gradient(kind: str) -> None:
    logprobs = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    given = columns([0.5, 0.5], [1.0, 0.0], [1, 0])
    given.inference_logprobs[0, 1] = -torch.inf
    parts = loss_of(logprobs, given, LossConfig.model_validate({"type": kind}), totals=TokenTotals(rl=1))
    parts.loss.backward()
    assert logprobs.grad is not None
    assert math.isfinite(parts.loss.item())
    assert logprobs.grad[0, 1].item() == 0.0


def test_a_key_of_another_loss_is_refused_with_the_type_that_it_belongs_to() -> None:
    with pytest.raises(ValueError, match="`clip_high` belongs to type `ratio_clip` and `sequence_ratio_clip`"):
        LossConfig(type="dppo", clip_high=0.3)
    config = LossConfig(type="ratio_clip", clip_high=0.28)
    assert LossConfig.model_validate_json(config.model_dump_json()) == config


def test_demonstrations_cost_their_negative_log_likelihood() -> None:
    parts = loss_of(
        logs([0.5, 0.25]), columns([1.0, 1.0], [0, 0], [0, 0], ce=[0.0, 1.0]), LossConfig(), totals=TokenTotals(ce=1)
    )
    assert parts.loss.item() == pytest.approx(-math.log(0.25))


def test_log_probabilities_line_up_with_their_tokens_and_respect_the_temperature() -> None:
    torch.manual_seed(0)
    logits, ids = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    temperatures = torch.tensor([1.0, 2.0])
    logprobs, entropy = plain_logprobs(logits, ids, temperatures)
    for row in range(2):
        assert logprobs[row, 0] == 0
        for t in range(1, 5):
            distribution = torch.log_softmax(logits[row, t - 1] / temperatures[row], -1)
            assert logprobs[row, t].item() == pytest.approx(distribution[ids[row, t]].item(), rel=1e-5)
            assert entropy[row, t].item() == pytest.approx(-(distribution.exp() * distribution).sum().item(), rel=1e-5)
