"""`prime config`: settings and contexts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from prime_cli.core.command_groups import new_group

app = new_group("Show and change settings and contexts.")

Url = Annotated[str, typer.Argument(metavar="URL")]
Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command()
def view() -> None:
    """Show the settings in force: environment variables, then the context's file, then defaults."""
    from dataclasses import asdict

    from prime_cli.core.context import context_path, load_settings
    from prime_cli.core.credentials import describe_source, load_api_key
    from prime_cli.core.output import mode, print_json, print_table

    settings = load_settings()
    key = load_api_key(settings)
    facts = {
        **asdict(settings),
        "api_key": f"{key[:10]}…" if key else None,
        "api_key_from": describe_source(settings),
        "file": str(context_path(settings.context)),
    }
    if mode().json:
        print_json(facts)
    else:
        print_table(["setting", "value"], [(name, "-" if value is None else value) for name, value in facts.items()])


@app.command("set-base-url")
def set_base_url(url: Url) -> None:
    """Set the hub. Nobody is logged in on another one, so the user and the key of the former are dropped."""
    from prime_cli.core.context import load_settings
    from prime_cli.core.context import set_base_url as set_hub
    from prime_cli.core.output import note

    was_logged_in = set_hub(url)
    if was_logged_in:
        note("The login to the former hub was dropped; run `prime login`. `prime config save` keeps several hubs.")
    _say_set("base_url", load_settings().base_url)


@app.command("set-api-key")
def set_api_key(
    api_key: Annotated[str, typer.Argument(metavar="[KEY]", help="Asked for when left out.")] = "",
) -> None:
    """Log in with an API key, once the hub has said who it belongs to."""
    from prime_cli.core.context import load_settings
    from prime_cli.core.output import print_result
    from prime_cli.hub.login import finish_login

    key = api_key or typer.prompt("API key", hide_input=True, err=True)
    done = finish_login(load_settings(), key.strip())
    print_result(
        {"slug": done.identity.slug, "base_url": done.base_url, "stored_in": done.stored_in},
        f"Logged in to {done.base_url} as {done.identity.slug}; the key is kept in {done.stored_in}.",
    )


@app.command("set-frontend-url")
def set_frontend_url(url: Url) -> None:
    """Set where the hub's pages are, when that is not the hub itself."""
    _set_url("frontend_url", url)


@app.command("set-inference-url")
def set_inference_url(url: Url) -> None:
    """Set the base URL of an OpenAI-compatible API; it is used as it is."""
    _set_url("inference_url", url)


@app.command("set-traces-url")
def set_traces_url(url: Url) -> None:
    """Set where traces go, when that is not the hub itself."""
    _set_url("traces_url", url)


@app.command("set-team-id")
def set_team_id(team_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Work as a team, given by its id."""
    import re

    from prime_cli.core.errors import BadInput

    if not re.fullmatch(r"c[a-z0-9]{24}", team_id):
        raise BadInput(f"{team_id!r} is not a team's id", hint="an id is `c` and 24 lower-case letters or digits")
    _set("team_id", team_id)


@app.command("remove-team-id")
def remove_team_id() -> None:
    """Work as yourself again."""
    _set("team_id", None)


@app.command("set-share-resources-with-team")
def set_share_resources_with_team(value: Annotated[bool, typer.Argument(metavar="true|false")]) -> None:
    """Say whether what you make belongs to your team as well."""
    _set("share_resources_with_team", value)


@app.command("set-traces-opt-out")
def set_traces_opt_out(value: Annotated[bool, typer.Argument(metavar="true|false")]) -> None:
    """Say whether traces stay on this machine."""
    _set("traces_opt_out", value)


@app.command("set-ssh-key-path")
def set_ssh_key_path(path: Annotated[str, typer.Argument(metavar="PATH")]) -> None:
    """Set the SSH key to connect with."""
    from pathlib import Path

    from prime_cli.core.errors import BadInput

    if not Path(path).expanduser().is_file():
        raise BadInput(f"no such file: {path}", hint="give the path of a private key")
    _set("ssh_key_path", path)


@app.command()
def reset(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Put the settings of this context back to the defaults, and forget its key."""
    from prime_cli.core.output import print_result
    from prime_cli.core.saved_contexts import reset_context

    if not yes:
        typer.confirm("Reset all settings of this context?", abort=True, err=True)
    name = reset_context()
    print_result({"context": name}, f"The context {name} has its defaults again.")


@app.command()
def use(name: Name) -> None:
    """Switch to a saved context."""
    from prime_cli.core.context import load_settings
    from prime_cli.core.output import print_result, warn
    from prime_cli.core.saved_contexts import use_context

    use_context(name)
    settings = load_settings()
    if settings.context != name:
        warn(f"PRIME_CONTEXT or --context still asks for {settings.context}")
    print_result({"context": name, "base_url": settings.base_url}, f"Using the context {name} ({settings.base_url}).")


@app.command()
def save(name: Name) -> None:
    """Keep the settings in force as a context of this name, to be used later or with `--context`."""
    from prime_cli.core.output import print_result
    from prime_cli.core.saved_contexts import save_context

    path = save_context(name)
    print_result({"context": name, "file": str(path)}, f"Saved as {name} in {path}.")


@app.command()
def delete(name: Name) -> None:
    """Drop a saved context."""
    from prime_cli.core.output import print_result
    from prime_cli.core.saved_contexts import delete_context

    delete_context(name)
    print_result({"context": name, "deleted": True}, f"Deleted the context {name}.")


@app.command()
def envs() -> None:
    """List the contexts."""
    from prime_cli.core.context import current_context, read_context
    from prime_cli.core.output import mode, print_json, print_table
    from prime_cli.core.saved_contexts import list_contexts

    current = current_context()
    rows: list[dict[str, Any]] = [
        {"context": name, "base_url": read_context(name)["base_url"], "in_use": name == current}
        for name in list_contexts()
    ]
    if mode().json:
        print_json({"contexts": rows})
    else:
        print_table(
            ["context", "hub", "in use"],
            [(row["context"], row["base_url"], "yes" if row["in_use"] else "") for row in rows],
        )


def _set(key: str, value: Any) -> None:
    from prime_cli.core.context import save_settings

    save_settings(**{key: value})
    _say_set(key, value)


def _set_url(key: str, url: str) -> None:
    from prime_cli.core.context import check_url

    _set(key, check_url(url))


def _say_set(key: str, value: Any) -> None:
    from prime_cli.core.output import print_result

    print_result({key: value}, f"{key} is {'not set' if value is None else value} now.")
