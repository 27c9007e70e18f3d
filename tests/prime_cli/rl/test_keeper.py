"""What is kept of which steps."""

from __future__ import annotations

from pathlib import Path

from prime_cli.models.folder import load_tokenizer
from prime_cli.rl.config import RLConfig
from prime_cli.rl.run_directory import create_run_directory
from prime_cli.rl.trainer.keeper import Keeper
from prime_cli.rl.trainer.ranks import Ranks
from tests.prime_cli.rl.learners import a_learner


def test_the_last_the_best_and_the_steps_of_the_interval_are_kept_with_their_weights_and_adapters(
    tiny_model: Path, tmp_path: Path
) -> None:
    config = RLConfig.model_validate(
        {
            "model": str(tiny_model),
            "env": [{"id": "reverse-text"}],
            "max_steps": 9,
            "trainer": {"lora": {"rank": 2}},
            "eval": {"interval": 2, "env": [{"id": "reverse-text"}]},
            "checkpoints": {
                "interval": 2, "keep_last": 1, "keep_interval": 6, "keep_best": "eval/reverse-text/reward/mean"
            },
            "adapters": {"interval": 3, "keep_last": 3},
        }
    )  # fmt: skip
    run = create_run_directory(tmp_path, "run", {})
    learner = a_learner(tiny_model, lora={"rank": 2})
    keeper = Keeper(run, config, learner, load_tokenizer(tiny_model), Ranks())
    said: list[str] = []
    for step in range(1, 10):
        if step % 2 == 0:
            run.append_metrics(step, "eval", {"eval/reverse-text/reward/mean": 0.9 if step == 4 else 0.1})
        keeper.keep(step, {"orchestrator.json": b"{}"}, said.append)
    assert run.checkpoint_steps() == run.exported_steps() == [4, 6, 9]
    assert run.adapter_steps() == [6, 8, 9]
    assert (run.checkpoint(9) / "orchestrator.json").read_bytes() == b"{}"
    assert "writing the checkpoint of step 9" in said
    assert not list(run.path.glob("*/.*")), "nothing half-done is left"
