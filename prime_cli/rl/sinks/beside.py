"""Sinks beside a run: refused before anything starts when they cannot work, and never in the way afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import netrc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prime_cli.core.errors import ConfigError
from prime_cli.core.processes import child_environment, describe_exit, end_process_groups, tail
from prime_cli.rl.run_directory import RunDirectory
from prime_cli.rl.sinks.config import TensorboardConfig, WandbConfig

_KEY = "WANDB_API_KEY"
_CALLED = {"wandb": "W&B", "tensorboard": "TensorBoard"}
FINISH_S = 20.0


def check_sinks(
    wandb: WandbConfig | None, tensorboard: TensorboardConfig | None, variables: Mapping[str, str] = {}
) -> list[str]:
    """Return the sinks that are asked for, having found that each can work.

    Raises:
        ConfigError: a package is not installed, or W&B has no key.
    """
    wanted = [name for name, table in (("wandb", wandb), ("tensorboard", tensorboard)) if table is not None]
    for name in wanted:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"[{name}] is in the configuration, and the package {name} is not installed",
                hint=f"pip install 'prime-lab[{name}]', or remove the table",
            )
    if wandb is not None and not wandb.offline and not (variables.get(_KEY) or os.environ.get(_KEY) or _in_netrc()):
        raise ConfigError(
            f"[wandb] needs an API key, and {_KEY} is not set",
            hint=f"export {_KEY}, name an env file that sets it in `env_files`, or set wandb.offline = true",
        )
    return wanted


def _in_netrc() -> bool:
    base = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc().authenticators(base.split("://")[-1].split("/")[0].split(":")[0]) is not None
    return False


@dataclass
class RunningSink:
    """The process of one sink; the end of its standard input is the end of the run."""

    name: str
    process: subprocess.Popen[bytes]


class Sinks:
    """The processes of the sinks of one run; what becomes of one is told once, and changes nothing in the run."""

    def __init__(self, run: RunDirectory, note: Callable[[str], None]) -> None:
        self.running: list[RunningSink] = []
        self._run = run
        self._note = note

    def start(self, names: list[str], variables: Mapping[str, str] = {}) -> None:
        """Start a process for each; W&B's own `variables` are handed on."""
        own = {key: value for key, value in variables.items() if key.startswith("WANDB_")}
        for name in names:
            with self._run.log(name).open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "prime_cli.rl.sinks.process", str(self._run.path), name],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                    env=child_environment(PYTHONUNBUFFERED="1", **own),
                )  # fmt: skip
            self.running.append(RunningSink(name, process))

    def look(self) -> None:
        """Tell of a sink that has ended by itself."""
        for sink in list(self.running):
            code = sink.process.poll()
            if code is not None:
                self.running.remove(sink)
                self._tell(sink, f"gets no more figures ({describe_exit(code)}); the run goes on")

    def end(self, within_s: float = FINISH_S) -> None:
        """Let each sink take what is left, for so long; a sink that has not by then is ended by force."""
        running, self.running = self.running, []
        for sink in running:
            assert sink.process.stdin is not None, "the sink is started with a pipe"
            sink.process.stdin.close()
        for sink in running:
            try:
                code = sink.process.wait(timeout=within_s)
            except subprocess.TimeoutExpired:
                self._tell(sink, f"had not taken all figures {within_s:.0f} s after the end of the run")
                continue
            if code != 0:
                self._tell(sink, f"failed ({describe_exit(code)})")
        end_process_groups([sink.process for sink in running], grace_s=0)

    def _tell(self, sink: RunningSink, what: str) -> None:
        lines = tail(self._run.log(sink.name), 1)
        self._note(
            f"warning: {_CALLED[sink.name]} {what}. metrics.jsonl has all figures; the log of the sink is "
            f"{self._run.log(sink.name)}" + "".join(f"\n  {line}" for line in lines)
        )


@contextlib.contextmanager
def sinks_beside(
    run: RunDirectory, names: list[str], note: Callable[[str], None], variables: Mapping[str, str] = {}
) -> Iterator[Sinks]:
    """Feed the sinks for as long as the context lasts, and let them finish."""
    sinks = Sinks(run, note)
    try:
        sinks.start(names, variables)
        yield sinks
    finally:
        sinks.end()
