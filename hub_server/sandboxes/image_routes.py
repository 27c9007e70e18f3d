"""Routes of images, which operators keep, and of all that other servers of this API have and this one has not."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from hub_server.errors import Malformed, NotFound
from hub_server.sandboxes import answers, nodes
from hub_server.sandboxes.bodies import ImageInQuestion
from hub_server.services import HubServices

router = APIRouter(prefix="/api/v1", tags=["sandboxes"])
_MISSING = {
    "/sandbox/networks": "networks between sandboxes",
    "/sandbox/volumes": "volumes",
    "/sandbox/checkpoints": "checkpoints",
    "/sandbox/checkpoints:batchGet": "checkpoints",
    "/sandbox/{sandbox_id}/checkpoints": "checkpoints",
    "/sandbox/{sandbox_id}/volumes": "volumes",
    "/template/registry-credentials": "registry credentials",
    "/images/build": "building images",
    "/images/{name}": "changing images",
}
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.get("/images")
def list_images(
    services: HubServices,
    search: Annotated[str, Query(max_length=500)] = "",
    offset: Annotated[int, Query(ge=0, le=10**6)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """List the images that sandboxes may be made of: all that the nodes have, whoever asks."""
    with services.database.read() as session:
        images = answers.image_facts(nodes.present_nodes(session))
    found = [image for image in images if search.lower() in image["id"].lower()]
    return {"data": found[offset : offset + limit], "totalCount": len(found), "offset": offset, "limit": limit}


@router.post("/template/check-docker-image")
def check_image(body: ImageInQuestion, services: HubServices) -> dict[str, Any]:
    """Say whether a node has an image."""
    with services.database.read() as session:
        there = nodes.images_of(nodes.present_nodes(session))
    is_there = nodes.plain_name(body.image) in there
    details = "a sandbox node has it" if is_there else "no sandbox node has it in its store; one may be able to pull it"
    return {"accessible": is_there, "details": details}


@router.post("/sandbox/{sandbox_id}/ssh-session", include_in_schema=False)
@router.delete("/sandbox/{sandbox_id}/ssh-session/{session_id}", include_in_schema=False)
def ssh_session() -> None:
    """Refuse: nothing listens for SSH in a sandbox.

    Raises:
        Malformed: always.
    """
    raise Malformed(
        "there is no SSH into the sandboxes of this server; use `prime sandbox run ID -- COMMAND`, or the SDK's "
        "execute_command and open_process"
    )


def _refuse(request: Request) -> None:
    """Say what is asked for and that it is not here.

    Raises:
        NotFound: always.
    """
    path = request.scope["route"].path.removesuffix("/{rest:path}").removeprefix("/api/v1")
    raise NotFound(f"{_MISSING[path]}: not found, this is not available on this server")


for _path in _MISSING:
    for _spelling in (_path, _path + "/{rest:path}"):
        router.add_api_route(_spelling, _refuse, methods=_METHODS, name="not_on_this_server", include_in_schema=False)
