"""The queue of checks: what is waiting, who works on it, what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, CursorResult, ScalarSelect, Update, and_, delete, func, select, update
from sqlalchemy.orm import Session, undefer

from hub_server.checks.tables import Check, CheckStatus
from hub_server.database import now, table_of
from hub_server.errors import Conflict, NotFound
from hub_server.registry.tables import Environment, Release

MAX_ATTEMPTS = 3
LIBRARY = "library"  # the kind of a version that is no environment
# A runner renews its claim every few seconds; one that did not for so long is dead.
LEASE = timedelta(seconds=60)
_KEPT_FOR_EACH_VERSION = 5
_LIBRARY_REASON = "a library, which has no environment to load"
_ADD_CHECK = table_of(Check).insert()
_UNFINISHED = (CheckStatus.QUEUED, CheckStatus.RUNNING)


def queue_first_check(session: Session, release_id: str, details: dict[str, Any]) -> None:
    """Queue the check of a version in the transaction that publishes it; a plain library has nothing to check."""
    check: dict[str, Any] = {"release_id": release_id, "trigger": "publish"}
    if details.get("kind") == LIBRARY:
        moment = now()
        skipped = {"status": CheckStatus.SKIPPED, "facts": {"reason": _LIBRARY_REASON}}
        check.update(**skipped, queued_at=moment, finished_at=moment)
    session.connection().execute(_ADD_CHECK, check)


def queue_check(session: Session, release: Release, trigger: str) -> Check:
    """Queue a check of a version; one that waits already is returned instead. Old ones of the version are removed."""
    waiting = session.scalar(
        select(Check).where(Check.release_id == release.id, Check.status == CheckStatus.QUEUED).limit(1)
    )
    if waiting is not None:
        return waiting
    check = Check(release_id=release.id, trigger=trigger)
    session.add(check)
    session.flush()
    newest = (
        select(Check.id).where(Check.release_id == release.id).order_by(Check.queued_at.desc(), Check.id.desc())
    ).limit(_KEPT_FOR_EACH_VERSION)
    session.execute(
        delete(Check).where(
            Check.release_id == release.id,
            Check.status.not_in(_UNFINISHED),
            Check.id.not_in(list(session.scalars(newest))),
        )
    )
    return check


def retry_check(session: Session, environment: Environment, check_id: str | None) -> Check:
    """Queue again what was checked before: a check by its id, else the newest version.

    Raises:
        NotFound: there is no such check, or no version.
        Conflict: it is running, or the version is no environment.
    """
    release_id = environment.latest_release_id
    if check_id is not None:
        release_id = find_check(session, environment, check_id).release_id
    release = session.get(Release, release_id) if release_id else None
    if release is None or release.deleted_at is not None:
        raise NotFound(f"{environment.owner.slug}/{environment.name} has no version to check: version not found")
    if release.details.get("kind") == LIBRARY:
        raise Conflict(f"version {release.semantic_version} is {_LIBRARY_REASON}")
    newest = latest_checks(session, [release.id]).get(release.id)
    if newest is not None and newest.status == CheckStatus.RUNNING:
        raise Conflict(f"the check of version {release.semantic_version} is running; wait for it")
    return queue_check(session, release, "retry")


def queued_within(session: Session, seconds: float) -> int:
    """Return how many checks were queued in the last seconds and wait still."""
    newest = Check.queued_at > now() - timedelta(seconds=seconds)
    return session.scalar(select(func.count()).where(Check.status == CheckStatus.QUEUED, newest)) or 0


def claim_check(session: Session, runner: str, only: Sequence[str] | None = None) -> Check | None:
    """Take the check that has waited longest, in the caller's transaction; None when nothing waits.

    Of two runners that want the same one, whichever updates the row first gets it. `only` names checks by their ids.
    """
    waiting = (
        select(Check.id)
        .join(Check.release)
        .where(Check.status == CheckStatus.QUEUED, Release.deleted_at.is_(None))
        .order_by(Check.queued_at, Check.id)
        .limit(10)
    )
    if only is not None:
        waiting = waiting.where(Check.id.in_(only))
    for check_id in session.scalars(waiting).all():
        moment = now()
        taken = _changed(
            session,
            update(Check)
            .where(Check.id == check_id, Check.status == CheckStatus.QUEUED)
            .values(
                status=CheckStatus.RUNNING, runner=runner, attempts=Check.attempts + 1, started_at=moment,
                renewed_at=moment,
            )
        )  # fmt: skip
        if taken == 1:
            return session.get_one(Check, check_id, populate_existing=True)
    return None


def renew_claim(session: Session, check_id: str, runner: str) -> bool:
    """Say that the runner still works on a check; false when it was taken away meanwhile."""
    return _changed(session, update(Check).where(_held(check_id, runner)).values(renewed_at=now())) == 1


def finish_check(
    session: Session, check_id: str, runner: str, status: CheckStatus, facts: dict[str, Any], log: str
) -> bool:
    """Write down what came of a check; false when it was taken away meanwhile, and nothing is written then."""
    values = {"status": status, "facts": facts, "log": log, "finished_at": now()}
    return _changed(session, update(Check).where(_held(check_id, runner)).values(values)) == 1


def release_claim(session: Session, check_id: str, runner: str) -> None:
    """Put a check back that the runner will not finish; this attempt does not count."""
    values = {"status": CheckStatus.QUEUED, "runner": None, "attempts": Check.attempts - 1}
    session.execute(update(Check).where(_held(check_id, runner)).values(values))


def requeue_lost(session: Session) -> int:
    """Queue again what dead runners worked on; what was lost too often ends as an error. Return how many there were."""
    words = f"its runner ended before the check did, {MAX_ATTEMPTS} times"
    given_up = _changed(
        session,
        update(Check)
        .where(_lost(), Check.attempts >= MAX_ATTEMPTS)
        .values(status=CheckStatus.ERROR, facts={"reason": words}, finished_at=now()),
    )
    again = _changed(session, update(Check).where(_lost()).values(status=CheckStatus.QUEUED, runner=None))
    return given_up + again


def waiting_or_lost(session: Session) -> bool:
    """Say whether there is anything for a runner to do; reading is cheaper than trying to write."""
    queued = and_(Check.status == CheckStatus.QUEUED, Release.deleted_at.is_(None))
    waiting = select(Check.id).join(Check.release).where(queued)
    return any(session.scalar(found.limit(1)) is not None for found in (waiting, select(Check.id).where(_lost())))


def latest_checks(session: Session, release_ids: Sequence[str]) -> dict[str, Check]:
    """Return the newest check of each version that has one, by the version's id."""
    if not release_ids:
        return {}
    newest = (
        select(Check.release_id, func.max(Check.queued_at).label("queued_at"))
        .where(Check.release_id.in_(release_ids))
        .group_by(Check.release_id)
        .subquery()
    )
    found = session.scalars(
        select(Check)
        .join(newest, and_(Check.release_id == newest.c.release_id, Check.queued_at == newest.c.queued_at))
        .order_by(Check.id)
    )
    return {check.release_id: check for check in found}


