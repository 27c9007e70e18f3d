"""The process in which an environment runs; started by path with the workspace's interpreter.

That interpreter need not have `prime` installed, so this file uses the standard library, `verifiers` and what
`verifiers` itself depends on. Requests and answers are JSON objects, one a line, over standard input and a copy of
standard output; what the environment prints goes to standard error. When standard input ends, the parent is gone and so
is this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
_POOLS = (
    16  # httpx looks at every connection of a pool for every request: many small pools are quicker than a large one
)
_CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 3600.0
_RETRIES = 2


class Refused(Exception):
    """A request that cannot be carried out; its text is meant for the user."""


class EnvironmentHost:
    """Loads one environment and runs its rollouts."""

    def __init__(self) -> None:
        self._environment: Any = None
        self._clients: dict[str, Any] = {}
        self._scoring_errors = ScoringErrors()

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the environment's module, call `load_environment(**args)` and say what came of it."""
        name = request["env"]
        module_name = name.replace("-", "_")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name == module_name:
                raise Refused(f"no environment {name!r} is installed here ({sys.executable})") from None
            raise
        if not hasattr(module, "load_environment"):
            raise Refused(f"the module {module_name} has no load_environment() function")
        environment = module.load_environment(**request["args"])
        self._scoring_errors.watch(environment.rubric)
        self._environment = environment
        return {
            "num_train": _count(environment.get_dataset),
            "num_eval": _count(environment.get_eval_dataset),
            "needs_group_scoring": bool(getattr(environment, "requires_group_rollouts", False)),
            "version": _version_of(name),
            "verifiers_version": _version_of("verifiers"),
            "module_path": str(getattr(module, "__file__", "")),
        }

    def examples(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return rows of the training or the evaluation set, ready to be rollout inputs."""
        train = request["split"] == "train"
        dataset = self._environment.get_dataset() if train else self._environment.get_eval_dataset()
        start = min(request["offset"], len(dataset))
        end = len(dataset) if request["limit"] is None else min(len(dataset), start + request["limit"])
        columns = dataset[start:end]
        names = list(columns)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    async def group(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Run the rollouts of one example and score them together; return one output per input."""
        client = self._client(request["endpoint"])
        with self._scoring_errors.collected() as failures:
            outputs = await self._environment.run_group(
                request["inputs"],
                client,
                request["endpoint"]["model"],
                request["sampling_args"],
                state_columns=request["state_columns"],
            )
        return [_with_scoring_error(dict(output), failures) for output in outputs]

    async def rollout(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run and score one rollout."""
        client = self._client(request["endpoint"])
        with self._scoring_errors.collected() as failures:
            output = await self._environment.run_rollout(
                request["input"],
                client,
                request["endpoint"]["model"],
                request["sampling_args"],
                state_columns=request["state_columns"],
            )
        return _with_scoring_error(dict(output), failures)

    def _client(self, endpoint: dict[str, Any]) -> Any:
        key = json.dumps(endpoint, sort_keys=True)
        if key not in self._clients:
            self._clients[key] = _model_client(endpoint)
        return self._clients[key]


class ScoringErrors:
    """Notices exceptions in reward functions, which the library logs and turns into a reward of 0.

    The functions of the rubric are wrapped where they are called; failures go to the collection of the task that runs.
    """

    def __init__(self) -> None:
        from contextvars import ContextVar

        self._current: ContextVar[list[str] | None] = ContextVar("scoring_errors", default=None)

    def watch(self, rubric: Any) -> None:
        """Wrap the reward functions of `rubric`, and of the rubrics that it is made of."""
        for inner in getattr(rubric, "rubrics", None) or []:
            self.watch(inner)
        functions = getattr(rubric, "funcs", None)
        if functions is not None:
            functions[:] = [self._noticing(function) for function in functions]

    @contextlib.contextmanager
    def collected(self) -> Any:
        """Collect the failures of what runs inside, as text."""
        failures: list[str] = []
        token = self._current.set(failures)
        try:
            yield failures
        finally:
            self._current.reset(token)

    def _noticing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import functools
        import inspect

        def note(error: Exception) -> None:
            failures = self._current.get()
            if failures is not None:
                failures.append(f"{function.__name__}: {type(error).__name__}: {error}")

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def noticing_async(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await function(*args, **kwargs)
                except Exception as error:
                    note(error)
                    raise

            return noticing_async

        @functools.wraps(function)
        def noticing(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                note(error)
                raise

        return noticing


def _with_scoring_error(output: dict[str, Any], failures: Sequence[str]) -> dict[str, Any]:
    """Mark a rollout whose scoring failed, so that its zero is not taken for a score."""
    if failures and not output.get("error"):
        text = "; ".join(dict.fromkeys(failures))
        output["error"] = {"error": "ScoringError", "error_chain_repr": text, "error_chain_str": text, "message": text}
    return output


def _model_client(endpoint: dict[str, Any]) -> Any:
    import openai
    import verifiers

    # The openai package brings its own HTTP library, which is httpx or, from version 3 on, httpx2.
    http: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])

    class ManyPools(http.AsyncBaseTransport):
        """Spreads requests over several connection pools, each small."""

        def __init__(self) -> None:
            limits = http.Limits(max_connections=None, max_keepalive_connections=None)
            self._pools = [http.AsyncHTTPTransport(limits=limits) for _ in range(_POOLS)]
            self._next = 0

        async def handle_async_request(self, request: Any) -> Any:
            self._next = (self._next + 1) % _POOLS
            return await self._pools[self._next].handle_async_request(request)

        async def aclose(self) -> None:
            for pool in self._pools:
                await pool.aclose()

    base_url = endpoint["base_url"]
    client = openai.AsyncOpenAI(
        base_url=base_url,
        api_key=endpoint["api_key"] or "EMPTY",
        default_headers=endpoint["headers"],
        http_client=openai.DefaultAsyncHttpxClient(
            # Plain HTTP on loopback needs none of the pooling rules that a remote, encrypted endpoint profits from.
            transport=ManyPools() if base_url.startswith("http://") else None,
            timeout=http.Timeout(_REQUEST_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
        ),
        max_retries=_RETRIES,
    )
    kinds = {
        "openai_chat_completions": "OpenAIChatCompletionsClient",
        "openai_chat_completions_token": "OpenAIChatCompletionsTokenClient",
    }
    if endpoint["client_type"] not in kinds:
        raise Refused(f"unknown client type {endpoint['client_type']!r}; known: {', '.join(kinds)}")
    return getattr(verifiers, kinds[endpoint["client_type"]])(client)


def _count(dataset: Callable[[], Any]) -> int:
    # An environment may have only one of the two sets; the library raises when the other is asked for.
    try:
        return len(dataset())
    except (ValueError, AttributeError, TypeError):
        return 0


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe(error: BaseException) -> dict[str, str]:
    """Return an exception as data: its type, its text, and the frames of the environment's own code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    shown = "".join(traceback.format_list(frames[-6:])) + "".join(traceback.format_exception_only(error))
    return {"type": type(error).__name__, "message": str(error) or type(error).__name__, "traceback": shown.rstrip()}


async def serve(protocol: Any) -> None:
    """Answer requests from standard input until it ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 30)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    host = EnvironmentHost()
    running: dict[int, asyncio.Task[None]] = {}

    def answer(number: int, **body: Any) -> None:
        protocol.write(json.dumps({"id": number, **body}, default=_as_data) + "\n")
        protocol.flush()

    async def carry_out(request: dict[str, Any]) -> None:
        number = request["id"]
        try:
            result = getattr(host, request["op"])(request)
            if asyncio.iscoroutine(result):
                result = await result
            answer(number, result=result)
        except asyncio.CancelledError:
            answer(number, error={"type": "Cancelled", "message": "cancelled", "traceback": ""})
        except Exception as error:  # noqa: BLE001 - whatever the environment raises is its owner's to read
            answer(number, error=describe(error))
        except SystemExit as error:
            answer(number, error=describe(error))
        finally:
            running.pop(number, None)

    while line := await reader.readline():
        request = json.loads(line)
        if request["op"] == "cancel":
            task = running.get(request["target"])
            if task is not None:
                task.cancel()
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the parent decides
    for extra in reversed(sys.argv[1:]):
        sys.path.insert(0, extra)
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
