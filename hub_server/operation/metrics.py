"""What a Prometheus server reads of a hub: its requests as they go by, and its store at the moment of reading."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from hub_server.accounts.tables import User
from hub_server.checks.tables import Check
from hub_server.evaluations.tables import Evaluation
from hub_server.registry.tables import Environment, Release
from hub_server.sandboxes.tables import Sandbox, SandboxNode
from hub_server.settings import LAST_BACKUP
from prime_cli import __version__

if TYPE_CHECKING:
    from hub_server.services import Services

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
_UPLOAD_ROUTES = {"/api/v1/uploads/{token}": "url", "/index/{owner}/legacy/": "form"}
_BLOBS_COUNTED_EVERY_S = 300
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counters of one server. Safe to use from many threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        by_route = ("method", "route", "status")
        self._requests = Counter("prime_hub_requests", "Requests answered.", by_route, registry=self.registry)
        self._seconds = Histogram(
            "prime_hub_request_duration_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._bytes_in = Counter("prime_hub_received_bytes", "Bytes of request bodies.", registry=self.registry)
        self._bytes_out = Counter("prime_hub_sent_bytes", "Bytes of answer bodies.", registry=self.registry)
        self._uploads = Counter("prime_hub_uploads", "Files taken, by way.", ("way",), registry=self.registry)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def count(self, method: str, route: str, status: int, duration_s: float, bytes_in: int, bytes_out: int) -> None:
        """Note one request. `route` is a template, so that there are few of them."""
        method = method if method in _METHODS else "OTHER"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(duration_s)
        self._bytes_in.inc(bytes_in)
        self._bytes_out.inc(bytes_out)
        if route in _UPLOAD_ROUTES and 200 <= status < 300:
            self._uploads.labels(_UPLOAD_ROUTES[route]).inc()

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class StoreFigures(Collector):
    """What lies in a hub, counted when it is asked for; its blobs at most every five minutes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._blobs: tuple[int, int] = (0, 0)
        self._counted_at: float | None = None

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: the names below are nobody else's."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of this moment."""
        yield InfoMetricFamily("prime_hub", "The version that runs.", {"version": __version__})
        with self._services.database.read() as session:
            for name, words, counted in (
                ("users", "Users.", select(func.count()).select_from(User)),
                ("environments", "Environments that are not deleted.", _count_of_environments),
                ("versions", "Published versions that are not deleted.", _count_of_versions),
                ("evaluations", "Evaluations.", select(func.count()).select_from(Evaluation)),
            ):
                yield GaugeMetricFamily(f"prime_hub_{name}", words, value=session.scalar(counted) or 0)
            checks = GaugeMetricFamily("prime_hub_checks", "Checks of versions, by status.", labels=["status"])
            for status, count in session.execute(select(Check.status, func.count()).group_by(Check.status)):
                checks.add_metric([str(status)], count)
            yield checks
            sandboxes = GaugeMetricFamily("prime_hub_sandboxes", "Sandboxes, by status.", labels=["status"])
            for status, count in session.execute(select(Sandbox.status, func.count()).group_by(Sandbox.status)):
                sandboxes.add_metric([str(status)], count)
            yield sandboxes
            there = select(func.count()).select_from(SandboxNode).where(SandboxNode.left_at.is_(None))
            words = "Machines that run sandboxes and have not taken leave."
            yield GaugeMetricFamily("prime_hub_sandbox_nodes", words, value=session.scalar(there) or 0)
        size = self._services.database.size_bytes()
        yield GaugeMetricFamily("prime_hub_database_bytes", "Size of the database.", value=size)
        count, size = self._count_blobs()
        yield GaugeMetricFamily("prime_hub_blobs", "Blobs in the store.", value=count)
        yield GaugeMetricFamily("prime_hub_blob_bytes", "Size of the blobs in the store.", value=size)
        free = shutil.disk_usage(self._services.settings.data_dir).free
        yield GaugeMetricFamily("prime_hub_disk_free_bytes", "Space left where the data folder is.", value=free)
        if (made_at := last_backup(self._services.settings.data_dir)) is not None:
            words = "Moment that the last backup is of."
            yield GaugeMetricFamily("prime_hub_last_backup_timestamp_seconds", words, value=made_at)

    def _count_blobs(self) -> tuple[int, int]:
        with self._lock:
            if self._counted_at is None or time.monotonic() - self._counted_at > _BLOBS_COUNTED_EVERY_S:
                self._blobs, self._counted_at = self._services.blobs.total(), time.monotonic()
            return self._blobs


def last_backup(data_dir: Path) -> float | None:
    """Return the moment of the last backup in seconds since 1970, None when there was none."""
    try:
        facts = json.loads((data_dir / LAST_BACKUP).read_text())
    except FileNotFoundError:
        return None
    return datetime.fromisoformat(facts["made_at"]).timestamp()


_count_of_environments = select(func.count()).select_from(Environment).where(Environment.deleted_at.is_(None))
_count_of_versions = select(func.count()).select_from(Release).where(Release.claimed, Release.deleted_at.is_(None))
