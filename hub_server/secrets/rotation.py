"""Changing the key of the secrets of a data folder, while no hub runs on it."""

from __future__ import annotations

from pathlib import Path

from hub_server.database import open_database
from hub_server.operation.listening import only_server_of
from hub_server.secrets.keys import Rotated, rotate_key
from hub_server.settings import settings_of_hub


def rotate_key_of(data_dir: Path, database_url: str | None, *, forget_lost: bool) -> Rotated:
    """Give the secrets of a data folder another key.

    Raises:
        NotServing: there is no hub in this folder, one runs on it, or the present key is not at hand.
    """
    settings = settings_of_hub(data_dir, database_url)
    with only_server_of(data_dir):
        database = open_database(settings.database_url)
        try:
            with database.as_server(alone=True):
                return rotate_key(database, data_dir, forget_lost=forget_lost)
        finally:
            database.close()
