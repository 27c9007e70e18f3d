"""The commands that install a version, to be copied from its page."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from hub_server.registry.tables import Environment, Release
from prime_cli.hub.models import Visibility


@dataclass(frozen=True)
class InstallLine:
    """One way to install, by the tool that does it."""

    tool: str
    command: str


def install_lines(environment: Environment, release: Release, hub_url: str) -> list[InstallLine]:
    """Return the commands for prime, uv and pip; private environments need a key where `KEY` stands."""
    owner, name = environment.owner.slug, environment.normalized_name
    is_latest = release.id == environment.latest_release_id
    pinned = "" if is_latest else f"@{release.semantic_version}"
    lines = [InstallLine("prime", f"prime env install {owner}/{environment.name}{pinned}")]
    if any(file.kind == "wheel" for file in release.files):
        index = f"{hub_url}/index/{owner}/simple/"
        if environment.visibility != Visibility.PUBLIC:
            parts = urlsplit(index)
            index = parts._replace(netloc=f"__token__:KEY@{parts.netloc}").geturl()
        wanted = name if is_latest else f"{name}=={release.semantic_version}"
        lines.append(InstallLine("uv", f"uv pip install --index {index} {wanted}"))
        lines.append(InstallLine("pip", f"pip install --extra-index-url {index} {wanted}"))
    return lines
