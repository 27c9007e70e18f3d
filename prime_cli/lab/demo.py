"""The whole loop on one machine, by the commands that a user would type.

Nothing here reaches into the tool: every step is a `prime` command in a child process, and every figure is read from
the files that the command left. The same seed gives the same task, the same weights and the same order of examples.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically
from prime_cli.core.processes import describe_exit, tail
from prime_cli.rl.plot import REWARD, read_curves, save_curves, terminal_curves
from prime_cli.rl.run_directory import RunDirectory

ENVIRONMENT = "reverse-text"
EVAL_EXAMPLES = 200
_HUB_START_TIMEOUT_S = 60
_HUB_STOP_TIMEOUT_S = 15

Say = Callable[[str], None]


@dataclass
class DemoSummary:
    """What `summary.json` holds. Rewards are means over `EVAL_EXAMPLES` held-out strings at temperature 1."""

    seed: int
    baseline_reward: float = 0.0
    final_reward: float = 0.0
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)


class StepFailed(PrimeError):
    """A step of the demo failed; its own words are above."""

    def __init__(self, step: str, returncode: int) -> None:
        super().__init__(f"the step {step!r} failed ({describe_exit(returncode)})", hint="its own error stands above")
        self.exit_code = 130 if returncode in (130, -signal.SIGINT) else 1


class Demo:
    """One run of the demo under `folder`, which it empties first.

    Args:
        say: prints a line for the person who watches.
        stdout: where the commands' own results go; None for this process's standard output.
    """

    def __init__(self, folder: Path, *, seed: int, say: Say, stdout: int | None = None) -> None:
        self._folder = folder.resolve()
        self._workspace = self._folder / "workspace"
        self._say = say
        self._stdout = stdout
        self._prime = [sys.executable, "-m", "prime_cli.main"]
        # A home of its own: the user's login stays as it is, and nothing is put into the keyring.
        self._environment = os.environ | {"PRIME_HOME": str(self._folder / "home"), "PRIME_DISABLE_KEYRING": "1"}
        for name in ("PRIME_API_KEY", "PRIME_API_BASE_URL", "PRIME_BASE_URL", "PRIME_CONTEXT"):
            self._environment.pop(name, None)
        self.summary = DemoSummary(seed=seed)

    def run(self) -> DemoSummary:
        """Run every step; on success write `summary.json` and the picture of the curve.

        Raises:
            StepFailed: a command failed; what was started is stopped.
        """
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._workspace.mkdir(parents=True)
        self._say(f"Everything goes to {self._folder}; a login of its own lies there too:")
        self._say(f"$ export PRIME_HOME={shlex.quote(self._environment['PRIME_HOME'])} PRIME_DISABLE_KEYRING=1")
        self._say(f"$ mkdir -p {shlex.quote(str(self._workspace))} && cd {shlex.quote(str(self._workspace))}")
        started = time.monotonic()
        with self._hub() as url:
            self._package_and_publish(url)
            self._train_and_measure()
        self.summary.seconds = round(time.monotonic() - started, 1)
        self._draw()
        write_json_atomically(self._folder / "summary.json", self.summary.__dict__)
        return self.summary

    def _package_and_publish(self, url: str) -> None:
        key = self._folder / "hub" / "admin.key"
        self._step("log in", "login", "--base-url", url, "--api-key-file", os.path.relpath(key, self._workspace))
        self._step("set up the workspace", "lab", "setup")
        self._step("write the environment", "env", "init", ENVIRONMENT, "--template", ENVIRONMENT)
        self._step("build its wheel", "env", "build", ENVIRONMENT)
        self._step("publish it", "env", "upload", ENVIRONMENT)
        pushed = self._workspace / "environments" / "reverse_text" / ".prime" / ".env-metadata.json"
        owner = json.loads(pushed.read_text())["owner"]
        self._step("install it from the hub", "env", "install", f"{owner}/{ENVIRONMENT}")

    def _train_and_measure(self) -> None:
        seed = str(self.summary.seed)
        self._step("make a model", "model", "init", "tiny-qwen3", "models/tiny-qwen3", "--seed", seed)
        self._step("warm up (SFT)", "sft", "run", f"configs/sft/{ENVIRONMENT}.toml", "--seed", seed)
        warm = self._weights("outputs/sft/reverse-text")
        self.summary.baseline_reward = self._evaluate("baseline eval", warm)
        self._step("train (RL)", "rl", "run", f"configs/rl/{ENVIRONMENT}.toml", "--seed", seed)
        trained = self._weights("outputs/rl/reverse-text")
        self.summary.final_reward = self._evaluate("final eval", trained)
        self.summary.paths |= {
            "workspace": str(self._workspace),
            "hub data": str(self._folder / "hub"),
            "run": str(self._workspace / "outputs/rl/reverse-text"),
            "trained weights": str(self._workspace / trained),
        }

    def _weights(self, run: str) -> str:
        """Return the exported weights of a run, relative to the workspace."""
        steps = RunDirectory(self._workspace / run).exported_steps()
        return f"{run}/weights/step_{steps[-1]}"

    def _evaluate(self, title: str, weights: str) -> float:
        started = time.time()
        self._step(
            title, "eval", "run", ENVIRONMENT, "-m", weights,
            "-n", str(EVAL_EXAMPLES), "-r", "1", "-T", "1.0", "-t", "12", "-c", "128",
        )  # fmt: skip
        written = [p for p in self._workspace.rglob("evals/**/metadata.json") if p.stat().st_mtime >= started]
        newest = max(written, key=lambda path: path.stat().st_mtime)
        metadata: dict[str, Any] = json.loads(newest.read_text())
        self.summary.paths[title] = str(newest.parent)
        return float(metadata["avg_reward"])

    def _step(self, title: str, *arguments: str) -> None:
        """Print the command, run it with its output going to the person, and note its time."""
        self._say(f"\n# {title}\n$ prime {shlex.join(arguments)}")
        started = time.monotonic()
        code = subprocess.call(
            [*self._prime, *arguments], cwd=self._workspace, env=self._environment, stdout=self._stdout
        )
        self.summary.steps[title] = round(time.monotonic() - started, 1)
        if code != 0:
            raise StepFailed(title, code)

    @contextlib.contextmanager
    def _hub(self) -> Iterator[str]:
        """Start a hub on a free port; yield its URL; stop it at the end."""
        data, ready = self._folder / "hub", self._folder / "hub-ready.json"
        arguments = ["hub", "serve", "--port", "0", "--checks", "0", "--no-sandboxes"]  # the processor is for the model
        arguments += ["--data-dir", str(data), "--ready-file", str(ready)]
        self._say(f"\n# start a hub (in the background)\n$ prime {shlex.join(arguments)} &")
        started = time.monotonic()
        log_path = self._folder / "hub.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*self._prime, *arguments], cwd=self._workspace, env=self._environment, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            while not ready.exists():
                if process.poll() is not None or time.monotonic() - started > _HUB_START_TIMEOUT_S:
                    self._say("\n".join(tail(log_path)))
                    raise StepFailed("start a hub", process.poll() or 1)
                time.sleep(0.05)
            self.summary.steps["start a hub"] = round(time.monotonic() - started, 1)
            yield str(json.loads(ready.read_text())["url"])
        finally:
            process.terminate()
            try:
                process.wait(timeout=_HUB_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _draw(self) -> None:
        runs = [read_curves(RunDirectory(self._workspace / "outputs/rl/reverse-text"), [REWARD])]
        width = min(100, shutil.get_terminal_size((80, 24)).columns)
        self._say("\n" + terminal_curves(runs, width=width, colour=sys.stdout.isatty()))
        picture = self._folder / "reward_curve.png"
        save_curves(runs, picture, [REWARD], title=f"{ENVIRONMENT}, tiny Qwen3 on a CPU, seed {self.summary.seed}")
        self.summary.paths["picture of the curve"] = str(picture)
        self.summary.paths["summary"] = str(self._folder / "summary.json")
