"""One program on many inputs, as rewards by test cases need it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command, Finished


@dataclass(frozen=True)
class Batch:
    """One program to run on many inputs, each in a process of its own.

    Either `argv` is run, or `code` by the Python of the image. `timeout_s` and `memory_bytes` are for each run. With
    `stop_at_first_failure` no run is started after one that did not exit with 0; those are left out of the answer.
    """

    inputs: Sequence[bytes]
    argv: Sequence[str] | None = None
    code: str | None = None
    timeout_s: float = 10.0
    memory_bytes: int | None = None
    most_output: int = MEBIBYTE
    stop_at_first_failure: bool = False
    at_once: int = 2
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


async def run_batch(sandbox: Sandbox, batch: Batch) -> list[Finished]:
    """Run a batch, `at_once` of its inputs side by side; the answers are in the order of the inputs.

    Raises:
        NotPossible: `code` was given and the image has no Python.
    """
    results: dict[int, Finished] = {}
    left = iter(enumerate(batch.inputs))
    failed = False

    async def work() -> None:
        nonlocal failed
        for number, given in left:
            results[number] = await _run_one(sandbox, batch, given)
            failed = failed or results[number].exit_code != 0
            if failed and batch.stop_at_first_failure:
                return

    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(max(1, batch.at_once)):
                workers.create_task(work())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [results[number] for number in sorted(results)]


async def _run_one(sandbox: Sandbox, batch: Batch, given: bytes) -> Finished:
    if batch.code is not None:
        return await sandbox.run_python(
            batch.code,
            stdin=given,
            timeout_s=batch.timeout_s,
            env=batch.env,
            cwd=batch.cwd,
            memory_bytes=batch.memory_bytes,
            most_output=batch.most_output,
        )
    assert batch.argv is not None
    command = Command(batch.argv, cwd=batch.cwd, env=batch.env, timeout_s=batch.timeout_s)
    return await sandbox.run(command, stdin=given, memory_bytes=batch.memory_bytes, most_output=batch.most_output)
