"""Adapters: trained alone, merged for whoever samples, saved so that peft loads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from prime_cli.core.errors import ConfigError
from prime_cli.models.folder import load_causal_model, load_tokenizer
from prime_cli.rl.transport import Sample
from tests.prime_cli.rl.learners import a_learner, random_samples

IDS = torch.tensor([[4, 70, 71, 2, 5, 80]])


def logits(model: object) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits  # type: ignore[operator, no-any-return]


def test_only_the_adapters_are_trained_and_both_exports_give_the_trained_policy(
    tiny_model: Path, tmp_path: Path
) -> None:
    learner = a_learner(tiny_model, lora={"rank": 4, "alpha": 8}, learning_rate=1e-2)
    before = load_causal_model(tiny_model)
    for _ in range(3):
        assert learner.step(random_samples(8, seed=1)).grad_norm > 0
    trained = logits(learner.model)
    assert not torch.allclose(trained, logits(before), atol=1e-2)
    own = dict(learner.model.named_parameters())
    for name, parameter in before.named_parameters():
        kept = own.get(name, own.get(name.replace(".weight", ".base_layer.weight")))
        assert kept is not None
        assert torch.equal(kept, parameter)

    learner.export(load_tokenizer(tiny_model), tmp_path / "weights", tmp_path / "adapter")
    torch.testing.assert_close(logits(load_causal_model(tmp_path / "weights")), trained, atol=1e-5, rtol=0)

    import peft

    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["task_type"]) == (4, 8, "CAUSAL_LM")
    adapted = peft.PeftModel.from_pretrained(load_causal_model(tiny_model), tmp_path / "adapter")
    torch.testing.assert_close(logits(adapted), trained, atol=1e-5, rtol=0)


def test_reward_rises_when_adapters_alone_are_trained(tiny_model: Path) -> None:
    """A bandit: after one prompt one token is sampled, and half of all tokens, at first the less likely ones, score."""
    torch.manual_seed(0)
    learner = a_learner(tiny_model, lora={"rank": 8}, learning_rate=1e-2)
    # The head of an untrained model is so small that no hidden state could prefer any token by much.
    embeddings = learner.model.get_input_embeddings().weight.data.mul_(4)
    good = set((-(embeddings @ embeddings[5])).topk(136).indices.tolist())
    rewards = []
    for _ in range(12):
        with torch.no_grad():
            logprobs = torch.log_softmax(learner.model(input_ids=torch.tensor([[4, 70, 5]])).logits[0, -1], -1)
        tokens = torch.multinomial(logprobs.exp(), 64, replacement=True).tolist()
        reward = [float(token in good) for token in tokens]
        rewards.append(sum(reward) / len(reward))
        mask, none = [0.0, 0.0, 0.0, 1.0], [0.0] * 4
        samples = [
            Sample([4, 70, 5, token], [0, 0, 0, float(logprobs[token])], [0, 0, 0, value - rewards[-1]], mask, none)
            for token, value in zip(tokens, reward, strict=True)
        ]
        learner.step(samples)
    assert rewards[0] < 0.2
    assert min(rewards[-3:]) > 0.8


def test_what_travels_to_the_server_are_the_parameters_of_the_plain_model(tiny_model: Path) -> None:
    learner = a_learner(tiny_model, lora={"rank": 2})
    plain = dict(load_causal_model(tiny_model).named_parameters())
    weights = learner.weights()
    assert weights.keys() == plain.keys()
    assert all(torch.equal(weights[name], plain[name]) for name in plain)  # a new adapter changes nothing


def test_target_modules_that_the_model_does_not_have_are_refused_with_those_that_it_has(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="names no layer") as refused:
        a_learner(tiny_model, lora={"target_modules": ["nothing"]})
    assert "q_proj" in str(refused.value.hint)
