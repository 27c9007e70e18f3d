"""The process that makes checks: takes what waits in the queue, one version at a time for each of its threads.

`prime hub serve` starts one beside itself; it ends with the server, however that ends. More of them, on more machines,
may work on one database.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from packaging.utils import canonicalize_name
from sqlalchemy.exc import SQLAlchemyError

from hub_server.blobs import BlobStore
from hub_server.checks import service
from hub_server.checks.checker import CheckSettings, Folders, Outcome, Subject, Unusable, check, find_uv
from hub_server.checks.options import RunnerOptions
from hub_server.checks.sandbox import Isolation, available_isolation
from hub_server.checks.tables import Check, CheckStatus
from hub_server.database import Database
from hub_server.open_blobs import open_blobs
from hub_server.operation import logs
from hub_server.operation.logs import LogFormat, LogLevel
from hub_server.settings import HubSettings, open_settings
from prime_cli.core.processes import child_environment, die_with_parent, end_process_groups

_CONFIGURATION = "PRIME_HUB_CHECKS"
_LOOK_EVERY_S = 1.0
_RENEW_EVERY_S = 10.0
_PAUSE_AFTER_ERROR_S = 5.0
# So many versions in so many seconds are no person at work.
_SPREE_UPLOADS, _SPREE_S = 5, 2.0
_LONGEST_WAIT_S = 60.0
_COPIED_AT_ONCE = 1024**2
_UNUSED_CACHE_S = 14 * 24 * 3600


class _Stopped(Exception):
    """The runner is to end, or lost its claim; what it does now is for nothing."""


class Runner:
    """Makes checks in `folder`, where each owner has a folder with the downloads and the checks that run."""

    def __init__(self, database: Database, blobs: BlobStore, settings: CheckSettings, folder: Path) -> None:
        self._database, self._blobs, self._settings, self._folder = database, blobs, settings, folder
        self._stop = threading.Event()
        self.name = f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(4)}"

    def stop(self) -> None:
        """Let everything under way be given back."""
        self._stop.set()

    def work(self) -> None:
        """Make checks until `stop`."""
        while not self._stop.is_set():
            try:
                self.wait_for_calm()
                busy = self.run_next()
            except SQLAlchemyError as error:
                logs.log(logging.WARNING, "the queue of checks cannot be read", error=str(error).splitlines()[0])
                busy = not self._stop.wait(_PAUSE_AFTER_ERROR_S)
            if not busy:
                self._stop.wait(_LOOK_EVERY_S)

    def wait_for_calm(self, longest_s: float = _LONGEST_WAIT_S) -> None:
        """Wait while the hub takes one upload after another: they are answered first, their checks can wait.

        After `longest_s` a check is made all the same, so that an upload that never ends holds none up for good.
        """
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline and not self._stop.is_set():
            with self._database.read() as session:
                if service.queued_within(session, _SPREE_S) < _SPREE_UPLOADS:
                    return
            self._stop.wait(_LOOK_EVERY_S / 2)

    def run_next(self, only: Sequence[str] | None = None) -> bool:
        """Make the check that has waited longest, and say whether there was one."""
        with self._database.read() as session:
            if not service.waiting_or_lost(session):
                return False
        with self._database.write("checks") as session:
            service.requeue_lost(session)
            claimed = service.claim_check(session, self.name, only)
            if claimed is None:
                return False
            subject_of = self._subject_of(claimed)
        outcome = self._make(claimed.id, *subject_of)
        with self._database.write("checks") as session:
            if outcome is None:
                service.release_claim(session, claimed.id, self.name)
            else:
                service.finish_check(session, claimed.id, self.name, outcome.status, outcome.facts, outcome.log)
        return True

    def _subject_of(self, claimed: Check) -> tuple[str, str, str, str, str | None]:
        """Return what the check is about while there is a session: owner, name, and the wheel's facts."""
        release = claimed.release
        wheel = next(file for file in release.files if file.kind == "wheel")
        environment = release.environment
        return environment.owner_id, environment.name, wheel.filename, wheel.sha256, wheel.requires_python

    def _make(
        self, check_id: str, owner_id: str, name: str, filename: str, sha256: str, requires_python: str | None
    ) -> Outcome | None:
        """Make one check; None when it was broken off."""
        renewed = time.monotonic()

        def tick() -> None:
            nonlocal renewed
            if self._stop.is_set():
                raise _Stopped
            if time.monotonic() - renewed > _RENEW_EVERY_S:
                renewed = time.monotonic()
                with self._database.write("checks") as session:
                    if not service.renew_claim(session, check_id, self.name):
                        raise _Stopped

        owners = self._folder / "owners" / owner_id
        folders = Folders(
            owners, owners / "cache", owners / f"{os.getpid()}-{check_id}", self._folder / f"{os.getpid()}-{check_id}"
        )
        try:
            folders.work.mkdir(parents=True)
            wheel = folders.work / filename
            self._copy(sha256, wheel)
            subject = Subject(wheel, str(canonicalize_name(name)), requires_python)
            return check(subject, self._settings, folders, tick)
        except _Stopped:
            return None
        except Unusable as error:
            return Outcome(CheckStatus.ERROR, {"reason": str(error)})
        except OSError as error:
            logs.log(logging.ERROR, "a check could not be made", check=check_id, error=str(error))
            return Outcome(CheckStatus.ERROR, {"reason": f"the hub could not make the check: {error.strerror}"})
        finally:
            for folder in (folders.work, folders.root):
                shutil.rmtree(folder, ignore_errors=True)

    def _copy(self, sha256: str, target: Path) -> None:
        with target.open("wb") as file:
            while data := self._blobs.read(sha256, file.tell(), _COPIED_AT_ONCE):
                file.write(data)
        target.chmod(0o644)


