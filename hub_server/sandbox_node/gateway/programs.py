"""Programs that are sent along: one snippet of Python on the fast path, or one program on many inputs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from hub_server.sandbox_node import batches
from hub_server.sandbox_node.gateway.answers import OutputAnswer
from hub_server.sandbox_node.gateway.bodies import GRACE_S, read_json, while_connected
from hub_server.sandbox_node.gateway.commands import LONGEST_S, MOST_OUTPUT_BYTES
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Finished

MOST_INPUTS = 4096
# Of each stream of one run; with many inputs less of each, since the outputs of all are held until the last has run.
MOST_RUN_OUTPUT_BYTES = MEBIBYTE
MOST_BATCH_OUTPUT_BYTES = 16 * MEBIBYTE  # of each stream, all runs together


class Snippet(BaseModel):
    """A piece of Python, run by an interpreter that has started already."""

    code: str
    stdin: str = ""
    timeout_s: float = Field(default=300, gt=0, le=LONGEST_S)
    env: dict[str, str] = {}
    cwd: str | None = None
    memory_bytes: int | None = Field(default=None, gt=0)


class Program(BaseModel):
    """What a batch runs: a command, or Python code."""

    argv: list[str] | None = Field(default=None, min_length=1)
    code: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Program:
        if (self.argv is None) == (self.code is None):
            raise ValueError("either argv or code is needed")
        return self


class ManyInputs(BaseModel):
    """One program and what it is to read, once for each input; `timeout_s` and `memory_bytes` are for each run."""

    program: Program
    inputs: list[str] = Field(max_length=MOST_INPUTS)
    files: dict[str, str] = {}  # written before, path to text
    timeout_s: float = Field(default=10, gt=0, le=LONGEST_S)
    memory_bytes: int | None = Field(default=None, gt=0)
    stop_at_first_failure: bool = False
    env: dict[str, str] = {}
    cwd: str | None = None


async def run_code(sandbox: Sandbox, request: Request) -> Response:
    """Run a snippet to its end and answer with all about it, also when it ran too long."""
    asked = await read_json(request, Snippet)
    running = sandbox.run_python(
        asked.code,
        stdin=asked.stdin.encode(errors="surrogatepass"),
        timeout_s=asked.timeout_s,
        env=asked.env,
        cwd=asked.cwd,
        memory_bytes=asked.memory_bytes,
        most_output=MOST_OUTPUT_BYTES,
    )
    return OutputAnswer(_facts(await while_connected(request, running, asked.timeout_s + GRACE_S)))


async def run_batch(sandbox: Sandbox, request: Request) -> Response:
    """Run a program on each input, and answer in their order; after a failure that stops it, with fewer."""
    asked = await read_json(request, ManyInputs)
    most_bytes = sandbox.enforcement.limits.file_bytes
    for path, text in asked.files.items():
        await sandbox.write_file(path, _whole(text.encode(errors="surrogatepass")), most_bytes=most_bytes)
    batch = batches.Batch(
        inputs=[given.encode(errors="surrogatepass") for given in asked.inputs],
        argv=asked.program.argv,
        code=asked.program.code,
        timeout_s=asked.timeout_s,
        memory_bytes=asked.memory_bytes,
        most_output=min(MOST_RUN_OUTPUT_BYTES, MOST_BATCH_OUTPUT_BYTES // max(1, len(asked.inputs))),
        stop_at_first_failure=asked.stop_at_first_failure,
        at_once=max(1, round(sandbox.enforcement.limits.cpu_cores)),
        cwd=asked.cwd,
        env=asked.env,
    )
    most_s = asked.timeout_s * len(asked.inputs) / batch.at_once + GRACE_S
    finished = await while_connected(request, batches.run_batch(sandbox, batch), most_s)
    return OutputAnswer({"results": [_facts(one) for one in finished]})


def _facts(finished: Finished) -> dict[str, Any]:
    ended = finished.ended
    return {
        "stdout": finished.stdout,
        "stderr": finished.stderr,
        "exit_code": ended.exit_code,
        "timed_out": ended.timed_out,
        "oom_killed": ended.oom_killed,
        "cut": ended.cut,
        "cpu_s": ended.cpu_s,
        "wall_s": ended.wall_s,
        "peak_memory_bytes": ended.peak_memory_bytes,
    }


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
