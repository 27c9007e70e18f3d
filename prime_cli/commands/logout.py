"""`prime logout`: forget the stored API key."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, help="Forget the stored API key."
)


@app.command()
def logout(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget the API key, the user and the team of this context. The key stays valid on the hub.

    JSON output (--output json): {base_url, logged_out}
    """
    import os
    import sys

    from prime_cli.core.context import load_settings, save_settings
    from prime_cli.core.credentials import delete_api_key
    from prime_cli.core.output import print_result, warn

    settings = load_settings()
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Log out from {settings.base_url}?", abort=True, err=True)
    was_stored = delete_api_key(settings)
    save_settings(user_id=None, user_name=None, team_id=None, team_name=None, team_role=None)
    if os.environ.get("PRIME_API_KEY"):
        warn("PRIME_API_KEY is still set, and commands go on using it; `unset PRIME_API_KEY` ends that")
    text = f"Logged out from {settings.base_url}." if was_stored else f"No key was stored for {settings.base_url}."
    print_result({"base_url": settings.base_url, "logged_out": was_stored}, text)
