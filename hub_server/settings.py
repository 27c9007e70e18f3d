"""What one hub runs with: its data folder, database, limits and signing secret."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from hub_server.errors import NotServing
from prime_cli.core.files import write_text_atomically

GIBIBYTE = 1024**3
_MIN_TOKEN_LENGTH = 16
LAST_BACKUP = "last-backup.json"
"""Where a data folder notes {made_at, path} of its last backup."""
RESTORING = "restoring"
"""A file in a data folder whose database is not wholly restored yet."""


@dataclass(frozen=True)
class HubSettings:
    """The settings of a hub. `signing_secret` signs upload and index URLs and forms; replicas must share it."""

    data_dir: Path
    database_url: str
    signing_secret: bytes
    max_upload_bytes: int = GIBIBYTE
    public_url: str | None = None
    metrics_token: str | None = None
    blobs_url: str | None = None

    @property
    def blob_dir(self) -> Path:
        """The folder of incoming bytes, and, unless `blobs_url` says otherwise, of published ones."""
        return self.data_dir / "blobs"

    @property
    def admin_key_path(self) -> Path:
        """The file with the API key that the first start made for the administrator."""
        return self.data_dir / "admin.key"


def settings_of_hub(data_dir: Path, database_url: str | None, *, blobs_url: str | None = None) -> HubSettings:
    """Return the settings of a hub that is there already, for what works on it from the command line.

    Raises:
        NotServing: there is no hub in the data folder, or `open_settings` refuses.
    """
    if not data_dir.is_dir() or not (database_url or (data_dir / "hub.db").exists()):
        raise NotServing(f"{data_dir} is not the data folder of a hub", hint="name it with `--data-dir`")
    return open_settings(data_dir, database_url, blobs_url=blobs_url)


def open_settings(
    data_dir: Path, database_url: str | None, public_url: str | None = None, blobs_url: str | None = None
) -> HubSettings:
    """Make the data folder (0700) and its signing secret where they are missing, and return the settings.

    Raises:
        NotServing: a restore was cut off here, or PRIME_HUB_METRICS_TOKEN is too short to be a secret.
    """
    metrics_token = _metrics_token()
    if (data_dir / RESTORING).exists():
        raise NotServing(
            f"a restore into {data_dir} was cut off", hint="run `prime hub restore` again, with an empty database"
        )
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return HubSettings(
        data_dir=data_dir,
        database_url=database_url or f"sqlite:///{data_dir / 'hub.db'}",
        signing_secret=_signing_secret(data_dir / "signing.key"),
        public_url=public_url,
        metrics_token=metrics_token,
        blobs_url=blobs_url,
    )


def _metrics_token() -> str | None:
    token = os.environ.get("PRIME_HUB_METRICS_TOKEN", "").strip()
    if token and len(token) < _MIN_TOKEN_LENGTH:
        raise NotServing(f"PRIME_HUB_METRICS_TOKEN has fewer than {_MIN_TOKEN_LENGTH} characters")
    return token or None


def _signing_secret(path: Path) -> bytes:
    configured = os.environ.get("PRIME_HUB_SIGNING_SECRET", "")
    if configured:
        return configured.encode()
    if not path.exists():
        write_text_atomically(path, secrets.token_hex(32) + "\n", mode=0o600)
    return path.read_text().strip().encode()
