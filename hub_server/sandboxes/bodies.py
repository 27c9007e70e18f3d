"""What clients send about sandboxes, by the published names; what this hub does not have is refused, never ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from hub_server.sandbox_node.specification import Level
from hub_server.sandbox_node.wire import EgressPolicy
from hub_server.sandboxes.egress import Policy
from prime_cli.hub.models import JsonObject, Wire

MAX_BATCH = 100
_MAX_ENVIRONMENT_BYTES = 256 * 1024
_UNKNOWN = 100_000  # above this, a number of cores or gigabytes is no wish


def _plain(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a zero byte")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character") from None
    return text


def _small(values: dict[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value.encode()) for name, value in values.items()) > _MAX_ENVIRONMENT_BYTES:
        raise ValueError(f"names and values together have over {_MAX_ENVIRONMENT_BYTES} bytes")
    return values


PLAIN = AfterValidator(_plain)
Text = Annotated[str, PLAIN]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
Id = Annotated[str, StringConstraints(min_length=1, max_length=100), PLAIN]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Variables = Annotated[dict[VariableName, Text], AfterValidator(_small)]
Amount = Annotated[float, Field(gt=0, lt=_UNKNOWN, allow_inf_nan=False)]


class StartCommand(Wire):
    """A program to start, without a shell."""

    executable: Annotated[str, StringConstraints(min_length=1, max_length=4096), PLAIN]
    args: list[Text] = Field(default_factory=list, max_length=1000)


class Egress(Wire):
    """Whom a sandbox may reach: everybody but `denylist`, or nobody but `allowlist`. Neither: nobody."""

    allowlist: list[Text] | None = None
    denylist: list[Text] | None = None

    @model_validator(mode="after")
    def _is_a_policy(self) -> Self:
        Policy.parse(self.allowlist, self.denylist)
        return self

    def canonical(self) -> EgressPolicy:
        """Return the policy with each entry in its one spelling."""
        return EgressPolicy(**Policy.parse(self.allowlist, self.denylist).as_wire())


class NewSandbox(Wire):
    """A sandbox to make."""

    name: Name
    docker_image: Annotated[str, StringConstraints(min_length=1, max_length=500), PLAIN] | None = None
    start_command: StartCommand | Annotated[str, StringConstraints(max_length=65536), PLAIN] | None = None
    cpu_cores: Amount = 1.0
    memory_gb: Amount = 1.0
    disk_size_gb: Amount = 5.0
    vm: bool = False
    network_allowlist: list[Text] | None = None
    network_denylist: list[Text] | None = None
    timeout_minutes: int = Field(default=60, ge=-(10**9), le=10**9)
    idle_timeout_minutes: int | None = Field(default=None, ge=1, le=10**9)
    environment_vars: Variables | None = None
    secrets: Variables | None = None
    labels: list[Label] = Field(default_factory=list, max_length=100)
    team_id: Id | None = None
    advanced_configs: JsonObject | None = None
    idempotency_key: Id | None = None
    # What other servers have; see _is_possible_here.
    checkpoint_id: Id | None = None
    arch: Literal["amd64", "arm64"] | None = None
    gpu_count: int = Field(default=0, ge=0, le=1000)
    gpu_type: Name | None = None
    volumes: list[Any] | None = None
    region: Name | None = None
    guaranteed: bool = False
    registry_credentials_id: Id | None = None

    @field_validator("timeout_minutes")
    @classmethod
    def _is_some_time(cls, minutes: int) -> int:
        if minutes == 0:
            raise ValueError("0 is no lifetime; a negative number is one without end")
        return minutes

    @field_validator("advanced_configs")
    @classmethod
    def _names_a_level(cls, configs: dict[str, Any] | None) -> dict[str, Any] | None:
        wanted = (configs or {}).get("min_level")
        if wanted is not None and wanted not in list(Level):
            raise ValueError(f"min_level is one of {', '.join(Level)}")
        return configs

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        Policy.parse(self.network_allowlist, self.network_denylist)
        if self.idle_timeout_minutes is not None and 0 < self.timeout_minutes < self.idle_timeout_minutes:
            raise ValueError("idle_timeout_minutes must not be over timeout_minutes")
        if self.gpu_type is not None and not self.gpu_count:
            raise ValueError("gpu_type requires gpu_count greater than 0")
        return self

    @model_validator(mode="after")
    def _is_possible_here(self) -> Self:
        refused = {
            "checkpoints are not available on this server": self.checkpoint_id is not None,
            "volumes are not available on this server": bool(self.volumes),
            "GPUs are not available to the sandboxes of this server": self.gpu_count > 0,
            "this server has no regions": self.region is not None,
            "resources cannot be guaranteed on this server; limits are caps": self.guaranteed,
            "registry credentials are not available on this server; its operator imports images": (
                self.registry_credentials_id is not None
            ),
            "docker_image is required": self.docker_image is None,
        }
        problems = [words for words, is_so in refused.items() if is_so]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def egress(self) -> EgressPolicy | None:
        """Whom it may reach, each entry in its one spelling; None: nothing was said."""
        if self.network_allowlist is None and self.network_denylist is None:
            return None
        return EgressPolicy(**Policy.parse(self.network_allowlist, self.network_denylist).as_wire())

    @property
    def min_level(self) -> Level | None:
        """The least level that this sandbox alone asks for."""
        wanted = (self.advanced_configs or {}).get("min_level")
        return Level(wanted) if wanted is not None else None


class BulkDelete(Wire):
    """Sandboxes to delete: these, or all with these labels, of the caller or of a team."""

    sandbox_ids: list[Id] | None = Field(default=None, max_length=10_000)
    labels: list[Label] | None = Field(default=None, max_length=100)
    team_id: Id | None = None
    user_id: Id | None = None
    all_users: bool = False


class StatusBatch(Wire):
    """Sandboxes whose status is asked for."""

    sandbox_ids: list[Id] = Field(min_length=1, max_length=MAX_BATCH)


class JobOfBatch(Wire):
    """A background job, which the client started by commands of its own."""

    sandbox_id: Id
    job_id: str = Field(pattern=r"^[0-9a-f]{8}$")


class JobBatch(Wire):
    """Background jobs that are asked after."""

    jobs: list[JobOfBatch] = Field(min_length=1, max_length=MAX_BATCH)


class NewExposure(Wire):
    """A port to reach by URL."""

    port: int = Field(ge=1, le=65535)
    name: Annotated[str, StringConstraints(max_length=100), PLAIN] | None = None
    protocol: str = Field(default="HTTP", max_length=10)


class ImageInQuestion(Wire):
    """An image that may be there."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=500), PLAIN]
