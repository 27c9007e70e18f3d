"""What `[eval]` and `[val]` ask for, and which examples are held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from prime_cli.core.errors import ConfigError, PrimeError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.eval_config import EvalConfig, EvalSamplingConfig
from prime_cli.rl.evaluation.environments import hold_out
from prime_cli.rl.evaluation.output import eval_line
from prime_cli.rl.resume import Resumption, check_can_go_on
from prime_cli.rl.run_directory import create_run_directory

RUN: dict[str, Any] = {"model": "m", "env": [{"id": "e"}]}


def test_what_sampling_leaves_out_is_as_in_training_and_cuts_are_sent() -> None:
    training = EvalSamplingConfig(max_tokens=8, temperature=1.0)
    asked = EvalSamplingConfig.model_validate({"temperature": 0.0, "top_k": 5, "enable_thinking": False})
    assert asked.over(training).arguments() == {
        "max_tokens": 8,
        "temperature": 0.0,
        "extra_body": {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}},
    }


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"num_examples": 0}, "or -1 for all"),
        ({"env": [{"id": "a", "ratio": 2.0}]}, "`ratio` has no meaning in an evaluation"),
        ({"env": [{"id": "a", "algo": {"type": "grpo"}}]}, "`algo` has no meaning"),
        ({"env": [{"id": "a"}, {"id": "a"}]}, "two environments are called a"),
        ({"intervall": 3}, "Extra inputs"),
    ],
)
def test_what_means_nothing_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        EvalConfig.model_validate(values)


def test_held_out_examples_and_their_copies_are_not_trained_on() -> None:
    rows = [{"example_id": i, "prompt": f"p{i % 10}", "answer": "a"} for i in range(30)]
    training, held_out = hold_out(rows, 4, seed=1, name="e")
    assert len(held_out) == 4
    assert not {row["prompt"] for row in training} & {row["prompt"] for row in held_out}
    assert hold_out(rows, 4, seed=1, name="e") == (training, held_out)
    with pytest.raises(PrimeError, match="none is left after 30 are held out"):
        hold_out(rows, 30, seed=1, name="e")


def test_an_evaluation_is_told_in_a_line() -> None:
    record = {"step": 20, "source": "eval", "eval/a/reward/mean": 0.25, "eval/a/reward/standard_error": 0.01,
              "eval/a/rollouts": 8, "eval/a/errors": 2}  # fmt: skip
    assert eval_line(record) == "eval/a at step 20: reward 0.250 ± 0.010 of 8 rollouts, 2 errors"


def test_a_checkpoint_is_bound_to_what_is_held_out_and_not_to_how_often_it_is_evaluated(tmp_path: Path) -> None:
    before = RLConfig.model_validate({**RUN, "val": {"num_examples": 4}})
    run = create_run_directory(tmp_path, "run", before.model_dump(mode="json"))
    resumption = Resumption(run, 1, run)
    often = RLConfig.model_validate({**RUN, "val": {"num_examples": 4, "interval": 5}, "eval": {"interval": 3}})
    assert check_can_go_on(often, resumption) == []
    for held_out in ({"num_examples": 5}, None):
        with pytest.raises(ConfigError, match="cannot go on with another val"):
            check_can_go_on(RLConfig.model_validate({**RUN, "val": held_out}), resumption)
