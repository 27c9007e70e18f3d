"""`prime env secret` and `prime env var`: what the hosted jobs of an environment get."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prime_cli.commands.secret_shelves import DescriptionOption, NameOption, ValueOption, YesOption
from prime_cli.core.command_groups import new_group

if TYPE_CHECKING:
    from prime_cli.hub.client import HubClient

EnvironmentArgument = Annotated[
    str | None,
    typer.Argument(metavar="OWNER/NAME", help="Else what the current folder was published as.", show_default=False),
]
IdOption = Annotated[str | None, typer.Option("--id", help="Its id or its name.")]
GlobalSecret = Annotated[str, typer.Argument(metavar="SECRET", help="Id or name of a global secret.")]
WantedVariable = Annotated[str, typer.Argument(metavar="VARIABLE", help="Its id or its name.")]

_SECRET_JSON = "{id, name, source, description, isFile, createdAt, updatedAt}"  # noqa: S105  a shape, not a secret
_VARIABLE_JSON = "{id, name, value, description, createdAt, updatedAt}"


def register(app: typer.Typer) -> None:
    """Add the groups to `prime env`."""
    secrets = new_group("Secrets of an environment.")
    secrets.command("list", epilog=f"JSON output (--output json): {{secrets: [{_SECRET_JSON}]}}")(list_secrets)
    secrets.command("ls", hidden=True)(list_secrets)
    secrets.command("create", epilog=f"JSON output (--output json): {_SECRET_JSON}")(create_secret)
    secrets.command("update", epilog=f"JSON output (--output json): {_SECRET_JSON}")(update_secret)
    secrets.command("delete", epilog="JSON output (--output json): {id, name}")(delete_secret)
    link_json = "JSON output (--output json): {id, secretId, secretName, environmentId, createdAt}"
    secrets.command("link", epilog=link_json)(link)
    secrets.command("unlink", epilog="JSON output (--output json): {id, name}")(unlink)
    app.add_typer(secrets, name="secret")
    variables = new_group("Variables of an environment.")
    variables.command("list", epilog=f"JSON output (--output json): {{variables: [{_VARIABLE_JSON}]}}")(list_variables)
    variables.command("ls", hidden=True)(list_variables)
    variables.command("create", epilog=f"JSON output (--output json): {_VARIABLE_JSON}")(create_variable)
    variables.command("update", epilog=f"JSON output (--output json): {_VARIABLE_JSON}")(update_variable)
    variables.command("delete", epilog="JSON output (--output json): {id, name}")(delete_variable)
    app.add_typer(variables, name="var")


def list_secrets(environment: EnvironmentArgument = None) -> None:
    """List the secrets of an environment: its own, and the global ones that are linked to it."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import secrets_of

    with _at(environment) as (client, _, identifier):
        columns = ("id", "name", "source", "description", "createdAt")
        secret_shelves.show_list(client, secrets_of(identifier), "secrets", columns)


def create_secret(
    environment: EnvironmentArgument = None,
    name: NameOption = None,
    value: ValueOption = None,
    description: DescriptionOption = None,
) -> None:
    """Add a secret that only this environment's jobs get; nobody can read its value again."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import secrets_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.create(client, secrets_of(identifier), name, value, description)


def update_secret(
    environment: EnvironmentArgument = None,
    secret_id: IdOption = None,
    name: NameOption = None,
    value: ValueOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a secret of the environment's own."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import secrets_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.update(client, secrets_of(identifier), secret_id, name, value, description)


def delete_secret(environment: EnvironmentArgument = None, secret_id: IdOption = None, yes: YesOption = False) -> None:
    """Delete a secret of the environment's own."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import secrets_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.delete(client, secrets_of(identifier), secret_id, yes)


def link(secret: GlobalSecret, environment: EnvironmentArgument = None) -> None:
    """Let the jobs of an environment have a global secret."""
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import find_entry, global_secrets, link_secret

    with _at(environment) as (client, name, identifier):
        entry = find_entry(client, global_secrets(client), secret)
        linked = link_secret(client, identifier, str(entry["id"]))
    out.print_result(linked, f"secret {entry['name']} linked to {name}")


def unlink(secret: GlobalSecret, environment: EnvironmentArgument = None, yes: YesOption = False) -> None:
    """Take a global secret from an environment; the secret itself stays."""
    from prime_cli.commands import secret_shelves
    from prime_cli.core import output as out
    from prime_cli.hub.secrets import find_entry, secrets_of, unlink_secret

    with _at(environment) as (client, name, identifier):
        entry = find_entry(client, secrets_of(identifier), secret, source="global")
        secret_shelves.confirm(f"Unlink secret {entry['name']} from {name}?", yes)
        unlink_secret(client, identifier, str(entry["id"]))
    out.print_result({"id": entry["id"], "name": entry["name"]}, f"secret {entry['name']} unlinked from {name}")


def list_variables(environment: EnvironmentArgument = None) -> None:
    """List the variables of an environment with their values."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import variables_of

    with _at(environment) as (client, _, identifier):
        columns = ("id", "name", "value", "description", "createdAt")
        secret_shelves.show_list(client, variables_of(identifier), "variables", columns)


def create_variable(
    environment: EnvironmentArgument = None,
    name: NameOption = None,
    value: ValueOption = None,
    description: DescriptionOption = None,
) -> None:
    """Add a variable that the environment's jobs get and its writers can read."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import variables_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.create(client, variables_of(identifier), name, value, description)


def update_variable(
    variable: WantedVariable,
    environment: EnvironmentArgument = None,
    name: NameOption = None,
    value: ValueOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a variable of an environment."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import variables_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.update(client, variables_of(identifier), variable, name, value, description)


def delete_variable(variable: WantedVariable, environment: EnvironmentArgument = None, yes: YesOption = False) -> None:
    """Delete a variable of an environment."""
    from prime_cli.commands import secret_shelves
    from prime_cli.hub.secrets import variables_of

    with _at(environment) as (client, _, identifier):
        secret_shelves.delete(client, variables_of(identifier), variable, yes)


@contextmanager
def _at(given: str | None) -> Iterator[tuple[HubClient, str, str]]:
    """Yield a client, the environment's whole name and its id on the hub."""
    from prime_cli.environments.published import find_published
    from prime_cli.hub.client import connect

    with connect() as client:
        name, identifier = find_published(client, given, Path.cwd())
        yield client, name, identifier
