"""Makes a tiny model, takes one optimizer step on it and says so: the proof that training works with what is installed.

python -m prime_cli.lab.trainer_proof
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from prime_cli.core.errors import PrimeError


def prove() -> str:
    """Train a tiny model for one step on the device that a run would take; return what was seen.

    Raises:
        PrimeError: the step did nothing.
    """
    import torch

    from prime_cli.models.folder import load_causal_model
    from prime_cli.models.tiny_qwen3 import write_model
    from prime_cli.rl.step_config import LossConfig, SchedulerConfig, StepConfig
    from prime_cli.rl.trainer.learner import Learner
    from prime_cli.rl.transport import Sample

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory(prefix="prime-proof-") as folder:
        write_model("tiny-qwen3", Path(folder) / "model", seed=0)
        model = load_causal_model(Path(folder) / "model", device=device)
    config = StepConfig(seq_len=64, scheduler=SchedulerConfig(warmup_steps=0))
    learner = Learner(model, config=config, loss=LossConfig(), learning_rate=1e-2, total_steps=2)
    none, all_of_them = [0.0] * 8, [0.0] + [1.0] * 7
    sample = Sample(list(range(40, 48)), none, none, none, all_of_them)
    before, after = (learner.step([sample]).loss for _ in range(2))
    if not after < before:
        raise PrimeError(f"a step on {device} did not lower the loss: {before:.3f}, then {after:.3f}")
    return f"torch {torch.__version__} on {device}: one step took a tiny model's loss from {before:.2f} to {after:.2f}"


if __name__ == "__main__":
    try:
        print(prove())  # noqa: T201 - this is its result
    except PrimeError as error:
        sys.exit(error.message)
