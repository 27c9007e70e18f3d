"""The simple index as text: PEP 691 JSON and PEP 503 HTML from the same facts, chosen by the Accept header."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
LEGACY_TYPE = "text/html"
_API_VERSION = "1.4"  # PEP 700: versions, sizes and upload times; PEP 792: the status of a project
# Each form with the ranges that ask for it, the most exact first; among equals the first form is answered.
_ASKED_BY = {
    LEGACY_TYPE: (LEGACY_TYPE, "text/*", "*/*"),
    JSON_TYPE: (JSON_TYPE, "application/vnd.pypi.simple.latest+json", "application/*", "*/*"),
    HTML_TYPE: (HTML_TYPE, "application/vnd.pypi.simple.latest+html", "application/*", "*/*"),
}
_QUALITY = re.compile(r"q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


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
    yanked: bool = False
    yanked_reason: str = ""
    provenance_url: str | None = None  # PEP 740; a whole address, as it asks


@dataclass(frozen=True)
class IndexStatus:
    """How a project is marked (PEP 792)."""

    status: str
    reason: str = ""


def negotiate(accept: str | None) -> str | None:
    """Return the media type to answer with: the highest q wins, ties go to the order of the header; None if none fits.

    Of several ranges that fit a form the most exact one says how welcome it is (RFC 9110, 12.5.1). Without a header it
    is HTML, as PEP 691 asks.
    """
    asked: dict[str, tuple[float, int]] = {}
    for place, part in enumerate((accept or "*/*").split(",")):
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        asked.setdefault(media_range, (_quality(parameters), -place))
    fitting = {}
    for form, ranges in _ASKED_BY.items():
        found = next((asked[media_range] for media_range in ranges if media_range in asked), None)
        if found is not None and found[0] > 0:
            fitting[form] = found
    return max(fitting, key=lambda form: fitting[form], default=None)


def render_projects(names: Sequence[str], media_type: str) -> str:
    """Return the page that lists the projects."""
    if media_type == JSON_TYPE:
        projects = [{"name": name} for name in names]
        return json.dumps({"meta": {"api-version": _API_VERSION}, "projects": projects})
    return _page("Simple index", [f'<a href="{html.escape(name)}/">{html.escape(name)}</a>' for name in names])


def render_project(name: str, status: IndexStatus, files: Sequence[IndexFile], media_type: str) -> str:
    """Return the page of one project."""
    if media_type == JSON_TYPE:
        versions = list(dict.fromkeys(file.version for file in files))
        entries = [_json_entry(file) for file in files]
        mark = {"status": status.status, **({"reason": status.reason} if status.reason else {})}
        meta = {"api-version": _API_VERSION}
        return json.dumps({"meta": meta, "name": name, "project-status": mark, "versions": versions, "files": entries})
    return _page(f"Links for {name}", [_html_entry(file) for file in files], status)


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
        "yanked": (file.yanked_reason or True) if file.yanked else False,
        **({"provenance": file.provenance_url} if file.provenance_url else {}),
    }


def _html_entry(file: IndexFile) -> str:
    attributes = {"href": f"{quote(file.url, safe='/:')}#sha256={file.sha256}"}
    if file.requires_python:
        attributes["data-requires-python"] = file.requires_python
    if file.metadata_sha256:
        # The first name is PEP 714's, the second is what installers older than it read.
        attributes["data-core-metadata"] = attributes["data-dist-info-metadata"] = f"sha256={file.metadata_sha256}"
    if file.yanked:
        attributes["data-yanked"] = file.yanked_reason
    if file.provenance_url:
        attributes["data-provenance"] = file.provenance_url
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(file.filename)}</a>"


def _page(title: str, links: Sequence[str], status: IndexStatus | None = None) -> str:
    marks = ""
    if status is not None:
        marks = f'    <meta name="pypi:project-status" content="{html.escape(status.status)}">\n'
        if status.reason:
            marks += f'    <meta name="pypi:project-status-reason" content="{html.escape(status.reason)}">\n'
    body = "".join(f"    {link}<br>\n" for link in links)
    return (
        "<!DOCTYPE html>\n<html>\n  <head>\n"
        f'    <meta name="pypi:repository-version" content="{_API_VERSION}">\n{marks}'
        f"    <title>{html.escape(title)}</title>\n  </head>\n  <body>\n{body}  </body>\n</html>\n"
    )


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q"):
            match = _QUALITY.fullmatch(parameter)
            return float(match[1]) if match else 0.0
    return 1.0
