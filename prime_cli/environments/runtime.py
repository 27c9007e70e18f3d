"""The one door through which environments run: workers in the workspace's interpreter, rollouts out.

Evaluations, demonstrations for fine-tuning, prompt optimisation and training all use it. Importing this module costs
nothing beyond the standard library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from prime_cli.environments.worker_connection import EnvironmentFailed, EnvironmentWorkerDied, WorkerConnection

__all__ = [
    "ENVIRONMENTS_VARIABLE",
    "ClientType",
    "EnvironmentFailed",
    "EnvironmentInfo",
    "EnvironmentSpec",
    "EnvironmentWorkerDied",
    "EnvironmentWorkers",
    "ModelEndpoint",
    "Split",
]

_MAX_DEATHS_IN_A_ROW = 3
_RESTART_TIMEOUT_S = 120.0
_PING_INTERVAL_S = 5.0

ENVIRONMENTS_VARIABLE = "PRIME_RUN_ENVIRONMENT_VARIABLES"
"""The environment variable in which a launcher tells who starts workers what to give them, as a JSON object."""

Split = Literal["train", "eval"]

ClientType = Literal["openai_chat_completions", "openai_chat_completions_token", "renderer"]
"""How an environment speaks to the model: messages each turn, tokens from the second turn on, or tokens always."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """Which environment, with which arguments of its `load_environment`; `name` is how it is called in logs.

    Its processes get `variables` beside the environment variables of this one. `limits` bound its rollouts, see
    `worker_limits.py`. `attributes` are set on the environment when it is loaded, as verifiers' `set_kwargs` does.
    """

    id: str
    args: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelEndpoint:
    """An OpenAI-compatible model: `base_url` ends in /v1.

    The client type `renderer` renders messages with the tokenizer in the folder `tokenizer`, as its `renderer` says.
    `headers_from_state` names headers whose values are read from the state of the rollout, by its keys.
    A request that the server refuses because there are too many is sent again later, for `patience_s` in all.
    `takes_many` says that it is an embedded server, which takes the requests of a moment as one, at /v1/many.
    """

    base_url: str
    model: str
    api_key: str = "EMPTY"
    client_type: ClientType = "openai_chat_completions"
    headers: Mapping[str, str] = field(default_factory=dict)
    tokenizer: str | None = None
    renderer: str = "auto"
    headers_from_state: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 0.0
    takes_many: bool = False

    def as_data(self) -> dict[str, Any]:
        """Return the endpoint as a worker is told it."""
        return {**asdict(self), "headers": dict(self.headers), "headers_from_state": dict(self.headers_from_state)}


@dataclass(frozen=True)
class EnvironmentInfo:
    """What a loaded environment says of itself."""

    needs_group_scoring: bool
    version: str | None
    verifiers_version: str | None
    module_path: str


class EnvironmentWorkers:
    """Runs one environment in several processes; requests go to the least busy of those that are ready.

    Args:
        python: the interpreter that has `verifiers` and the environment.
        log_directory: gets `<environment>_worker_<i>.log` with what the environment writes to stderr.
        search_path: folders put in front of the interpreter's own path, for environments that are not installed.
        silence_timeout_s: a worker that has loaded and does not answer a ping for so long is killed; the next request
            starts another. With it a worker builds the environment's sets while it loads: it is silent meanwhile.
        refused: is told each time that a model's server refused a request because there are too many, and in how many
            seconds it is sent again.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        python: Path,
        log_directory: Path,
        num_workers: int = 1,
        search_path: Sequence[Path] = (),
        silence_timeout_s: float | None = None,
        refused: Callable[[float], None] | None = None,
    ) -> None:
        self._spec = spec
        self._silence_timeout_s = silence_timeout_s
        self._watches: list[asyncio.Task[None]] = []
        label = (spec.name or spec.id).replace("/", "--")
        build_sets = silence_timeout_s is not None
        self._workers = [
            _Worker(python, log_directory / f"{label}_worker_{index}.log", spec, search_path, refused, build_sets)
            for index in range(num_workers)
        ]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that live."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    @property
    def num_ready(self) -> int:
        """How many workers live and have loaded the environment."""
        return sum(worker.ready for worker in self._workers)

    async def start(self, timeout_s: float = 120) -> EnvironmentInfo:
        """Start all workers and load the environment in each.

        Raises:
            EnvironmentFailed: import or `load_environment` failed, or took longer than `timeout_s`.
            EnvironmentWorkerDied: a worker ended while loading.
        """
        starts = [asyncio.create_task(worker.start()) for worker in self._workers]
        try:
            async with asyncio.timeout(timeout_s):
                infos = await asyncio.gather(*starts)
        except TimeoutError:
            raise EnvironmentFailed(
                f"the environment {self._spec.id} did not load within {timeout_s:.0f} s",
                hint=self._workers[0].log_hint(),
            ) from None
        finally:
            if any(not start.done() or start.cancelled() or start.exception() for start in starts):
                for start in starts:
                    start.cancel()
                await asyncio.gather(*starts, return_exceptions=True)
                await self.close()
        if self._silence_timeout_s is not None:
            watches = (worker.watch(self._silence_timeout_s) for worker in self._workers)
            self._watches = [asyncio.ensure_future(watch) for watch in watches]
        return EnvironmentInfo(**infos[0])

    async def count(self, split: Split) -> int:
        """Return how many rows a set has, 0 where the environment has no such set.

        Raises:
            EnvironmentFailed: the set cannot be built.
        """
        found: int = await self._least_busy().request("count", split=split)
        return found

    async def examples(
        self,
        split: Split,
        limit: int | None = None,
        offset: int = 0,
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows of a set: example_id, prompt, and answer, info, ... where it has them.

        Args:
            rows: the places of those that are wanted, instead of the first after `offset`.
            columns: what is wanted of them; else all.
        """
        request = self._least_busy().request(
            "examples",
            split=split,
            limit=limit,
            offset=offset,
            rows=None if rows is None else list(rows),
            columns=None if columns is None else list(columns),
        )
        found: list[dict[str, Any]] = await request
        return found

    async def run_group(
        self,
        inputs: Sequence[Mapping[str, Any]],
        endpoint: ModelEndpoint,
        sampling_args: Mapping[str, Any],
        *,
        state_columns: Sequence[str] = (),
        timeout_s: float | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[dict[str, Any]]:
        """Run one rollout per input and score them as a group.

        Args:
            seeds: one per rollout: each of its requests to the endpoint carries a seed that follows from it.

        Returns:
            One output per input, in order, in verifiers' form; a rollout that failed carries its `error`.

        Raises:
            EnvironmentFailed: the environment's code raised something that ended the group, or took too long.
            EnvironmentWorkerDied: the worker ended.
        """
        request = self._least_busy().request(
            "group",
            inputs=list(inputs),
            endpoint=endpoint.as_data(),
            sampling_args=dict(sampling_args),
            state_columns=list(state_columns),
            seeds=None if seeds is None else list(seeds),
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
            endpoint=endpoint.as_data(),
            sampling_args=dict(sampling_args),
            state_columns=list(state_columns),
        )
        output: dict[str, Any] = await self._bounded(request, timeout_s)
        return output

    async def close(self) -> None:
        """End all workers; what they were doing fails."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in self._workers))

    async def _bounded(self, request: Any, timeout_s: float | None) -> Any:
        try:
            # Not wait_for: it would start the request a moment later, and until then its worker would look idle.
            async with asyncio.timeout(timeout_s):
                return await request
        except TimeoutError:
            raise EnvironmentFailed(f"a rollout of {self._spec.id} took longer than {timeout_s:.0f} s") from None

    def _least_busy(self) -> _Worker:
        return min(self._workers, key=lambda worker: (worker.given_up, not worker.ready, worker.busy))


class _Worker:
    """One process after another in the same place: a dead one is replaced at once.

    The replacement starts in a task of its own: requests come and are cancelled while it loads, and none of them may
    take it along.
    """

    def __init__(
        self,
        python: Path,
        log_path: Path,
        spec: EnvironmentSpec,
        search_path: Sequence[Path],
        refused: Callable[[float], None] | None,
        build_sets: bool,
    ) -> None:
        self._refused = refused
        self._build_sets = build_sets
        self._python = python
        self._log_path = log_path
        self._spec = spec
        self._search_path = search_path
        self._connection: WorkerConnection | None = None
        self._deaths = 0
        self._num_coming = 0
        self._replacing: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return self._replacing is None and self._connection is not None and not self._connection.ended

    @property
    def busy(self) -> int:
        return self._num_coming + (self._connection.num_waiting if self._connection is not None else 0)

    @property
    def given_up(self) -> bool:
        return self._deaths >= _MAX_DEATHS_IN_A_ROW

    @property
    def pid(self) -> int | None:
        return self._connection.pid if self._connection is not None and not self._connection.ended else None

    def log_hint(self) -> str:
        return self._connection.log_hint() if self._connection is not None else f"its log is {self._log_path}"

    async def start(self) -> dict[str, Any]:
        """Open a process and load the environment in it; one that does not load is closed again."""
        connection = await WorkerConnection.open(
            self._spec.id, self._python, self._log_path, self._search_path, self._spec.variables, self._hear
        )
        self._connection = connection
        try:
            info: dict[str, Any] = await connection.send(
                "load",
                env=self._spec.id,
                args=self._spec.args,
                limits=dict(self._spec.limits),
                attributes=dict(self._spec.attributes),
                build_sets=self._build_sets,
            )
        except EnvironmentWorkerDied:
            self._deaths += 1
            raise
        except BaseException:
            await connection.close()
            raise
        return info

    def _hear(self, event: Mapping[str, Any]) -> None:
        if self._refused is not None and "refused" in event:
            self._refused(float(event["delay_s"]))

    async def request(self, op: str, **body: Any) -> Any:
        self._num_coming += 1
        try:
            connection = await self._live_connection()
        finally:
            self._num_coming -= 1
        try:
            result = await connection.send(op, **body)
        except EnvironmentWorkerDied:
            # All that it was working on fails at once, and that is one death.
            if self._connection is connection:
                self._connection = None
                self._deaths += 1
                self._replace()
            raise
        self._deaths = 0
        return result

    async def watch(self, timeout_s: float) -> None:
        """See for ever that the worker answers; only one that has loaded its environment is asked."""
        while True:
            await asyncio.sleep(min(timeout_s / 3, _PING_INTERVAL_S))
            connection = self._connection
            if self._replacing is None and connection is not None:
                if not connection.ended:
                    await connection.check(timeout_s)
                if connection.ended:
                    self._replace()

    async def close(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.gather(self._replacing, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _live_connection(self) -> WorkerConnection:
        while not self.ready:
            await asyncio.shield(self._replace())
        assert self._connection is not None, "it is ready"
        return self._connection

    def _replace(self) -> asyncio.Task[None]:
        """Return the task that starts another process, which ends when it is ready."""
        if self._replacing is None:
            self._replacing = asyncio.ensure_future(self._start_another())
            self._replacing.add_done_callback(self._replaced)
        return self._replacing

    def _replaced(self, task: asyncio.Task[None]) -> None:
        self._replacing = None
        if not task.cancelled():
            task.exception()  # whoever waited has heard of it; if nobody did, the next request tries again

    async def _start_another(self) -> None:
        if self.given_up:
            raise EnvironmentWorkerDied(
                f"the worker of {self._spec.id} died {self._deaths} times in a row", hint=f"its log is {self._log_path}"
            )
        try:
            async with asyncio.timeout(_RESTART_TIMEOUT_S):
                await self.start()
        except TimeoutError:
            self._deaths += 1
            raise EnvironmentWorkerDied(
                f"a new worker of {self._spec.id} did not load within {_RESTART_TIMEOUT_S:.0f} s",
                hint=f"its log is {self._log_path}",
            ) from None
