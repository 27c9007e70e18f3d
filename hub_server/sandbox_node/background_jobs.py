"""How background jobs of the published SDK stand, from the files that it lets them write inside.

A job is a shell that the SDK starts with nohup: it writes its process id to `job_ID.launch/pid`, and when its command
has ended, the exit code to `job_ID.exit`. That file counts once it has content; a full disk can leave it empty.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from hub_server.sandbox_node.errors import FileRefused, Gone, SandboxError
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandbox_node.wire import Job, JobStatus

_JOB_ID = re.compile(r"[0-9A-Fa-f]{8}")
_AT_ONCE = 16
_MOST_READ = 4096


async def job_statuses(get: Callable[[str], Sandbox], jobs: Sequence[Job]) -> list[JobStatus]:
    """Return how jobs stand, in their order; `get` is `Node.get`."""
    permits = asyncio.Semaphore(_AT_ONCE)

    async def one(job: Job) -> JobStatus:
        async with permits:
            return await _job_status(get, job)

    return list(await asyncio.gather(*map(one, jobs)))


async def _job_status(get: Callable[[str], Sandbox], job: Job) -> JobStatus:
    status = JobStatus(sandbox_id=job.sandbox_id, job_id=job.job_id)

    def failed(error: str, message: str) -> JobStatus:
        return status.model_copy(update={"error": error, "message": message})

    if not _JOB_ID.fullmatch(job.job_id):
        return failed("NOT_FOUND", f"{job.job_id!r} is not the id of a job")
    try:
        sandbox = get(job.sandbox_id)
        exit_code = await _exit_code(sandbox, job.job_id)
        if exit_code is None and not await _is_alive(sandbox, job.job_id):
            # It writes its code just before it ends, so a job that has ended since may have left one by now.
            exit_code = await _exit_code(sandbox, job.job_id)
            if exit_code is None:
                message = "the job is not there, or ended without recording an exit code"
                return failed("RUNTIME_ERROR", message)
    except KeyError:
        return failed("NOT_FOUND", "there is no such sandbox on this node")
    except Gone as gone:
        return failed("NOT_RUNNING", gone.detail)
    except SandboxError as error:
        return failed("RUNTIME_ERROR", error.detail)
    return status.model_copy(update={"completed": exit_code is not None, "exit_code": exit_code})


async def _exit_code(sandbox: Sandbox, job_id: str) -> int | None:
    text = await _read(sandbox, f"/tmp/job_{job_id}.exit")  # noqa: S108 - where the SDK writes, inside
    if not text:
        return None
    try:
        return int(text.split()[0])
    except ValueError:
        raise SandboxError("the job's exit file holds no exit code") from None


async def _is_alive(sandbox: Sandbox, job_id: str) -> bool:
    """Tell whether the process of a job runs: its command line names its exit file, and a later one's does not."""
    pid = await _read(sandbox, f"/tmp/job_{job_id}.launch/pid")  # noqa: S108 - as above
    if not pid.isdecimal():
        return False
    return f"/tmp/job_{job_id}.exit" in await _read(sandbox, f"/proc/{pid}/cmdline")  # noqa: S108 - as above


async def _read(sandbox: Sandbox, path: str) -> str:
    try:
        data = b"".join([piece async for piece in sandbox.read_file(path, 0, _MOST_READ)])
    except FileRefused as refused:
        if refused.reason in ("not_found", "not_a_file"):
            return ""
        raise
    return data.decode(errors="replace").strip()
