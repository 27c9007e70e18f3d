"""What happens to a training run when something is killed. Real processes throughout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from prime_cli.rl.run_directory import read_metrics

CONFIG = """
name = "run"
model = "{model}"
max_steps = 100000
batch_size = 16
rollouts_per_example = 8
[sampling]
max_tokens = 8
[[env]]
id = "reverse-text"
args = {{ num_train = 100 }}
"""
ORCHESTRATOR = "[orchestrator]\nenv_workers = 1\n"
MODULES = {
    "inference": "prime_cli.rl.inference.server",
    "gateway": "prime_cli.rl.inference.gateway",
    "trainer": "prime_cli.rl.trainer.process",
    "launch": "prime_cli.rl.trainer.launch",
    "orchestrator": "prime_cli.rl.orchestrator.process",
}


class RunningTraining:
    """`prime rl run` with a run that never ends by itself, and the processes below it."""

    def __init__(self, workspace: Path, model: Path, more: str = "", *, with_orchestrator: bool = True) -> None:
        orchestrator = ORCHESTRATOR if with_orchestrator else ""
        (workspace / "run.toml").write_text(CONFIG.format(model=model) + orchestrator + more)
        self.workspace = workspace
        self.directory = workspace / "outputs" / "rl" / "run"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prime_cli.main", "rl", "run", "run.toml"],
            cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_for_steps(self, count: int, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            records, _ = read_metrics(self.directory / "metrics.jsonl")
            if sum(record["source"] == "trainer" for record in records) >= count:
                return
            if self.process.poll() is not None:
                raise AssertionError(f"ended early: {self.process.communicate()}")
            time.sleep(0.1)
        raise AssertionError("no step within the time")

    def family(self) -> list[psutil.Process]:
        """All processes below the launcher."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def pid_of(self, name: str) -> int:
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if MODULES[name] in process.cmdline():
                    return process.pid
        raise AssertionError(f"no process of the {name}")

    def end(self, timeout_s: float = 15) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, stdout, stderr

    def orphans(self) -> list[psutil.Process]:
        """All processes that work on the run, whoever started them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.cwd() == str(self.workspace) and process.pid != self.process.pid:
                    found.append(process)
        return found

    def victims(self, name: str) -> list[psutil.Process]:
        """The processes of that name: `launcher`, a module of `MODULES`, or `worker`."""
        if name == "launcher":
            return [psutil.Process(self.process.pid)]
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                words = process.cmdline()
                is_worker = len(words) > 1 and words[1].endswith("environments/worker.py")
                if MODULES.get(name) in words or (name == "worker" and is_worker):
                    found.append(process)
        return found


@pytest.fixture
def training(workspace: Path, tiny_model: Path) -> Iterator[RunningTraining]:
    training = RunningTraining(workspace, tiny_model)
    with ended_at_last(training):
        yield training


def assert_gone(family: list[psutil.Process], within_s: float = 10) -> None:
    _, alive = psutil.wait_procs(family, timeout=within_s)
    left = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert not left, f"left behind: {[process.cmdline() for process in left]}"


@contextlib.contextmanager
def ended_at_last(training: RunningTraining) -> Iterator[None]:
    """Leave nothing of a training behind, however the test went."""
    try:
        yield
    finally:
        if training.process.poll() is None:
            training.process.kill()
            training.process.wait()


def steps_of(training: RunningTraining) -> int:
    records, _ = read_metrics(training.directory / "metrics.jsonl")
    return sum(record["source"] == "trainer" for record in records)


def wait_until(happened: Callable[[], bool], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("victim", ["trainer", "orchestrator", "inference"])
def test_a_killed_process_ends_the_run_with_its_name_and_leaves_nothing_behind(
    training: RunningTraining, victim: str
) -> None:
    training.wait_for_steps(2)
    family = training.family()
    assert len(family) >= 4
    os.kill(training.pid_of(victim), signal.SIGKILL)
    started = time.monotonic()
    code, stdout, stderr = training.end()
    assert time.monotonic() - started < 15
    assert code == 1
    assert stdout == ""
    assert f"the {victim} process died (killed by SIGKILL)" in stderr
    assert "its last lines of log:" in stderr
    assert "Traceback" not in stderr
    assert_gone(family)


def test_ctrl_c_ends_the_run_with_130_and_leaves_nothing_behind(training: RunningTraining) -> None:
    training.wait_for_steps(1)
    family = training.family()
    os.killpg(training.process.pid, signal.SIGINT)
    code, _, stderr = training.end()
    assert code == 130
    assert "Traceback" not in stderr
    assert_gone(family)


def test_killing_the_launcher_leaves_nothing_behind(training: RunningTraining) -> None:
    training.wait_for_steps(1)
    family = training.family()
    os.kill(training.process.pid, signal.SIGKILL)
    assert_gone(family)


@pytest.mark.slow
def test_ctrl_z_pauses_the_whole_run_and_no_process_goes_on_beside_a_launcher_that_is_stopped(
    workspace: Path, tiny_model: Path
) -> None:
    training = RunningTraining(workspace, tiny_model, "[watchdog]\ntimeout_s = 3\n")
    with ended_at_last(training):
        training.wait_for_steps(1)
        family = training.family()
        training.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in family))
        time.sleep(4)  # longer than any of them may be silent
        training.process.send_signal(signal.SIGCONT)
        training.wait_for_steps(steps_of(training) + 2)
        training.process.send_signal(signal.SIGSTOP)
        assert_gone(family)
        training.process.send_signal(signal.SIGCONT)
        code, _, stderr = training.end()
        assert code == 1
        assert "gave up: the launcher has been silent for 3 s" in stderr


@pytest.mark.slow
def test_a_worker_that_is_killed_or_stopped_is_replaced_and_a_server_that_is_stopped_ends_the_run_with_its_name(
    workspace: Path, tiny_model: Path
) -> None:
    more = "[orchestrator]\nenv_workers = 1\nenv_worker_timeout_s = 4\n[watchdog]\ntimeout_s = 3\n"
    training = RunningTraining(workspace, tiny_model, more, with_orchestrator=False)
    with ended_at_last(training):
        training.wait_for_steps(2)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            (worker,) = training.victims("worker")
            worker.send_signal(number)
            wait_until(lambda gone=worker: not gone.is_running(), within_s=30)  # type: ignore[misc]
            training.wait_for_steps(steps_of(training) + 3)
            (replacement,) = training.victims("worker")
            assert replacement.pid != worker.pid
        family = training.family()
        os.kill(training.pid_of("inference"), signal.SIGSTOP)
        code, _, stderr = training.end(timeout_s=30)
        assert code == 1
        assert "the inference process is stopped (by SIGSTOP, or a debugger): no sign of life for 3 s" in stderr
        assert "what it did then: serving" in stderr
        assert_gone(family)


def test_an_environment_that_does_not_load_ends_the_run_with_its_own_words(workspace: Path, tiny_model: Path) -> None:
    module = workspace / "environments" / "reverse_text" / "reverse_text.py"
    module.write_text("raise ValueError('the data set is missing')\n")
    training = RunningTraining(workspace, tiny_model)
    code, _, stderr = training.end(timeout_s=90)
    assert code == 1
    assert "the data set is missing" in stderr
    assert 'reverse_text.py", line 1' in stderr
    assert "asyncio" not in stderr
    assert not training.directory.exists(), "the name is wanted again for the mended environment"
