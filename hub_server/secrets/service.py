"""Secrets and variables: adding, changing, linking, forgetting, and handing them to jobs."""

from __future__ import annotations

import base64
from typing import TypeVar

from pydantic import SecretStr
from sqlalchemy import Select, delete, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.accounts.tables import User
from hub_server.accounts.teams import has_role, owner_to_act_for
from hub_server.database import now
from hub_server.errors import Conflict, Malformed, NotFound, Unavailable
from hub_server.ids import new_id
from hub_server.registry.tables import Environment
from hub_server.secrets.tables import Secret, SecretLink, SecretsKey, Variable
from hub_server.secrets.vault import Vault, WrongKey
from prime_cli.hub.models import NewGlobalSecret, NewSecret, NewVariable, Role, SecretChange

MAX_IN_ONE_PLACE = 500

Row = TypeVar("Row", Secret, Variable)


def owner_of_new(session: Session, user: User, team_id: str | None) -> str:
    """Return whose secrets `user` works with: their own, or those of the team that they are a member of.

    Raises:
        NotFound: there is no such team.
        Forbidden: the user is not a member of it.
    """
    return owner_to_act_for(session, user, team_id=team_id).id


def list_global(session: Session, owner_id: str) -> list[Secret]:
    """Return the secrets of an owner by name."""
    return list(session.scalars(select(Secret).where(Secret.owner_id == owner_id).order_by(Secret.name)))


def get_global(session: Session, user: User, secret_id: str) -> Secret:
    """Return the secret of this id when it is one of the user's, or of a team that they may write for.

    Raises:
        NotFound: there is none.
    """
    found = session.get(Secret, secret_id)
    if found is None or found.owner_id is None or not has_role(session, user, found.owner_id, Role.MEMBER):
        raise NotFound(f"secret {secret_id} not found on this hub")
    return found


def add_global(session: Session, vault: Vault, owner_id: str, new: NewGlobalSecret) -> Secret:
    """Add a secret to an owner.

    Raises:
        Conflict: the owner has one of this name.
    """
    secret = Secret(id=new_id(), owner_id=owner_id, name=new.name, is_file=new.is_file)
    return _add_secret(session, vault, secret, new)


def remove_global(session: Session, secret_id: str) -> None:
    """Delete a secret of an owner and its links to environments."""
    session.execute(delete(SecretLink).where(SecretLink.secret_id == secret_id))
    session.execute(delete(Secret).where(Secret.id == secret_id))


def list_of_environment(session: Session, environment: Environment) -> list[Secret]:
    """Return what an environment has by name: its own secrets, and those of its owner that are linked to it."""
    linked = select(SecretLink.secret_id).where(SecretLink.environment_id == environment.id)
    mine = or_(Secret.environment_id == environment.id, Secret.id.in_(linked))
    return list(session.scalars(select(Secret).where(mine).order_by(Secret.name, Secret.id)))


def get_of_environment(session: Session, environment: Environment, secret_id: str) -> Secret:
    """Return a secret of the environment's own.

    Raises:
        NotFound: it has none of this id; a linked one is its owner's.
    """
    found = session.scalar(select(Secret).where(Secret.id == secret_id, Secret.environment_id == environment.id))
    if found is None:
        raise NotFound(f"secret {secret_id} not found among the own secrets of {_name(environment)}")
    return found


def add_to_environment(session: Session, vault: Vault, environment: Environment, new: NewSecret) -> Secret:
    """Add a secret to an environment.

    Raises:
        Conflict: the environment has one of its own of this name.
    """
    secret = Secret(id=new_id(), environment_id=environment.id, name=new.name, is_file=new.is_file)
    return _add_secret(session, vault, secret, new)


def change_secret(session: Session, vault: Vault, secret: Secret, changes: SecretChange) -> Secret:
    """Change what is named.

    Raises:
        Conflict: another secret of the same place has the new name.
        Malformed: the secret is a file, and the new value is not base64.
    """
    if changes.value is not None and secret.is_file and not _is_base64(changes.value):
        raise Malformed(f"{secret.name} is a file: its value must be in base64")
    return _change(session, vault, session.merge(secret), changes)


def link(session: Session, environment: Environment, secret: Secret) -> SecretLink:
    """Let the jobs of an environment have a secret of its owner; again changes nothing.

    Raises:
        NotFound: the secret is not one of the environment's owner.
    """
    if secret.owner_id != environment.owner_id:
        raise NotFound(
            f"secret {secret.id} does not belong to {environment.owner.slug!r}; "
            "only an owner's secrets can be linked to their environments"
        )
    where = (SecretLink.environment_id == environment.id, SecretLink.secret_id == secret.id)
    found = session.scalar(select(SecretLink).where(*where))
    if found is None:
        found = SecretLink(environment_id=environment.id, secret_id=secret.id)
        session.add(found)
        session.flush()
    return found


