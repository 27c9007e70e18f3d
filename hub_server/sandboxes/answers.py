"""Sandboxes as clients read them: camelCase for what is a sandbox, snake_case for the rest, as published."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hub_server.sandbox_node.wire import EgressFacts, EgressPolicy, Exposure
from hub_server.sandboxes.node_client import reachable
from hub_server.sandboxes.nodes import Reach
from hub_server.sandboxes.tables import Sandbox, SandboxNode
from hub_server.sandboxes.tokens import make_token

USER_NAMESPACE = "sandboxes"
_HIDDEN = "********"


def sandbox_facts(sandbox: Sandbox) -> dict[str, Any]:
    """Return all there is to say of a sandbox, but a start command that is one text: newer clients break on it."""
    command = sandbox.start_command
    return {
        "id": sandbox.id,
        "name": sandbox.name,
        "dockerImage": sandbox.image,
        "startCommand": command if isinstance(command, dict) else None,
        "cpuCores": sandbox.cpu_cores,
        "memoryGB": sandbox.memory_gb,
        "diskSizeGB": sandbox.disk_size_gb,
        "diskMountPath": "/",
        "gpuCount": 0,
        "gpuType": None,
        "vm": sandbox.is_vm,
        "networkAllowlist": sandbox.allowlist,
        "networkDenylist": sandbox.denylist,
        "status": sandbox.status,
        "timeoutMinutes": sandbox.timeout_minutes,
        "idleTimeoutMinutes": sandbox.idle_timeout_minutes,
        "terminationReason": sandbox.termination_reason,
        "environmentVars": sandbox.environment_vars,
        "secrets": dict.fromkeys(sandbox.secret_names, _HIDDEN) or None,
        "advancedConfigs": sandbox.advanced_configs,
        "labels": [each.label for each in sandbox.labels],
        "createdAt": sandbox.created_at.isoformat(),
        "updatedAt": sandbox.updated_at.isoformat(),
        "startedAt": _moment(sandbox.started_at),
        "terminatedAt": _moment(sandbox.terminated_at),
        "exitCode": sandbox.exit_code,
        "errorType": sandbox.error_type,
        "errorMessage": sandbox.error_message,
        "userId": sandbox.user_id,
        "teamId": sandbox.team_id,
        "region": None,
        "registryCredentialsId": None,
        "pendingImageBuildId": None,
        "nodeId": sandbox.node_id,
        "enforcement": sandbox.enforcement,
    }


def gateway_auth(sandbox: Sandbox, reach: Reach, host: str | None) -> dict[str, Any]:
    """Return where a sandbox is talked to and a token that opens it, for a client that reached the hub as `host`."""
    token = make_token(bytes.fromhex(reach.secret), sandbox.id)
    return {
        "gateway_url": reachable(reach.url, host),
        "user_ns": USER_NAMESPACE,
        "job_id": sandbox.id,
        "token": token.text,
        "expires_at": datetime.fromtimestamp(token.expires_at, UTC).isoformat(),
        "is_vm": sandbox.is_vm,
        "sandbox_id": sandbox.id,
    }


def error_context(sandbox: Sandbox) -> dict[str, Any]:
    """Return why a sandbox does not run, in both spellings that clients read."""
    message = sandbox.error_message or sandbox.termination_reason
    return {
        "status": sandbox.status,
        "errorType": sandbox.error_type,
        "error_type": sandbox.error_type,
        "errorMessage": message,
        "error_message": message,
    }


def status_facts(sandbox: Sandbox) -> dict[str, Any]:
    """Return how a sandbox stands, as a batch of statuses has it."""
    return {
        "sandbox_id": sandbox.id,
        "status": sandbox.status,
        "error_type": sandbox.error_type,
        "error_message": sandbox.error_message,
        "pending_image_build_id": None,
    }


def egress_facts(sandbox: Sandbox, known: EgressFacts | None) -> dict[str, Any]:
    """Return whom a sandbox may reach: as its node says, or, where it has none any more, as was last asked for."""
    if known is None:
        policy = EgressPolicy(allowlist=sandbox.allowlist, denylist=sandbox.denylist)
        known = EgressFacts(policy=policy, generation=sandbox.egress_generation, applied_generation=0)
    return {
        "policy": {"allowlist": known.policy.allowlist, "denylist": known.policy.denylist},
        "generation": known.generation,
        "applied_generation": known.applied_generation,
        "applied": known.applied_generation >= known.generation,
    }


def exposure_facts(exposure: Exposure) -> dict[str, Any]:
    """Return an exposed port as it is kept in the row of its sandbox."""
    return {
        "exposure_id": exposure.exposure_id,
        "sandbox_id": exposure.sandbox_id,
        "port": exposure.port,
        "name": exposure.name,
        "url": exposure.url,
        "tls_socket": "",
        "protocol": "HTTP",
        "external_port": None,
        "external_endpoint": None,
        "created_at": datetime.fromtimestamp(exposure.created_at, UTC).isoformat(),
    }


def shown_exposures(sandboxes: Iterable[Sandbox], host: str | None) -> list[dict[str, Any]]:
    """Return the exposed ports of sandboxes that run, with addresses for a client that reached the hub as `host`."""
    return [
        {**exposure, "url": reachable(exposure["url"], host)}
        for sandbox in sandboxes
        if sandbox.is_active
        for exposure in sandbox.exposures
    ]


def node_facts(node: SandboxNode, live: int) -> dict[str, Any]:
    """Return a node as administrators read it."""
    return {
        "node_id": node.id,
        "name": node.name,
        "url": node.url,
        "level": node.level,
        "backend": node.backend,
        "arch": node.arch,
        "version": node.version,
        "images": node.images,
        "capacity": node.capacity,
        "live": live,
        "draining": node.is_draining,
        "registered_at": node.registered_at.isoformat(),
        "last_seen_at": node.last_seen_at.isoformat(),
        "left_at": _moment(node.left_at),
    }


def image_facts(nodes: Iterable[SandboxNode]) -> list[dict[str, Any]]:
    """Return the images of some nodes by name, each once: what their operators keep is there for everybody."""
    since: dict[str, datetime] = {}
    for node in nodes:
        for image in node.images:
            since[image] = min(since.get(image, node.registered_at), node.registered_at)
    return [_image(image, moment) for image, moment in sorted(since.items())]


def _image(image: str, since: datetime) -> dict[str, Any]:
    head, _, tail = image.rpartition("/")
    name, _, tag = tail.partition(":")
    return {
        "id": image,
        "artifactType": "VM_SANDBOX",
        "imageName": f"{head}/{name}" if head else name,
        "imageTag": tag or "latest",
        "status": "COMPLETED",
        "fullImagePath": image,
        "errorMessage": None,
        "sizeBytes": None,
        "visibility": "PUBLIC",
        "createdAt": since.isoformat(),
        "startedAt": None,
        "completedAt": since.isoformat(),
        "pushedAt": None,
        "teamId": None,
        "ownerType": "platform",
        "displayRef": image,
    }


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None
