"""What a version says of itself in the METADATA of its wheel: its README, what it depends on, its license."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from packaging.metadata import parse_email

from hub_server.blobs import BlobStore
from hub_server.registry.tables import Release

_MAX_BYTES = 10 * 1024**2


@dataclass(frozen=True)
class PackageFacts:
    """The parts of a METADATA that people read. `links` are names with web addresses."""

    readme: str = ""
    readme_type: str | None = None
    dependencies: list[str] = field(default_factory=list)
    license: str = ""
    author: str = ""
    links: list[tuple[str, str]] = field(default_factory=list)


def facts_of(blobs: BlobStore, release: Release | None) -> PackageFacts:
    """Return what the wheel of a version says; nothing for a version without a wheel."""
    files = release.files if release is not None else []
    sha256 = next((file.metadata_sha256 for file in files if file.metadata_sha256), None)
    return _read(blobs, sha256) if sha256 else PackageFacts()


@lru_cache(maxsize=256)
def _read(blobs: BlobStore, sha256: str) -> PackageFacts:
    raw, other = parse_email(blobs.read(sha256, 0, _MAX_BYTES))
    # A description that is no UTF-8 ends up among what could not be read.
    readme = raw.get("description") or next(iter(other.get("description", [])), "")
    return PackageFacts(
        readme=readme,
        readme_type=raw.get("description_content_type"),
        dependencies=list(raw.get("requires_dist", [])),
        license=raw.get("license_expression") or _one_line(raw.get("license") or ""),
        author=raw.get("author") or raw.get("author_email") or "",
        links=_links(raw.get("project_urls") or {}, raw.get("home_page")),
    )


def _links(named: dict[str, str], home_page: str | None) -> list[tuple[str, str]]:
    links = [*named.items(), *([("Homepage", home_page)] if home_page else [])]
    return [(name, url) for name, url in links if url.startswith(("https://", "http://"))]


def _one_line(text: str) -> str:
    """Return a license that is a name, and nothing of one that is a whole text."""
    return text if len(text) <= 60 and "\n" not in text else ""
