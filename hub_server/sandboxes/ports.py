"""Ways in and out of a running sandbox: exposed ports, and whom it may reach."""

from __future__ import annotations

import contextlib

from fastapi.concurrency import run_in_threadpool

from hub_server.database import now
from hub_server.errors import Conflict, Malformed, NotFound
from hub_server.sandbox_node.wire import EgressFacts, ExposePort
from hub_server.sandboxes import answers
from hub_server.sandboxes.bodies import NewExposure
from hub_server.sandboxes.fleet import Fleet
from hub_server.sandboxes.nodes import Reach
from hub_server.sandboxes.tables import Sandbox, SandboxStatus


async def reach_of_running(fleet: Fleet, sandbox: Sandbox) -> Reach:
    """Return how to talk to the node of a sandbox that runs.

    Raises:
        Conflict: it does not.
    """
    if sandbox.status != SandboxStatus.RUNNING:
        raise Conflict(f"sandbox {sandbox.id} is not running: it is {sandbox.status}")
    return await fleet.reach_or_refuse(sandbox)


def keep_egress(fleet: Fleet, sandbox_id: str, known: EgressFacts) -> Sandbox:
    """Write down whom a sandbox may reach."""
    with fleet.database.write() as session:
        row = session.get_one(Sandbox, sandbox_id)
        row.allowlist, row.denylist = known.policy.allowlist, known.policy.denylist
        row.egress_generation, row.updated_at = known.generation, now()
        return row


async def expose(fleet: Fleet, sandbox: Sandbox, wanted: NewExposure) -> Sandbox:
    """Expose a port, and return the sandbox with it as the last of its exposures.

    Raises:
        Malformed: it is to carry something else than HTTP.
        Conflict: the sandbox does not run.
    """
    if wanted.protocol.upper() != "HTTP":
        raise Malformed("ports of this server's sandboxes can be exposed by HTTP only")
    reach = await reach_of_running(fleet, sandbox)
    exposure = await fleet.client.expose(reach, sandbox.id, ExposePort(port=wanted.port, name=wanted.name))
    facts = answers.exposure_facts(exposure)

    def keep() -> Sandbox:
        with fleet.database.write() as session:
            row = session.get_one(Sandbox, sandbox.id)
            others = [each for each in row.exposures if each["exposure_id"] != exposure.exposure_id]
            row.exposures = [*others, facts]
            session.flush()
            return row

    return await run_in_threadpool(keep)


async def unexpose(fleet: Fleet, sandbox: Sandbox, exposure_id: str) -> None:
    """Close an exposed port.

    Raises:
        NotFound: the sandbox has none of this id.
    """
    if exposure_id not in {each["exposure_id"] for each in sandbox.exposures} or not sandbox.is_active:
        raise NotFound(f"exposed port {exposure_id} of sandbox {sandbox.id} not found")
    reach = await fleet.reach_or_refuse(sandbox)
    with contextlib.suppress(NotFound):  # its node was started anew; here it is forgotten too
        await fleet.client.unexpose(reach, sandbox.id, exposure_id)

    def forget() -> None:
        with fleet.database.write() as session:
            row = session.get_one(Sandbox, sandbox.id)
            row.exposures = [each for each in row.exposures if each["exposure_id"] != exposure_id]

    await run_in_threadpool(forget)
