"""Signs of life, and a launcher that watches, pauses and ends what it started. Real processes, short times."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from prime_cli.rl.family import Family, Member, Silent
from prime_cli.rl.heartbeat import Heartbeat
from prime_cli.rl.run_directory import RunDirectory, create_run_directory
from prime_cli.rl.watchdog import Silence

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run_directory(tmp_path, "run", {})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextlib.contextmanager
def a_child(command: list[str] = SLEEP) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def first_silence(family: Family, clock: Clock, *, within_s: float) -> Silent | None:
    for _ in range(round(within_s)):
        clock.now += 1.001
        silent = family.silent()
        if silent is not None:
            return silent
    return None


def stop(pid: int) -> None:
    process = psutil.Process(pid)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


def test_silence_lasts_from_one_sign_of_life_to_the_next(clock: Clock) -> None:
    silence = Silence(clock)
    seen = []
    for sign in "aaabb":
        clock.now += 1
        seen.append(silence.after(sign))
    assert seen == [0, 1, 2, 0, 1]


def test_a_watcher_that_slept_holds_nobody_guilty(clock: Clock) -> None:
    silence = Silence(clock)
    silence.after("a")
    clock.now += 3600
    assert silence.after("a") <= 2


def test_a_stopped_process_is_named_even_when_it_has_no_beat(run: RunDirectory, clock: Clock) -> None:
    family = Family(run, timeout_s=3, startup_timeout_s=300, clock=clock)
    with a_child() as other, a_child() as child:
        family.add(Member("trainer", other, beats=False))
        family.add(Member("inference", child, beats=False))
        assert first_silence(family, clock, within_s=10) is None
        stop(child.pid)
        silent = first_silence(family, clock, within_s=10)
    assert silent is not None
    assert silent.words == "the inference process is stopped (by SIGSTOP, or a debugger): no sign of life for 3 s"


def test_a_process_that_lives_but_does_not_beat_is_stuck(run: RunDirectory, clock: Clock) -> None:
    family = Family(run, timeout_s=3, startup_timeout_s=8, clock=clock)
    with a_child() as child:
        family.add(Member("orchestrator", child))
        assert first_silence(family, clock, within_s=6) is None, "it may still be starting"
        run.beat("orchestrator").touch()
        silent = first_silence(family, clock, within_s=6)
    assert silent is not None
    assert silent.words == "the orchestrator process is stuck: no sign of life for 3 s"


def test_a_rank_is_named_and_an_environment_worker_is_left_to_the_orchestrator_for_longer(
    run: RunDirectory, clock: Clock
) -> None:
    for victim, words in (
        ("trainer", "rank 1 of the trainer is stopped (by SIGSTOP, or a debugger): no sign of life for 3 s"),
        ("orchestrator", "an environment worker is stopped (by SIGSTOP, or a debugger): no sign of life for 8 s"),
    ):
        family = Family(run, timeout_s=3, startup_timeout_s=300, workers_timeout_s=8, clock=clock)
        with a_child([sys.executable, "-c", PARENT]) as child:
            assert child.stdout is not None
            below = int(child.stdout.readline())
            family.add(Member(victim, child))
            run.beat("trainer_rank_1").touch()
            first_silence(family, clock, within_s=1)
            stop(below)
            silent = first_silence(family, clock, within_s=12)
            family.end(grace_s=1)
            assert silent is not None
            assert silent.words == words
            assert not psutil.pid_exists(below) or psutil.Process(below).status() == psutil.STATUS_ZOMBIE


def test_with_a_timeout_of_zero_nobody_is_watched(run: RunDirectory, clock: Clock) -> None:
    family = Family(run, timeout_s=0, startup_timeout_s=300, clock=clock)
    with a_child() as child:
        family.add(Member("trainer", child))
        child.send_signal(signal.SIGSTOP)
        assert first_silence(family, clock, within_s=1000) is None


async def test_a_loop_that_takes_no_turns_does_not_beat(run: RunDirectory) -> None:
    heartbeat = Heartbeat(run, "orchestrator", interval_s=0.05)
    heartbeat.follow(asyncio.get_running_loop())
    before = run.last_beat("orchestrator")
    time.sleep(0.3)  # noqa: ASYNC251 - the loop is to be stuck
    stuck = run.last_beat("orchestrator")
    await asyncio.sleep(0.2)
    alive = run.last_beat("orchestrator")
    heartbeat.stop()
    assert before is not None
    assert stuck is not None
    assert alive is not None
    assert stuck - before < 0.1e9
    assert alive > stuck
