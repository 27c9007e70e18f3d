"""Ids of rows: CUID-shaped (`c` and 24 lower-case letters or digits), as the published clients check them."""

from __future__ import annotations

import secrets

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_LENGTH = 24


def new_id() -> str:
    """Return a fresh id, unguessable."""
    # One number for all places: an upload makes several ids, and drawing each place alone takes ten times as long.
    number, places = secrets.randbelow(len(_ALPHABET) ** _LENGTH), ["c"]
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        places.append(_ALPHABET[place])
    return "".join(places)
