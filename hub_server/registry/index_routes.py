"""Routes of the simple index: one index per owner, for pip, uv and every other installer."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, RedirectResponse
from packaging.utils import canonicalize_name
from packaging.version import Version
from sqlalchemy import Select, select
from sqlalchemy.orm import contains_eager

from hub_server.access import Visitor
from hub_server.accounts.tables import User
from hub_server.errors import NotFound, Refusal
from hub_server.registry.index import IndexFile, negotiate, render_project, render_projects
from hub_server.registry.service import visible_to
from hub_server.registry.tables import Environment, Release, ReleaseFile
from hub_server.services import HubServices

router = APIRouter(prefix="/index/{owner}", tags=["index"])


class _NotAcceptable(Refusal):
    status = 406


@router.get("/simple/")
def index_projects(owner: str, user: Visitor, request: Request, services: HubServices) -> Response:
    """List the projects of an owner."""
    media_type = _media_type(request)
    names = (
        select(Environment.normalized_name)
        .join(Environment.owner)
        .where(visible_to(user), User.slug == owner.lower(), Environment.latest_release_id.is_not(None))
        .order_by(Environment.normalized_name)
    )
    with services.database.read() as session:
        return _answer(request, render_projects(list(session.scalars(names)), media_type), media_type)


@router.get("/simple/{project}/")
def index_project(owner: str, project: str, user: Visitor, request: Request, services: HubServices) -> Response:
    """List the wheels of one project; other spellings of its name lead to the normalized one."""
    media_type = _media_type(request)
    name = str(canonicalize_name(project))
    if name != project:
        return RedirectResponse(f"../{name}/", status_code=301)
    statement = _published_files(owner, user).where(Environment.normalized_name == name)
    with services.database.read() as session:
        files = [_index_file(file) for file in session.scalars(statement)]
    if not files:
        raise NotFound(f"project {name} not found in the index of {owner}")
    return _answer(request, render_project(name, files, media_type), media_type)


@router.get("/files/{sha256}/{filename}")
def index_file(owner: str, sha256: str, filename: str, user: Visitor, services: HubServices) -> Response:
    """Download a wheel, or with `.metadata` after its name, its METADATA alone (PEP 658)."""
    wheel_name = filename.removesuffix(".metadata")
    wanted = _published_files(owner, user).where(ReleaseFile.sha256 == sha256, ReleaseFile.filename == wheel_name)
    with services.database.read() as session:
        file = session.scalars(wanted).first()
    if file is None:
        raise NotFound(f"{filename} not found in the index of {owner}")
    # A file's bytes never change, so whoever has them need not ask again.
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    if filename == wheel_name:
        return FileResponse(services.blobs.path(sha256), media_type="application/octet-stream", headers=headers)
    assert file.metadata_sha256 is not None, "a published wheel was read"
    return FileResponse(services.blobs.path(file.metadata_sha256), media_type="text/plain", headers=headers)


def _published_files(owner: str, user: User | None) -> Select[ReleaseFile]:
    return (
        select(ReleaseFile)
        .join(ReleaseFile.release)
        .join(Release.environment)
        .join(Environment.owner)
        .options(contains_eager(ReleaseFile.release))
        .where(
            visible_to(user),
            User.slug == owner.lower(),
            Release.claimed,
            Release.deleted_at.is_(None),
            ReleaseFile.kind == "wheel",
        )
        .order_by(Release.published_at, ReleaseFile.filename)
    )


def _index_file(file: ReleaseFile) -> IndexFile:
    return IndexFile(
        filename=file.filename,
        url=f"../../files/{file.sha256}/{file.filename}",
        sha256=file.sha256,
        size=file.size,
        version=str(Version(file.release.semantic_version)),
        requires_python=file.requires_python,
        metadata_sha256=file.metadata_sha256,
        uploaded_at=file.release.published_at or file.created_at,
    )


def _media_type(request: Request) -> str:
    media_type = negotiate(request.headers.get("accept"))
    if media_type is None:
        raise _NotAcceptable("the index speaks application/vnd.pypi.simple.v1+json, …+html and text/html")
    return media_type


def _answer(request: Request, text: str, media_type: str) -> Response:
    """Return the page, or 304 when the client has this very page."""
    body = text.encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Vary": "Accept, Authorization", "Cache-Control": "private, no-cache"}
    seen = [value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")]
    if tag in seen:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)
