"""`prime whoami`: who you are, and on which hub."""

from __future__ import annotations

import typer

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Show who you are, and on which hub.",
)


@app.command()
def whoami() -> None:
    """Ask the hub who the API key belongs to.

    JSON output (--output json): {id, slug, name, email, base_url, context, team_id, api_key_from}
    """
    from dataclasses import asdict

    from prime_cli.core.credentials import describe_source
    from prime_cli.core.output import mode, print_json, print_table
    from prime_cli.hub.client import connect
    from prime_cli.hub.login import whoami as ask

    with connect() as client:
        identity = ask(client)
        settings = client.settings
    facts = {
        **asdict(identity),
        "base_url": settings.base_url,
        "context": settings.context,
        "team_id": settings.team_id,
        "api_key_from": describe_source(settings),
    }
    if mode().json:
        print_json(facts)
        return
    titles = {
        "slug": "slug", "name": "name", "email": "email", "id": "id", "base_url": "hub", "context": "context",
        "team_id": "team", "api_key_from": "API key from",
    }  # fmt: skip
    print_table(["", "value"], [(title, facts[key]) for key, title in titles.items() if facts[key]])
