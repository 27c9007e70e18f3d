"""The wire of the hub: what a client sends, checked the same way on both ends.

Names are the published ones, so both generations of the published client speak it. Bodies may carry keys that are not
listed here: newer clients send more, and those keys are ignored.
"""

from __future__ import annotations

import base64
import json
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator

SLUG_PATTERN = r"^[a-z0-9-]{3,30}$"

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ContentHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{8,128}$", to_lower=True)]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}$")]
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")]
VersionText = Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]


_DEEPEST = 100


def _plain_json(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what Python reads as JSON and cannot write: NaN, infinities, halves of characters, very deep things."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        held = [list(item.values()) if isinstance(item, dict) else item for item in level]
        level = [inner for items in held for inner in items if isinstance(inner, (dict, list))]
    if level:
        raise ValueError(f"it holds lists or objects more than {_DEEPEST} deep")
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character") from None
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_plain_json)]


class Wire(BaseModel):
    """Base of all bodies on the wire; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Visibility(StrEnum):
    """Who can see an environment: everybody, or its owner."""

    PUBLIC = "PUBLIC"
    PRIVATE = "PRIVATE"


class ChallengeRequest(Wire):
    """Asks for a login challenge; the API key comes back encrypted to this RSA key (PEM, SubjectPublicKeyInfo)."""

    encryption_public_key: str = Field(alias="encryptionPublicKey", max_length=4096)


class ChallengeApproval(Wire):
    """Approves a login challenge as the caller."""

    challenge: str = Field(max_length=64)


class SlugChange(Wire):
    """Gives the caller another slug."""

    slug: str = Field(pattern=SLUG_PATTERN)


class NewUser(Wire):
    """An administrator adds a user."""

    slug: str = Field(pattern=SLUG_PATTERN)
    name: str = Field(default="", max_length=200)
    email: str = Field(default="", max_length=320)


class Role(StrEnum):
    """What somebody may do in a team: look, publish too, or manage too."""

    READER = "reader"
    MEMBER = "member"
    OWNER = "owner"


class NewTeam(Wire):
    """Makes a team; its slug is one among those of users."""

    slug: str = Field(pattern=SLUG_PATTERN)
    name: str = Field(default="", max_length=200)


class TeamChange(Wire):
    """Gives a team another name for people to read."""

    name: str = Field(min_length=1, max_length=200)


class RoleChange(Wire):
    """Takes somebody into a team, or changes their role."""

    role: Role = Role.MEMBER


ScopeArea = Literal["account", "environments", "evaluations", "secrets", "sandboxes"]


class NewKey(Wire):
    """Makes an API key. No scopes: everything that its user may do; no days: it does not expire."""

    name: str = Field(min_length=1, max_length=200)
    scopes: dict[ScopeArea, Literal["read", "write"]] | None = None
    expires_in_days: int | None = Field(default=None, ge=1, le=3650)


class Feedback(Wire):
    """What a user tells the operator of the hub."""

    message: str = Field(min_length=1, max_length=10_000)
    category: str = Field(default="general", max_length=50)
    cli_version: str | None = Field(default=None, max_length=50)
    run_id: str | None = Field(default=None, max_length=100)


class ResolveRequest(Wire):
    """Gets an environment, or creates it. No owner means the caller."""

    name: EnvironmentName
    visibility: Visibility | None = None
    owner_slug: str | None = Field(default=None, max_length=100)
    team_slug: str | None = Field(default=None, max_length=100)
    team_id: str | None = Field(default=None, max_length=100)


class YankRequest(Wire):
    """Takes a version back; the reason is shown to whoever installs it all the same."""

    reason: str = Field(default="", max_length=500)


class ForkRequest(Wire):
    """Copies an environment to a team, else to the caller."""

    team_slug: str | None = Field(default=None, max_length=100)
    team_id: str | None = Field(default=None, max_length=100)


class CheckRetry(Wire):
    """Asks for another check of a version: that of an earlier check, else the newest."""

    action_id: str | None = Field(default=None, max_length=100)


class ProjectStatus(StrEnum):
    """The marks of PEP 792: what installers should know of a whole environment."""

    ACTIVE = "active"
    ARCHIVED = "archived"
    DEPRECATED = "deprecated"
    QUARANTINED = "quarantined"


class StatusChange(Wire):
    """Marks an environment; the reason is shown to whoever looks at it."""

    status: Literal[ProjectStatus.ACTIVE, ProjectStatus.ARCHIVED, ProjectStatus.DEPRECATED]
    reason: str = Field(default="", max_length=500)


class QuarantineRequest(Wire):
    """An administrator takes an environment out of everybody's reach; the reason is shown."""

    reason: str = Field(min_length=1, max_length=500)


class LookupRequest(Wire):
    """Asks whether there is an environment: by its id, or by its name and its owner, whom older clients call a team."""

    id: str | None = Field(default=None, max_length=100)
    name: str | None = Field(default=None, max_length=100)
    owner_slug: str | None = Field(default=None, max_length=100)
    team_slug: str | None = Field(default=None, max_length=100)

    @property
    def owner(self) -> str | None:
        """The slug of the owner, by whichever name it came."""
        return self.owner_slug or self.team_slug

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.id is None and not (self.name and self.owner):
            raise ValueError("give the id of an environment, or its name with the owner_slug")
        return self


