"""What narrows the list of environments down: read from the query of a page's address, and written into its links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query

from hub_server.registry.listing import Filters, Listing, SortKey
from prime_cli.hub.models import Visibility

PER_PAGE = 20
PageNumber = Annotated[int, Query(alias="page", ge=1, le=10**6)]
SORTS: dict[str, tuple[str, SortKey | None, Literal["asc", "desc"]]] = {
    "best": ("Best match", None, "desc"),
    "stars": ("Most stars", "stars", "desc"),
    "downloads": ("Most downloads", "downloads", "desc"),
    "newest": ("Newest", "created_at", "desc"),
    "updated": ("Last updated", "updated_at", "desc"),
    "name": ("Name", "name", "asc"),
}
_DEFAULT_SORT = "best"


@dataclass(frozen=True)
class Browsing:
    """What a visitor asked the list for."""

    search: str = ""
    owner: str = ""
    tags: list[str] = field(default_factory=list)
    visibility: str = ""
    runtime: str = ""
    check: str = ""
    starred: str = ""
    sort: str = _DEFAULT_SORT

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is left out."""
        return bool(
            self.search or self.owner or self.tags or self.visibility or self.runtime or self.check or self.starred
        )

    @property
    def sorts(self) -> list[tuple[str, str]]:
        """The orders to choose from, with their labels."""
        return [(value, label) for value, (label, _, _) in SORTS.items()]

    def filters(self, *, signed_in: bool) -> Filters:
        """Return what the registry is asked for. Visibility and stars are questions for who is signed in."""
        return Filters(
            owner=self.owner or None,
            visibility=Visibility(self.visibility) if signed_in and self.visibility in list(Visibility) else None,
            search=self.search or None,
            tags=self.tags,
            runtime=self.runtime or None,
            check_states=(self.check,) if self.check else (),
            starred_only=signed_in and bool(self.starred),
        )

    def listing(self, *, signed_in: bool, page: int) -> Listing:
        """Return the page of the list that the registry is asked for."""
        _, sort_by, sort_order = SORTS.get(self.sort, SORTS[_DEFAULT_SORT])
        offset = (page - 1) * PER_PAGE
        return Listing(self.filters(signed_in=signed_in), sort_by, sort_order, limit=PER_PAGE, offset=offset)

    def link(self, page: int = 1) -> str:
        """Return the address of a page of this list."""
        asked: dict[str, str | list[str]] = {
            "q": self.search,
            "owner": self.owner,
            "tag": self.tags,
            "visibility": self.visibility,
        }
        asked |= {"runtime": self.runtime, "check": self.check, "starred": self.starred}
        kept = {name: value for name, value in asked.items() if value}
        if self.sort != _DEFAULT_SORT:
            kept["sort"] = self.sort
        if page > 1:
            kept["page"] = str(page)
        return f"/?{urlencode(kept, doseq=True)}" if kept else "/"

    def with_tag(self, tag: str) -> Browsing:
        """Return the same with one more tag."""
        return replace(self, tags=[*self.tags, tag])

    def without_tag(self, tag: str) -> Browsing:
        """Return the same without this tag."""
        return replace(self, tags=[kept for kept in self.tags if kept != tag])

    def but(self, **changes: str) -> Browsing:
        """Return the same but for these."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _browsing(
    q: Annotated[str, Query(max_length=200)] = "",
    owner: Annotated[str, Query(max_length=30)] = "",
    tag: Annotated[list[str] | None, Query(max_length=10)] = None,
    visibility: Annotated[str, Query(max_length=10)] = "",
    runtime: Annotated[str, Query(max_length=50)] = "",
    check: Annotated[str, Query(pattern="^(|passed|failed)$")] = "",
    starred: Annotated[str, Query(max_length=5)] = "",
    sort: Annotated[str, Query(max_length=20)] = _DEFAULT_SORT,
) -> Browsing:
    tags = [name for name in dict.fromkeys(tag or []) if name]
    sort = sort if sort in SORTS else _DEFAULT_SORT
    return Browsing(q.strip(), owner.strip(), tags, visibility, runtime, check, starred, sort)


BrowsingQuery = Annotated[Browsing, Depends(_browsing)]


def _own_address(page: int) -> str:
    return f"?page={page}"


@dataclass(frozen=True)
class Pager:
    """Where a visitor is in a long list, and the links to its neighbours."""

    number: int
    total: int
    per_page: int
    link: Callable[[int], str] = _own_address

    @property
    def pages(self) -> int:
        """How many pages there are; an empty list has one."""
        return max(-(-self.total // self.per_page), 1)

    @property
    def first(self) -> int:
        """The number of the first row on this page, counted from 1."""
        return (self.number - 1) * self.per_page + 1

    @property
    def is_past_the_end(self) -> bool:
        """Whether there is no such page."""
        return self.number > self.pages
