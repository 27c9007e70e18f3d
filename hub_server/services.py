"""What every route works with, made once when the app is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from hub_server.attestations.verifying import AttestationVerifier
from hub_server.blobs import BlobStore
from hub_server.database import Database
from hub_server.operation.metrics import Metrics
from hub_server.rate_limits import RateLimiter
from hub_server.registry.downloads import DownloadCounter
from hub_server.registry.inspect import SourceTrees
from hub_server.registry.page_cache import PageCache
from hub_server.sandboxes.fleet import Fleet
from hub_server.secrets.vault import Vault
from hub_server.settings import HubSettings
from hub_server.signing import Signer


@dataclass(frozen=True)
class Services:
    """The open resources of one hub."""

    settings: HubSettings
    database: Database
    blobs: BlobStore
    signer: Signer
    vault: Vault
    fleet: Fleet
    pages: PageCache = field(default_factory=PageCache)
    downloads: DownloadCounter = field(default_factory=DownloadCounter)
    sources: SourceTrees = field(default_factory=SourceTrees)
    metrics: Metrics = field(default_factory=Metrics)
    attestations: AttestationVerifier = field(default_factory=AttestationVerifier)
    limiter: RateLimiter = field(default_factory=lambda: RateLimiter(enabled=True))


async def services_of(request: Request) -> Services:
    """Return the services of the app that answers `request`; async, because a thread would cost more than it does."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


HubServices = Annotated[Services, Depends(services_of)]


def public_url(request: Request) -> str:
    """Return the hub's address as this client reaches it, without trailing slash: links in answers start with it."""
    return str(request.base_url).rstrip("/")
