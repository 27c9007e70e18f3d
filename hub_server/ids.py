"""Ids of rows: CUID-shaped (`c` and 24 lower-case letters or digits), as the published clients check them."""

from __future__ import annotations

import secrets

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_id() -> str:
    """Return a fresh id, unguessable."""
    return "c" + "".join(secrets.choice(_ALPHABET) for _ in range(24))
