"""Lists of environments: which ones, in which order, and how many of each kind there are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.utils import canonicalize_name
from sqlalchemy import ColumnElement, Select, case, desc, func, literal, or_, select, union_all
from sqlalchemy.orm import InstrumentedAttribute, Session, selectinload

from hub_server.accounts.tables import Owner, User
from hub_server.accounts.teams import belongs_to
from hub_server.checks.service import newest_check_status
from hub_server.registry.service import visible_to
from hub_server.registry.tables import Environment, EnvironmentTag, Release, Star
from hub_server.registry.words import has_word
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
_SEPARATORS = re.compile(r"[-_.]+")  # a name is known under all its spellings


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
    # The ids alone are sorted; whole rows are read for one page only. A search counts what it finds in the same pass.
    counted: list[Any] = [func.count().over()] if listing.filters.search else []
    matching = _matching(session, select(Environment.id, *counted), user, listing.filters)
    rows = session.execute(matching.order_by(*order).limit(listing.limit).offset(listing.offset)).all()
    if rows and counted:
        total = int(rows[0][1])
    else:
        total = session.scalar(_matching(session, select(func.count()), user, listing.filters)) or 0
    ids = [row[0] for row in rows]
    whole = select(Environment).where(Environment.id.in_(ids)).options(selectinload(Environment.tags))
    found = {environment.id: environment for environment in session.scalars(whole)}
    return [found[environment_id] for environment_id in ids], total


def count_facets(session: Session, user: User | None, filters: Filters) -> dict[str, list[dict[str, object]]]:
    """Return how many of the environments of a listing, all pages of it, have each tag, owner, runtime and so on.

    `checks` are the states of the newest check of the latest version. The most frequent come first; of tags and owners
    the first 50.
    """
    columns: list[Any] = [Environment.id, Environment.owner_id, Environment.visibility, Environment.latest_release_id]
    matching = _matching(session, select(*columns), user, filters).cte("matching").prefix_with("MATERIALIZED")
    owners = select(matching.c.owner_id, func.count().label("number")).group_by(matching.c.owner_id).subquery()
    sources: dict[str, Any] = {
        "tags": select(EnvironmentTag.tag.label("value"), func.count().label("number"))
        .join(matching, EnvironmentTag.environment_id == matching.c.id)
        .group_by(EnvironmentTag.tag),
        "owners": select(Owner.slug, owners.c.number).join(owners, Owner.id == owners.c.owner_id),
        "runtimes": select(Release.runtime_hint, func.count())
        .join(matching, Release.id == matching.c.latest_release_id)
        .group_by(Release.runtime_hint),
        "visibility": select(matching.c.visibility, func.count()).group_by(matching.c.visibility),
    }
    status = newest_check_status(matching.c.latest_release_id).label("status")
    sources["checks"] = select(status, func.count()).select_from(matching).group_by(status)
    # One statement, so that what matches is looked for once.
    named = [counted.add_columns(literal(name).label("facet")) for name, counted in sources.items()]
    facets: dict[str, list[dict[str, object]]] = {name: [] for name in sources}
    for value, number, name in session.execute(union_all(*named).order_by(desc("number"), "value")):
        if value and len(facets[name]) < _VALUES_COUNTED:
            facets[name].append({"value": value, "count": number})
    return facets


def _matching(session: Session, rows: Select[Any], user: User | None, filters: Filters) -> Select[Any]:
    dialect = session.get_bind().dialect.name
    conditions = [visible_to(user)]
    if not filters.mine_only:
        conditions.append(Environment.latest_release_id.is_not(None))
    elif user is not None:
        conditions.append(belongs_to(user, Environment.owner_id))
    if filters.starred_only:
        theirs = select(Star.environment_id).where(Star.user_id == (user.id if user else ""))
        conditions.append(Environment.id.in_(theirs))
    if filters.owner:
        conditions.append(Environment.owner_id.in_(select(Owner.id).where(Owner.slug == filters.owner.lower())))
    if filters.visibility:
        conditions.append(Environment.visibility == filters.visibility)
    if filters.runtime:
        conditions.append(
            Environment.latest_release_id.in_(select(Release.id).where(Release.runtime_hint == filters.runtime))
        )
    if filters.check_states:
        conditions.append(newest_check_status(Environment.latest_release_id).in_(filters.check_states))
    for word in (filters.search or "").lower().split():
        conditions.append(_mentions(dialect, word))
    for tag in filters.tags:
        tagged = select(EnvironmentTag.environment_id).where(func.lower(EnvironmentTag.tag) == tag.lower())
        conditions.append(Environment.id.in_(tagged))
    return rows.select_from(Environment).where(*conditions)


def _mentions(dialect: str, word: str) -> ColumnElement[bool]:
    said = has_word(dialect, word)
    places = [place for place, _ in _places(word)]
    return or_(*places, *([] if said is None else [said]))


def _fit(search: str) -> ColumnElement[int]:
    """Return how well an environment fits the words of a search: a word counts most where it is the whole name."""
    points: ColumnElement[int] = literal(0)
    for word in search.lower().split():
        whole_name = (Environment.normalized_name == str(canonicalize_name(word)), _WHOLE_NAME_POINTS)
        described = (func.lower(Environment.description).like(_within(word), escape="\\"), 3)
        points = points + case(whole_name, *_places(word), described, else_=0)
    return points


def _places(word: str) -> list[tuple[ColumnElement[bool], int]]:
    """Return where a word can stand beside running text, the most telling place first, with its points."""
    named = Environment.normalized_name.like(_within(_SEPARATORS.sub("-", word)), escape="\\")
    tagged = select(EnvironmentTag.environment_id).where(func.lower(EnvironmentTag.tag) == word)
    owned = select(Owner.id).where(Owner.slug.like(_within(word), escape="\\"))
    return [(named, 20), (Environment.id.in_(tagged), 10), (Environment.owner_id.in_(owned), 5)]


def _within(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