def clean_up(folder: Path) -> None:
    """Remove what dead runners left, and the downloads of owners who published nothing for two weeks."""
    for left in [*folder.glob("*-*"), *folder.glob("owners/*/*-*")]:
        if not Path(f"/proc/{left.name.split('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    for cache in folder.glob("owners/*/cache"):
        if time.time() - cache.parent.stat().st_mtime > _UNUSED_CACHE_S:
            shutil.rmtree(cache, ignore_errors=True)


def choose_settings(data_dir: Path, options: RunnerOptions) -> CheckSettings:
    """Return how checks run on this machine.

    Raises:
        Unusable: uv is missing, or there is no isolation and the operator did not do without.
    """
    if find_uv() is None:
        raise Unusable("uv is missing; install 'prime-lab[hub]' or put uv on the PATH")
    isolation: Isolation | None = Isolation.NONE
    if options.isolated:
        isolation, reason = available_isolation(data_dir / "checks")
        if isolation is None:
            raise Unusable(f"this machine does not let them be isolated ({reason})")
    assert isolation is not None
    return CheckSettings(
        isolation,
        network=options.network,
        probe_s=options.time_s,
        memory_bytes=options.memory_mib * 1024**2,
        hidden=(data_dir,),
    )


@contextlib.contextmanager
def runner_beside(
    settings: HubSettings, options: RunnerOptions, log_format: LogFormat, log_level: LogLevel
) -> Iterator[None]:
    """Run a runner in a process of its own for the time of the block; none where nothing is to run at once."""
    if options.at_once == 0:
        yield
        return
    facts = {
        "data_dir": str(settings.data_dir), "database_url": settings.database_url,
        "blobs_url": settings.blobs_url, "log_format": log_format,
        "log_level": log_level, **vars(options)
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "hub_server.checks.runner"],
        env=child_environment(**{_CONFIGURATION: json.dumps(facts)}), stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        end_process_groups([process])


def main() -> None:
    """Work on the queue until SIGTERM, or until the server is gone."""
    die_with_parent()
    facts = json.loads(os.environ.pop(_CONFIGURATION))
    logs.configure(LogFormat(facts["log_format"]), LogLevel(facts["log_level"]))
    data_dir = Path(facts["data_dir"])
    options = RunnerOptions(**{name: facts[name] for name in vars(RunnerOptions())})
    try:
        check_settings = choose_settings(data_dir, options)
    except Unusable as error:
        logs.log(logging.WARNING, "published versions are not checked", reason=str(error))
        return
    clean_up(data_dir / "checks")
    settings = open_settings(data_dir, facts["database_url"], blobs_url=facts["blobs_url"])
    database = Database(settings.database_url)
    blobs = open_blobs(settings.blobs_url, settings.blob_dir, database)
    runner = Runner(database, blobs, check_settings, data_dir / "checks")

    def stop(number: int, frame: FrameType | None) -> None:
        runner.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threads = [threading.Thread(target=runner.work) for _ in range(options.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database.close()


if __name__ == "__main__":
    main()
