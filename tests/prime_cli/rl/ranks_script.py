"""Run by torchrun in `test_ranks.py`: writes the gradient of a batch, the weights and a checkpoint after two
steps, and whether a learner that goes on from it takes the third step as this one does.

ranks_script.py MODEL OUT CONFIG_JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.checkpoint import write_checkpoint
from prime_cli.rl.trainer.learner import Learner
from prime_cli.rl.trainer.ranks import joined, leave_cleanly, whole
from prime_cli.rl.transport import Sample
from tests.prime_cli.rl.learners import a_learner, random_samples


def main(model: Path, out: Path, config: dict[str, object]) -> None:
    torch.manual_seed(0)
    with joined() as ranks:
        learner = a_learner(model, ranks=ranks, **config)
        samples = random_samples(12, seed=3)
        learner.accumulate(samples)
        gradients = {
            name: whole(parameter.grad)
            for name, parameter in learner.model.named_parameters()
            if parameter.requires_grad
        }
        for parameter in learner.model.parameters():
            parameter.grad = None
        reports = [learner.step(samples) for _ in range(2)]
        loss = learner.evaluate(samples)
        learner.export(load_tokenizer(model), out / "weights", out / "adapter")
        state = learner.state()
        if ranks.is_first:
            write_checkpoint(out / "checkpoint", state, step=2)
        ranks.sum([0.0])  # all wait until it is there
        alike = goes_on_alike(learner, a_learner(model, ranks=ranks, **config), out / "checkpoint", samples)
        if ranks.is_first:
            save_file({name: tensor.contiguous() for name, tensor in gradients.items()}, out / "gradients.safetensors")
            report = reports[-1]
            facts = {"grad_norm": report.grad_norm, "tokens": report.tokens, "loss": report.loss, "evaluated": loss}
            facts["goes_on_alike"] = alike
            (out / "facts.json").write_text(json.dumps(facts))


def goes_on_alike(straight: Learner, resumed: Learner, checkpoint: Path, samples: list[Sample]) -> bool:
    """Say whether both have the same parameters, bit for bit, after one more step."""
    resumed.restore(checkpoint)
    straight.step(samples)
    resumed.step(samples)
    return all(
        torch.equal(whole(one), whole(other))
        for one, other in zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    leave_cleanly()
