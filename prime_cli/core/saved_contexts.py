"""Named contexts: keep, choose and drop whole sets of settings, one for each hub or account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prime_cli.core.context import (
    DEFAULT_CONTEXT,
    chosen_context,
    context_path,
    load_settings,
    normalise_url,
    prime_home,
    read_context,
    write_context,
)
from prime_cli.core.credentials import delete_api_key, load_stored_api_key, store_api_key
from prime_cli.core.errors import PrimeError
from prime_cli.core.files import write_json_atomically


def list_contexts() -> list[str]:
    """Return the names of all contexts, the built-in one first."""
    saved = {file.stem for file in (prime_home() / "environments").glob("*.json")}
    return [DEFAULT_CONTEXT, *sorted((saved | {chosen_context()}) - {DEFAULT_CONTEXT})]


def save_context(name: str) -> Path:
    """Keep the settings in force, API key included, under `name` and return the file. An existing one is replaced."""
    settings = load_settings()
    if name == settings.context:
        raise PrimeError(f"the context {name!r} is in use and kept up to date by itself", hint="give another name")
    values = {**read_context(settings.context), "current_environment": name, "api_key": ""}
    path = write_context(name, values)
    if key := load_stored_api_key(settings):
        store_api_key(replace(settings, context=name), key)
    return path


def use_context(name: str) -> None:
    """Make `name` the context of all further commands; the one left is kept under its own name.

    Raises:
        PrimeError: there is no such context.
    """
    leaving = chosen_context()
    if name == leaving:
        return
    arriving = {**read_context(name), "current_environment": name}
    kept = {**read_context(leaving), "current_environment": leaving}
    # The one left is safe in a file of its own before config.json changes hands in one rename.
    write_json_atomically(prime_home() / "environments" / f"{leaving}.json", kept, mode=0o600)
    write_json_atomically(prime_home() / "config.json", arriving, mode=0o600)


def delete_context(name: str) -> None:
    """Drop a context and its stored key.

    Raises:
        PrimeError: there is none of that name, or it is in use or built in.
    """
    if name in (chosen_context(), DEFAULT_CONTEXT):
        raise PrimeError(f"the context {name!r} is in use or built in", hint="`prime config use NAME` chooses another")
    stored = read_context(name)
    delete_api_key(replace(load_settings(), context=name, base_url=normalise_url(str(stored["base_url"]))))
    context_path(name).unlink()


def reset_context() -> str:
    """Put the context in force back to the defaults, forget its key, and return its name."""
    settings = load_settings()
    delete_api_key(settings)
    write_context(settings.context, {"current_environment": settings.context})
    return settings.context