class PackageMetadata(Wire):
    """What the client read in pyproject.toml. Shown as it came; what must be true is read in the wheel itself."""

    description: str | None = Field(default=None, max_length=2000)
    tags: list[Annotated[str, StringConstraints(max_length=100)]] | None = Field(default=None, max_length=100)
    license: Any = None
    dependencies: list[str] | None = Field(default=None, max_length=1000)
    python_requires: str | None = Field(default=None, max_length=200)
    original_filename: str | None = Field(default=None, max_length=255)
    requires_dist: list[str] | None = Field(default=None, max_length=1000)


class WheelRequest(Wire):
    """Announces a wheel. `wheel_only`: no source archive follows, so finalizing the wheel publishes the version."""

    content_hash: ContentHash
    filename: FileName
    sha256: Sha256
    size: int = Field(gt=0)
    semantic_version: VersionText
    metadata: PackageMetadata = PackageMetadata()
    runtime_hint: str | None = Field(default=None, max_length=50)
    wheel_only: bool = False


class VersionRequest(Wire):
    """Announces the source archive that completes a version."""

    content_hash: ContentHash
    filename: FileName
    sha256: Sha256
    semantic_version: VersionText
    metadata: PackageMetadata = PackageMetadata()
    runtime_hint: str | None = Field(default=None, max_length=50)


class EvaluationStatus(StrEnum):
    """How far an evaluation is; the last four are final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


class EnvironmentReference(Wire):
    """An environment by its id, and the version that was evaluated."""

    id: str = Field(max_length=100)
    version_id: str | None = Field(default=None, max_length=100)


class EvaluationFields(Wire):
    """What can be said about an evaluation at its start and later."""

    model_name: str | None = Field(default=None, max_length=300)
    dataset: str | None = Field(default=None, max_length=300)
    framework: str | None = Field(default=None, max_length=100)
    task_type: str | None = Field(default=None, max_length=100)
    description: str | None = Field(default=None, max_length=10_000)
    tags: list[Annotated[str, StringConstraints(max_length=100)]] | None = Field(default=None, max_length=100)
    metadata: JsonObject | None = None
    metrics: JsonObject | None = None
    is_public: bool | None = None


class NewEvaluation(EvaluationFields):
    """Begins an evaluation."""

    name: str = Field(min_length=1, max_length=300)
    environments: list[EnvironmentReference] = Field(default_factory=list, max_length=100)
    suite_id: str | None = Field(default=None, max_length=100)
    run_id: str | None = Field(default=None, max_length=100)
    team_id: str | None = Field(default=None, max_length=100)


class EvaluationChange(EvaluationFields):
    """Changes what is named and leaves the rest; ends an evaluation that will not be finished."""

    name: str | None = Field(default=None, min_length=1, max_length=300)
    status: Literal[EvaluationStatus.FAILED, EvaluationStatus.TIMEOUT, EvaluationStatus.CANCELLED] | None = None
    error_message: str | None = Field(default=None, max_length=4096)


class EvaluationEnd(Wire):
    """Completes an evaluation."""

    metrics: JsonObject | None = None


def _usable_value(value: SecretStr) -> SecretStr:
    """Refuse what no environment variable can hold. The words never repeat the value."""
    try:
        size = len(value.get_secret_value().encode())
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character") from None
    if not 0 < size <= MAX_SECRET_BYTES:
        raise ValueError(f"it has {size} bytes; 1 to {MAX_SECRET_BYTES} are taken")
    if "\0" in value.get_secret_value():
        raise ValueError("it holds a zero byte; send the content of a file in base64 with `isFile`")
    return value


def _plain_text(text: str) -> str:
    """Refuse what databases do not keep."""
    if "\0" in text:
        raise ValueError("it holds a zero byte")
    return text


MAX_SECRET_BYTES = 64 * 1024
NAME_OF_A_VALUE = r"^[A-Z][A-Z0-9_]*$"
SecretName = Annotated[str, StringConstraints(pattern=NAME_OF_A_VALUE, max_length=100)]
SecretValue = Annotated[SecretStr, AfterValidator(_usable_value)]
SecretDescription = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_plain_text)]


class NewVariable(Wire):
    """Adds a variable to an environment."""

    name: SecretName
    value: SecretValue
    description: SecretDescription | None = None


class NewSecret(NewVariable):
    """Adds a secret. `isFile`: the value is the content of a file in base64."""

    is_file: bool = Field(default=False, alias="isFile")

    @model_validator(mode="after")
    def _is_base64(self) -> Self:
        if self.is_file:
            try:
                base64.b64decode(self.value.get_secret_value(), validate=True)
            except ValueError:
                raise ValueError("with `isFile` the value must be the content of a file in base64") from None
        return self


class NewGlobalSecret(NewSecret):
    """Adds a secret of the caller, or of a team."""

    team_id: str | None = Field(default=None, alias="teamId", max_length=100)


class SecretChange(Wire):
    """Changes what is named of a secret or a variable and leaves the rest."""

    name: SecretName | None = None
    value: SecretValue | None = None
    description: SecretDescription | None = None


class GlobalSecretChange(SecretChange):
    """The same for a global secret, whose team clients name in the body or in the query."""

    team_id: str | None = Field(default=None, alias="teamId", max_length=100)
