"""Sandboxes as a hub keeps them: making, finding and ending them. Requests are snake_case, answers are camelCase."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from prime_cli.core.errors import BadInput, HubError, PrimeError

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

UNLIMITED = -1  # of timeout_minutes
_ENDED = ("ERROR", "TERMINATED", "TIMEOUT")
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_MOST_IN_A_PAGE = 100


class NoSandbox(HubError):
    """There is no sandbox of this id, or it is not yours."""


class SandboxEnded(PrimeError):
    """The sandbox has ended, or never came to be."""


@dataclass(frozen=True)
class SandboxRequest:
    """What a sandbox is asked for. Lists that are None leave the network as the hub has it: closed."""

    image: str
    name: str
    cpu_cores: float = 1.0
    memory_gb: float = 1.0
    disk_size_gb: float = 5.0
    gpu_count: int = 0
    timeout_minutes: int = 60  # negative: as long as it is not deleted
    idle_timeout_minutes: int | None = None
    start_command: str | dict[str, Any] | None = None  # text for a shell, or {executable, args}
    environment: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    labels: Sequence[str] = ()
    network_allowlist: Sequence[str] | None = None
    network_denylist: Sequence[str] | None = None
    team_id: str | None = None
    min_level: str | None = None
    vm: bool = True  # whether it outlives its start command

    def check(self) -> None:
        """See that it can be asked for.

        Raises:
            BadInput: it cannot; names the option.
        """
        for option, value in (
            ("cpu-cores", self.cpu_cores),
            ("memory-gb", self.memory_gb),
            ("disk-size-gb", self.disk_size_gb),
        ):
            if not value > 0:
                raise BadInput(f"--{option} must be above 0, found {value:g}")
        if self.gpu_count:
            raise BadInput("sandboxes have no GPUs")
        if self.timeout_minutes == 0:
            raise BadInput("--timeout-minutes cannot be 0", hint="negative is a sandbox that lives until it is deleted")
        if self.idle_timeout_minutes is not None and 0 < self.timeout_minutes < self.idle_timeout_minutes:
            raise BadInput("--idle-timeout-minutes cannot be more than --timeout-minutes")
        if self.network_allowlist and self.network_denylist:
            raise BadInput("give --network-allow or --network-deny, not both")

    def body(self) -> dict[str, Any]:
        """Return it as the wire has it."""
        fields: dict[str, Any] = {
            "name": self.name,
            "docker_image": self.image,
            "start_command": self.start_command,
            "cpu_cores": self.cpu_cores,
            "memory_gb": self.memory_gb,
            "disk_size_gb": self.disk_size_gb,
            "gpu_count": self.gpu_count,
            "timeout_minutes": self.timeout_minutes,
            "idle_timeout_minutes": self.idle_timeout_minutes,
            "environment_vars": self.environment or None,
            "secrets": self.secrets or None,
            "labels": list(self.labels),
            "network_allowlist": None if self.network_allowlist is None else list(self.network_allowlist),
            "network_denylist": None if self.network_denylist is None else list(self.network_denylist),
            "team_id": self.team_id,
            "advanced_configs": {"min_level": self.min_level} if self.min_level else None,
            "vm": self.vm,
            "idempotency_key": uuid.uuid4().hex,
        }
        return {name: value for name, value in fields.items() if value is not None}


def create(client: HubClient, request: SandboxRequest) -> dict[str, Any]:
    """Ask for a sandbox and return it; it may not run yet."""
    return client.post("sandbox", request.body())


def wait_until_running(
    client: HubClient,
    sandbox: dict[str, Any],
    *,
    told: Callable[[str], None] = lambda status: None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the sandbox once it runs; `told` hears its status each time.

    Raises:
        SandboxEnded: it came to an end instead.
    """
    wait_s = _SHORTEST_WAIT_S
    while sandbox.get("status") != "RUNNING":
        if sandbox.get("status") in _ENDED:
            raise SandboxEnded(f"sandbox {sandbox['id']} did not start: {why_ended(sandbox)}", _hint_for(sandbox))
        told(str(sandbox.get("status")))
        sleep(wait_s)
        wait_s = min(wait_s * 1.5, _LONGEST_WAIT_S)
        sandbox = find(client, str(sandbox["id"]))
    return sandbox


def find(client: HubClient, sandbox_id: str) -> dict[str, Any]:
    """Return a sandbox by its id, also one that has ended.

    Raises:
        NoSandbox: there is none.
    """
    return in_sandbox(sandbox_id, lambda path: client.get(path))


def in_sandbox(sandbox_id: str, ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return what `ask` gets at the path of a sandbox.

    Raises:
        NoSandbox: there is none of this id.
    """
    try:
        return ask(f"sandbox/{quote(sandbox_id, safe='')}")
    except HubError as error:
        if error.status == 404:
            raise NoSandbox(
                f"there is no sandbox {sandbox_id!r}: {error.message}",
                hint="`prime sandbox list` shows yours",
                status=404,
            ) from None
        raise


def list_page(client: HubClient, page: int, per_page: int, **filters: Any) -> dict[str, Any]:
    """Return a page of sandboxes as the hub gives it: {sandboxes, total, page, perPage, hasNext}."""
    return client.get("sandbox", page=page, per_page=per_page, **filters)


def every_id(client: HubClient, **filters: Any) -> Iterator[str]:
    """Yield the ids of all sandboxes that have not ended."""
    page = 1
    while True:
        found = list_page(client, page, _MOST_IN_A_PAGE, is_active="true", **filters)
        yield from (str(row["id"]) for row in found.get("sandboxes") or [])
        if not found.get("hasNext"):
            return
        page += 1


def delete(client: HubClient, sandbox_ids: Sequence[str]) -> dict[str, Any]:
    """End sandboxes by their ids: {succeeded, failed: [{sandbox_id, error}], message}."""
    done: dict[str, Any] = {"succeeded": [], "failed": []}
    for start in range(0, len(sandbox_ids), _MOST_IN_A_PAGE):
        part = client.delete("sandbox", {"sandbox_ids": list(sandbox_ids[start : start + _MOST_IN_A_PAGE])})
        done["succeeded"] += part.get("succeeded") or []
        done["failed"] += part.get("failed") or []
    return done


def why_ended(sandbox: dict[str, Any]) -> str:
    """Say in a few words why a sandbox is no more."""
    words = sandbox.get("errorMessage") or sandbox.get("terminationReason")
    kind = sandbox.get("errorType")
    return f"{words} ({kind})" if words and kind else str(words or kind or sandbox.get("status"))


def parse_variables(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping.

    Raises:
        BadInput: one has no `=`, or its name cannot be one of an environment variable.
    """
    variables: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            shown = name if equals else pair
            raise BadInput(f"{option} takes NAME=VALUE, found {shown!r}", hint=f"{option} LEVEL=3")
        variables[name] = value
    return variables


def in_snake_case(value: Any) -> Any:
    """Return an answer of the wire with its keys in snake_case; names that users gave (of variables) stay."""
    if isinstance(value, list):
        return [in_snake_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    named_by_users = ("environmentVars", "secrets")
    return {_snake(key): item if key in named_by_users else in_snake_case(item) for key, item in value.items()}


def _snake(name: str) -> str:
    # memoryGB is one word and its unit.
    return re.sub(r"(?<=[a-z0-9])([A-Z]+)", lambda match: "_" + match[1].lower(), name)


def _hint_for(sandbox: dict[str, Any]) -> str | None:
    if sandbox.get("errorType") == "IMAGE_PULL_FAILED":
        return "the operator of the node adds images: `prime sandbox image list`, `prime sandbox image pull`"
    return None
