"""What a hub has: lists of environments, one environment's details, its versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from prime_cli.core.errors import BadInput, HubError
from prime_cli.environments.resolve import EnvironmentId

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

_URL_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])? *@ *[a-z+]+://")
_INDEX_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class EnvironmentDetails:
    """A version of an environment on a hub; `raw` is the hub's whole answer."""

    owner: str
    name: str
    version: str
    content_hash: str
    visibility: str
    description: str
    raw: dict[str, Any]

    @property
    def distribution(self) -> str:
        """The normalised name of the package."""
        return str(canonicalize_name(self.name))

    @property
    def url_dependencies(self) -> list[str]:
        """The dependencies on addresses, which uv takes only when they are named on its command line.

        What is no such requirement is left out: an answer of a hub never becomes an option of an installer.
        """
        named = [str(text) for text in self.raw.get("url_dependencies") or []]
        return [text for text in named if _URL_REQUIREMENT.match(text)]

    @property
    def index_url(self) -> str | None:
        """The owner's package index; for a private environment it carries a token."""
        return self.raw.get("install_index_url") or self.raw.get("simple_index_url") or None


@dataclass(frozen=True)
class WheelLocation:
    """Where a wheel is to be had; `sha256` is None when the hub does not say."""

    url: str
    filename: str
    sha256: str | None


@dataclass(frozen=True)
class Page:
    """One page of the list of environments; `rows` are the hub's, numbered from 1 by `number`."""

    rows: list[dict[str, Any]]
    total: int
    number: int
    size: int


def require_hub_id(identity: EnvironmentId) -> tuple[str, str]:
    """Return owner and name.

    Raises:
        BadInput: the id has no owner.
    """
    if identity.owner is None:
        raise BadInput(
            f"{identity} names no owner", hint=f"write `OWNER/{identity.name}`, as `prime env list` shows it"
        )
    return identity.owner, identity.name


def fetch_details(client: HubClient, identity: EnvironmentId) -> EnvironmentDetails:
    """Ask the hub for one version, the newest when none is asked for.

    Raises:
        HubError: there is no such environment or version; the hub's words name the nearest.
    """
    owner, name = require_hub_id(identity)
    try:
        raw = _data(client.get(f"environmentshub/{owner}/{name}/@{quote(identity.version or 'latest', safe='')}"))
    except HubError as error:
        if error.status == 404 and client.api_key is None:
            hint = "if it is a private one, run `prime login` first"
            raise HubError(error.message, error.hint or hint, error.status) from None
        raise
    metadata = raw.get("metadata") or {}
    return EnvironmentDetails(
        owner=owner,
        name=str(raw.get("name") or name),
        version=str(raw.get("semantic_version") or ""),
        content_hash=str(raw.get("content_hash") or raw.get("sha256") or ""),
        visibility=str(raw.get("visibility") or ""),
        description=str(metadata.get("description") or ""),
        raw=raw,
    )


def fetch_versions(client: HubClient, identity: EnvironmentId) -> list[dict[str, Any]]:
    """Return the published versions, newest first: version, created_at, sha256 (of the content), size (files)."""
    owner, name = require_hub_id(identity)
    data = client.get(f"environmentshub/{owner}/{name}/versions").get("data", [])
    versions = data.get("versions", []) if isinstance(data, dict) else data
    return [row for row in versions if isinstance(row, dict)]


def fetch_page(client: HubClient, *, page: int, size: int, **filters: Any) -> Page:
    """Return one page of the list; `filters` are the hub's query parameters."""
    answer = client.get("environmentshub/", include_teams=True, limit=size, offset=(page - 1) * size, **filters)
    rows = answer.get("data") or answer.get("environments") or []
    return Page(list(rows), int(answer.get("total_count") or answer.get("total") or len(rows)), page, size)


def locate_wheel(details: EnvironmentDetails) -> WheelLocation | None:
    """Find the wheel of exactly this version: by the hub's own link with its hash, else in the owner's index.

    The wheel is named by its address and hash, and not looked for by name in several indexes at once, where a package
    of the same name from somewhere else could be taken instead.
    """
    url, sha256 = details.raw.get("wheel_url"), details.raw.get("wheel_sha256")
    direct = WheelLocation(url, unquote(PurePosixPath(urlsplit(url).path).name), sha256) if url else None
    if direct is not None and (sha256 or not details.index_url):
        return direct
    return (_find_in_index(details) if details.index_url else None) or direct


def _find_in_index(details: EnvironmentDetails) -> WheelLocation | None:
    import httpx

    page = f"{str(details.index_url).rstrip('/')}/{details.distribution}/"
    try:
        response = httpx.get(page, headers={"Accept": _INDEX_JSON}, follow_redirects=True, timeout=30)
        response.raise_for_status()
        files = response.json()["files"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise HubError(f"the package index of {details.owner} does not answer: {type(error).__name__}") from None
    for file in files:
        try:
            _, version, _, _ = parse_wheel_filename(file["filename"])
        except InvalidWheelFilename:
            continue
        if str(version) == details.version:
            return WheelLocation(urljoin(page, file["url"]), file["filename"], file.get("hashes", {}).get("sha256"))
    return None


def _data(answer: dict[str, Any]) -> dict[str, Any]:
    data = answer.get("data", answer)
    return data if isinstance(data, dict) else {}
