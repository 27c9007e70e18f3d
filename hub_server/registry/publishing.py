"""How bytes become a version: announce, upload, check, publish.

A draft collects the files of one version with one content hash. Publishing is one transaction, and the first draft of a
version to get there is the version: from then on its bytes never change. Everything before can be cut off at any point
and repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.tables import User
from hub_server.checks.service import queue_first_check
from hub_server.database import now
from hub_server.errors import Conflict, Malformed, NotFound, TooLarge
from hub_server.registry.abouts import keep_about
from hub_server.registry.archives import check_source_archive
from hub_server.registry.entries import check_entry
from hub_server.registry.service import Offered, offer_as_latest
from hub_server.registry.status import check_takes_versions
from hub_server.registry.tables import Environment, Release, ReleaseFile
from hub_server.registry.wheels import check_wheel_name, read_wheel, version_key
from hub_server.services import Services
from prime_cli.hub.models import VersionRequest, WheelRequest


@dataclass(frozen=True)
class Announced:
    """What a client gets for an announced file. `needs_upload` is false when the hub has these bytes already."""

    release_id: str
    file_id: str
    needs_upload: bool


def scope_of(environment_id: str) -> str:
    """Return the scope of a transaction in which a push goes on: pushes to other environments need not wait."""
    return f"environment {environment_id}"


def announce_wheel(session: Session, environment: Environment, request: WheelRequest, *, max_bytes: int) -> Announced:
    """Note that a wheel is coming.

    Raises:
        Malformed: its name does not fit the environment and the version.
        TooLarge: it is over the hub's limit.
        Conflict: the version, or the content under another version, is published with other bytes.
    """
    check_announced(request, environment.name, max_bytes)
    published = _published_as(session, environment, request)
    if published is not None:
        for file in published.files:
            if file.kind == "wheel" and (file.filename, file.sha256) == (request.filename, request.sha256):
                return Announced(published.id, file.id, needs_upload=False)
        raise already_exists(environment, published)
    check_takes_versions(environment.name, environment.project_status)
    draft = _draft(session, environment, request)
    draft.wheel_only = request.wheel_only
    file = _announced_file(session, draft, "wheel", request.filename, request.sha256, request.size)
    # A wheel that comes alone still has to be finalized: that is what publishes it.
    return Announced(draft.id, file.id, needs_upload=file.state != "verified" or request.wheel_only)


def check_announced(request: WheelRequest, environment_name: str, max_bytes: int) -> None:
    """Check what can be said about a wheel before anything is known of its version.

    Raises:
        Malformed: its name does not fit the environment and the version.
        TooLarge: it is over the hub's limit.
    """
    check_wheel_name(request.filename, environment_name, request.semantic_version)
    if request.size > max_bytes:
        raise TooLarge(f"{request.filename} has {request.size} bytes; this hub takes at most {max_bytes}")


def announce_source(session: Session, environment: Environment, request: VersionRequest) -> Announced:
    """Note that the source archive which completes a version is coming.

    Of a version that is published with this content hash the first archive stays: an archive packed again has other
    bytes (its time stamps) and the same content, so the repeat is taken and changes nothing.

    Raises:
        Malformed: the version is no version.
        Conflict: the version is published with other content.
    """
    published = _published_as(session, environment, request)
    if published is not None:
        for file in published.files:
            if file.kind == "source" and published.content_hash == request.content_hash:
                return Announced(published.id, file.id, needs_upload=True)
        raise already_exists(environment, published)
    check_takes_versions(environment.name, environment.project_status)
    draft = _draft(session, environment, request)
    draft.wheel_only = False
    file = _announced_file(session, draft, "source", request.filename, request.sha256, 0)
    return Announced(draft.id, file.id, needs_upload=True)


def note_stored(session: Session, file_id: str, size: int) -> None:
    """Note that all bytes of a file are in the blob store.

    Raises:
        NotFound: another upload replaced this file meanwhile.
    """
    file = session.get(ReleaseFile, file_id)
    if file is None:
        raise NotFound("this upload was replaced by another one; push again")
    if file.state == "pending":
        file.state, file.size = "stored", size


def finalize_wheel(services: Services, user: User, environment_id: str, file_id: str) -> None:
    """Check an uploaded wheel; one that comes alone is published with it. Repeating it changes nothing.

    Raises:
        NotFound: no such wheel was announced here.
        Malformed: nothing was uploaded, or the wheel is not sound or no environment; the upload is forgotten then.
        Conflict: another push published this version first.
    """
    with services.database.read() as session:
        file = _file_of(session, environment_id, file_id)
        name = session.get_one(Environment, environment_id).name
    if file.state == "pending":
        raise Malformed(f"{file.filename} was announced but not uploaded yet")
    facts = None
    if file.state == "stored":
        try:
            with services.blobs.local(file.sha256) as path:
                facts = read_wheel(path, file.filename)
            check_entry(name, file.filename, facts.modules)
        except Malformed:
            with services.database.write(scope_of(environment_id)) as session:
                session.delete(session.get_one(ReleaseFile, file_id))
            raise
    metadata_sha256 = services.blobs.put(facts.metadata) if facts else None
    with services.database.write(scope_of(environment_id)) as session:
        file = _file_of(session, environment_id, file_id)
        if facts is not None:
            file.state, file.metadata_sha256 = "verified", metadata_sha256
            file.requires_python = facts.requires_python
            keep_about(session, file.release_id, facts)
        if file.release.wheel_only:
            publish(session, user, file.release)


def finalize_source(services: Services, user: User, environment_id: str, release_id: str) -> Release:
    """Check the uploaded source archive and publish the version. Repeating it changes nothing.

    Raises:
        NotFound: no such version was announced here.
        Malformed: nothing was uploaded, the archive is not sound, or there is no checked wheel.
        Conflict: another push published this version first.
    """
    with services.database.read() as session:
        release = _release_of(session, environment_id, release_id)
        stored = [file for file in release.files if file.kind == "source" and file.state == "stored"]
        if not release.claimed and not stored:
            raise Malformed("the source archive was announced but not uploaded yet")
    if not release.claimed:
        with services.blobs.local(stored[-1].sha256) as path:
            check_source_archive(path, stored[-1].filename)
    with services.database.write(scope_of(environment_id)) as session:
        release = _release_of(session, environment_id, release_id)
        for file in release.files:
            if not release.claimed and file.id == stored[-1].id:
                file.state = "verified"
        publish(session, user, release)
        return release


def publish(session: Session, user: User, release: Release) -> None:
    """Make a draft the version, in the caller's transaction; a version that is published stays as it is.

    Raises:
        NotFound: the environment was deleted while its version was checked.
        Malformed: the draft has no checked wheel.
        Conflict: the version is published with other bytes, or the environment is archived or quarantined.
    """
    if release.claimed:
        return
    environment = session.get_one(Environment, release.environment_id)
    if environment.deleted_at is not None:
        raise NotFound(f"environment {environment.name} was deleted meanwhile: not found on this hub")
    check_takes_versions(environment.name, environment.project_status)
    chosen = {file.filename: file for file in release.files if file.state == "verified"}
    if not any(file.kind == "wheel" for file in chosen.values()):
        raise Malformed(f"version {release.semantic_version} has no checked wheel; upload and finalize the wheel first")
    for file in list(release.files):
        if file not in chosen.values():
            session.delete(file)
    taken = claimed_as(session, environment, release.version_key, release.content_hash)
    if taken is not None:
        raise already_exists(environment, taken)
    release.claimed, release.published_at = True, now()
    try:
        session.flush()
    except IntegrityError:
        name = f"{environment.owner.slug}/{environment.name}"
        raise Conflict(
            f"version {release.semantic_version} of {name}: another push with another content hash already exists"
        ) from None
    queue_first_check(session, release.id, release.details)
    offer_as_latest(session, environment.id, Offered(release.id, release.version_key, release.details))
    whole_name = f"{environment.owner.slug}/{environment.name} {release.semantic_version}"
    audit.record(session, user, "version.publish", whole_name, owner_id=environment.owner_id)
    session.flush()
    session.expire(environment)


def claimed_as(session: Session, environment: Environment, version_key: str, content_hash: str) -> Release | None:
    """Return the version that holds this number or this content, deleted ones included; the number counts first."""
    claimed = select(Release).where(Release.environment_id == environment.id, Release.claimed)
    # Two questions, because one with `or` is answered by looking at all versions.
    by_number: Release | None = session.scalar(claimed.where(Release.version_key == version_key))
    return by_number or session.scalar(claimed.where(Release.content_hash == content_hash))


def _published_as(session: Session, environment: Environment, request: WheelRequest | VersionRequest) -> Release | None:
    """Return the version that this push repeats; None when the version is still free.

    Raises:
        Conflict: the number was deleted, or the content is published under another number.
    """
    key = version_key(request.semantic_version)
    taken = claimed_as(session, environment, key, request.content_hash)
    if taken is not None and (taken.version_key != key or taken.deleted_at is not None):
        raise already_exists(environment, taken)
    return taken


def already_exists(environment: Environment, taken: Release) -> Conflict:
    name, version = f"{environment.owner.slug}/{environment.name}", taken.semantic_version
    if taken.deleted_at is not None:
        return Conflict(
            f"version {version} of {name} (content hash {taken.content_hash[:8]}) already exists as a deleted one, and "
            "is never given again"
        )
    return Conflict(
        f"version {version} of {name} with content hash {taken.content_hash[:8]} already exists, and a published "
        "version never changes: raise the version"
    )


def _draft(session: Session, environment: Environment, request: WheelRequest | VersionRequest) -> Release:
    key = version_key(request.semantic_version)
    draft = session.scalar(
        select(Release).where(
            Release.environment_id == environment.id,
            Release.version_key == key,
            Release.content_hash == request.content_hash,
        )
    )
    if draft is None:
        draft = Release(environment_id=environment.id, version_key=key, content_hash=request.content_hash)
        session.add(draft)
    draft.semantic_version = request.semantic_version
    draft.details = {**(draft.details or {}), **request.metadata.model_dump(exclude_none=True)}
    draft.runtime_hint = request.runtime_hint or draft.runtime_hint
    session.flush()
    return draft


def _announced_file(session: Session, draft: Release, kind: str, filename: str, sha256: str, size: int) -> ReleaseFile:
    for file in draft.files:
        if (file.kind, file.filename, file.sha256) == (kind, filename, sha256):
            return file
    file = ReleaseFile(release_id=draft.id, kind=kind, filename=filename, sha256=sha256, size=size)
    session.add(file)
    session.flush()
    return file


def _file_of(session: Session, environment_id: str, file_id: str) -> ReleaseFile:
    file = session.get(ReleaseFile, file_id)
    if file is None or file.release.environment_id != environment_id or file.kind != "wheel":
        raise NotFound(f"wheel {file_id} not found in this environment; push again")
    return file


def _release_of(session: Session, environment_id: str, release_id: str) -> Release:
    release = session.get(Release, release_id)
    if release is None or release.environment_id != environment_id or release.deleted_at is not None:
        raise NotFound(f"version {release_id} not found in this environment; push again")
    return release
