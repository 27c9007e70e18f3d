"""The source of a version, to be read in a browser: folders as lists, files as text."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from hub_server.access import PathEnvironment
from hub_server.registry import inspect, service
from hub_server.registry.status import check_is_offered
from hub_server.registry.tables import Environment
from hub_server.services import HubServices
from hub_server.web.environment_routes import environment_path
from hub_server.web.readme import render_readme
from hub_server.web.rendering import page
from hub_server.web.source_code import numbered_lines

router = APIRouter(include_in_schema=False)

_MAX_SHOWN_BYTES = 200_000


@router.get("/dashboard/environments/{owner}/{name}/versions/{version}/files")
def folder_page(version: str, environment: PathEnvironment, request: Request, services: HubServices) -> Response:
    """What the source of a version holds."""
    return _source(version, "", environment, request, services)


@router.get("/dashboard/environments/{owner}/{name}/versions/{version}/files/{path:path}")
def file_page(
    version: str, path: str, environment: PathEnvironment, request: Request, services: HubServices
) -> Response:
    """One folder or one file of the source of a version."""
    return _source(version, path, environment, request, services)


def _source(version: str, path: str, environment: Environment, request: Request, services: HubServices) -> Response:
    check_is_offered(environment)
    with services.database.read() as session:
        environment = session.get_one(Environment, environment.id)
        release = service.find_release(session, environment, version)
        found, archive = inspect.look_into_release(services.blobs, services.sources, release, path, _MAX_SHOWN_BYTES)
        top = environment_path(environment) + f"/versions/{release.semantic_version}/files"
        return page(
            request,
            "source.html",
            environment=environment,
            release=release,
            archive=archive,
            found=found,
            top=top,
            above=_folders_above(found["path"]),
            **_shown(found, top),
        )


def _shown(found: dict[str, Any], top: str) -> dict[str, Any]:
    """Return a file as rendered Markdown or as numbered lines; neither for a folder or what is no text."""
    shown: dict[str, Any] = {"rendered": None, "lines": []}
    if found["kind"] == "file" and not found["is_binary"]:
        ending = found["path"].rpartition(".")[2].lower()
        if ending in ("md", "markdown"):
            folder = found["path"].rpartition("/")[0]
            shown["rendered"] = render_readme(found["content"], "text/markdown", f"{top}/{folder}".rstrip("/"))
        else:
            shown["lines"] = numbered_lines(found["content"], language=ending)
    return shown


def _folders_above(path: str) -> list[tuple[str, str]]:
    """Return the names and paths of the folders that lead to a file or folder."""
    parts = path.split("/")[:-1]
    return [(name, "/".join(parts[: number + 1])) for number, name in enumerate(parts)]
