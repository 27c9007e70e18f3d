"""Imports one environment, loads it and runs one rollout; started by path with the check's own interpreter.

Arguments: the module, and `network` or `offline`. Says how far it is, one JSON object a line, on the descriptor that
RESULTS_FD names: {begin: STAGE}, then {done: STAGE, took_s, facts}, {skipped: STAGE, reason} or {failed: STAGE,
reason}.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import logging
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hub_server.checks.inside import environment_facts
    from hub_server.checks.inside.scripted_model import ScriptedModel
else:  # this folder is the first on the path until `main` takes it off
    import environment_facts
    from scripted_model import ScriptedModel

_MOST_CALLS = 50
_ROLLOUT_S = 60
_MOST_REASON = 1000
# What libraries raise when they cannot get out.
_OF_THE_NETWORK = {
    "APIConnectionError", "ClientConnectorDNSError", "ClientConnectorError", "ConnectError", "ConnectTimeout",
    "ConnectionError", "LocalEntryNotFoundError", "MaxRetryError", "NameResolutionError", "NewConnectionError",
    "OfflineModeIsEnabled", "URLError", "gaierror",
}  # fmt: skip


class Failed(Exception):
    """A stage that did not work, in words of ours."""


class Probe:
    """Goes through the stages and reports each."""

    def __init__(self, descriptor: int, *, network: bool) -> None:
        self._descriptor = descriptor
        self._network = network
        self._model = ScriptedModel(_MOST_CALLS)
        # Judges that read where their model is from the environment find the scripted one.
        os.environ |= {"OPENAI_BASE_URL": self._model.base_url, "OPENAI_API_KEY": "scripted"}

    def run(self, module_name: str) -> None:
        """Import, load, roll out; the first stage that fails is the last."""
        module = self._stage("import", lambda: self._import(module_name))
        if module is None:
            return
        environment = self._stage("load", lambda: self._load(module))
        if environment is not None:
            self._stage("rollout", lambda: self._rollout(environment))

    def _stage(self, name: str, work: Callable[[], tuple[Any, dict[str, Any]]]) -> Any:
        """Do one stage and return what it made; None when the next cannot be done."""
        self._say(begin=name)
        started = time.monotonic()
        try:
            made, facts = work()
        except environment_facts.Skipped as skipped:
            self._say(skipped=name, reason=str(skipped)[:_MOST_REASON])
            return None
        except BaseException as error:  # noqa: BLE001  whatever the environment raises, SystemExit too, is the result
            if not isinstance(error, Failed):
                _print_without_us(error)
            if name == "rollout" and self._needs_network(error):
                self._say(skipped=name, reason=self._reason(error))
            else:
                self._say(failed=name, reason=self._reason(error))
            return None
        self._say(done=name, took_s=round(time.monotonic() - started, 2), facts=facts)
        return made

    def _import(self, name: str) -> tuple[ModuleType, dict[str, Any]]:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name == name:
                raise Failed(f"the wheel has no module {name!r}, as the name wants it") from None
            raise
        return module, {"verifiers": _version_of("verifiers")}

    def _load(self, module: ModuleType) -> tuple[Any, dict[str, Any]]:
        load = getattr(module, "load_environment", None)
        if not callable(load):
            if _is_of_the_new_api(module):
                raise environment_facts.Skipped(
                    f"it is written for the new API of verifiers {_version_of('verifiers')}, which checks do not run"
                )
            raise Failed(f"the module {module.__name__} has no load_environment() function")
        environment = load()
        if not all(callable(getattr(environment, name, None)) for name in ("get_dataset", "get_eval_dataset")):
            raise Failed(f"load_environment() returned {type(environment).__name__}, no environment of verifiers")
        return environment, environment_facts.describe(environment)

    def _rollout(self, environment: Any) -> tuple[Any, dict[str, Any]]:
        errors = environment_facts.RewardErrors()
        logging.getLogger("verifiers").addHandler(errors)
        try:
            output = asyncio.run(
                asyncio.wait_for(environment_facts.run_one(environment, self._model.base_url), _ROLLOUT_S)
            )
        except TimeoutError:
            raise environment_facts.Skipped(
                f"it was not over after {_ROLLOUT_S} s with a model that always answers the same"
            ) from None
        error = output.get("error")
        if self._model.is_exhausted:
            raise environment_facts.Skipped(
                f"it was not over after {_MOST_CALLS} turns with a model that always answers the same"
            )
        if error:
            chain = str(error.get("error_chain_repr") or error) if isinstance(error, dict) else str(error)
            if not self._network and any(name in chain for name in _OF_THE_NETWORK):
                raise environment_facts.Skipped(f"it needs the network, which checks do not have: {chain}")
            raise Failed(f"the rollout ended with an error: {chain}")
        for message, cause in errors.found:
            if cause is not None and self._needs_network(cause):
                raise environment_facts.Skipped(f"its scoring needs the network, which checks do not have: {message}")
            raise Failed(message)
        metrics = output.get("metrics") or {}
        return None, {
            "reward": _finite(output.get("reward")),
            "metrics": {str(name)[:200]: _finite(value) for name, value in list(metrics.items())[:100]},
            "model_calls": self._model.calls,
            "stop_condition": str(output.get("stop_condition") or "")[:200] or None,
        }

    def _needs_network(self, error: BaseException) -> bool:
        return not self._network and any(type(each).__name__ in _OF_THE_NETWORK for each in _chain(error))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, Failed):
            return str(error)[:_MOST_REASON]
        text = "".join(traceback.format_exception_only(error)).strip()
        said = f"it needs the network, which checks do not have: {text}" if self._needs_network(error) else text
        return said[:_MOST_REASON]

    def _say(self, **report: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(self._descriptor, json.dumps(report).encode() + b"\n")


def _print_without_us(error: BaseException) -> None:
    """Print a traceback that begins in the environment's own code."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__ and frames.tb_next is not None:
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))


def _finite(value: Any) -> float:
    """Return a reward as a number.

    Raises:
        Failed: it is none that can be written down.
    """
    number = float(value or 0.0)
    if not math.isfinite(number):
        raise Failed(f"a reward or metric is {number}")
    return number


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those behind it, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting += [current.__cause__, current.__context__]


def _is_of_the_new_api(module: ModuleType) -> bool:
    """Say whether a module has parts that only the rewritten verifiers (0.2 and later) knows: task sets, harnesses."""
    names = {
        base.__name__
        for value in vars(module).values()
        if isinstance(value, type)
        for base in value.__mro__
        if base.__module__.split(".")[0] == "verifiers"
    }
    return bool(names & {"Taskset", "Task", "Harness", "Env", "Agent"})


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    del sys.path[0]  # this folder must not hide modules that environments import
    sys.dont_write_bytecode = True
    Probe(int(os.environ.pop("RESULTS_FD")), network=sys.argv[2] == "network").run(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # threads that the environment left must not keep it alive
