"""How an evaluation of a hub is named on the command line."""

from __future__ import annotations


def hub_id(text: str) -> str:
    """Return the id, with or without `hub:` before it.

    Raises:
        BadInput: it cannot be one.
    """
    from prime_cli.core.errors import BadInput

    identity = text.removeprefix("hub:")
    if not identity.isalnum():
        raise BadInput(f"{text!r} is not the id of an evaluation", hint="`prime eval list --hub` shows yours")
    return identity
