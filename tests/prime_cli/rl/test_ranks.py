"""Two ranks over gloo do what one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from prime_cli.rl.checkpoint import read_checkpoint
from tests.prime_cli.rl import ranks_script
from tests.prime_cli.rl.learners import a_learner

TOP = Path(__file__).parent.parent.parent.parent


def train_on_two_ranks(model: Path, out: Path, config: dict[str, Any]) -> None:
    script = [str(TOP / "tests/prime_cli/rl/ranks_script.py"), str(model), str(out), json.dumps(config)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TOP)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    "config",
    [
        {"micro_batch_tokens": 90, "activation_checkpointing": True},
        {"micro_batch_tokens": 90, "lora": {"rank": 4}, "optim": {"type": "muon"}},
    ],
    ids=["full", "lora"],
)
def test_two_ranks_have_the_gradient_and_the_weights_of_one(
    config: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    ranks_script.main(tiny_model, one, config)
    train_on_two_ranks(tiny_model, two, config)
    expected, actual = (load_file(folder / "gradients.safetensors") for folder in (one, two))
    assert expected.keys() == actual.keys()
    whole, divided = (torch.cat([part[name].flatten() for name in expected]) for part in (expected, actual))
    assert float((divided - whole).norm() / whole.norm()) < 1e-6
    facts, others_facts = (json.loads((folder / "facts.json").read_text()) for folder in (one, two))
    assert others_facts == pytest.approx(facts, rel=1e-4)
    weights, others = (load_file(folder / "weights" / "model.safetensors") for folder in (one, two))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, atol=1e-4, rtol=0)
    assert (two / "adapter").exists() == ("lora" in config)
    assert facts["goes_on_alike"], "from a checkpoint of one rank"
    assert others_facts["goes_on_alike"], "from a checkpoint of two ranks"
    assert_one_rank_goes_on(tiny_model, two / "checkpoint", config)


def assert_one_rank_goes_on(model: Path, checkpoint: Path, config: dict[str, Any]) -> None:
    """A learner of one rank takes up the whole state that two have written."""
    learner = a_learner(model, **config)
    learner.restore(checkpoint)
    state, saved = learner.state(), read_checkpoint(checkpoint)
    assert state.steps_taken == 2
    assert [n for n, tensor in saved.parameters.items() if not torch.equal(tensor, state.parameters[n])] == []
    remembered = {name: tensor for name, tensor in saved.optimizer.items() if not name.startswith("rng/")}
    assert [n for n, tensor in remembered.items() if not torch.equal(tensor, state.optimizer[n])] == []
