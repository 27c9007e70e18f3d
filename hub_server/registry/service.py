"""Environments and their versions: who sees them, finding one by name, making, yanking and deleting them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version
from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, func, or_, select, update
from sqlalchemy.orm import Session, selectinload

from hub_server.accounts import audit
from hub_server.accounts.tables import Owner, User
from hub_server.accounts.teams import belongs_to, has_role, owner_to_act_for
from hub_server.database import now, table_of
from hub_server.errors import Forbidden, Malformed, NotFound
from hub_server.registry.index_names import claim_name, note_change
from hub_server.registry.tables import Environment, EnvironmentTag, Release, Star
from hub_server.registry.words import keep_words
from hub_server.secrets.service import forget_environment
from prime_cli.hub.models import ResolveRequest, Role, Visibility

_MIN_HASH_PREFIX = 8
_LONGEST_WANTED = 128  # the longest content hash; a version has 100 characters at most
_MAX_NAMES_COMPARED = 5000
_VERSIONS_OFFERED = 5
# Statements that every upload runs are made once: making one costs more than running it.
_ENVIRONMENTS, _RELEASES, _TAGS = table_of(Environment), table_of(Release), table_of(EnvironmentTag)
_PRESENT_LATEST = (
    select(_RELEASES.c.id, _RELEASES.c.version_key, _RELEASES.c.yanked_at)
    .select_from(_ENVIRONMENTS.outerjoin(_RELEASES, _RELEASES.c.id == _ENVIRONMENTS.c.latest_release_id))
    .where(_ENVIRONMENTS.c.id == bindparam("environment_id"))
)
_NOTE_PUBLISHED = (
    update(_ENVIRONMENTS)
    .where(_ENVIRONMENTS.c.id == bindparam("changed_id"))
    .values(index_serial=_ENVIRONMENTS.c.index_serial + 1)
)
_ADD_TAGS = _TAGS.insert()
_REMOVE_TAGS = delete(_TAGS).where(_TAGS.c.environment_id == bindparam("old_environment_id"))


def visible_to(user: User | None) -> ColumnElement[bool]:
    """Return the condition on Environment: published for all to see, or the user's own or their teams'."""
    public = and_(Environment.visibility == Visibility.PUBLIC, Environment.latest_release_id.is_not(None))
    mine = belongs_to(user, Environment.owner_id) if user is not None else None
    return and_(Environment.deleted_at.is_(None), public if mine is None else or_(public, mine))


def find_environment(session: Session, user: User | None, owner: str, name: str) -> Environment:
    """Return the environment `owner/name` that `user` may see.

    Raises:
        NotFound: there is none; names the nearest that the user may see.
    """
    found: Environment | None = session.scalar(
        _visible(user).where(Owner.slug == owner.lower(), Environment.normalized_name == canonicalize_name(name))
    )
    if found is None:
        raise NotFound(f"environment {owner}/{name} not found on this hub{_nearest(session, user, owner, name)}")
    return found


def find_for_anybody(session: Session, owner: str, name: str) -> Environment | None:
    """Return an environment whoever may see it; for the operator and for administrators."""
    return session.scalar(
        select(Environment)
        .join(Environment.owner)
        .where(
            Owner.slug == owner.lower(),
            Environment.normalized_name == canonicalize_name(name),
            Environment.deleted_at.is_(None),
        )
    )


def get_environment(session: Session, user: User | None, environment_id: str) -> Environment:
    """Return the environment of this id that `user` may see.

    Raises:
        NotFound: there is none.
    """
    found: Environment | None = session.scalar(_visible(user).where(Environment.id == environment_id))
    if found is None:
        raise NotFound(f"environment {environment_id} not found on this hub")
    return found


def resolve(session: Session, user: User, request: ResolveRequest) -> tuple[Environment, bool]:
    """Return the environment of this name of the owner that is named, else of the caller, made if it was not there.

    The second value says whether it was made.

    Raises:
        NotFound: there is no such owner or team.
        Forbidden: the caller may not publish for that owner, or not change who sees its environments.
    """
    slug = request.owner_slug or request.team_slug
    owner = owner_to_act_for(session, user, slug=slug, team_id=request.team_id)
    normalized = str(canonicalize_name(request.name))
    found = session.scalar(
        select(Environment).where(Environment.owner_id == owner.id, Environment.normalized_name == normalized)
    )
    if found is None:
        found = Environment(owner_id=owner.id, normalized_name=normalized, name=request.name, visibility="")
        session.add(found)
    created = found.id is None or found.deleted_at is not None
    if created:
        found.name, found.visibility = request.name, request.visibility or Visibility.PUBLIC
        found.created_at, found.deleted_at = now(), None
        audit.record(session, user, "environment.create", f"{owner.slug}/{found.name}", owner_id=owner.id)
    elif request.visibility is not None and found.visibility != request.visibility:
        _change_visibility(session, user, found, request.visibility)
    session.flush()
    session.refresh(found)
    return found, created


def releases_of(session: Session, environment: Environment) -> list[Release]:
    """Return the published versions with their files, newest first."""
    published = select(Release).where(_is_version_of(environment)).options(selectinload(Release.files))
    return list(session.scalars(published.order_by(Release.published_at.desc(), Release.id)))


def newest_releases(
    session: Session, environment: Environment, *, limit: int, offset: int = 0
) -> tuple[list[Release], int]:
    """Return one page of the published versions, newest first, and how many there are in all."""
    total = session.scalar(select(func.count()).select_from(Release).where(_is_version_of(environment))) or 0
    published = select(Release).where(_is_version_of(environment)).order_by(Release.published_at.desc(), Release.id)
    return list(session.scalars(published.limit(limit).offset(offset))), total


def latest_releases(session: Session, environments: Sequence[Environment]) -> dict[str, Release]:
    """Return the latest version of each environment that has one, by the environment's id."""
    ids = [environment.latest_release_id for environment in environments if environment.latest_release_id]
    return {release.environment_id: release for release in session.scalars(select(Release).where(Release.id.in_(ids)))}