def newest_check_status(release_id: Any) -> ScalarSelect[str]:
    """Return the state of the newest check of a version, as a part of a statement; NULL where there is none."""
    newest = (
        select(Check.status)
        .where(Check.release_id == release_id)
        .order_by(Check.queued_at.desc(), Check.id.desc())
        .limit(1)
    )
    return newest.scalar_subquery()


def list_checks(
    session: Session, environment: Environment, release_id: str | None, *, limit: int, offset: int
) -> tuple[list[Check], int]:
    """Return one page of the checks of an environment, newest first, and how many there are."""
    conditions: list[ColumnElement[bool]] = [
        Release.environment_id == environment.id, Release.deleted_at.is_(None)
    ]  # fmt: skip
    if release_id:
        conditions.append(Release.id == release_id)
    matching = select(Check).join(Check.release).where(*conditions)
    total = session.scalar(select(func.count()).select_from(matching.subquery())) or 0
    page = matching.order_by(Check.queued_at.desc(), Check.id).limit(limit).offset(offset)
    return list(session.scalars(page)), total


def find_check(session: Session, environment: Environment, check_id: str) -> Check:
    """Return a check of an environment, with its log.

    Raises:
        NotFound: there is none of this id.
    """
    found = session.scalar(
        select(Check)
        .join(Check.release)
        .where(Check.id == check_id, Release.environment_id == environment.id, Release.deleted_at.is_(None))
        .options(undefer(Check.log))
    )
    if found is None:
        raise NotFound(f"check {check_id} of {environment.owner.slug}/{environment.name} not found")
    return found


def _lost() -> ColumnElement[bool]:
    return and_(Check.status == CheckStatus.RUNNING, Check.renewed_at < now() - LEASE)


def _changed(session: Session, statement: Update) -> int:
    """Run an update and return how many rows it changed."""
    return cast("CursorResult[Any]", session.execute(statement)).rowcount


def _held(check_id: str, runner: str) -> ColumnElement[bool]:
    return and_(Check.id == check_id, Check.status == CheckStatus.RUNNING, Check.runner == runner)
