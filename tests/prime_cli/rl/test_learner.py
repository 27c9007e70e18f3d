"""Optimizer steps on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prime_cli.rl.step_config import SchedulerConfig
from prime_cli.rl.trainer.learner import TrainingDiverged
from prime_cli.rl.trainer.optimizers import learning_rate_at
from prime_cli.rl.transport import Sample
from tests.prime_cli.rl.learners import a_learner, plain_logprobs, random_samples


def test_a_batch_without_weights_leaves_the_model_as_it_was(tiny_model: Path) -> None:
    learner = a_learner(tiny_model)
    before = [parameter.detach().clone() for parameter in learner.model.parameters()]
    learner.step([])
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))


def test_a_step_raises_the_probability_of_what_was_better_than_its_group(tiny_model: Path) -> None:
    learner = a_learner(tiny_model)
    prompt, good, bad = [4, 70, 2, 5], [80, 81, 2], [90, 91, 2]

    def logprob(completion: list[int]) -> float:
        ids = torch.tensor([prompt + completion])
        with torch.no_grad():
            values, _ = plain_logprobs(learner.model(input_ids=ids).logits, ids, torch.ones(1))
        return float(values[0, len(prompt) :].sum())

    def sample(completion: list[int], advantage: float) -> Sample:
        mask = [0.0] * len(prompt) + [1.0] * len(completion)
        each = logprob(completion) / len(completion)
        return Sample(
            prompt + completion, [m * each for m in mask], [m * advantage for m in mask], mask, [0.0] * len(mask)
        )

    before = logprob(good), logprob(bad)
    report = learner.step([sample(good, 1.0), sample(bad, -1.0)])
    assert logprob(good) > before[0]
    assert logprob(bad) < before[1]
    assert report.loss_tokens == 6
    assert report.grad_norm > 0


def test_a_gradient_that_is_not_finite_stops_the_training_before_it_reaches_the_weights(tiny_model: Path) -> None:
    learner = a_learner(tiny_model)
    before = [parameter.detach().clone() for parameter in learner.model.parameters()]
    bad = Sample([4, 70, 80], [0.0, 0.0, -1.0], [0.0, 0.0, float("nan")], [0.0, 0.0, 1.0], [0.0] * 3)
    with pytest.raises(TrainingDiverged, match="step 1"):
        learner.step([bad])
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"warmup_steps": 4, "decay_steps": 2}, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 0.5]),
        ({"warmup_steps": 2, "decay_steps": 4, "min_lr": 0.5}, [0.5, 1, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625]),
        ({"type": "constant", "warmup_steps": 2}, [0.5] + [1] * 9),
        ({"type": "cosine", "warmup_steps": 0}, [1, 0.976, 0.905, 0.794, 0.655, 0.5, 0.345, 0.206, 0.095, 0.024]),
        (
            {"type": "cosine", "warmup_steps": 6, "min_lr": 0.1},
            [0.167, 0.333, 0.5, 0.667, 0.833, 1, 1, 0.87, 0.55, 0.23],
        ),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: dict[str, object], expected: list[float]) -> None:
    scheduler = SchedulerConfig.model_validate(schedule)
    assert [learning_rate_at(step, 10, 1.0, scheduler) for step in range(10)] == pytest.approx(expected, abs=3e-3)


@pytest.mark.parametrize(
    ("optim", "learning_rate"),
    [({"type": "adamw"}, 3e-3), ({"type": "sgd"}, 0.3), ({"type": "muon"}, 3e-3)],
    ids=["adamw", "sgd", "muon"],
)
def test_every_optimizer_brings_the_loss_of_demonstrations_down(
    optim: dict[str, object], learning_rate: float, tiny_model: Path
) -> None:
    learner = a_learner(tiny_model, optim=optim, learning_rate=learning_rate)
    samples = [sample for sample in random_samples(16, seed=1) if any(sample.ce_weights)]
    losses = [learner.step(samples).loss for _ in range(8)]
    assert losses[-1] < losses[0] - 0.5


def test_checkpointed_activations_give_the_same_gradient(tiny_model: Path) -> None:
    plain, checkpointed = (a_learner(tiny_model, activation_checkpointing=on) for on in (False, True))
    for learner in (plain, checkpointed):
        learner.accumulate(random_samples(8, seed=2))
    assert checkpointed.model.is_gradient_checkpointing
    for one, two in zip(plain.model.parameters(), checkpointed.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-6, atol=1e-9)
