"""Runs one hub on one data folder until it is told to stop."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import json
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from hub_server.accounts.service import ensure_administrator
from hub_server.app import create_app
from hub_server.attestations.verifying import AttestationVerifier, check_trust_root
from hub_server.checks.options import RunnerOptions
from hub_server.checks.runner import runner_beside
from hub_server.database import open_database
from hub_server.errors import NotServing
from hub_server.open_blobs import open_blobs
from hub_server.operation import logs
from hub_server.operation.addresses import read_public_url
from hub_server.operation.http_heads import BoundedHeads
from hub_server.operation.listening import Server, listening, only_server_of, url_of
from hub_server.operation.logs import LogFormat, LogLevel
from hub_server.rate_limits import RateLimiter
from hub_server.sandboxes.beside import SandboxOptions, node_beside
from hub_server.sandboxes.fleet import Fleet, default_egress
from hub_server.secrets.keys import open_vault
from hub_server.services import Services
from hub_server.settings import open_settings
from hub_server.signing import Signer
from prime_cli import __version__
from prime_cli.core.files import write_json_atomically

_SHUTDOWN_S = 5
LOOPBACK = "127.0.0.1,::1"


@dataclass(frozen=True)
class Serving:
    """A hub that accepts requests."""

    url: str
    pid: int
    data_dir: Path
    admin_key_path: Path
    is_first_start: bool
    is_encrypted: bool  # a proxy is said to stand in front
    is_loopback: bool


def serve(
    *,
    host: str,
    port: int,
    data_dir: Path,
    database_url: str | None = None,
    blobs_url: str | None = None,
    public_url: str = "",
    trusted_proxies: str = LOOPBACK,
    log_format: LogFormat = LogFormat.TEXT,
    log_level: LogLevel = LogLevel.INFO,
    rate_limits: bool = True,
    ready_file: Path | None = None,
    checks: RunnerOptions | None = None,
    sandboxes: SandboxOptions | None = None,
    sigstore_trust_root: Path | None = None,
    on_ready: Callable[[Serving], None],
) -> None:
    """Serve until SIGTERM, which ends it normally, or SIGINT, which ends it with KeyboardInterrupt.

    `ready_file` gets {url, pid, admin_key_path} once requests are accepted, and `on_ready` is called. Of
    `trusted_proxies`, addresses and networks with commas between, X-Forwarded-For and X-Forwarded-Proto are believed.
    Attestations are verified by `sigstore_trust_root`, a trusted_root.json, else by the public one.

    Raises:
        NotServing: the port or the data folder is taken, the database or an option cannot be used, or the key of the
            secrets lacks.
    """
    known_as = read_public_url(public_url)
    trust_root = sigstore_trust_root.expanduser().absolute() if sigstore_trust_root is not None else None
    check_trust_root(trust_root)
    logs.configure(log_format, log_level)
    with listening(host, port) as listener, contextlib.ExitStack() as stack:
        data_dir = data_dir.expanduser().absolute()
        try:
            settings = open_settings(data_dir, database_url, known_as, blobs_url)
            stack.enter_context(only_server_of(data_dir))
        except OSError as error:
            raise NotServing(f"cannot use the data folder {data_dir}: {error.strerror}") from None
        database = open_database(settings.database_url)
        stack.callback(database.close)
        stack.enter_context(database.as_server())
        is_first_start = ensure_administrator(database, settings)
        vault = open_vault(database, data_dir)
        blobs = open_blobs(settings.blobs_url, settings.blob_dir, database)
        blobs.clear_incoming()
        limiter = RateLimiter(enabled=rate_limits)
        signer = Signer(settings.signing_secret)
        sandboxes = sandboxes or SandboxOptions(beside=False)
        fleet = Fleet(database, vault, sandboxes.min_level, default_egress(sandboxes.allow))
        attestations = AttestationVerifier(trust_root)
        services = Services(settings, database, blobs, signer, vault, fleet, limiter=limiter, attestations=attestations)
        serving = Serving(
            url=url_of(host, listener),
            pid=os.getpid(),
            data_dir=data_dir,
            admin_key_path=settings.admin_key_path,
            is_first_start=is_first_start,
            is_encrypted=(known_as or "").startswith("https:"),
            is_loopback=ipaddress.ip_address(listener.getsockname()[0]).is_loopback,
        )

        def ready() -> None:
            facts = {"url": serving.url, "pid": serving.pid, "admin_key_path": str(serving.admin_key_path)}
            write_json_atomically(data_dir / "server.json", facts)
            if ready_file is not None:
                write_json_atomically(ready_file, facts)
            logs.log(
                logging.INFO, "started", url=serving.url, public_url=known_as, version=__version__, pid=serving.pid
            )
            on_ready(serving)

        if checks is not None:
            stack.enter_context(runner_beside(settings, checks, log_format, log_level))
        if sandboxes.beside:
            if known_as is not None and serving.is_loopback and not sandboxes.public_url:
                logs.log(
                    logging.WARNING, "clients elsewhere cannot reach the sandboxes: say where with --sandboxes-url"
                )
            stack.enter_context(
                node_beside(
                    sandboxes, settings, signer, hub_url=serving.url, host=host, log_format=log_format,
                    log_level=log_level,
                )
            )  # fmt: skip
        config = uvicorn.Config(
            create_app(services),
            log_config=None,
            log_level="warning",
            access_log=False,  # upload URLs carry their right in the path; see operation/requests.py
            forwarded_allow_ips=trusted_proxies,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            server_header=False,
            http=BoundedHeads,
        )
        server = Server(config, ready)
        # What was made to start with stays to the end: collections need not look at it again.
        gc.collect()
        gc.freeze()
        server.run(sockets=[listener])
        (data_dir / "server.json").unlink(missing_ok=True)
        logs.log(logging.INFO, "stopped")
        if server.ended_by == signal.SIGINT:
            raise KeyboardInterrupt


def read_server_facts(data_dir: Path) -> dict[str, object] | None:
    """Return what the server of this data folder said when it started; None when it stopped since or never ran."""
    try:
        facts: dict[str, object] = json.loads((data_dir.expanduser() / "server.json").read_text())
    except FileNotFoundError:
        return None
    return facts
