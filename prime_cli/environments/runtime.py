"""The one door through which environments run: workers in the workspace's interpreter, rollouts out.

Evaluations, demonstrations for fine-tuning, prompt optimisation and training all use it. Importing this module costs
nothing beyond the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import describe_exit, tail

_WORKER = Path(__file__).with_name("worker.py")
_MAX_DEATHS_IN_A_ROW = 3
_CLOSE_GRACE_S = 3.0
_LINE_LIMIT = 1 << 30

Split = Literal["train", "eval"]


class EnvironmentFailed(PrimeError):
    """The environment could not be loaded, or its code raised; carries its own shortened traceback."""


class EnvironmentWorkerDied(PrimeError):
    """The process in which the environment ran ended under it."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """Which environment, with which arguments of its `load_environment`; `name` is how it is called in logs."""

    id: str
    args: dict[str, Any] = field(default_factory=dict)
    name: str | None = None


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible model: `base_url` ends in /v1."""

    base_url: str
    model: str
    api_key: str = "EMPTY"
    client_type: str = "openai_chat_completions"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentInfo:
    """What a loaded environment says of itself. A count is 0 when it has no such set."""

    num_train: int
    num_eval: int
    needs_group_scoring: bool
    version: str | None
    verifiers_version: str | None
    module_path: str


class EnvironmentWorkers:
    """Runs one environment in several processes; requests go to the least busy.

    Args:
        python: the interpreter that has `verifiers` and the environment.
        log_directory: gets `<environment>_worker_<i>.log` with what the environment writes to stderr.
        search_path: folders put in front of the interpreter's own path, for environments that are not installed.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        python: Path,
        log_directory: Path,
        num_workers: int = 1,
        search_path: Sequence[Path] = (),
    ) -> None:
        self._spec = spec
        self._python = python
        label = (spec.name or spec.id).replace("/", "--")
        self._workers = [
            _Worker(python, log_directory / f"{label}_worker_{index}.log", spec, search_path)
            for index in range(num_workers)
        ]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that live."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    async def start(self, timeout_s: float = 120) -> EnvironmentInfo:
        """Start all workers and load the environment in each.

        Raises:
            EnvironmentFailed: import or `load_environment` failed, or took longer than `timeout_s`.
            EnvironmentWorkerDied: a worker ended while loading.
        """
        try:
            infos = await asyncio.wait_for(asyncio.gather(*(worker.start() for worker in self._workers)), timeout_s)
        except TimeoutError:
            await self.close()
            raise EnvironmentFailed(
                f"the environment {self._spec.id} did not load within {timeout_s:.0f} s",
                hint=self._workers[0].log_hint(),
            ) from None
        except BaseException:
            await self.close()
            raise
        return EnvironmentInfo(**infos[0])

    async def examples(self, split: Split, limit: int | None = None, offset: int = 0) -> list[dict[str, Any]]:
        """Return rows of a set: example_id, prompt, and answer, info, ... where it has them."""
        request = self._least_busy().request("examples", split=split, limit=limit, offset=offset)
        rows: list[dict[str, Any]] = await request
        return rows

    async def run_group(
        self,
        inputs: Sequence[Mapping[str, Any]],
        endpoint: ModelEndpoint,
        sampling_args: Mapping[str, Any],
        *,
        state_columns: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> list[dict[str, Any]]:
        """Run one rollout per input and score them as a group.

        Returns:
            One output per input, in order, in verifiers' form; a rollout that failed carries its `error`.

        Raises:
            EnvironmentFailed: the environment's code raised something that ended the group, or took too long.
            EnvironmentWorkerDied: the worker ended.
        """
        request = self._least_busy().request(
            "group",
            inputs=list(inputs),
            endpoint={**asdict(endpoint), "headers": dict(endpoint.headers)},
            sampling_args=dict(sampling_args),
            state_columns=list(state_columns),
        )
        outputs: list[dict[str, Any]] = await self._bounded(request, timeout_s)
        return outputs

    async def run_rollout(
        self,
        example: Mapping[str, Any],
        endpoint: ModelEndpoint,
        sampling_args: Mapping[str, Any],
        *,
        state_columns: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run and score one rollout; see `run_group`."""
        request = self._least_busy().request(
            "rollout",
            input=dict(example),
            endpoint={**asdict(endpoint), "headers": dict(endpoint.headers)},
            sampling_args=dict(sampling_args),
            state_columns=list(state_columns),
        )
        output: dict[str, Any] = await self._bounded(request, timeout_s)
        return output

    async def close(self) -> None:
        """End all workers; what they were doing fails."""
        await asyncio.gather(*(worker.close() for worker in self._workers))

    async def _bounded(self, request: Any, timeout_s: float | None) -> Any:
        try:
            return await asyncio.wait_for(request, timeout_s)
        except TimeoutError:
            raise EnvironmentFailed(f"a rollout of {self._spec.id} took longer than {timeout_s:.0f} s") from None

    def _least_busy(self) -> _Worker:
        return min(self._workers, key=lambda worker: worker.busy)


