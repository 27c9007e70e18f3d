"""The names by which environments are asked for: `name`, `owner/name`, `owner/name@version`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prime_cli.core.errors import BadInput

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ID = re.compile(rf"^(?:(?P<owner>{_PART})/)?(?P<name>{_PART})(?:@(?P<version>[A-Za-z0-9][A-Za-z0-9.+!_-]*))?$")


@dataclass(frozen=True)
class EnvironmentId:
    """An environment as it was asked for; without an owner it is a local or installed one."""

    owner: str | None
    name: str
    version: str | None

    @property
    def module(self) -> str:
        """The Python module that holds `load_environment`."""
        return self.name.replace("-", "_").replace(".", "_").lower()

    @property
    def distribution(self) -> str:
        """The normalised name of the Python package (PEP 503)."""
        return re.sub(r"[-_.]+", "-", self.name).lower()

    def __str__(self) -> str:
        owner = f"{self.owner}/" if self.owner else ""
        return f"{owner}{self.name}" + (f"@{self.version}" if self.version else "")


def parse_environment_id(text: str) -> EnvironmentId:
    """Parse `name`, `owner/name` or `owner/name@version`.

    Raises:
        BadInput: the text is none of these.
    """
    match = _ID.match(text.strip())
    if match is None:
        raise BadInput(
            f"{text!r} is not the name of an environment", hint="write `name`, `owner/name` or `owner/name@version`"
        )
    return EnvironmentId(match["owner"], match["name"], match["version"])
