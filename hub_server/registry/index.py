"""The simple index as text: PEP 691 JSON and PEP 503 HTML from the same facts, chosen by the Accept header."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
LEGACY_TYPE = "text/html"
_API_VERSION = "1.1"  # PEP 700: versions, sizes and upload times
_OFFERED = {
    JSON_TYPE: JSON_TYPE,
    "application/vnd.pypi.simple.latest+json": JSON_TYPE,
    HTML_TYPE: HTML_TYPE,
    "application/vnd.pypi.simple.latest+html": HTML_TYPE,
    LEGACY_TYPE: LEGACY_TYPE,
    "text/*": LEGACY_TYPE,
    "application/*": JSON_TYPE,
    "*/*": LEGACY_TYPE,
}


@dataclass(frozen=True)
class IndexFile:
    """A wheel on a project's page. `url` may be relative to the page; `metadata_sha256` is that of its METADATA."""

    filename: str
    url: str
    sha256: str
    size: int
    version: str
    requires_python: str | None
    metadata_sha256: str | None
    uploaded_at: datetime


def negotiate(accept: str | None) -> str | None:
    """Return the media type to answer with: the highest q wins, ties go to the order of the header; None if none fits.

    Without a header it is HTML, as PEP 691 asks.
    """
    best: tuple[float, str] | None = None
    for part in (accept or "*/*").split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        offered = _OFFERED.get(media_type)
        quality = _quality(parameters)
        if offered is not None and quality > 0 and (best is None or quality > best[0]):
            best = (quality, offered)
    return best[1] if best else None


def render_projects(names: Sequence[str], media_type: str) -> str:
    """Return the page that lists the projects."""
    if media_type == JSON_TYPE:
        projects = [{"name": name} for name in names]
        return json.dumps({"meta": {"api-version": _API_VERSION}, "projects": projects})
    return _page("Simple index", [f'<a href="{html.escape(name)}/">{html.escape(name)}</a>' for name in names])


def render_project(name: str, files: Sequence[IndexFile], media_type: str) -> str:
    """Return the page of one project."""
    if media_type == JSON_TYPE:
        versions = list(dict.fromkeys(file.version for file in files))
        entries = [_json_entry(file) for file in files]
        return json.dumps({"meta": {"api-version": _API_VERSION}, "name": name, "versions": versions, "files": entries})
    return _page(f"Links for {name}", [_html_entry(file) for file in files])


def _json_entry(file: IndexFile) -> dict[str, object]:
    metadata: object = {"sha256": file.metadata_sha256} if file.metadata_sha256 else False
    return {
        "filename": file.filename,
        "url": quote(file.url, safe="/:"),
        "hashes": {"sha256": file.sha256},
        **({"requires-python": file.requires_python} if file.requires_python else {}),
        "core-metadata": metadata,
        "data-dist-info-metadata": metadata,
        "size": file.size,
        "upload-time": file.uploaded_at.isoformat().replace("+00:00", "Z"),
        "yanked": False,
    }


def _html_entry(file: IndexFile) -> str:
    attributes = {"href": f"{quote(file.url, safe='/:')}#sha256={file.sha256}"}
    if file.requires_python:
        attributes["data-requires-python"] = file.requires_python
    if file.metadata_sha256:
        # The first name is PEP 714's, the second is what installers older than it read.
        attributes["data-core-metadata"] = attributes["data-dist-info-metadata"] = f"sha256={file.metadata_sha256}"
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(file.filename)}</a>"


def _page(title: str, links: Sequence[str]) -> str:
    body = "".join(f"    {link}<br>\n" for link in links)
    return (
        "<!DOCTYPE html>\n<html>\n  <head>\n"
        f'    <meta name="pypi:repository-version" content="{_API_VERSION}">\n'
        f"    <title>{html.escape(title)}</title>\n  </head>\n  <body>\n{body}  </body>\n</html>\n"
    )


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
