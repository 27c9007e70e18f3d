"""The route that serves provenance, for whoever may see the file."""

from __future__ import annotations

import hashlib
import json

from fastapi import APIRouter, Response

from hub_server.access import Visitor
from hub_server.attestations.service import provenance
from hub_server.services import HubServices

INTEGRITY_TYPE = "application/vnd.pypi.integrity.v1+json"

router = APIRouter(tags=["index"])


@router.get("/index/{owner}/integrity/{project}/{version}/{filename}/provenance")
def file_provenance(
    owner: str, project: str, version: str, filename: str, user: Visitor, services: HubServices
) -> Response:
    """Return who attested to what of a wheel (PEP 740)."""
    with services.database.read() as session:
        found = provenance(session, user, owner=owner, project=project, version=version, filename=filename)
    body = json.dumps(found).encode()
    headers = {
        "Cache-Control": "private, no-cache",
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Vary": "Authorization",
    }
    return Response(body, media_type=INTEGRITY_TYPE, headers=headers)
