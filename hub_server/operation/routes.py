"""Routes for whoever runs the hub: does it live, is it ready, what does it count."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from hub_server.operation.health import OK, Readiness
from hub_server.services import HubServices
from prime_cli import __version__

router = APIRouter(tags=["operation"])


@router.get("/healthz")
async def healthz() -> dict[str, Any]:
    """Say that the server answers, and its version."""
    return {"status": "ok", "version": __version__}


@router.get("/readyz", responses={503: {"description": "One of the parts does not answer."}})
async def readyz(request: Request) -> Response:
    """Say whether the database and the blob store answer; 503 when one does not."""
    readiness = request.app.state.readiness
    assert isinstance(readiness, Readiness)
    states = await readiness.states()
    is_ready = all(state == OK for state in states.values())
    body = {"status": "ready" if is_ready else "not ready", **states}
    return JSONResponse(body, status_code=200 if is_ready else 503, headers={"Cache-Control": "no-store"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(services: HubServices) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)
