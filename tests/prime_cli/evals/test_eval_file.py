"""What a file of evaluations asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import ConfigError
from prime_cli.evals.eval_file import EvalPlan, read_eval_file


def plan_of(folder: Path, text: str, **given: Any) -> EvalPlan:
    path = folder / "evals.toml"
    path.write_text(text)
    return read_eval_file(path, given)


def test_keys_at_the_top_hold_for_all_an_eval_says_its_own_and_the_command_line_wins(tmp_path: Path) -> None:
    text = """
    model = "small"
    num_examples = 5
    args = { size = 3, hard = true }
    [sampling]
    top_p = 0.9
    temperature = 0.5
    [[eval]]
    id = "squares"
    [[eval]]
    env_id = "cubes"
    endpoint_id = "big"
    num_examples = -1
    temperature = 0.0
    env_args = { size = 9 }
    """
    plan = plan_of(tmp_path, text, max_concurrent=7, sampling={"temperature": 1.0})
    squares, cubes = plan.requests
    assert (squares.environment, squares.model.model, squares.given["num_examples"]) == ("squares", "small", 5)
    assert (cubes.environment, cubes.model.model, cubes.given["num_examples"]) == ("cubes", "big", -1)
    assert (squares.model.alias_only, cubes.model.alias_only) == (False, True)
    assert squares.given["env_args"] == {"size": 3, "hard": True}
    assert cubes.given["env_args"] == {"size": 9, "hard": True}
    assert cubes.given["sampling_args"] == {"top_p": 0.9, "temperature": 1.0}
    assert plan.max_concurrent == squares.max_concurrent == 7


def test_an_ablation_is_an_evaluation_for_each_combination_called_by_what_varies(tmp_path: Path) -> None:
    text = """
    model = "m"
    [[ablation]]
    id = "squares"
    args = { hard = true }
    [ablation.sweep]
    temperature = [0.0, 1.0]
    [ablation.sweep.args]
    size = [1, 2]
    """
    requests = plan_of(tmp_path, text).requests
    assert [(r.given["sampling_args"]["temperature"], r.given["env_args"]) for r in requests] == [
        (temperature, {"hard": True, "size": size}) for temperature in (0.0, 1.0) for size in (1, 2)
    ]
    assert requests[0].label == requests[0].given["name"] == "squares temperature=0.0, size=1"


def test_evaluations_of_one_name_are_told_apart_by_model_and_number(tmp_path: Path) -> None:
    text = 'id = "squares"\n' + "".join(f'[[eval]]\nmodel = "{model}"\n' for model in ("a", "b", "b"))
    labels = [request.label for request in plan_of(tmp_path, text).requests]
    assert labels == ["squares (a)", "squares (b)", "squares (b) #2"]


def test_a_file_without_tables_is_one_evaluation_and_one_seed_draws_its_examples(tmp_path: Path) -> None:
    (request,) = plan_of(tmp_path, 'id = "squares"\nmodel = "m"\nshuffle = true\nheader = ["X-Team: blue: 1"]').requests
    assert request.given["seed"] == 0
    assert request.model.headers == {"X-Team": "blue: 1"}
    (request,) = plan_of(tmp_path, 'id = "squares"\nmodel = "m"\nshuffle = true\nshuffle_seed = 4', seed=7).requests
    assert request.given["seed"] == 7


def test_taskset_and_harness_become_the_argument_config(tmp_path: Path) -> None:
    text = 'model = "m"\n[[eval]]\nid = "squares"\n[eval.taskset]\nsplit = "hard"\n[eval.harness]\nmax_turns = 3'
    (request,) = plan_of(tmp_path, text).requests
    assert request.given["env_args"] == {"config": {"taskset": {"split": "hard"}, "harness": {"max_turns": 3}}}


def test_keys_that_mean_nothing_here_are_told_and_those_that_cannot_be_had_are_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 'id = "s"\nmodel = "m"\nsave_results = true\nverbose = true\ndisable_tui = false')
    assert [warning.split(":")[0] for warning in plan.warnings] == ["`verbose` is ignored"]
    with pytest.raises(ConfigError, match=r"eval\[0\].save_to_hf_hub.*prime eval push"):
        plan_of(tmp_path, 'model = "m"\n[[eval]]\nid = "s"\nsave_to_hf_hub = true')


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("model = ", "is not valid TOML: Invalid value (at ", ""),
        ('[[eval]]\nid = "s"\nmodel = "m"\ntemprature = 1', "`eval[0].temprature` is not a known key", "`temperature`"),
        ('[eval]\nid = "s"\nmodel = "m"', "`eval` is a single table; write [[eval]]", ""),
        ('[[eval]]\nid = "s"\nenv_id = "t"\nmodel = "m"', "`id` and `env_id` are the same", ""),
        ('[[eval]]\nid = "s"\nmodel = "m"\nendpoint_id = "e"', "say the same; give one of them", ""),
        ('[[eval]]\nid = "s"', "`eval[0]`: no model is named", "-m"),
        ('model = "m"\n[[eval]]\nnum_examples = 3', "`eval[0]`: no environment is named", "`id`"),
        ('model = "m"', "no environment is named", ""),
        ('id = "s"\nmodel = "m"\nnum_examples = 0', "0 examples cannot be run", ""),
        ('id = "s"\nmodel = "m"\nprovider = "openay"', "there is no provider 'openay'", ""),
        ('id = "s"\nmodel = "m"\nshuffle_seed = 1', "`shuffle_seed`: does nothing without `shuffle`", "`seed`"),
        ('id = "s"\nmodel = "m"\nheaders = ["X"]', "'X' is not of the form 'Name: value'", ""),
        ('id = "s"\nmodel = "m"\n[taskset]\nid = "t"', "tasksets of verifiers 0.2", ""),
        ('model = "m"\n[[ablation]]\nid = "s"', "`ablation[0].sweep` is required", ""),
        ('model = "m"\n[[ablation]]\nid = "s"\n[ablation.sweep]\nsize = [1]', "sweep.size` is not a known key", ""),
        ('model = "m"\n[[ablation]]\nid = "s"\nsweep.temperature = 1', "needs a list of values, found 1", ""),
        ('model = "m"\n[[ablation]]\nid = "s"\nsweep.temperature = [-1]', "greater than or equal to 0, found -1", ""),
        ('model = "m"\n[[ablation]]\nid = "s"\nargs.a = 1\nsweep.args.a = [1]', "is swept, and is given beside it", ""),
        ('[[ablation]]\nid = "s"\nsweep.model = ["x"]', "is swept, and is given on the command line", ""),
    ],
)
def test_what_is_wrong_is_told_by_the_key_and_one_line(tmp_path: Path, text: str, says: str, hint: str) -> None:
    given = {"model": "m"} if "sweep.model" in text else {}
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, text, **given)
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")
