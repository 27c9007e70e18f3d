"""Commands over plain HTTP: run to their end and answered in one piece, as earlier clients ask for them."""

from __future__ import annotations

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from hub_server.sandbox_node.gateway.answers import OutputAnswer
from hub_server.sandbox_node.gateway.bodies import GRACE_S, read_json, while_connected
from hub_server.sandbox_node.gateway.refusals import BadRequest
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.specification import MEBIBYTE, Command

MOST_OUTPUT_BYTES = 10 * MEBIBYTE  # of each stream
LONGEST_S = 24 * 3600.0


class ExecRequest(BaseModel):
    """A command for the shell of the sandbox."""

    command: str
    working_dir: str | None = None
    env: dict[str, str] = {}
    timeout: float = Field(default=300, gt=0, le=LONGEST_S)
    user: str | None = None


async def execute(sandbox: Sandbox, request: Request) -> Response:
    """Run a command to its end. One that runs too long is killed with all that it started, and answered by 408."""
    asked = await read_json(request, ExecRequest)
    command = Command(
        argv=["/bin/bash", "-c", asked.command],
        cwd=asked.working_dir,
        env=asked.env,
        user=asked.user,
        timeout_s=asked.timeout,
    )
    running = sandbox.run(command, most_output=MOST_OUTPUT_BYTES)
    finished = await while_connected(request, running, asked.timeout + GRACE_S)
    if finished.ended.timed_out:
        raise BadRequest(f"the command ran longer than {asked.timeout:g} s, and was killed", 408)
    stderr = finished.stderr
    if finished.ended.cut:
        stderr += f"\nthe command was killed, since at most {MOST_OUTPUT_BYTES // MEBIBYTE} MiB are kept\n".encode()
    return OutputAnswer(
        {
            "stdout": finished.stdout,
            "stderr": stderr,
            "exit_code": finished.exit_code,
            "cut": finished.ended.cut,
            "oom_killed": finished.ended.oom_killed,
        }
    )
