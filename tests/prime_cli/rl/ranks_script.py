"""Run by torchrun in `test_ranks.py`: writes the gradient of a batch, and the weights after two steps.

ranks_script.py MODEL OUT CONFIG_JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.trainer.ranks import joined, leave_cleanly, whole
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
        if ranks.is_first:
            save_file({name: tensor.contiguous() for name, tensor in gradients.items()}, out / "gradients.safetensors")
            report = reports[-1]
            facts = {"grad_norm": report.grad_norm, "tokens": report.tokens, "loss": report.loss, "evaluated": loss}
            (out / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    leave_cleanly()