def find_release(session: Session, environment: Environment, wanted: str) -> Release:
    """Return a published version by `latest`, by its number, or by its content hash or a unique prefix of 8 or more.

    Raises:
        NotFound: there is none; names those there are.
        Malformed: the prefix fits several.
    """
    if len(wanted) > _LONGEST_WANTED:
        # Reading a number of thousands of digits fails, and no version has one.
        raise _no_such_release(session, environment, f"{wanted[:20]}…")
    is_wanted = Release.version_key == canonicalize_version(wanted)
    if wanted == "latest":
        is_wanted = Release.id == environment.latest_release_id
    published = select(Release).where(_is_version_of(environment))
    matching = session.scalars(published.where(is_wanted)).all()
    if not matching and len(wanted) >= _MIN_HASH_PREFIX:
        has_prefix = Release.content_hash.startswith(wanted.lower(), autoescape=True)
        matching = session.scalars(published.where(has_prefix)).all()
    if len(matching) > 1:
        raise Malformed(f"{wanted!r} fits {len(matching)} versions; give more of the content hash")
    if not matching:
        raise _no_such_release(session, environment, wanted)
    return matching[0]


def delete_environment(session: Session, environment: Environment) -> None:
    """Hide an environment and all its versions for good; none of its versions is ever given again."""
    session.execute(update(Release).where(_is_version_of(environment)).values(deleted_at=now()))
    forget_environment(session, environment.id)
    environment.deleted_at = now()
    environment.latest_release_id = None
    # Whoever gets the name again begins anew.
    session.execute(delete(Star).where(Star.environment_id == environment.id))
    environment.stars, environment.downloads, environment.forked_from_id = 0, 0, None
    note_change(environment)
    session.flush()
    keep_words(session.connection(), environment.id)


def delete_release(session: Session, environment: Environment, wanted: str) -> Release:
    """Hide one version for good, and let `latest` be the next best.

    Raises:
        NotFound: there is no such version.
    """
    release = find_release(session, environment, wanted)
    release.deleted_at = now()
    session.flush()
    choose_latest(session, environment)
    return release


def yank_release(session: Session, environment: Environment, wanted: str, reason: str) -> Release:
    """Take a version back without breaking who asked for exactly it: installers choose it only when it is pinned.

    Repeating it changes the reason.

    Raises:
        NotFound: there is no such version.
    """
    release = find_release(session, environment, wanted)
    release.yanked_at, release.yanked_reason = release.yanked_at or now(), reason
    session.flush()
    choose_latest(session, environment)
    return release


def unyank_release(session: Session, environment: Environment, wanted: str) -> Release:
    """Offer a yanked version again; one that is not yanked stays as it is.

    Raises:
        NotFound: there is no such version.
    """
    release = find_release(session, environment, wanted)
    if release.yanked_at is not None:
        release.yanked_at, release.yanked_reason = None, ""
        session.flush()
        choose_latest(session, environment)
    return release


def choose_latest(session: Session, environment: Environment) -> None:
    """Let `latest` be the highest version that is neither yanked nor a pre-release, as an installer would choose.

    Where there is none of these it is the highest pre-release, and of yanked ones the highest.
    """
    facts = select(Release.id, Release.version_key, Release.yanked_at).where(_is_version_of(environment))
    best = max(session.execute(facts), key=lambda row: _rank(row.version_key, row.yanked_at), default=None)
    _set_latest(session, environment, best.id if best else None)


