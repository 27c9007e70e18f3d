"""Queues checks from the command line: of one version, or of all the latest ones that were never checked."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.checks import service
from hub_server.checks.tables import Check
from hub_server.database import open_database
from hub_server.errors import NotFound, Refusal
from hub_server.registry.service import find_for_anybody, find_release
from hub_server.registry.tables import Environment, Release
from hub_server.settings import settings_of_hub
from prime_cli.core.errors import BadInput


@dataclass(frozen=True)
class Queued:
    """A version that waits for its check."""

    environment: str
    version: str
    check_id: str


def check_again(data_dir: Path, database_url: str | None, wanted: str | None) -> list[Queued]:
    """Queue the check of `wanted`, OWNER/NAME or OWNER/NAME@VERSION; without it, of what has none.

    Raises:
        NotServing: there is no hub in this folder.
        BadInput: there is no such version.
    """
    database = open_database(settings_of_hub(data_dir, database_url).database_url)
    with contextlib.closing(database), database.write() as session:
        try:
            releases = [_release(session, wanted)] if wanted else _never_checked(session)
        except Refusal as refusal:
            raise BadInput(refusal.detail) from None
        checks = [service.queue_check(session, release, "operator") for release in releases]
        return [
            Queued(f"{found.environment.owner.slug}/{found.environment.name}", found.semantic_version, check.id)
            for found, check in zip(releases, checks, strict=True)
        ]


def _release(session: Session, wanted: str) -> Release:
    whole, _, version = wanted.partition("@")
    owner, _, name = whole.partition("/")
    environment = find_for_anybody(session, owner, name)
    if environment is None:
        raise NotFound(f"environment {whole} not found on this hub; write OWNER/NAME")
    return find_release(session, environment, version or "latest")


def _never_checked(session: Session) -> list[Release]:
    checked = select(Check.release_id)
    latest = select(Release).join(Environment, Environment.latest_release_id == Release.id)
    found = session.scalars(latest.where(Environment.deleted_at.is_(None), Release.id.not_in(checked)))
    return list(found.unique())
