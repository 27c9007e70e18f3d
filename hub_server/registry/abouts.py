"""What a version's wheel says of itself at length: its README, and the dependencies that no index can serve."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from sqlalchemy import bindparam, delete
from sqlalchemy.orm import Session

from hub_server.database import table_of
from hub_server.registry.tables import ReleaseAbout
from hub_server.registry.wheels import WheelFacts

_MAX_README = 500_000
_MAX_TYPE = 100
_ABOUTS = table_of(ReleaseAbout)
_ADD = _ABOUTS.insert()
_REMOVE = delete(_ABOUTS).where(_ABOUTS.c.release_id == bindparam("old_release_id"))
_FULL_COMMIT = re.compile(r"@[0-9a-f]{40}$")


def keep_about(session: Session, release_id: str, facts: WheelFacts, *, is_new: bool = False) -> None:
    """Keep what the checked wheel of a version says, in place of what an earlier one of its draft said.

    A README is cut where it is longer than any page should be. `is_new`: the version has only just been written.
    """
    connection = session.connection()
    if not is_new:
        connection.execute(_REMOVE, {"old_release_id": release_id})
    if facts.readme or facts.url_dependencies:
        told = {
            "release_id": release_id,
            "readme": facts.readme[:_MAX_README].replace("\0", ""),
            "readme_type": facts.readme_type[:_MAX_TYPE],
            "url_dependencies": facts.url_dependencies,
        }
        connection.execute(_ADD, told)


def dependency_warnings(url_dependencies: list[str]) -> list[str]:
    """Return in words what somebody who publishes or installs should know about dependencies on addresses."""
    warnings = []
    for text in url_dependencies:
        requirement = Requirement(text)
        where = f"{requirement.name} comes from {requirement.url}"
        warnings.append(f"{where}, not from an index: pip and uv want it named on the command line as well")
        if str(requirement.url).startswith("git+") and not _FULL_COMMIT.search(str(requirement.url)):
            warnings.append(f"{where}, which names no commit: its code can change under this version")
    return warnings
