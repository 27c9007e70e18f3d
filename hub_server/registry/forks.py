"""Forks: a version of somebody else's environment as the beginning of one's own. Its bytes are shared by their hash."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.accounts import audit
from hub_server.accounts.tables import User
from hub_server.database import now
from hub_server.errors import Conflict, NotFound
from hub_server.registry.publishing import already_exists, claimed_as, publish
from hub_server.registry.service import resolve, visible_to
from hub_server.registry.status import check_is_offered
from hub_server.registry.tables import Environment, Release, ReleaseAbout, ReleaseFile
from prime_cli.hub.models import ForkRequest, ResolveRequest, Visibility

_LONGEST_CHAIN = 50


def fork(session: Session, user: User, source: Environment, request: ForkRequest) -> Release:
    """Make the latest version of `source` the first one of an environment of the same name elsewhere.

    A fork of a private environment is private.

    Raises:
        NotFound: nothing is published yet, or there is no such team.
        Forbidden: the caller may not publish there, or the source is quarantined.
        Conflict: an environment of this name is there.
    """
    latest = session.get(Release, source.latest_release_id) if source.latest_release_id else None
    if latest is None:
        raise NotFound(f"{source.owner.slug}/{source.name} has no published version yet, so nothing to fork was found")
    check_is_offered(source)
    wanted = ResolveRequest(name=source.name, team_slug=request.team_slug, team_id=request.team_id)
    target, created = resolve(session, user, wanted)
    if not created:
        whole_name = f"{target.owner.slug}/{target.name}"
        raise Conflict(f"{whole_name} already exists; delete it first, or publish under another name")
    taken = claimed_as(session, target, latest.version_key, latest.content_hash)
    if taken is not None:
        raise already_exists(target, taken)
    target.visibility = Visibility(source.visibility)
    target.forked_from_id = latest.id
    copy = _copy(session, user, target, latest)
    audit.record(
        session, user, "environment.fork", f"{target.owner.slug}/{target.name}", owner_id=target.owner_id,
        forked_from=source.id, version=latest.semantic_version,
    )  # fmt: skip
    return copy


def lineage(session: Session, environment: Environment, user: User | None) -> dict[str, Any]:
    """Return where a fork comes from, as its details show it; empty for what is no fork.

    `forked_from` is the version that it began as, `origin` the beginning of the chain, `fork_chain` all of it in order.
    What the caller may not see is left out.
    """
    chain: list[dict[str, str]] = []
    step: Environment | None = environment
    while step is not None and step.forked_from_id is not None and len(chain) < _LONGEST_CHAIN:
        release = session.get(Release, step.forked_from_id)
        if release is None:
            break
        seen = select(Environment).where(visible_to(user), Environment.id == release.environment_id)
        step = session.get_one(Environment, release.environment_id)
        if session.scalar(seen.join(Environment.owner)) is not None:
            chain.insert(0, _reference(step, release))
    return {"forked_from": chain[-1], "origin": chain[0], "fork_chain": chain} if chain else {}


def _copy(session: Session, user: User, target: Environment, source: Release) -> Release:
    copy = Release(
        environment_id=target.id,
        semantic_version=source.semantic_version,
        version_key=source.version_key,
        content_hash=source.content_hash,
        details=source.details,
        runtime_hint=source.runtime_hint,
        wheel_only=source.wheel_only,
        created_at=now(),
    )
    session.add(copy)
    session.flush()
    for file in source.files:
        copied = {
            column: getattr(file, column)
            for column in ("kind", "filename", "sha256", "size", "state", "metadata_sha256", "requires_python")
        }
        session.add(ReleaseFile(release_id=copy.id, **copied))
    about = session.get(ReleaseAbout, source.id)
    if about is not None:
        told = {"readme": about.readme, "readme_type": about.readme_type, "url_dependencies": about.url_dependencies}
        session.add(ReleaseAbout(release_id=copy.id, **told))
    session.flush()
    session.refresh(copy, ["files"])
    publish(session, user, copy)
    return copy


def _reference(environment: Environment, release: Release) -> dict[str, str]:
    return {
        "owner": environment.owner.slug,
        "name": environment.name,
        "environment_id": environment.id,
        "version": release.semantic_version,
    }