class _Worker:
    """One process and the requests that it is working on. A dead one is started again for the next request."""

    def __init__(self, python: Path, log_path: Path, spec: EnvironmentSpec, search_path: Sequence[Path]) -> None:
        self._python = python
        self._log_path = log_path
        self._spec = spec
        self._search_path = search_path
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._deaths = 0
        self._starting = asyncio.Lock()

    @property
    def busy(self) -> int:
        return len(self._waiting)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def log_hint(self) -> str:
        lines = tail(self._log_path, 5)
        return "\n".join([f"its log is {self._log_path}", *(f"  {line}" for line in lines)])

    async def start(self) -> dict[str, Any]:
        await self._spawn()
        info: dict[str, Any] = await self._send("load", env=self._spec.id, args=self._spec.args)
        return info

    async def request(self, op: str, **body: Any) -> Any:
        async with self._starting:
            if self.pid is None:
                if self._deaths >= _MAX_DEATHS_IN_A_ROW:
                    raise EnvironmentWorkerDied(
                        f"the worker of {self._spec.id} died {self._deaths} times in a row", hint=self.log_hint()
                    )
                await self.start()
        result = await self._send(op, **body)
        self._deaths = 0
        return result

    async def close(self) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            assert process.stdin is not None, "the worker is started with a pipe"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _CLOSE_GRACE_S)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._reading is not None:
            await self._reading

    async def _spawn(self) -> None:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with self._log_path.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    str(self._python), str(_WORKER), *(str(path) for path in self._search_path),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=environment, limit=_LINE_LIMIT,
                )  # fmt: skip
            except OSError as error:
                raise EnvironmentFailed(
                    f"the interpreter {self._python} cannot be started: {error.strerror}",
                    hint="the workspace's interpreter is $VIRTUAL_ENV's, .venv's, or the one that runs prime",
                ) from None
        self._reading = asyncio.ensure_future(self._read(self._process))

    async def _send(self, op: str, **body: Any) -> Any:
        process = self._process
        assert process is not None, "a worker is started before it is asked"
        assert process.stdin is not None, "the worker is started with a pipe"
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            process.stdin.write((json.dumps({"id": number, "op": op, **body}) + "\n").encode())
            return await future
        except asyncio.CancelledError:
            if self.pid is not None and not process.stdin.is_closing():
                process.stdin.write((json.dumps({"id": 0, "op": "cancel", "target": number}) + "\n").encode())
            raise
        finally:
            self._waiting.pop(number, None)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "the worker is started with a pipe"
        while line := await process.stdout.readline():
            answer = json.loads(line)
            future = self._waiting.get(answer["id"])
            if future is None or future.done():
                continue
            if "error" in answer:
                future.set_exception(self._failure(answer["error"]))
            else:
                future.set_result(answer["result"])
        code = await process.wait()
        self._deaths += 1
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    EnvironmentWorkerDied(
                        f"the worker of {self._spec.id} died ({describe_exit(code)})", hint=self.log_hint()
                    )
                )

    def _failure(self, error: Mapping[str, str]) -> EnvironmentFailed:
        if error["type"] == "Refused":
            return EnvironmentFailed(error["message"], hint=_missing_hint(error["message"], self._spec.id))
        if error["type"] == "ModuleNotFoundError" and "'verifiers'" in error["message"]:
            return EnvironmentFailed(
                f"the workspace's interpreter {self._python} has no verifiers",
                hint="install it there with `pip install verifiers`, or point VIRTUAL_ENV at one that has it",
            )
        where = "\n".join(f"  {line}" for line in error["traceback"].splitlines())
        return EnvironmentFailed(f"the environment {self._spec.id} failed: {error['message']}\n{where}")


def _missing_hint(message: str, name: str) -> str | None:
    if "is installed here" in message:
        return f"install it with `prime env install OWNER/{name}`, or write it with `prime env init {name}`"
    return None
