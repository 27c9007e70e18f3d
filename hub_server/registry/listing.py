"""Lists of environments: which ones, in which order, and how many of each kind there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.utils import canonicalize_name
from sqlalchemy import ColumnElement, Select, Subquery, case, func, literal, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, selectinload

from hub_server.accounts.tables import Owner, User
from hub_server.accounts.teams import belongs_to
from hub_server.checks.service import newest_check_status
from hub_server.registry.service import visible_to
from hub_server.registry.tables import Environment, EnvironmentTag, Release, Star
from prime_cli.hub.models import Visibility

SortKey = Literal["name", "created_at", "updated_at", "stars", "downloads"]
_SORT_COLUMNS: dict[SortKey, InstrumentedAttribute[Any]] = {
    "name": Environment.normalized_name,
    "created_at": Environment.created_at,
    "updated_at": Environment.updated_at,
    "stars": Environment.stars,
    "downloads": Environment.downloads,
}
_VALUES_COUNTED = 50
_WHOLE_NAME_POINTS = 50


@dataclass(frozen=True)
class Filters:
    """Which environments. Every word of `search` and every one of `tags` has to fit.

    `check_states`: one of these is the state of the latest version's newest check.
    """

    owner: str | None = None
    visibility: Visibility | None = None
    search: str | None = None
    tags: list[str] = field(default_factory=list)
    runtime: str | None = None
    mine_only: bool = False
    starred_only: bool = False
    check_states: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A page of environments. Without `sort_by` what fits a search best comes first, else the newest."""

    filters: Filters = Filters()
    sort_by: SortKey | None = None
    sort_order: Literal["asc", "desc"] = "desc"
    limit: int = 20
    offset: int = 0


def list_environments(session: Session, user: User | None, listing: Listing) -> tuple[list[Environment], int]:
    """Return one page of what `user` may see, and how many there are in all.

    Without `mine_only`, environments without a published version are left out.
    """
    key = _SORT_COLUMNS[listing.sort_by or "created_at"]
    order = [key.asc() if listing.sort_order == "asc" else key.desc(), Environment.id]
    if listing.sort_by is None and listing.filters.search:
        order.insert(0, _fit(listing.filters.search).desc())
    # The ids alone are sorted and counted, in one pass; whole rows are read for one page only.
    counted: Any = select(Environment.id, func.count().over())
    page = _matching(counted, user, listing.filters).order_by(*order).limit(listing.limit).offset(listing.offset)
    rows = session.execute(page).all()
    if not rows:
        matching = _matching(select(Environment.id), user, listing.filters)
        return [], session.scalar(select(func.count()).select_from(matching.subquery())) or 0
    whole = (
        select(Environment).where(Environment.id.in_([row[0] for row in rows])).options(selectinload(Environment.tags))
    )
    found = {environment.id: environment for environment in session.scalars(whole)}
    return [found[row[0]] for row in rows], int(rows[0][1])


def count_facets(session: Session, user: User | None, filters: Filters) -> dict[str, list[dict[str, object]]]:
    """Return how many of the environments of a listing, all pages of it, have each tag, owner, runtime and so on.

    `checks` are the states of the newest check of the latest version. The most frequent come first; of tags and owners
    the first 50.
    """
    matching = _matching(select(Environment.id), user, filters).subquery()
    sources: dict[str, tuple[Any, Any]] = {
        "tags": (EnvironmentTag.tag, Environment.id == EnvironmentTag.environment_id),
        "owners": (Owner.slug, Environment.owner_id == Owner.id),
        "runtimes": (Release.runtime_hint, Environment.latest_release_id == Release.id),
    }
    facets: dict[str, Any] = {
        name: select(column, func.count()).join(Environment, is_of).group_by(column)
        for name, (column, is_of) in sources.items()
    }
    facets["visibility"] = select(Environment.visibility, func.count()).group_by(Environment.visibility)
    status = newest_check_status(Environment.latest_release_id).label("status")
    facets["checks"] = select(status, func.count()).select_from(Environment).group_by(status)
    return {name: _most_frequent(session, counted, matching) for name, counted in facets.items()}


def _most_frequent(session: Session, counted: Select[Any], matching: Subquery) -> list[dict[str, object]]:
    rows = counted.where(Environment.id.in_(select(matching.c.id)))
    rows = rows.order_by(func.count().desc(), counted.selected_columns[0]).limit(_VALUES_COUNTED)
    return [{"value": value, "count": count} for value, count in session.execute(rows) if value]


def _matching(rows: Select[Any], user: User | None, filters: Filters) -> Select[Any]:
    conditions = [visible_to(user)]
    if not filters.mine_only:
        conditions.append(Environment.latest_release_id.is_not(None))
    elif user is not None:
        conditions.append(belongs_to(user, Environment.owner_id))
    if filters.starred_only:
        theirs = select(Star.environment_id).where(Star.user_id == (user.id if user else ""))
        conditions.append(Environment.id.in_(theirs))
    if filters.owner:
        conditions.append(Owner.slug == filters.owner.lower())
    if filters.visibility:
        conditions.append(Environment.visibility == filters.visibility)
    if filters.runtime:
        conditions.append(
            Environment.latest_release_id.in_(select(Release.id).where(Release.runtime_hint == filters.runtime))
        )
    if filters.check_states:
        conditions.append(newest_check_status(Environment.latest_release_id).in_(filters.check_states))
    for word in (filters.search or "").lower().split():
        conditions.append(_mentions(word))
    for tag in filters.tags:
        tagged = select(EnvironmentTag.environment_id).where(func.lower(EnvironmentTag.tag) == tag.lower())
        conditions.append(Environment.id.in_(tagged))
    return rows.join(Environment.owner).where(*conditions)


def _mentions(word: str) -> ColumnElement[bool]:
    return or_(*(place for place, _ in _places(word)))


def _fit(search: str) -> ColumnElement[int]:
    """Return how well an environment fits the words of a search: a word counts most where it is the whole name."""
    points: ColumnElement[int] = literal(0)
    for word in search.lower().split():
        whole_name = (Environment.normalized_name == str(canonicalize_name(word)), _WHOLE_NAME_POINTS)
        points = points + case(whole_name, *_places(word), else_=0)
    return points


def _places(word: str) -> list[tuple[ColumnElement[bool], int]]:
    """Return where a word can stand, the most telling place first, with its points."""
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

    def holds(text: Any) -> ColumnElement[bool]:
        return func.lower(text).like(f"%{escaped}%", escape="\\")

    tagged = select(EnvironmentTag.environment_id).where(func.lower(EnvironmentTag.tag) == word)
    return [
        (holds(Environment.name), 20),
        (Environment.id.in_(tagged), 10),
        (Owner.slug.like(f"%{escaped}%", escape="\\"), 5),
        (holds(Environment.description), 3),
    ]