@dataclass(frozen=True)
class Offered:
    """What is asked of a version that was just published."""

    id: str
    version_key: str
    details: dict[str, Any]


def offer_as_latest(session: Session, environment_id: str, offered: Offered) -> None:
    """Let `latest` be a version that was just published, where it is higher than the present one.

    Ranks as `choose_latest`, and looks at two versions however many there are. The environment's description and tags
    are those of its latest version. Objects of the session do not hear of it.
    """
    connection = session.connection()
    present = connection.execute(_PRESENT_LATEST, {"environment_id": environment_id}).one()
    changes: dict[str, Any] = {"changed_id": environment_id, "updated_at": now()}
    if present.id is None or _rank(offered.version_key, None) >= _rank(present.version_key, present.yanked_at):
        changes["latest_release_id"] = offered.id
        changes["description"] = str(offered.details.get("description") or "")
        tags = sorted(set(offered.details.get("tags") or []))
        connection.execute(_REMOVE_TAGS, {"old_environment_id": environment_id})
        if tags:
            connection.execute(_ADD_TAGS, [{"environment_id": environment_id, "tag": tag} for tag in tags])
    connection.execute(_NOTE_PUBLISHED, changes)
    if "latest_release_id" in changes:
        keep_words(connection, environment_id)
    if present.id is None:
        claim_name(session, environment_id)


def _rank(version_key: str, yanked_at: datetime | None) -> tuple[bool, bool, Version]:
    version = Version(version_key)
    return yanked_at is None, not version.is_prerelease, version


def _set_latest(session: Session, environment: Environment, release_id: str | None) -> None:
    environment.latest_release_id = release_id
    environment.updated_at = now()
    note_change(environment)
    session.flush()
    keep_words(session.connection(), environment.id)
    claim_name(session, environment.id)


def _is_version_of(environment: Environment) -> ColumnElement[bool]:
    return and_(Release.environment_id == environment.id, Release.claimed, Release.deleted_at.is_(None))


def _no_such_release(session: Session, environment: Environment, wanted: str) -> NotFound:
    newest_first = select(Release.semantic_version).where(_is_version_of(environment))
    newest_first = newest_first.order_by(Release.published_at.desc(), Release.id)
    newest = session.scalars(newest_first.limit(_VERSIONS_OFFERED + 1)).all()
    name = f"{environment.owner.slug}/{environment.name}"
    if not newest:
        return NotFound(f"{name} has no published version yet: version {wanted} not found")
    there = ", ".join(newest[:_VERSIONS_OFFERED])
    more = ", …" if len(newest) > _VERSIONS_OFFERED else ""
    return NotFound(f"version {wanted} of {name} not found; there are {there}{more}")


def _visible(user: User | None) -> Select[Any]:
    return select(Environment).join(Environment.owner).where(visible_to(user))


def _nearest(session: Session, user: User | None, owner: str, name: str) -> str:
    """Return words that offer the nearest names the user may see.

    A misspelt name of this owner comes first, then the same name of another owner, then whatever is alike.
    """
    rows = session.execute(
        select(Owner.slug, Environment.normalized_name)
        .join(Environment.owner)
        .where(visible_to(user), Environment.latest_release_id.is_not(None))
        .limit(_MAX_NAMES_COMPARED)
    ).all()
    wanted = str(canonicalize_name(name))
    whole_names = [f"{slug}/{known}" for slug, known in rows]
    own = difflib.get_close_matches(wanted, [known for slug, known in rows if slug == owner], n=1)
    same = [whole for whole, (_, known) in zip(whole_names, rows, strict=True) if known == wanted]
    close_names = set(difflib.get_close_matches(wanted, {known for _, known in rows}, n=3))
    elsewhere = [whole for whole, (_, known) in zip(whole_names, rows, strict=True) if known in close_names]
    offered = list(dict.fromkeys([*(f"{owner}/{known}" for known in own), *same, *elsewhere]))[:3]
    return f"; did you mean {' or '.join(offered)}?" if offered else ""


def _change_visibility(session: Session, user: User, environment: Environment, visibility: Visibility) -> None:
    name = f"{environment.owner.slug}/{environment.name}"
    if not has_role(session, user, environment.owner_id, Role.OWNER):
        raise Forbidden(f"only an owner of {environment.owner.slug!r} can change who sees {name}")
    environment.visibility = visibility
    note_change(environment)
    session.flush()
    claim_name(session, environment.id)
    audit.record(
        session, user, "environment.visibility", name, owner_id=environment.owner_id, visibility=str(visibility)
    )
