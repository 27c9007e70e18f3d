"""Publishing a wheel in one step, as twine and `uv publish` do.

This is what a busy registry does all day, so the usual case, a version of which the hub never heard, is a handful of
statements that are made once. Everything else, such as a repeat or a conflict, goes the way of a push by its rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name
from pydantic import ValidationError
from sqlalchemy import bindparam, select, union_all
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.tables import Owner, User
from hub_server.checks.service import LIBRARY, queue_first_check
from hub_server.database import now, table_of
from hub_server.errors import Conflict, Malformed
from hub_server.ids import new_id
from hub_server.registry.abouts import keep_about
from hub_server.registry.index_names import claim_name
from hub_server.registry.publishing import announce_wheel, check_announced, publish
from hub_server.registry.service import Offered, offer_as_latest, resolve
from hub_server.registry.status import check_takes_versions
from hub_server.registry.tables import Environment, Release, ReleaseFile
from hub_server.registry.wheels import WheelFacts, version_key
from hub_server.registry.words import keep_words
from prime_cli.hub.models import PackageMetadata, ResolveRequest, Visibility, WheelRequest

_ENVIRONMENTS, _RELEASES, _FILES = table_of(Environment), table_of(Release), table_of(ReleaseFile)
_FIND = (
    select(_ENVIRONMENTS.c.id, _ENVIRONMENTS.c.name, _ENVIRONMENTS.c.project_status, _ENVIRONMENTS.c.deleted_at)
    .where(
        _ENVIRONMENTS.c.owner_id == bindparam("owner_id"),
        _ENVIRONMENTS.c.normalized_name == bindparam("normalized_name"),
    )
    .with_for_update()
)
_OF_ENVIRONMENT = select(_RELEASES.c.id).where(_RELEASES.c.environment_id == bindparam("environment_id"))
_HEARD_OF = union_all(
    _OF_ENVIRONMENT.where(_RELEASES.c.version_key == bindparam("version_key")),
    _OF_ENVIRONMENT.where(_RELEASES.c.content_hash == bindparam("content_hash"), _RELEASES.c.claimed),
)
_ADD_ENVIRONMENT, _ADD_RELEASE, _ADD_FILE = _ENVIRONMENTS.insert(), _RELEASES.insert(), _FILES.insert()


@dataclass(frozen=True)
class CheckedWheel:
    """A wheel whose bytes and METADATA are in the blob store, and that was found sound."""

    filename: str
    sha256: str
    size: int
    facts: WheelFacts
    metadata_sha256: str
    is_library: bool = False


@dataclass(frozen=True)
class Published:
    """A version that is there now; `is_new` is false where it was before, with these very bytes."""

    name: str
    version: str
    is_new: bool


def publish_alone(session: Session, user: User, owner: Owner, wheel: CheckedWheel, *, max_bytes: int) -> Published:
    """Publish a wheel under an owner in one step, by the rules of a push, and say whether that was news.

    Raises:
        Malformed: it cannot be the wheel of an environment.
        TooLarge: it is over the hub's limit.
        Conflict: the version is published with other bytes, or the environment takes no new versions.
    """
    wanted, request = _as_push(owner, wheel)
    kind = {"kind": LIBRARY} if wheel.is_library else {}
    connection = session.connection()
    normalized = canonicalize_name(wanted.name)
    found = connection.execute(_FIND, {"owner_id": owner.id, "normalized_name": normalized}).first()
    if found is None:
        check_announced(request, wanted.name, max_bytes)
        return _publish_first(session, user, owner, wheel, wanted.name, request, kind)
    if found.deleted_at is not None:
        resolve(session, user, wanted)
        found = connection.execute(_FIND, {"owner_id": owner.id, "normalized_name": normalized}).one()
    check_announced(request, found.name, max_bytes)
    key = version_key(request.semantic_version)
    place = {"environment_id": found.id, "version_key": key, "content_hash": request.content_hash}
    if connection.execute(_HEARD_OF, place).first() is not None:
        environment = session.get_one(Environment, found.id)
        return _publish_as_push(session, user, environment, wheel, request, kind, max_bytes)
    check_takes_versions(found.name, found.project_status)
    details, release_id = {**request.metadata.model_dump(exclude_none=True), **kind}, new_id()
    _insert(session, wheel, release_id, {**place, "semantic_version": request.semantic_version, "details": details})
    offer_as_latest(session, found.id, Offered(release_id, key, details))
    whole_name = f"{owner.slug}/{found.name} {request.semantic_version}"
    audit.record(session, user, "version.publish", whole_name, owner_id=owner.id)
    return Published(found.name, request.semantic_version, is_new=True)


def _as_push(owner: Owner, wheel: CheckedWheel) -> tuple[ResolveRequest, WheelRequest]:
    """Return what a client of the push would have asked for this wheel."""
    facts = wheel.facts
    try:
        wanted = ResolveRequest(name=facts.name, owner_slug=owner.slug)
        request = WheelRequest(
            content_hash=wheel.sha256,
            filename=wheel.filename,
            sha256=wheel.sha256,
            size=wheel.size,
            semantic_version=facts.version,
            metadata=PackageMetadata(
                description=facts.summary, dependencies=facts.requires_dist, python_requires=facts.requires_python
            ),
            wheel_only=True,
        )
    except ValidationError as error:
        problem = error.errors()[0]
        raise Malformed(
            f"the METADATA of {wheel.filename} cannot be published ({problem['loc'][-1]}): {problem['msg']}"
        ) from None
    return wanted, request


def _publish_as_push(
    session: Session, user: User, environment: Environment, wheel: CheckedWheel, request: WheelRequest,
    kind: dict[str, str], max_bytes: int,
) -> Published:  # fmt: skip
    announced = announce_wheel(session, environment, request, max_bytes=max_bytes)
    file = session.get_one(ReleaseFile, announced.file_id)
    is_new = not file.release.claimed
    if is_new:
        file.state, file.size = "verified", wheel.size
        file.metadata_sha256, file.requires_python = wheel.metadata_sha256, wheel.facts.requires_python
        session.flush()
        keep_about(session, file.release_id, wheel.facts)
        file.release.details = {**file.release.details, **kind}
        session.expire(file.release, ["files"])
        publish(session, user, file.release)
    return Published(environment.name, file.release.semantic_version, is_new)


def _publish_first(
    session: Session, user: User, owner: Owner, wheel: CheckedWheel, name: str, request: WheelRequest,
    kind: dict[str, str],
) -> Published:  # fmt: skip
    """Publish an environment that never was with its first version, which so is the latest."""
    environment_id, release_id = new_id(), new_id()
    details = {**request.metadata.model_dump(exclude_none=True), **kind}
    environment = {
        "id": environment_id,
        "owner_id": owner.id,
        "name": name,
        "normalized_name": canonicalize_name(name),
        "visibility": Visibility.PUBLIC,
        "description": str(details.get("description") or ""),
        "latest_release_id": release_id,
        "index_serial": 1,
    }
    connection = session.connection()
    connection.execute(_ADD_ENVIRONMENT, environment)
    release = {
        "environment_id": environment_id,
        "version_key": version_key(request.semantic_version),
        "content_hash": request.content_hash,
        "semantic_version": request.semantic_version,
        "details": details,
    }
    _insert(session, wheel, release_id, release)
    keep_words(connection, environment_id)
    claim_name(session, environment_id)
    whole_name = f"{owner.slug}/{name}"
    audit.record(session, user, "environment.create", whole_name, owner_id=owner.id)
    audit.record(session, user, "version.publish", f"{whole_name} {request.semantic_version}", owner_id=owner.id)
    return Published(name, request.semantic_version, is_new=True)


def _insert(session: Session, wheel: CheckedWheel, release_id: str, release: dict[str, Any]) -> None:
    """Write a version that is published from the start, with its one file."""
    connection = session.connection()
    published = {"id": release_id, "wheel_only": True, "claimed": True, "published_at": now()}
    file = {
        "release_id": release_id,
        "kind": "wheel",
        "filename": wheel.filename,
        "sha256": wheel.sha256,
        "size": wheel.size,
        "state": "verified",
        "metadata_sha256": wheel.metadata_sha256,
        "requires_python": wheel.facts.requires_python,
    }
    try:
        connection.execute(_ADD_RELEASE, {**release, **published})
        connection.execute(_ADD_FILE, file)
        keep_about(session, release_id, wheel.facts, is_new=True)
    except IntegrityError:
        raise Conflict(
            f"version {release['semantic_version']}: another push with another content hash already exists"
        ) from None
    queue_first_check(session, release_id, release["details"])
