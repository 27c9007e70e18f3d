"""What a hub and a node say to each other, as models that both sides read and write.

The hub calls the node's control API with the node's secret as bearer token:

    POST   /control/sandboxes                    CreateSandbox -> SandboxFacts; the same id again answers what is now
    GET    /control/sandboxes/{id}               SandboxFacts; 404 when the node does not know it, or no longer does
    DELETE /control/sandboxes/{id}               SandboxFacts of the ended sandbox; 404 as above
    POST   /control/sandboxes:delete             Ids -> Deleted
    GET    /control/sandboxes/{id}/logs          Logs
    GET    /control/sandboxes/{id}/egress        EgressFacts
    PUT    /control/sandboxes/{id}/egress        EgressPolicy -> EgressFacts
    GET    /control/sandboxes/{id}/exposures     Exposures
    POST   /control/sandboxes/{id}/exposures     ExposePort -> Exposure
    DELETE /control/sandboxes/{id}/exposures/{exposure_id}
    POST   /control/background-jobs              Jobs -> JobFacts
    GET    /control/node                         NodeFacts

A sandbox that cannot be made is no error of the request: its state is `ended`, and `end` says why. A sandbox that waits
for room is `pending`; that it runs then is an event. Refusals are {detail, hint}: 401 wrong secret, 404, 409 the
sandbox is not running, 422 what no sandbox of this node can have.

The node calls the hub with the API key of an administrator:

    POST   /api/v1/sandbox-nodes                 Registration -> Registered. The same name again replaces what was said.
    POST   /api/v1/sandbox-nodes/{id}/heartbeat  Heartbeat -> HeartbeatAnswer; 404: register again
    DELETE /api/v1/sandbox-nodes/{id}            the node ends, and its sandboxes with it

A heartbeat comes every `HEARTBEAT_S`, and at once (at most ten times a second) when there are events. An event is sent
until a heartbeat with it was answered, so the hub may see one twice. All times are seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from hub_server.sandbox_node.specification import End, EndKind, Enforcement, Held, Level, Limits

HEARTBEAT_S = 5.0
SANDBOX_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"

SandboxId = Annotated[str, Field(pattern=SANDBOX_ID)]
State = Literal["pending", "running", "ended"]


class _Model(BaseModel):
    # A newer hub or node may say more than this one knows.
    model_config = ConfigDict(extra="ignore", frozen=True)


class WireLimits(_Model):
    """`specification.Limits`; what lacks is as there."""

    cpu_cores: float = Field(default=Limits.cpu_cores, gt=0)
    memory_bytes: int = Field(default=Limits.memory_bytes, gt=0)
    disk_bytes: int = Field(default=Limits.disk_bytes, gt=0)
    inodes: int = Field(default=Limits.inodes, gt=0)
    processes: int = Field(default=Limits.processes, gt=0)
    open_files: int = Field(default=Limits.open_files, gt=0)
    file_bytes: int = Field(default=Limits.file_bytes, gt=0)

    @classmethod
    def of(cls, limits: Limits) -> WireLimits:
        """Return limits as they are sent."""
        return cls(**vars(limits))

    def limits(self) -> Limits:
        """Return them as the node's own word."""
        return Limits(**dict(self))


class WireEnforcement(_Model):
    """`specification.Enforcement`."""

    level: Level
    backend: str
    limits: WireLimits
    held: dict[str, Held] = {}
    notes: list[str] = []

    @classmethod
    def of(cls, enforcement: Enforcement) -> WireEnforcement:
        """Return it as it is sent."""
        return cls(
            level=enforcement.level,
            backend=enforcement.backend,
            limits=WireLimits.of(enforcement.limits),
            held=dict(enforcement.held),
            notes=list(enforcement.notes),
        )


class WireEnd(_Model):
    """`specification.End`."""

    kind: EndKind
    message: str
    exit_code: int | None = None

    @classmethod
    def of(cls, end: End) -> WireEnd:
        """Return it as it is sent."""
        return cls(**vars(end))


