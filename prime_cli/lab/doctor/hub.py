"""The hub: whether one answers, of which version, and who we are there."""

from __future__ import annotations

import stat

from prime_cli import __version__
from prime_cli.core.context import context_path, load_settings
from prime_cli.core.credentials import load_api_key
from prime_cli.lab.doctor.finding import Finding, Repair
from prime_cli.lab.doctor.surroundings import Surroundings

_OK, _REFUSED = 200, 401


def check_hub(around: Surroundings) -> list[Finding]:
    """Ask the hub of the context in force. Without one everything local works, so that is no failure."""
    settings = load_settings()
    health = around.fetch(f"{settings.base_url}/healthz", {})
    key = load_api_key(settings)
    if health.status is None:
        message = f"no hub answers at {settings.base_url} (context {settings.context}); local work needs none"
        return [Finding("hub", "warning", message, "prime hub serve")]
    version = health.data.get("version") if isinstance(health.data, dict) else None
    if health.status != _OK or version is None:
        message = f"what answers at {settings.base_url} is no hub (HTTP {health.status})"
        return [Finding("hub", "fails", message, "prime config set-base-url URL")]
    if key is None:
        return [Finding("hub", "warning", f"nobody is logged in to {settings.base_url}", "prime login")]
    who = around.fetch(f"{settings.base_url}/api/v1/user/whoami", {"Authorization": f"Bearer {key}"})
    if who.status == _REFUSED:
        return [Finding("hub", "fails", f"{settings.base_url} does not take the stored key", "prime login")]
    if who.status != _OK or not isinstance(who.data, dict):
        message = f"{settings.base_url} did not say who we are (HTTP {who.status}) {who.problem}".strip()
        return [Finding("hub", "fails", message, "prime whoami")]
    person = (who.data.get("data") or {}).get("slug") or "somebody"
    if version != __version__:
        message = f"{settings.base_url} is of version {version}, this tool of {__version__}"
        return [Finding("hub", "warning", message, "pip install --upgrade prime-lab")]
    return [Finding("hub", "ok", f"{person} at {settings.base_url}, version {version}")]


def check_sandboxes(around: Surroundings) -> list[Finding]:
    """Say whether the hub has sandboxes. Only environments that run code need them, so this is for information."""
    settings = load_settings()
    key = load_api_key(settings)
    if key is None:
        return []
    images = around.fetch(f"{settings.base_url}/api/v1/images?limit=1", {"Authorization": f"Bearer {key}"})
    if images.status != _OK or not isinstance(images.data, dict):
        return []  # no hub, or one without sandboxes; what is wrong with it is said elsewhere
    count = images.data.get("totalCount") or 0
    if not count:
        message = "no node makes sandboxes for the hub; environments that run code need one"
        return [Finding("sandboxes", "ok", message, "prime sandbox serve")]
    return [Finding("sandboxes", "ok", f"the hub has them, of {count} image{'s' if count > 1 else ''}")]


def check_settings(around: Surroundings) -> list[Finding]:
    """See that nobody else can read the file in which a key may lie."""
    path = context_path(load_settings().context)
    if not path.is_file():
        return []
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        message = f"{path} can be read by others (mode {mode:o}), and may hold a key"
        return [
            Finding(
                "hub", "fails", message, f"chmod 600 {path}", Repair(f"chmod 600 {path}", lambda: path.chmod(0o600))
            )
        ]
    return []
