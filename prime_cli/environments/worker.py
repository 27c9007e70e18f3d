"""The process in which an environment runs; started by path with the workspace's interpreter.

That interpreter need not have `prime` installed, so this file and the other `worker_*.py` that it imports use the
standard library, `verifiers` and what `verifiers` itself depends on. Requests and answers are JSON objects, one a line,
over standard input and a copy of standard output; what the environment prints goes to standard error. When standard
input ends without a `shutdown`, the parent is gone, and so is this process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import difflib
import gc
import importlib
import importlib.metadata
import inspect
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime_cli.environments import (
        worker_client,
        worker_limits,
        worker_patience,
        worker_scoring,
        worker_seeds,
        worker_signatures,
        worker_together,
    )
else:  # this folder is the first on the path until `main` takes it off
    import worker_client
    import worker_limits
    import worker_patience
    import worker_scoring
    import worker_seeds
    import worker_signatures
    import worker_together

_PR_SET_PDEATHSIG = 1
_CLIENT_TYPES = {
    "openai_chat_completions": "OpenAIChatCompletionsClient",
    "openai_chat_completions_token": "OpenAIChatCompletionsTokenClient",
}
_RENDERER = "renderer"
_RENDERERS = 2  # tokenizers that work at once, in threads


class Refused(Exception):
    """A request that cannot be carried out; its text is meant for the user."""


class EnvironmentHost:
    """Loads one environment and runs its rollouts.

    Args:
        tell: says to the parent what no request asked for.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._environment: Any = None
        self._clients: dict[str, Any] = {}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the environment's module, call its `load_environment` and say what came of it."""
        name, args = request["env"], request["args"]
        module = _module_of(name)
        _check_arguments(name, module.load_environment, args)
        import verifiers

        class ScoringError(verifiers.Error):
            """A reward function raised."""

        try:
            environment = verifiers.load_environment(name, **args)
        except (RuntimeError, ValueError) as error:
            # The library wraps what load_environment raised in a sentence of its own.
            raise error.__cause__ or error from None
        _set_attributes(name, environment, request.get("attributes") or {})
        worker_scoring.watch_rubric(environment.rubric, ScoringError)
        try:
            worker_limits.limit_rollouts(environment, request.get("limits") or {})
        except worker_limits.NotLimited as error:
            raise Refused(f"the environment {name} cannot be limited: {error}") from None
        worker_signatures.remember_signatures(environment)
        worker_seeds.watch_rollouts(environment)
        self._environment = environment
        if request.get("build_sets"):
            self.count({"split": "train"})
            self.count({"split": "eval"})
        # Environments take over these signals; here the parent decides when to stop.
        _ignore_interrupts()
        return {
            "needs_group_scoring": bool(getattr(environment, "requires_group_rollouts", False)),
            "version": _version_of(name),
            "verifiers_version": _version_of("verifiers"),
            "module_path": str(getattr(module, "__file__", "")),
        }

    def count(self, request: dict[str, Any]) -> int:
        """Return how many rows a set has; the environment may build the set only now."""
        return _count(self._set(request["split"]))

    def examples(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return rows of the training or the evaluation set, ready to be rollout inputs."""
        dataset = self._set(request["split"])()
        if request.get("columns") is not None:
            dataset = dataset.select_columns(request["columns"])
        start = min(request["offset"], len(dataset))
        end = len(dataset) if request["limit"] is None else min(len(dataset), start + request["limit"])
        columns = dataset[start:end] if request.get("rows") is None else dataset[request["rows"]]
        names = list(columns)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    async def group(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Run the rollouts of one example and score them together; return one output per input."""
        inputs, seeds = request["inputs"], request.get("seeds")
        if seeds is not None:
            inputs = worker_seeds.with_seeds(inputs, seeds)
        outputs = await self._run(self._environment.run_group, inputs, request)
        return [_with_message(dict(output)) for output in outputs]

    async def rollout(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run and score one rollout."""
        return _with_message(dict(await self._run(self._environment.run_rollout, request["input"], request)))

    def ping(self, request: dict[str, Any]) -> None:
        """Show that the event loop takes turns."""

    async def close(self) -> None:
        """Close the connections to the models."""
        for client in self._clients.values():
            with contextlib.suppress(Exception):
                await client.close()

    def _set(self, split: str) -> Callable[[], Any]:
        environment = self._environment
        found: Callable[[], Any] = environment.get_dataset if split == "train" else environment.get_eval_dataset
        return found

    async def _run(self, run: Callable[..., Any], work: Any, request: dict[str, Any]) -> Any:
        endpoint = request["endpoint"]
        return await run(
            work,
            self._client(endpoint),
            endpoint["model"],
            request["sampling_args"],
            state_columns=request["state_columns"],
        )

    def _client(self, endpoint: dict[str, Any]) -> Any:
        key = json.dumps(endpoint, sort_keys=True)
        if key not in self._clients:
            self._clients[key] = worker_client.takes_empty_answers(_client_of_type(endpoint, self._patience(endpoint)))
            worker_seeds.watch_requests(self._clients[key])
            worker_client.sends_headers_from_state(
                self._clients[key],
                endpoint.get("headers_from_state") or {},
                among_arguments=endpoint["client_type"] == _RENDERER,
            )
        return self._clients[key]

    def _patience(self, endpoint: dict[str, Any]) -> worker_patience.Patience | None:
        if not endpoint.get("patience_s"):
            return None
        return worker_patience.Patience(
            endpoint["patience_s"], lambda delay_s: self._tell({"refused": endpoint["base_url"], "delay_s": delay_s})
        )


def _client_of_type(endpoint: dict[str, Any], patience: worker_patience.Patience | None) -> Any:
    import verifiers.clients

    kind = endpoint["client_type"]
    if kind in _CLIENT_TYPES:
        model_client = worker_client.model_client(endpoint, patience, worker_together.Together)
        return getattr(verifiers.clients, _CLIENT_TYPES[kind])(model_client)
    if kind != _RENDERER:
        raise Refused(f"unknown client type {kind!r}; known: {', '.join([*_CLIENT_TYPES, _RENDERER])}")
    try:
        return _renderer_client(endpoint, patience)
    except ImportError as error:
        raise Refused(
            "the client type `renderer` needs the packages renderers (below 0.1.8) and transformers in "
            f"{sys.executable}, where the environment runs: {error}"
        ) from error


def _renderer_client(endpoint: dict[str, Any], patience: worker_patience.Patience | None) -> Any:
    """Return the library's client that renders messages itself, with the tokenizer in the folder `endpoint` names."""
    import verifiers
    from verifiers.clients.renderer_client import RendererClient

    config = verifiers.ClientConfig(
        client_type=_RENDERER,
        renderer=endpoint["renderer"],
        renderer_model_name=endpoint["tokenizer"],
        renderer_pool_size=_RENDERERS,
        api_base_url=endpoint["base_url"],
    )
    client = RendererClient(config)
    client._client = worker_client.model_client(endpoint, patience, worker_together.Together)
    return client


def _module_of(name: str) -> Any:
    module_name = name.replace("-", "_").split("/")[-1]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name:
            raise Refused(f"no environment {name!r} is installed here ({sys.executable})") from None
        raise
    if not hasattr(module, "load_environment"):
        raise Refused(f"the module {module_name} has no load_environment() function")
    return module


def _check_arguments(name: str, load_environment: Callable[..., Any], args: dict[str, Any]) -> None:
    parameters = inspect.signature(load_environment).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = [repr(key) for key in args if key not in parameters]
    if unknown:
        takes = f"it takes: {', '.join(parameters)}" if parameters else "it takes none"
        raise Refused(f"the environment {name} has no argument {', '.join(unknown)}; {takes}")


def _set_attributes(name: str, environment: Any, attributes: dict[str, Any]) -> None:
    """Set what the user chose on the environment; one that it does not have is a misspelling."""
    for key in attributes:
        if not hasattr(environment, key) and not hasattr(environment, f"set_{key}"):
            known = [known for known in vars(environment) if not known.startswith("_")]
            nearest = difflib.get_close_matches(key, known, n=1)
            says = f"did you mean {nearest[0]!r}?" if nearest else f"it has: {', '.join(sorted(known))}"
            raise Refused(f"the environment {name} has no attribute {key!r}; {says}")
    environment.set_kwargs(**attributes)


def _with_message(output: dict[str, Any]) -> dict[str, Any]:
    """Give a rollout's error the `message` that only newer versions of the library write."""
    error = output.get("error")
    if error and not error.get("message"):
        output["error"] = {**error, "message": error["error_chain_repr"]}
    return output


def _count(dataset: Callable[[], Any]) -> int:
    # An environment may have only one of the two sets; of the other the library says that it "is not set".
    try:
        return len(dataset())
    except ValueError as error:
        if "not set" in str(error):
            return 0
        raise


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ignore_interrupts() -> None:
    # Ctrl-C reaches every process of the terminal's group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def describe(error: BaseException) -> dict[str, str]:
    """Return an exception as data: its type, its text, and the frames of the environment's own code."""
    here = os.path.dirname(__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(here)
        and "importlib" not in frame.filename
        and not frame.filename.endswith(("verifiers/utils/env_utils.py", "asyncio/tasks.py"))
    ]
    shown = "".join(traceback.format_list(frames[-6:])) + "".join(traceback.format_exception_only(error))
    return {"type": type(error).__name__, "message": str(error) or type(error).__name__, "traceback": shown.rstrip()}


async def serve(protocol: Any) -> None:
    """Answer requests from standard input until a `shutdown`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 30)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: dict[int, asyncio.Task[None]] = {}

    def answer(number: int, **body: Any) -> None:
        protocol.write(json.dumps({"id": number, **body}, default=_as_data) + "\n")
        protocol.flush()

    host = EnvironmentHost(lambda event: answer(0, event=event))

    async def carry_out(request: dict[str, Any]) -> None:
        number = request["id"]
        try:
            result = getattr(host, request["op"])(request)
            if asyncio.iscoroutine(result):
                result = await result
            answer(number, result=result)
        except asyncio.CancelledError:
            answer(number, error={"type": "Cancelled", "message": "cancelled", "traceback": ""})
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the environment raises is its owner's to read
            answer(number, error=describe(error))
        finally:
            running.pop(number, None)
        if request["op"] == "load":
            # What was loaded stays: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()

    while line := await reader.readline():
        request = json.loads(line)
        if request["op"] == "cancel":
            task = running.get(request["target"])
            if task is not None:
                task.cancel()
        elif request["op"] == "shutdown":
            for task in list(running.values()):
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)
            await host.close()
            return
        else:
            running[request["id"]] = asyncio.ensure_future(carry_out(request))
    os._exit(0)  # the parent is gone: nothing here is worth finishing, and non-daemon threads must not keep it alive


def _as_data(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "item"):
        return value.item()
    return str(value)


def main() -> None:
    """Take the protocol's descriptor out of the environment's reach, then serve."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _ignore_interrupts()
    # This file's own folder must not hide modules that environments import; theirs come first instead.
    sys.path[:1] = sys.argv[1:]
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        import uvloop

        uvloop.run(serve(protocol))
    except ModuleNotFoundError as error:
        if error.name != "uvloop":
            raise
        asyncio.run(serve(protocol))


if __name__ == "__main__":
    main()
