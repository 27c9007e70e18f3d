"""Routes that publish: announce a file, upload its bytes, finalize it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from hub_server.access import Caller, PathEnvironment
from hub_server.blobs import BlobWriter
from hub_server.errors import Forbidden, Malformed, NotFound, TooLarge
from hub_server.registry import publishing
from hub_server.registry.tables import Environment, ReleaseFile
from hub_server.services import HubServices, Services, public_url
from prime_cli.hub.models import VersionRequest, WheelRequest

router = APIRouter(prefix="/api/v1", tags=["registry"])

_UPLOAD_PURPOSE = "upload"
_UPLOAD_VALID_S = 3600
# Bytes are gathered before they go to a thread that writes them, so that a slow disk never stops the other requests.
_WRITE_BYTES = 4 * 1024**2


@router.post("/environmentshub/{environment_id}/wheels")
def announce_wheel(
    body: WheelRequest, environment: PathEnvironment, request: Request, services: HubServices
) -> dict[str, Any]:
    """Announce a wheel; `upload_url` is null when the hub has these very bytes."""
    with services.database.write(publishing.scope_of(environment.id)) as session:
        announced = publishing.announce_wheel(
            session,
            session.get_one(Environment, environment.id),
            body,
            max_bytes=services.settings.max_upload_bytes,
        )
    url = _upload_url(services, request, announced.file_id) if announced.needs_upload else None
    return {"data": {"wheel_id": announced.file_id, "upload_url": url}}


@router.post("/environmentshub/{environment_id}/wheels/{wheel_id}/finalize")
def finalize_wheel(wheel_id: str, environment: PathEnvironment, user: Caller, services: HubServices) -> dict[str, Any]:
    """Check the wheel that was uploaded."""
    publishing.finalize_wheel(services, user, environment.id, wheel_id)
    return {"data": {"success": True, "message": "the wheel is sound"}}


@router.post("/environmentshub/{environment_id}/versions")
def announce_version(
    body: VersionRequest, environment: PathEnvironment, request: Request, services: HubServices
) -> dict[str, Any]:
    """Announce the source archive of a version."""
    with services.database.write(publishing.scope_of(environment.id)) as session:
        announced = publishing.announce_source(session, session.get_one(Environment, environment.id), body)
    url = _upload_url(services, request, announced.file_id)
    return {"data": {"version_id": announced.release_id, "upload_url": url}}


@router.post("/environmentshub/{environment_id}/versions/{version_id}/finalize")
def finalize_version(
    version_id: str, environment: PathEnvironment, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Check the source archive and publish the version."""
    release = publishing.finalize_source(services, user, environment.id, version_id)
    name = f"{environment.owner.slug}/{environment.name}"
    return {"data": {"success": True, "message": f"{name} {release.semantic_version} is published"}}


@router.put("/uploads/{token}")
async def upload(token: str, request: Request, services: HubServices) -> dict[str, Any]:
    """Take the bytes of an announced file. The URL is the right to do so; no key is asked for."""
    payload = services.signer.open(_UPLOAD_PURPOSE, token)
    if payload is None:
        raise Forbidden("this upload URL is wrong or expired; push again")
    file, is_published = await run_in_threadpool(_announced, services, payload["file"])
    limit = file.size or services.settings.max_upload_bytes
    with services.blobs.writer() as writer:
        try:
            await _receive(request, writer, limit, file.filename)
        except ClientDisconnect:
            raise Malformed(f"the upload of {file.filename} broke off") from None
        if is_published:
            return {"success": True, "message": "this version is published already; its bytes stay as they are"}
        if writer.sha256 != file.sha256 or (file.size and writer.size != file.size):
            raise Malformed(
                f"{file.filename} arrived as {writer.size} bytes with sha256 {writer.sha256}, "
                f"announced was {file.sha256}; push again"
            )
        await run_in_threadpool(writer.keep)
    await run_in_threadpool(_note_stored, services, file, writer.size)
    return {"success": True, "message": f"{file.filename} stored"}


async def _receive(request: Request, writer: BlobWriter, limit: int, filename: str) -> None:
    """Stream the body into `writer`, at most `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"{filename} is larger than the {limit} bytes that were announced or are allowed")
    gathered = bytearray()
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > limit:
            raise TooLarge(f"{filename} is larger than the {limit} bytes that were announced or are allowed")
        gathered += chunk
        if len(gathered) >= _WRITE_BYTES:
            await run_in_threadpool(writer.write, bytes(gathered))
            gathered.clear()
    await run_in_threadpool(writer.write, bytes(gathered))


def _announced(services: Services, file_id: str) -> tuple[ReleaseFile, bool]:
    with services.database.read() as session:
        file = session.get(ReleaseFile, file_id)
        if file is None:
            raise NotFound("this upload was replaced by another one, or its bytes were refused: push again")
        return file, file.release.claimed


def _note_stored(services: Services, file: ReleaseFile, size: int) -> None:
    with services.database.write(publishing.scope_of(file.release.environment_id)) as session:
        publishing.note_stored(session, file.id, size)


def _upload_url(services: Services, request: Request, file_id: str) -> str:
    token = services.signer.sign(_UPLOAD_PURPOSE, {"file": file_id}, valid_s=_UPLOAD_VALID_S)
    return f"{public_url(request)}/api/v1/uploads/{token}"
