"""Every process of a run killed and stopped at twenty moments each, of its start and of its work.

A fault ends the run within a minute, by a message that names the process, or is recovered from; nothing is left over.
The number in a test's name is its seed.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_faults import RunningTraining, assert_gone, ended_at_last, steps_of, wait_until

BOUND_S = 60
TEACHER = """
[teacher]
model = "{model}"
[orchestrator]
env_workers = 1
algo = {{ type = "opd" }}
"""
VICTIMS = {
    # the name in the tests: the process, how it is called in messages, and what the configuration needs for it
    "launcher": ("launcher", "launcher", ""),
    "inference": ("inference", "inference", ""),
    "gateway": ("gateway", "gateway", "[inference]\nservers = 2\n"),
    "teacher": ("inference", "teacher", TEACHER),
    "trainer": ("trainer", "trainer", ""),
    "launch": ("launch", "trainer", "[trainer]\nranks = 2\n"),
    "rank": ("trainer", "trainer", "[trainer]\nranks = 2\n"),
    "orchestrator": ("orchestrator", "orchestrator", ""),
    "worker": ("worker", "worker", "[orchestrator]\nenv_workers = 1\nenv_worker_timeout_s = 8\n"),
}


def start(workspace: Path, model: Path, more: str) -> RunningTraining:
    more = more.format(model=model) + "[watchdog]\ntimeout_s = 4\n"
    return RunningTraining(workspace, model, more, with_orchestrator="[orchestrator]" not in more)


def hit(training: RunningTraining, victim: str, number: signal.Signals, rng: random.Random) -> psutil.Process:
    """Signal the victim at a random moment: while it starts, or in the middle of its work."""
    name = VICTIMS[victim][0]
    if rng.random() < 0.5:
        wait_until(lambda: bool(training.victims(name)), within_s=120)
        time.sleep(rng.uniform(0, 10))
    else:
        training.wait_for_steps(rng.randint(1, 4), timeout_s=240)
        time.sleep(rng.uniform(0, 0.5))
    found = sorted(training.victims(name), key=lambda process: process.create_time())
    if victim in ("inference", "teacher"):
        found = [process for process in found if ("teacher" in process.cmdline()) == (victim == "teacher")]
    chosen = rng.choice(found)
    chosen.send_signal(number)
    return chosen


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("victim", sorted(set(VICTIMS) - {"launcher", "worker"}))
def test_a_fault_at_any_moment_ends_the_run_with_the_name_of_the_process(
    workspace: Path, tiny_model: Path, victim: str, number: signal.Signals, seed: int
) -> None:
    training = start(workspace, tiny_model, VICTIMS[victim][2])
    with ended_at_last(training):
        hit(training, victim, number, random.Random(seed))
        family = training.family()
        code, _, stderr = training.end(timeout_s=BOUND_S)
        assert code == 1, stderr
        assert VICTIMS[victim][1] in stderr.split("error: ")[-1], stderr
        assert "Traceback" not in stderr, stderr
        assert_gone(family)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_nothing_is_left_of_a_run_whose_launcher_is_gone_at_any_moment(
    workspace: Path, tiny_model: Path, number: signal.Signals, seed: int
) -> None:
    training = start(workspace, tiny_model, "")
    with ended_at_last(training):
        launcher = hit(training, "launcher", number, random.Random(seed))
        family = launcher.children(recursive=True) if number == signal.SIGSTOP else training.orphans()
        assert_gone(family, within_s=BOUND_S)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_run_recovers_from_a_fault_of_an_environment_worker_at_any_moment_or_names_it(
    workspace: Path, tiny_model: Path, number: signal.Signals, seed: int
) -> None:
    training = start(workspace, tiny_model, VICTIMS["worker"][2])
    with ended_at_last(training):
        worker = hit(training, "worker", number, random.Random(seed))
        steps, family = steps_of(training), training.family()
        wait_until(
            lambda: (
                training.process.poll() is not None or (steps_of(training) >= steps + 4 and not worker.is_running())
            ),
            within_s=BOUND_S,
        )
        if training.process.poll() is not None:
            code, _, stderr = training.end()
            assert code == 1
            assert "worker" in stderr.split("error: ")[-1], stderr
            assert_gone(family)
