"""Keeping the attestations of published files, and saying what is known of where a file comes from.

An attestation is never replaced: what a client once verified stays. One of a type that a file does not have yet can
come later, with an upload of the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packaging.utils import canonicalize_name
from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.tables import Owner, User
from hub_server.attestations.publishers import who
from hub_server.attestations.tables import FileAttestation
from hub_server.attestations.verifying import Verified
from hub_server.errors import Conflict, NotFound
from hub_server.registry.index_names import note_change
from hub_server.registry.service import visible_to
from hub_server.registry.status import check_takes_versions
from hub_server.registry.tables import Environment, Release, ReleaseFile
from hub_server.registry.wheels import version_key
from prime_cli.hub.models import ProjectStatus


def keep(session: Session, user: User, owner: Owner, filename: str, sha256: str, verified: Sequence[Verified]) -> int:
    """Keep the attestations of a published wheel that it does not have yet, and return how many these were.

    Raises:
        Conflict: it has another one of the same type, or the environment takes nothing new.
    """
    file, environment = session.execute(
        select(ReleaseFile, Environment)
        .join(Release, Release.id == ReleaseFile.release_id)
        .join(Environment, Environment.id == Release.environment_id)
        .where(
            Environment.owner_id == owner.id,
            Environment.deleted_at.is_(None),
            Release.claimed,
            Release.deleted_at.is_(None),
            ReleaseFile.filename == filename,
            ReleaseFile.sha256 == sha256,
        )
    ).one()
    present = {one.predicate_type: one for one in of_files(session, [file.id])}
    missing = [one for one in verified if not _is_kept(present.get(one.predicate_type), one, filename)]
    if not missing:
        return 0
    check_takes_versions(environment.name, environment.project_status)
    for position, one in enumerate(missing, start=len(present)):
        row = FileAttestation(file_id=file.id, predicate_type=one.predicate_type, position=position)
        row.body, row.publisher = one.body, one.publisher
        session.add(row)
    environment.attested = True
    note_change(environment)
    types = [one.predicate_type for one in missing]
    subject = f"{owner.slug}/{environment.name} {file.release.semantic_version}"
    audit.record(session, user, "version.attest", subject, owner_id=owner.id, predicate_types=types)
    session.flush()
    return len(missing)


def of_files(session: Session, file_ids: Sequence[str]) -> list[FileAttestation]:
    """Return the attestations of these files, those of one file in their order."""
    wanted = select(FileAttestation).where(FileAttestation.file_id.in_(file_ids))
    return list(session.scalars(wanted.order_by(FileAttestation.file_id, FileAttestation.position)))


def attested_files(session: Session, environment_id: str) -> set[str]:
    """Return the ids of the files of an environment that have attestations."""
    wanted = (
        select(FileAttestation.file_id)
        .join(ReleaseFile, ReleaseFile.id == FileAttestation.file_id)
        .join(Release, Release.id == ReleaseFile.release_id)
        .where(Release.environment_id == environment_id)
    )
    return set(session.scalars(wanted))


def summaries(session: Session, release: Release) -> list[dict[str, Any]]:
    """Return by whom a version was attested, and to what, as its details say it."""
    return [
        {"predicate_type": one.predicate_type, "publisher": one.publisher}
        for one in of_files(session, [file.id for file in release.files])
    ]


def provenance(
    session: Session, user: User | None, *, owner: str, project: str, version: str, filename: str
) -> dict[str, Any]:
    """Return the provenance object of a file that `user` may see (PEP 740): its attestations, by publisher.

    Raises:
        NotFound: there is no such file for them, or it has no attestations.
    """
    file_id = session.scalar(
        select(ReleaseFile.id)
        .join(Release, Release.id == ReleaseFile.release_id)
        .join(Environment, Environment.id == Release.environment_id)
        .join(Environment.owner)
        .where(
            visible_to(user),
            Owner.slug == owner.lower(),
            Environment.normalized_name == canonicalize_name(project),
            Environment.project_status != ProjectStatus.QUARANTINED,
            Release.claimed,
            Release.deleted_at.is_(None),
            Release.version_key == version_key(version),
            ReleaseFile.kind == "wheel",
            ReleaseFile.filename == filename,
        )
    )
    attestations = of_files(session, [file_id]) if file_id is not None else []
    if not attestations:
        raise NotFound(f"no provenance of {filename} found in the index of {owner}")
    bundles: list[dict[str, Any]] = []
    for one in attestations:
        bundle = next((bundle for bundle in bundles if bundle["publisher"] == one.publisher), None)
        if bundle is None:
            bundle = {"publisher": one.publisher, "attestations": []}
            bundles.append(bundle)
        bundle["attestations"].append(one.body)
    return {"version": 1, "attestation_bundles": bundles}


def _is_kept(present: FileAttestation | None, offered: Verified, filename: str) -> bool:
    """Say whether the same is kept already; signing the same statement once more is no news."""
    if present is None:
        return False
    same_words = present.body["envelope"]["statement"] == offered.body["envelope"]["statement"]
    if not same_words or who(present.publisher) != who(offered.publisher):
        raise Conflict(f"{filename} has another attestation of the type {offered.predicate_type}, which stays")
    return True
