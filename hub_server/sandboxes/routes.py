"""Routes of sandboxes: the platform API of the published clients. What runs inside is asked of the node's gateway."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from hub_server.access import Caller, PathSandbox
from hub_server.errors import Refusal
from hub_server.sandbox_node.wire import EgressFacts, Job, Jobs
from hub_server.sandboxes import answers, ports, service
from hub_server.sandboxes.bodies import BulkDelete, Egress, JobBatch, NewExposure, NewSandbox, StatusBatch
from hub_server.sandboxes.tables import Sandbox, SandboxStatus
from hub_server.services import HubServices

router = APIRouter(prefix="/api/v1/sandbox", tags=["sandboxes"])


@router.post("", response_model=dict[str, Any])
async def create_sandbox(body: NewSandbox, user: Caller, request: Request, services: HubServices) -> Response:
    """Make a sandbox. The answer holds what its gateway asks for, so that a client may go there at once."""
    sandbox, reach = await services.fleet.create(user, body)
    facts = answers.sandbox_facts(sandbox)
    if reach is not None:
        facts["gatewayAuth"] = answers.gateway_auth(sandbox, reach, request.url.hostname)
    return JSONResponse(facts)  # what was just made need not be looked through again


@router.get("")
def list_sandboxes(
    user: Caller,
    services: HubServices,
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
    per_page: Annotated[int, Query(ge=1, le=1000)] = 50,
    team_id: Annotated[str | None, Query(max_length=100)] = None,
    user_id: Annotated[str | None, Query(max_length=100)] = None,
    status: Annotated[str | None, Query(max_length=20)] = None,
    labels: Annotated[list[str] | None, Query(max_length=100)] = None,
    is_active: bool = False,
) -> dict[str, Any]:
    """List the caller's sandboxes, or those of a team, newest first; with several labels those that have them all."""
    listing = service.Listing(
        team_id=team_id, user_id=user_id, status=status, labels=labels or (), active_only=is_active,
        limit=per_page, skip=(page - 1) * per_page,
    )  # fmt: skip
    with services.database.read() as session:
        found, total = service.list_sandboxes(session, user, listing)
        rows = [answers.sandbox_facts(sandbox) for sandbox in found]
    return {"sandboxes": rows, "total": total, "page": page, "perPage": per_page, "hasNext": page * per_page < total}


@router.delete("")
async def delete_sandboxes(body: BulkDelete, user: Caller, services: HubServices) -> dict[str, Any]:
    """End sandboxes, by their ids or by labels."""

    def find() -> tuple[list[Sandbox], dict[str, str]]:
        with services.database.read() as session:
            return service.to_delete(session, user, body)

    found, refused = await run_in_threadpool(find)
    await services.fleet.delete(found)
    failed = [{"sandbox_id": sandbox_id, "error": words} for sandbox_id, words in refused.items()]
    words = f"{len(found)} deleted" + (f", {len(failed)} failed" if failed else "")
    return {"succeeded": [sandbox.id for sandbox in found], "failed": failed, "message": words}


@router.post("/status:batchGet")
def sandbox_statuses(body: StatusBatch, user: Caller, services: HubServices) -> dict[str, Any]:
    """Say how many sandboxes stand at once."""
    with services.database.read() as session:
        found = service.find_sandboxes(session, user, body.sandbox_ids)
    asked = list(dict.fromkeys(body.sandbox_ids))
    return {
        "statuses": [answers.status_facts(found[each]) for each in asked if each in found],
        "errors": [
            {"sandbox_id": each, "code": "NOT_FOUND", "message": "not found on this hub"}
            for each in asked
            if each not in found
        ],
    }


@router.post("/background-jobs/status:batchGet")
async def background_job_statuses(body: JobBatch, user: Caller, services: HubServices) -> dict[str, Any]:
    """Say how background jobs stand, also of several sandboxes at once. Clients ask so for VMs only."""

    def find() -> dict[str, Sandbox]:
        with services.database.read() as session:
            return service.find_sandboxes(session, user, [job.sandbox_id for job in body.jobs])

    found = await run_in_threadpool(find)
    statuses: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    by_node: dict[str, list[Job]] = {}
    for job in dict.fromkeys((job.sandbox_id, job.job_id) for job in body.jobs):
        sandbox = found.get(job[0])
        problem = _why_no_job(sandbox)
        if sandbox is None or problem is not None:
            errors.append(_job_error(*job, *(problem or ("NOT_FOUND", "not found on this hub"))))
        else:
            by_node.setdefault(sandbox.node_id, []).append(Job(sandbox_id=job[0], job_id=job[1]))
    for node_id, jobs in by_node.items():
        reach = await run_in_threadpool(services.fleet.reach_of_node, node_id)
        try:
            answered = (await services.fleet.client.jobs(reach, Jobs(jobs=jobs))).jobs if reach is not None else []
        except Refusal as refusal:
            errors += [_job_error(job.sandbox_id, job.job_id, "RUNTIME_ERROR", refusal.detail) for job in jobs]
            continue
        for status in answered:
            where = {"sandbox_id": status.sandbox_id, "job_id": status.job_id}
            if status.error is not None:
                errors.append(_job_error(status.sandbox_id, status.job_id, status.error, status.message or ""))
            else:
                statuses.append({**where, "completed": status.completed, "exit_code": status.exit_code})
        told = {(status.sandbox_id, status.job_id) for status in answered}
        errors += [
            _job_error(job.sandbox_id, job.job_id, "RUNTIME_ERROR", "its node says nothing about it")
            for job in jobs
            if (job.sandbox_id, job.job_id) not in told
        ]
    return {"statuses": statuses, "errors": errors}


