"""The upload that twine and `uv publish` speak: one form with one wheel, which publishes it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from hub_server.access import Caller, PathOwner
from hub_server.accounts.tables import Owner, User
from hub_server.attestations.service import keep as keep_attestations
from hub_server.blobs import BlobWriter
from hub_server.errors import Malformed
from hub_server.registry.entries import is_library
from hub_server.registry.lone_wheels import CheckedWheel, publish_alone
from hub_server.registry.multipart import FormReader, feed_form
from hub_server.registry.wheels import read_wheel
from hub_server.services import HubServices, Services
from prime_cli.hub.models import FileName

router = APIRouter(tags=["index"])

_FILE_FIELD = "content"
_file_name = TypeAdapter[str](FileName)


@router.post("/index/{owner}/legacy/")
async def legacy_upload(owner: PathOwner, user: Caller, request: Request, services: HubServices) -> dict[str, Any]:
    """Publish the wheel of the form; an environment that is new is public, as with a push."""
    with services.blobs.writer() as writer:
        form = FormReader(
            request.headers.get("content-type", ""), _FILE_FIELD, writer, services.settings.max_upload_bytes
        )
        rest = await _receive(request, form)
        return await run_in_threadpool(_finish, services, user, owner, form, writer, rest)


async def _receive(request: Request, form: FormReader) -> bytes:
    """Feed the form and return what is left, so that a small form costs one visit to a thread in all."""
    try:
        return await feed_form(request, form)
    except ClientDisconnect:
        raise Malformed("the upload broke off") from None


def _check_form(form: FormReader, writer: BlobWriter) -> str:
    """Return the wheel's file name when the form says what it must, and the bytes are those that it names."""
    if not form.is_complete:
        raise Malformed("the form ends too early; upload again")
    action = form.fields.get(":action", "file_upload")
    if action != "file_upload":
        raise Malformed(f"the action {action!r} is not one of this hub; it takes file_upload")
    if form.filename is None or not writer.size:
        raise Malformed(f"the form has no file in its field {_FILE_FIELD!r}")
    if form.fields.get("filetype", "bdist_wheel") != "bdist_wheel" or not form.filename.endswith(".whl"):
        raise Malformed(
            f"{form.filename!r} is not a wheel, and this hub takes only wheels this way; "
            "source archives come with `prime env upload`"
        )
    try:
        filename = _file_name.validate_python(form.filename)
    except ValidationError:
        raise Malformed(f"{form.filename!r} is not a file name that this hub takes") from None
    announced = form.fields.get("sha256_digest", "").lower()
    if announced and announced != writer.sha256:
        raise Malformed(f"{filename} arrived with sha256 {writer.sha256}, announced was {announced}; upload again")
    return filename


def _finish(
    services: Services, user: User, owner: Owner, form: FormReader, writer: BlobWriter, rest: bytes
) -> dict[str, Any]:
    """Check and publish in an order in which only the last step, one transaction, makes anything visible."""
    form.feed(rest)
    filename = _check_form(form, writer)
    services.blobs.prepare(writer)
    facts = read_wheel(writer.written(), filename)
    library = is_library(facts.name, filename, facts.modules, facts.requires_dist)
    sent = form.fields.get("attestations")
    verified = services.attestations.verify(sent, filename, writer.sha256) if sent else ()
    with services.blobs.writer() as metadata:
        metadata.write(facts.metadata)
        services.blobs.keep(writer, metadata)
        wheel = CheckedWheel(filename, writer.sha256, writer.size, facts, metadata.sha256, library)
    with services.database.write() as session:
        done = publish_alone(session, user, owner, wheel, max_bytes=services.settings.max_upload_bytes)
        kept = keep_attestations(session, user, owner, filename, writer.sha256, verified) if verified else 0
    words = "is published" if done.is_new else "is published already, with these very bytes"
    words += f"; attestations kept: {kept}" if verified else ""
    return {"success": True, "message": f"{done.name} {done.version} {words}"}
