"""`prime login`: log in to a hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prime_cli.core.context import Settings

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, help="Log in to a hub.")


@app.command()
def login(
    headless: Annotated[bool, typer.Option("--headless", help="Do not try to open a browser.")] = False,
    api_key: Annotated[
        str,
        typer.Option("--api-key", metavar="KEY", help="Log in with this key; others may see it in the process list."),
    ] = "",
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="PATH", help="Log in with the key in this file; - is stdin."),
    ] = None,
    base_url: Annotated[str, typer.Option("--base-url", metavar="URL", help="The hub, which is kept for later.")] = "",
) -> None:
    """Log in to a hub: approve it in a browser, or give an API key.

    JSON output (--output json): {id, slug, name, email, base_url, stored_in}
    """
    import os
    from dataclasses import asdict

    from prime_cli.core.context import for_hub, load_settings
    from prime_cli.core.errors import BadInput
    from prime_cli.core.output import note, print_result, warn
    from prime_cli.hub.login import finish_login

    if api_key and api_key_file is not None:
        raise BadInput("--api-key and --api-key-file exclude each other", hint="give one of them")
    settings = for_hub(load_settings(), base_url) if base_url else load_settings()
    key = api_key.strip() or (_read_key(api_key_file) if api_key_file is not None else "")
    done = finish_login(settings, key or _ask_in_browser(settings, headless=headless))
    identity = asdict(done.identity)
    if os.environ.get("PRIME_API_KEY"):
        warn("PRIME_API_KEY is set and wins over the key that was stored now")
    note(f"The API key is kept in {done.stored_in}.")
    print_result(
        {**identity, "base_url": done.base_url, "stored_in": done.stored_in},
        f"Logged in to {done.base_url} as {done.identity.slug}.",
    )


def _read_key(path: Path) -> str:
    import sys

    from prime_cli.core.errors import PrimeError

    try:
        key = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PrimeError(f"cannot read the API key from {path}: {getattr(error, 'strerror', error)}") from None
    if not key.strip():
        raise PrimeError(f"{path} holds no API key")
    return key.strip()


def _ask_in_browser(settings: Settings, *, headless: bool) -> str:
    """Show where to approve the login and wait for it."""
    import contextlib

    from prime_cli.core.output import is_interactive, note, stderr_console
    from prime_cli.hub.client import HubClient
    from prime_cli.hub.login import APPROVAL_TIMEOUT_S, await_approval, begin_login

    with HubClient(settings, None) as client:
        pending = begin_login(client)
    note("Approve this login in a browser; the page shows the same code:")
    note(f"  page: {pending.page}")
    note(f"  code: {pending.code}")
    if not headless:
        _open_browser(pending.page)
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(stderr_console().status("waiting")) if is_interactive() else None

        def show(waited_s: float) -> None:
            left = f"Waiting for approval, {int(APPROVAL_TIMEOUT_S - waited_s)} s left; Ctrl-C gives up"
            if status is not None:
                status.update(left)
            elif int(waited_s) % 60 < 2:
                note(left)

        return await_approval(settings, pending, on_wait=show)


def _open_browser(page: str) -> None:
    import os
    import sys
    import webbrowser

    # Without a display Python would start a browser inside this terminal, if any.
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    webbrowser.open(page)