class EgressPolicy(_Model):
    """Whom a sandbox may reach: at most one list is given; `allowlist=[]` is nobody, `denylist=[]` everybody."""

    allowlist: list[str] | None = None
    denylist: list[str] | None = None


class EgressFacts(_Model):
    """The policy of a sandbox, and whether it holds already."""

    policy: EgressPolicy
    generation: int
    applied_generation: int


class CreateSandbox(_Model):
    """A sandbox to make."""

    sandbox_id: SandboxId
    image: str = "host"
    limits: WireLimits = WireLimits()
    env: dict[str, str] = {}
    start_command: str | list[str] | None = None  # a string goes to a shell
    lifetime_s: float | None = Field(default=None, gt=0)  # None: without end
    idle_s: float | None = Field(default=None, gt=0)
    egress: EgressPolicy | None = None  # None: nobody may be reached
    vm: bool = False  # then the end of the start command does not end the sandbox
    min_level: Level | None = None
    owner: str = ""  # those who wait for room take turns by owner
    wait_s: float = Field(default=2.0, ge=0, le=60)  # how long the answer may take while it is pending
    most_pending_s: float = Field(default=3600.0, gt=0)  # after that it fails


class SandboxFacts(_Model):
    """What a node knows of one sandbox."""

    sandbox_id: str
    state: State
    enforcement: WireEnforcement | None = None
    started_at: float | None = None
    ended_at: float | None = None
    end: WireEnd | None = None
    start_command_exit_code: int | None = None
    memory_bytes: int | None = None


class Ids(_Model):
    """Sandboxes to delete."""

    ids: list[str] = Field(max_length=10_000)


class Deleted(_Model):
    """Which of them are gone now, and which were not there."""

    deleted: list[str]
    not_there: list[str]


class Logs(_Model):
    """The last of what the start command wrote."""

    logs: str


class ExposePort(_Model):
    """A port inside to be reachable by URL."""

    port: int = Field(ge=1, le=65535)
    name: str | None = None


class Exposure(_Model):
    """A port that is reachable by URL, for all who know the URL."""

    exposure_id: str
    sandbox_id: str
    port: int
    name: str | None = None
    url: str
    created_at: float


class Exposures(_Model):
    """The exposed ports of a sandbox."""

    exposures: list[Exposure]


class Job(_Model):
    """A background job of the published SDK."""

    sandbox_id: str
    job_id: str


class Jobs(_Model):
    """Background jobs that are asked after."""

    jobs: list[Job] = Field(max_length=1000)


class JobStatus(_Model):
    """How a job stands. `exit_code` is there when it is completed."""

    sandbox_id: str
    job_id: str
    completed: bool = False
    exit_code: int | None = None
    error: Literal["NOT_FOUND", "NOT_RUNNING", "RUNTIME_ERROR"] | None = None
    message: str | None = None


class JobFacts(_Model):
    """How the jobs stand, in the order in which they were asked after."""

    jobs: list[JobStatus]


class NodeFacts(_Model):
    """What a node is and how full it is."""

    name: str
    url: str
    level: Level
    backend: str
    arch: str = "amd64"  # as images name it
    images: list[str]
    capacity: int  # sandboxes that may live at once
    live: int
    pending: int
    idle: int  # made ahead
    draining: bool = False
    version: str


class Registration(NodeFacts):
    """A node that offers itself to a hub."""

    secret: str = Field(min_length=32, max_length=200)  # hexadecimal; bearer of the control API, key of gateway tokens


class Registered(_Model):
    """The hub's answer."""

    node_id: str


class Event(_Model):
    """A sandbox that runs now, or ended."""

    facts: SandboxFacts
    at: float


class Heartbeat(_Model):
    """A sign of life."""

    node: NodeFacts
    sandboxes: dict[str, State]  # those that are pending or running
    events: list[Event]


class HeartbeatAnswer(_Model):
    """Sandboxes of the heartbeat that the hub does not know or that were deleted there: the node ends them."""

    unknown: list[str] = []
