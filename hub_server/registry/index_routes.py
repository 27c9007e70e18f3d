"""Routes of the simple index: one index per owner and one of the whole hub, for pip, uv and every other installer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from packaging.utils import canonicalize_name
from packaging.version import Version
from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session, contains_eager

from hub_server.access import Visitor
from hub_server.accounts.tables import Owner, User
from hub_server.attestations.service import attested_files
from hub_server.blob_response import blob_response
from hub_server.errors import NotFound, Refusal
from hub_server.registry.downloads import begins_download
from hub_server.registry.index import IndexFile, IndexStatus, negotiate, render_project, render_projects
from hub_server.registry.page_cache import Page
from hub_server.registry.service import visible_to
from hub_server.registry.tables import Environment, IndexName, Release, ReleaseFile
from hub_server.services import HubServices, Services, public_url
from prime_cli.hub.models import ProjectStatus

router = APIRouter(tags=["index"])

# Installers ask with HEAD whether a file can be had in parts.
_READ = ["GET", "HEAD"]
_GZIP_WANTED = re.compile(r"gzip(;q=(1(\.0{0,3})?|0\.\d{0,2}[1-9]))?")


# What a project's page is made from.
_PROJECT = (
    Environment.id,
    Environment.normalized_name,
    Environment.index_serial,
    Environment.project_status,
    Environment.status_reason,
    Environment.attested,
)


class _NotAcceptable(Refusal):
    status = 406


def _project_for(user: User | None) -> Select[str, str, int, str, str, bool]:
    """Return the question for a project of an owner that `user` may see."""
    return (
        select(*_PROJECT)
        .join(Environment.owner)
        .where(
            visible_to(user),
            Owner.slug == bindparam("owner"),
            Environment.normalized_name == bindparam("name"),
            Environment.latest_release_id.is_not(None),
        )
    )


# What nobody in particular asks is asked all the time; making the question would cost more than answering it.
_PROJECT_FOR_NOBODY = _project_for(None)
_SERIAL_OF_OWNER = (
    select(func.sum(Environment.index_serial), func.min(Owner.id))
    .join(Environment.owner)
    .where(Owner.slug == bindparam("owner"))
)


@dataclass(frozen=True)
class _Form:
    """How the client wants its page."""

    media_type: str
    gzipped: bool


@router.api_route("/index/{owner}/simple/", methods=_READ)
def index_projects(owner: str, user: Visitor, request: Request, services: HubServices) -> Response:
    """List the projects of an owner."""
    listed = (visible_to(user), Owner.slug == owner.lower(), Environment.latest_release_id.is_not(None))
    # A deleted environment keeps its row and its serial, so that the sum only ever grows.
    with services.database.read() as session:
        serial, owner_id = session.connection().execute(_SERIAL_OF_OWNER, {"owner": owner.lower()}).one()
        names = select(Environment.normalized_name).join(Environment.owner).where(*listed)
        # What somebody in particular may see can change without a change of any environment, so it is not kept.
        key = ("projects", owner_id) if user is None else None
        return _projects_page(request, services, session, key, int(serial or 0), names)


@router.api_route("/index/{owner}/simple/{project}/", methods=_READ)
def index_project(owner: str, project: str, user: Visitor, request: Request, services: HubServices) -> Response:
    """List the wheels of one project; other spellings of its name lead to the normalized one."""
    name = str(canonicalize_name(project))
    if name != project:
        return RedirectResponse(f"../{name}/", status_code=301)
    wanted = _PROJECT_FOR_NOBODY if user is None else _project_for(user)
    with services.database.read() as session:
        found = session.connection().execute(wanted, {"owner": owner.lower(), "name": name}).first()
        if found is None:
            raise NotFound(f"project {name} not found in the index of {owner}")
        return _project_page(request, services, session, found, owner.lower(), "../../files")


@router.api_route("/index/{owner}/files/{sha256}/{filename}", methods=_READ)
def index_file(
    owner: str, sha256: str, filename: str, user: Visitor, request: Request, services: HubServices
) -> Response:
    """Download a wheel, or with `.metadata` after its name, its METADATA alone (PEP 658)."""
    wheel_name = filename.removesuffix(".metadata")
    wanted = (
        _published_files()
        .join(Release.environment)
        .join(Environment.owner)
        .where(
            visible_to(user),
            Owner.slug == owner.lower(),
            ReleaseFile.sha256 == sha256,
            ReleaseFile.filename == wheel_name,
            Environment.project_status != ProjectStatus.QUARANTINED,
        )
    )
    with services.database.read() as session:
        file = session.scalars(wanted).first()
    if file is None:
        raise NotFound(f"{filename} not found in the index of {owner}")
    is_wheel = filename == wheel_name
    digest = sha256 if is_wheel else file.metadata_sha256
    assert digest is not None, "a published wheel was read"
    # A file's bytes never change, so whoever has them need not ask again.
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "ETag": f'"{digest}"'}
    if _has_seen(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if is_wheel and begins_download(request):
        services.downloads.note(services.database, file)
    media_type = "application/octet-stream" if is_wheel else "text/plain; charset=utf-8"
    return blob_response(services.blobs, digest, request, media_type=media_type, headers=headers)


@router.api_route("/simple/", methods=_READ)
def hub_projects(request: Request, services: HubServices) -> Response:
    """List the public projects of all owners, each name once."""
    with services.database.read() as session:
        serial = session.scalar(select(func.sum(Environment.index_serial)))
        names = select(IndexName.normalized_name).join(Environment, Environment.id == IndexName.environment_id)
        names = names.where(visible_to(None))
        return _projects_page(request, services, session, ("projects",), int(serial or 0), names)


@router.api_route("/simple/{project}/", methods=_READ)
def hub_project(project: str, request: Request, services: HubServices) -> Response:
    """List the wheels of the public environment that has this name in the whole hub."""
    name = str(canonicalize_name(project))
    if name != project:
        return RedirectResponse(f"../{name}/", status_code=301)
    wanted = (
        select(*_PROJECT, Owner.slug)
        .join(IndexName, IndexName.environment_id == Environment.id)
        .join(Environment.owner)
        .where(visible_to(None), IndexName.normalized_name == name)
    )
    with services.database.read() as session:
        found = session.execute(wanted).first()
        if found is None:
            raise NotFound(f"project {name} not found in the index of this hub")
        files = f"../../index/{found.slug}/files"
        return _project_page(request, services, session, found, found.slug, files)


def _projects_page(
    request: Request,
    services: Services,
    session: Session,
    key: tuple[object, ...] | None,
    serial: int,
    names: Select[str],
) -> Response:
    """Answer with a list of projects, kept under `key` while nothing changes; made afresh without one."""
    form = _form(request)

    def make() -> Page:
        ordered = list(session.scalars(names.order_by(Environment.normalized_name)))
        return Page.of(render_projects(ordered, form.media_type), gzipped=form.gzipped)

    page = make() if key is None else services.pages.get((*key, serial, form), make)
    return _answer(request, page, form, serial)


def _project_page(
    request: Request, services: Services, session: Session, project: Any, owner: str, files_url: str
) -> Response:
    """Answer with the page of a project, a row of _PROJECT, made at most once for each state of the project."""
    form = _form(request)
    # Provenance is the one thing on a page that is named by the address of the hub, which comes with the request.
    base = public_url(request) if project.attested else ""

    def make() -> Page:
        published = _published_files().where(Release.environment_id == project.id)
        offered = project.project_status != ProjectStatus.QUARANTINED
        attested = attested_files(session, project.id) if project.attested else set()
        provenance = f"{base}/index/{owner}/integrity/{project.normalized_name}"
        files = [
            _index_file(file, files_url, provenance if file.id in attested else None)
            for file in (session.scalars(published) if offered else ())
        ]
        status = IndexStatus(project.project_status, project.status_reason)
        text = render_project(project.normalized_name, status, files, form.media_type)
        return Page.of(text, gzipped=form.gzipped)

    page = services.pages.get((project.id, base, files_url, project.index_serial, form), make)
    return _answer(request, page, form, project.index_serial)


def _published_files() -> Select[ReleaseFile]:
    return (
        select(ReleaseFile)
        .join(ReleaseFile.release)
        .options(contains_eager(ReleaseFile.release))
        .where(Release.claimed, Release.deleted_at.is_(None), ReleaseFile.kind == "wheel")
        .order_by(Release.published_at, ReleaseFile.filename)
    )


def _index_file(file: ReleaseFile, files_url: str, provenance_url: str | None) -> IndexFile:
    version = str(Version(file.release.semantic_version))
    return IndexFile(
        filename=file.filename,
        url=f"{files_url}/{file.sha256}/{file.filename}",
        sha256=file.sha256,
        size=file.size,
        version=version,
        requires_python=file.requires_python,
        metadata_sha256=file.metadata_sha256,
        uploaded_at=file.release.published_at or file.created_at,
        yanked=file.release.yanked_at is not None,
        yanked_reason=file.release.yanked_reason,
        provenance_url=f"{provenance_url}/{quote(version)}/{quote(file.filename)}/provenance"
        if provenance_url
        else None,
    )


def _form(request: Request) -> _Form:
    media_type = negotiate(request.headers.get("accept"))
    if media_type is None:
        raise _NotAcceptable("the index speaks application/vnd.pypi.simple.v1+json, …+html and text/html")
    encodings = [part.replace(" ", "").lower() for part in request.headers.get("accept-encoding", "").split(",")]
    return _Form(media_type, gzipped=any(_GZIP_WANTED.fullmatch(part) for part in encodings))


def _answer(request: Request, page: Page, form: _Form, serial: int) -> Response:
    """Return the page, or 304 when the client has this very page."""
    headers = {
        "ETag": page.tag,
        "Vary": "Accept, Accept-Encoding, Authorization",
        "Cache-Control": "private, no-cache",
        "X-PyPI-Last-Serial": str(serial),
    }
    if _has_seen(request, page.tag):
        return Response(status_code=304, headers=headers)
    if page.is_gzip:
        headers["Content-Encoding"] = "gzip"
    return Response(page.body, media_type=form.media_type, headers=headers)


def _has_seen(request: Request, tag: str) -> bool:
    seen = [value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")]
    return tag in seen or "*" in seen