@router.get("/expose/all")
def list_all_exposures(user: Caller, request: Request, services: HubServices) -> dict[str, Any]:
    """List the exposed ports of all the caller's sandboxes that run."""
    with services.database.read() as session:
        found, _ = service.list_sandboxes(session, user, service.Listing(active_only=True, limit=10_000))
    return {"exposures": answers.shown_exposures(found, request.url.hostname)}


@router.get("/{sandbox_id}")
def sandbox_details(sandbox: PathSandbox) -> dict[str, Any]:
    """Say all there is to say of a sandbox, also after its end."""
    return answers.sandbox_facts(sandbox)


@router.delete("/{sandbox_id}")
async def delete_sandbox(sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """End a sandbox; again changes nothing."""
    await services.fleet.delete([sandbox])
    return {"success": True, "sandbox_id": sandbox.id}


@router.get("/{sandbox_id}/logs")
async def sandbox_logs(sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """Return the last of what the start command wrote; nothing once the node has forgotten the sandbox."""
    reach = await run_in_threadpool(services.fleet.reach_of_node, sandbox.node_id)
    try:
        return {"logs": await services.fleet.client.logs(reach, sandbox.id) if reach is not None else ""}
    except Refusal:
        if sandbox.is_active:
            raise
        return {"logs": ""}


@router.get("/{sandbox_id}/error-context")
async def sandbox_error_context(sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """Say why a sandbox does not do what was asked: clients want to know after each failure, so its node is asked."""
    return answers.error_context(await services.fleet.refresh(sandbox))


@router.post("/{sandbox_id}/auth")
async def sandbox_auth(sandbox: PathSandbox, request: Request, services: HubServices) -> dict[str, Any]:
    """Return where the sandbox is talked to, and a token. For one that ended too: the gateway says so better."""
    reach = await services.fleet.reach_or_refuse(sandbox)
    return answers.gateway_auth(sandbox, reach, request.url.hostname)


@router.get("/{sandbox_id}/egress-policy")
async def egress_policy(sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """Say whom a sandbox may reach, and whether its node holds to it already."""
    known: EgressFacts | None = None
    if sandbox.is_active:
        reach = await services.fleet.reach_or_refuse(sandbox)
        known = await services.fleet.client.egress(reach, sandbox.id)
    return answers.egress_facts(sandbox, known)


@router.put("/{sandbox_id}/egress-policy")
async def set_egress_policy(body: Egress, sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """Change whom a running sandbox may reach; what is open to others is closed."""
    reach = await ports.reach_of_running(services.fleet, sandbox)
    known = await services.fleet.client.set_egress(reach, sandbox.id, body.canonical())
    await run_in_threadpool(ports.keep_egress, services.fleet, sandbox.id, known)
    return answers.egress_facts(sandbox, known)


@router.post("/{sandbox_id}/expose")
async def expose_port(
    body: NewExposure, sandbox: PathSandbox, request: Request, services: HubServices
) -> dict[str, Any]:
    """Let a port inside be reached by URL, by whoever knows the URL."""
    exposed = await ports.expose(services.fleet, sandbox, body)
    return answers.shown_exposures([exposed], request.url.hostname)[-1]


@router.get("/{sandbox_id}/expose")
def list_exposures(sandbox: PathSandbox, request: Request) -> dict[str, Any]:
    """List the exposed ports of a sandbox."""
    return {"exposures": answers.shown_exposures([sandbox], request.url.hostname)}


@router.delete("/{sandbox_id}/expose/{exposure_id}")
async def unexpose_port(exposure_id: str, sandbox: PathSandbox, services: HubServices) -> dict[str, Any]:
    """Close an exposed port."""
    await ports.unexpose(services.fleet, sandbox, exposure_id)
    return {"success": True}


def _why_no_job(sandbox: Sandbox | None) -> tuple[str, str] | None:
    """Return the code and the words for a sandbox that can have no job now."""
    if sandbox is None:
        return "NOT_FOUND", "not found on this hub"
    if sandbox.status != SandboxStatus.RUNNING:
        return "NOT_RUNNING", f"the sandbox is {sandbox.status}"
    return None


def _job_error(sandbox_id: str, job_id: str, code: str, message: str) -> dict[str, Any]:
    return {"sandbox_id": sandbox_id, "job_id": job_id, "code": code, "message": message}
