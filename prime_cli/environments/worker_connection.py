"""One worker process seen from outside: requests in, answers out, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.core.processes import RUN_PREFIX, describe_exit, tail

_WORKER = Path(__file__).with_name("worker.py")
_CLOSE_GRACE_S = 5.0
_SECOND_LOOK_S = 2.0
_LINE_LIMIT = 1 << 30
_VARIABLES = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "",  # the worker finds its own modules beside itself
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


Hear = Callable[[Mapping[str, Any]], None]


class EnvironmentFailed(PrimeError):
    """The environment could not be loaded, or its code raised; carries its own shortened traceback.

    `raised` names the type of the exception.
    """

    def __init__(self, message: str, hint: str | None = None, raised: str | None = None) -> None:
        super().__init__(message, hint)
        self.raised = raised


class EnvironmentWorkerDied(PrimeError):
    """The process in which the environment ran ended under it."""


class WorkerConnection:
    """A running worker. It is never started again: when it ends, whoever waits is told and a new one is opened.

    Args:
        label: the environment's name, for messages.
        process: the worker, with pipes on both ends.
        log_path: where its stderr goes.
        python: the interpreter that it runs on.
        hear: is told what the worker says without being asked.
    """

    def __init__(
        self, label: str, process: asyncio.subprocess.Process, log_path: Path, python: Path, hear: Hear | None = None
    ) -> None:
        assert process.stdin is not None, "the worker is started with a pipe"
        assert process.stdout is not None, "the worker is started with a pipe"
        self._label = label
        self._process = process
        self._requests = process.stdin
        self._log_path = log_path
        self._python = python
        self._hear = hear
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._ended = False
        self._killed: str | None = None
        self._reading = asyncio.ensure_future(self._read(process.stdout))

    @classmethod
    async def open(
        cls,
        label: str,
        python: Path,
        log_path: Path,
        search_path: Sequence[Path],
        variables: Mapping[str, str],
        hear: Hear | None = None,
    ) -> WorkerConnection:
        """Start a worker; it gets `variables` beside this process's own, without those that hold secrets of the run.

        Raises:
            EnvironmentFailed: the interpreter cannot be started.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # What an environment prints or stores of its variables must not hold the token of the inference server.
        own = {name: value for name, value in os.environ.items() if not name.startswith(RUN_PREFIX)}
        environment = {**own, **variables, **_VARIABLES}
        with log_path.open("ab") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    str(python), str(_WORKER), *(str(path) for path in search_path),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=environment, limit=_LINE_LIMIT,
                )  # fmt: skip
            except OSError as error:
                raise EnvironmentFailed(
                    f"the interpreter {python} cannot be started: {error.strerror}",
                    hint="the workspace's interpreter is $VIRTUAL_ENV's, .venv's, or the one that runs prime",
                ) from None
        return cls(label, process, log_path, python, hear)

    @property
    def ended(self) -> bool:
        """Whether the process is gone, for whatever reason."""
        return self._ended

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def num_waiting(self) -> int:
        """How many requests it is working on."""
        return len(self._waiting)

    async def send(self, op: str, **body: Any) -> Any:
        """Send a request and return its result; when the caller is cancelled, so is the work.

        Raises:
            EnvironmentFailed: the environment's code raised.
            EnvironmentWorkerDied: the process ended, or had ended before.
        """
        if self._ended:
            raise self._death()
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._write({"id": number, "op": op, **body})
            return await future
        except asyncio.CancelledError:
            self._write({"id": 0, "op": "cancel", "target": number})
            raise
        finally:
            self._waiting.pop(number, None)

    async def check(self, timeout_s: float) -> None:
        """See that the worker answers; one that does not within `timeout_s` is killed, and all that it does fails."""
        ping = asyncio.ensure_future(self.send("ping"))
        try:
            # The second wait is for the case that it was this process that stood still, and the answer lies there.
            for seconds in (timeout_s, _SECOND_LOOK_S):
                await asyncio.wait({ping}, timeout=seconds)
                if ping.done():
                    return
            self._killed = f"did not answer for {timeout_s:.0f} s, stopped or stuck in its event loop, and was killed"
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._reading
        finally:
            ping.cancel()
            await asyncio.gather(ping, return_exceptions=True)

    async def close(self) -> None:
        """End the worker, by force when it does not do so itself within a few seconds."""
        self._write({"id": 0, "op": "shutdown"})
        try:
            await asyncio.wait_for(asyncio.shield(self._reading), _CLOSE_GRACE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._reading
        self._requests.close()

    def log_hint(self) -> str:
        """Say where the worker's log is, with its last lines."""
        return "\n".join([f"its log is {self._log_path}", *(f"  {line}" for line in tail(self._log_path, 5))])

    def _write(self, message: Mapping[str, Any]) -> None:
        if not self._ended and not self._requests.is_closing():
            self._requests.write((json.dumps(message) + "\n").encode())

    async def _read(self, answers: asyncio.StreamReader) -> None:
        while line := await answers.readline():
            answer = json.loads(line)
            if "event" in answer:
                if self._hear is not None:
                    self._hear(answer["event"])
                continue
            future = self._waiting.get(answer["id"])
            if future is None or future.done():
                continue
            if "error" in answer:
                future.set_exception(self._failure(answer["error"]))
            else:
                future.set_result(answer["result"])
        await self._process.wait()
        self._ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._death())

    def _death(self) -> EnvironmentWorkerDied:
        if self._killed is not None:
            return EnvironmentWorkerDied(f"the worker of {self._label} {self._killed}", hint=self.log_hint())
        code = self._process.returncode
        how = "no exit status" if code is None else describe_exit(code)
        return EnvironmentWorkerDied(f"the worker of {self._label} died ({how})", hint=self.log_hint())

    def _failure(self, error: Mapping[str, str]) -> EnvironmentFailed:
        if error["type"] == "Refused":
            return EnvironmentFailed(error["message"], hint=_missing_hint(error["message"], self._label))
        if error["type"] == "ModuleNotFoundError" and "'verifiers'" in error["message"]:
            return EnvironmentFailed(
                f"the workspace's interpreter {self._python} has no verifiers",
                hint="install it there with `pip install verifiers`, or point VIRTUAL_ENV at one that has it",
            )
        where = "\n".join(f"  {line}" for line in error["traceback"].splitlines())
        return EnvironmentFailed(
            f"the environment {self._label} failed: {error['message']}\n{where}", raised=error["type"]
        )


def _missing_hint(message: str, name: str) -> str | None:
    if "is installed here" in message:
        return f"install it with `prime env install OWNER/{name}`, or write it with `prime env init {name}`"
    return None
