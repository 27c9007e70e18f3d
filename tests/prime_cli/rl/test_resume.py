"""Which checkpoint `--resume` means, whether a configuration may go on from it, and what is cut away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prime_cli.core.errors import BadInput, ConfigError
from prime_cli.rl.config import RLConfig
from prime_cli.rl.hold import hold
from prime_cli.rl.resume import check_can_go_on, find_resumption, go_back, open_run_directory
from prime_cli.rl.run_directory import RunDirectory, create_run_directory


def a_config(runs: Path, **values: Any) -> RLConfig:
    basics = {"model": "/models/tiny", "env": [{"id": "reverse-text"}], "output_dir": str(runs), "max_steps": 100}
    return RLConfig.model_validate(basics | {"name": "run"} | values)


def a_run(config: RLConfig, steps: int, every: int = 10) -> RunDirectory:
    """A run with its figures, rollouts, weights and (empty) checkpoints."""
    run = create_run_directory(config.output_dir, config.name or "unnamed", config.model_dump(mode="json"))
    for step in range(1, steps + 1):
        for source in ("orchestrator", "trainer"):
            run.append_metrics(step, source, {"reward/mean": step / 100})
        run.rollouts(step).write_text("{}\n")
        if step % every == 0:
            run.weights(step).mkdir(parents=True)
            run.checkpoint(step).mkdir(parents=True)
            (run.checkpoint(step) / "checkpoint.json").write_text(json.dumps({"format": 1, "step": step, "files": {}}))
    return run


def test_resume_means_the_newest_run_of_the_configuration_and_its_last_checkpoint(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    run = a_run(config, 25)
    a_run(a_config(tmp_path, name="other"), 40)
    found = find_resumption("latest", config)
    assert (found.run, found.step) == (run, 20)
    assert find_resumption("10", config).step == 10


def test_an_unnamed_run_is_found_by_its_model_and_environments(tmp_path: Path) -> None:
    config = a_config(tmp_path, name=None)
    run = a_run(config, 10)
    a_run(a_config(tmp_path, name="named"), 10)
    a_run(a_config(tmp_path / "elsewhere", name=None), 10)
    assert find_resumption("latest", config).run == run


def test_another_run_is_read_and_a_new_one_written(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    source = a_run(config, 20)
    notes: list[str] = []
    run, lock = open_run_directory(config, "run", f"{source.path}@10", notes.append)
    with lock:
        attempt = run.read_attempt()
    assert run.path.name == "run-2"
    assert (attempt.number, attempt.steps_done) == (1, 10)
    assert attempt.start is not None
    assert Path(attempt.start.checkpoint) == source.checkpoint(10).resolve()
    assert source.checkpoint_steps() == [10, 20]


def test_a_warm_start_takes_a_checkpoint_and_begins_at_step_0(tmp_path: Path) -> None:
    a_run(a_config(tmp_path), 20)
    config = a_config(tmp_path, name="warm", checkpoint_id="run@10")
    run, lock = open_run_directory(config, "warm", None, lambda text: None)
    with lock:
        attempt = run.read_attempt()
    assert attempt.steps_done == 0
    assert attempt.start is not None
    assert (attempt.start.step, attempt.start.weights_only) == (10, True)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("latest", "no run called nobody"),
        ("elsewhere@3", "'elsewhere' is not a run"),
        ("run@3", "no checkpoint of step 3"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, wanted: str, words: str) -> None:
    a_run(a_config(tmp_path), 20)
    with pytest.raises(BadInput, match=words) as refusal:
        find_resumption(wanted, a_config(tmp_path, name="nobody"))
    assert refusal.value.hint


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    a_run(config, 5)
    with pytest.raises(BadInput, match="no checkpoint to go on from"):
        find_resumption("latest", config)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": "/models/other"}, "model"),
        ({"seed": 1}, "seed"),
        ({"env": [{"id": "reverse-text", "args": {"num_train": 5}}]}, "env.0.args"),
        ({"env": [{"id": "reverse-text"}, {"id": "other"}]}, "env"),
        ({"trainer": {"lora": {"rank": 4}}}, "trainer.lora"),
        ({"trainer": {"optim": {"type": "muon"}}}, "trainer.optim.type"),
        ({"orchestrator": {"algo": {"type": "rae"}}}, "orchestrator.algo.type"),
    ],
)
def test_a_checkpoint_goes_on_with_nothing_that_it_is_bound_to_changed(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    a_run(a_config(tmp_path), 20)
    config = a_config(tmp_path, **change)
    with pytest.raises(ConfigError, match=f"another {key}"):
        check_can_go_on(config, find_resumption("latest", config))


def test_other_changes_are_named_where_they_change_what_comes_of_the_run(tmp_path: Path) -> None:
    a_run(a_config(tmp_path), 20)
    config = a_config(tmp_path, learning_rate=1e-3, max_steps=200, orchestrator={"env_workers": 7})
    assert check_can_go_on(config, find_resumption("latest", config)) == ["learning_rate"]


def test_a_run_that_is_done_says_what_would_let_it_go_on(tmp_path: Path) -> None:
    config = a_config(tmp_path, max_steps=20)
    a_run(config, 20).summary.write_text("{}")
    with pytest.raises(ConfigError, match="nothing left to do") as refusal:
        check_can_go_on(config, find_resumption("latest", config))
    assert "max_steps" in str(refusal.value.hint)


def test_a_run_that_was_killed_after_its_last_step_may_still_end(tmp_path: Path) -> None:
    config = a_config(tmp_path, max_steps=20)
    a_run(config, 20)
    assert check_can_go_on(config, find_resumption("latest", config)) == []


def test_going_back_leaves_what_was_there_when_the_checkpoint_was_written(tmp_path: Path) -> None:
    run = a_run(a_config(tmp_path), 25)
    run.batch(26).mkdir()
    run.broadcast(25).mkdir()
    (run.path / "checkpoints" / ".step_30.abc").mkdir()
    for name in ("eval", "val"):
        (run.path / "rollouts" / name / "step_10").mkdir(parents=True)
        (run.path / "rollouts" / name / "step_20").mkdir()
    (run.path / "status" / "policy_ready.json").write_text("{}")
    run.log("trainer").write_text("the first attempt\n")
    with run.metrics.open("a") as file:
        file.write('{"step": 26, "sour')
    run.summary.write_text("{}")
    go_back(run, 10)
    assert run.checkpoint_steps() == run.exported_steps() == [10]
    assert {record["step"] for record in map(json.loads, run.metrics.read_text().splitlines())} == set(range(1, 11))
    assert sorted(path.name for path in (run.path / "rollouts").glob("*.jsonl")) == sorted(
        f"step_{step}.jsonl" for step in range(1, 11)
    )
    assert sorted(path.name for path in (run.path / "rollouts").glob("*/*")) == ["step_10", "step_10"]
    assert not list(run.path.rglob(".*"))
    assert not [path for name in ("batches", "broadcasts", "status") for path in (run.path / name).iterdir()]
    assert not run.summary.exists()
    assert (run.path / "logs" / "attempt_1" / "trainer.log").read_text() == "the first attempt\n"


def test_two_launchers_do_not_work_on_one_run(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    run = a_run(config, 20)
    with hold(run), pytest.raises(BadInput, match="being worked on"):
        open_run_directory(config, "run", "latest", lambda text: None)
    assert run.checkpoint_steps() == [10, 20]


def test_a_torn_checkpoint_is_refused_before_anything_is_cut_away(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    run = a_run(config, 25)
    about = {"format": 1, "step": 20, "files": {"parameters.safetensors": 100}}
    (run.checkpoint(20) / "checkpoint.json").write_text(json.dumps(about))
    with pytest.raises(Exception, match=r"torn: parameters\.safetensors is missing"):
        open_run_directory(config, "run", "latest", lambda text: None)
    assert run.rollouts(25).exists()