def unlink(session: Session, environment: Environment, secret_id: str) -> None:
    """Take a linked secret from an environment.

    Raises:
        NotFound: it is not linked.
    """
    where = (SecretLink.environment_id == environment.id, SecretLink.secret_id == secret_id)
    found = session.scalar(select(SecretLink).where(*where))
    if found is None:
        raise NotFound(f"secret {secret_id} is not linked to {_name(environment)}; it was not found among its links")
    session.delete(found)


def list_variables(session: Session, environment: Environment) -> list[Variable]:
    """Return the variables of an environment by name."""
    of_it = select(Variable).where(Variable.environment_id == environment.id)
    return list(session.scalars(of_it.order_by(Variable.name)))


def get_variable(session: Session, environment: Environment, variable_id: str) -> Variable:
    """Return a variable of an environment.

    Raises:
        NotFound: it has none of this id.
    """
    of_it = select(Variable).where(Variable.id == variable_id, Variable.environment_id == environment.id)
    found = session.scalar(of_it)
    if found is None:
        raise NotFound(f"variable {variable_id} not found among those of {_name(environment)}")
    return found


def add_variable(session: Session, vault: Vault, environment: Environment, new: NewVariable) -> Variable:
    """Add a variable to an environment.

    Raises:
        Conflict: it has one of this name.
    """
    _check_room(session, select(Variable.id).where(Variable.environment_id == environment.id))
    variable = Variable(id=new_id(), environment_id=environment.id, name=new.name, description=new.description or "")
    _seal(session, vault, variable, new.value)
    session.add(variable)
    _flush_name(session, new.name)
    return variable


def change_variable(session: Session, vault: Vault, variable: Variable, changes: SecretChange) -> Variable:
    """Change what is named.

    Raises:
        Conflict: another variable of the environment has the new name.
    """
    return _change(session, vault, session.merge(variable), changes)


def value_of(vault: Vault, row: Secret | Variable) -> str:
    """Return a value as it was given.

    Raises:
        Unavailable: it does not open with the key of this hub.
    """
    try:
        return vault.open(row.place, row.sealed)
    except WrongKey:
        raise Unavailable(f"the value of {row.name} cannot be read with the key of this hub") from None


def for_job(session: Session, vault: Vault, environment: Environment) -> dict[str, str]:
    """Return what a hosted job of this environment gets as environment variables; no route gives this out.

    Variables first, over them the linked secrets of the owner, over both the environment's own secrets. The value of a
    file is its content in base64.
    """
    secrets = sorted(list_of_environment(session, environment), key=lambda secret: secret.environment_id is not None)
    rows: list[Secret | Variable] = [*list_variables(session, environment), *secrets]
    return {row.name: value_of(vault, row) for row in rows}


def forget_environment(session: Session, environment_id: str) -> None:
    """Delete what a deleted environment had: a later one of its name begins without."""
    for table in (SecretLink, Variable, Secret):
        session.execute(delete(table).where(table.environment_id == environment_id))


def _add_secret(session: Session, vault: Vault, secret: Secret, new: NewSecret) -> Secret:
    place = Secret.owner_id == secret.owner_id if secret.owner_id else Secret.environment_id == secret.environment_id
    _check_room(session, select(Secret.id).where(place))
    secret.description = new.description or ""
    _seal(session, vault, secret, new.value)
    session.add(secret)
    _flush_name(session, new.name)
    return secret


def _change(session: Session, vault: Vault, row: Row, changes: SecretChange) -> Row:
    if changes.value is not None:
        _seal(session, vault, row, changes.value)
    row.name = changes.name or row.name
    row.description = row.description if changes.description is None else changes.description
    row.updated_at = now()
    _flush_name(session, row.name)
    return row


def _seal(session: Session, vault: Vault, row: Secret | Variable, value: SecretStr) -> None:
    # A hub that still holds the former key must not write with it.
    if session.scalar(select(SecretsKey.fingerprint)) != vault.fingerprint:
        raise Unavailable("the key of this hub's secrets was changed; its operator has to start it again")
    row.sealed = vault.seal(row.place, value.get_secret_value())


def _check_room(session: Session, there: Select[str]) -> None:
    if (session.scalar(select(func.count()).select_from(there.subquery())) or 0) >= MAX_IN_ONE_PLACE:
        raise Conflict(f"{MAX_IN_ONE_PLACE} are the most that this hub keeps in one place; delete one first")


def _is_base64(value: SecretStr) -> bool:
    try:
        base64.b64decode(value.get_secret_value(), validate=True)
    except ValueError:
        return False
    return True


def _name(environment: Environment) -> str:
    return f"{environment.owner.slug}/{environment.name}"


def _flush_name(session: Session, name: str) -> None:
    try:
        session.flush()
    except IntegrityError:
        raise Conflict(f"the name {name} is already taken here; update or delete the one that has it") from None
