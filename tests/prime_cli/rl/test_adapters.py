"""Adapters on the embedded engine: the policy is then the merged one, whatever was on it before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from prime_cli.models.folder import load_causal_model
from prime_cli.rl.inference.adapters import Adapters, read_adapter
from prime_cli.rl.inference.engine import SlotEngine
from prime_cli.rl.inference.sampling import SamplingParameters
from prime_cli.rl.trainer.learner import Learner
from tests.prime_cli.rl.learners import a_learner, random_samples


@pytest.fixture(scope="module")
def learner(tiny_model: Path) -> Learner:
    """A learner whose adapter has taken a few steps."""
    learner = a_learner(tiny_model, learning_rate=0.05, lora={"rank": 4})
    for seed in range(3):
        learner.step(random_samples(8, seed))
    return learner


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[SlotEngine]:
    engine = SlotEngine(load_causal_model(tiny_model), eos_token_ids=[2], num_slots=4, context_length=64)
    engine.start()
    yield engine
    engine.stop()


def parameters(engine: SlotEngine) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in engine.model.named_parameters()}


def test_an_adapter_makes_the_engines_weights_those_that_the_trainer_merges(
    learner: Learner, engine: SlotEngine, tmp_path: Path
) -> None:
    before = parameters(engine)
    learner.export_adapter(tmp_path / "adapter")
    adapters = Adapters(engine)
    for _ in range(2):  # the second starts from the weights beneath, not from the first
        adapters.load("policy", tmp_path / "adapter")
        for name, merged in learner.weights().items():
            torch.testing.assert_close(parameters(engine)[name], merged, rtol=0, atol=1e-7)
    assert any(not torch.equal(value, before[name]) for name, value in parameters(engine).items())
    adapters.unload()
    assert all(torch.equal(value, before[name]) for name, value in parameters(engine).items())


def test_an_adapter_that_does_not_fit_leaves_the_weights_as_they_were(
    learner: Learner, engine: SlotEngine, tmp_path: Path
) -> None:
    before = parameters(engine)
    learner.export_adapter(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    adapters = Adapters(engine)
    for change, says in (({"use_dora": True}, "use_dora"), ({"peft_type": "IA3"}, "IA3")):
        (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=says):
            adapters.load("policy", tmp_path / "adapter")
    with pytest.raises(OSError, match="adapter_config"):
        read_adapter(tmp_path / "nothing")
    assert all(torch.equal(value, before[name]) for name, value in parameters(engine).items())


def test_requests_go_on_while_an_adapter_is_put_on(learner: Learner, engine: SlotEngine, tmp_path: Path) -> None:
    learner.export_adapter(tmp_path / "adapter")
    done: list[object] = []
    engine.submit([4, 70, 2, 5], SamplingParameters(max_tokens=40, ignore_eos=True), done.append)
    Adapters(engine).load("policy", tmp_path / "adapter")
    while not done:
        assert engine.is_alive
    (completion,) = done
    assert len(completion.token_ids) == 40  # type: ignore[attr-defined]
