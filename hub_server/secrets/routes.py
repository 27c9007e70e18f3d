"""Routes of secrets and variables. No route gives the value of a secret back, not even to who set it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from hub_server.access import Caller, PathEnvironment, PathSecret
from hub_server.accounts import audit
from hub_server.accounts.tables import User
from hub_server.registry.tables import Environment
from hub_server.secrets import answers, service
from hub_server.services import HubServices
from prime_cli.hub.models import GlobalSecretChange, NewGlobalSecret, NewSecret, NewVariable, SecretChange

router = APIRouter(prefix="/api/v1", tags=["secrets"])
TeamId = Annotated[str | None, Query(alias="teamId", max_length=100)]
_DONE = {"data": {"success": True}}


@router.get("/secrets")
def list_secrets(user: Caller, services: HubServices, team_id: TeamId = None) -> dict[str, Any]:
    """List the caller's secrets, or those of a team."""
    with services.database.read() as session:
        owner_id = service.owner_of_new(session, user, team_id)
        return {"data": [answers.secret_facts(secret) for secret in service.list_global(session, owner_id)]}


@router.post("/secrets")
def add_secret(body: NewGlobalSecret, user: Caller, services: HubServices, team_id: TeamId = None) -> dict[str, Any]:
    """Add a secret of the caller, or of a team."""
    with services.database.write() as session:
        owner_id = service.owner_of_new(session, user, body.team_id or team_id)
        added = service.add_global(session, services.vault, owner_id, body)
        audit.record(session, user, "secret.add", added.name, owner_id=owner_id)
        return {"data": answers.secret_facts(added)}


@router.get("/secrets/{secret_id}")
def secret_details(secret: PathSecret) -> dict[str, Any]:
    """Say all there is to say of a secret but its value."""
    return {"data": answers.secret_facts(secret)}


@router.patch("/secrets/{secret_id}")
def change_secret(body: GlobalSecretChange, secret: PathSecret, user: Caller, services: HubServices) -> dict[str, Any]:
    """Change name, value or description of a secret."""
    with services.database.write() as session:
        changed = service.change_secret(session, services.vault, secret, body)
        audit.record(session, user, "secret.change", changed.name, owner_id=changed.owner_id)
        return {"data": answers.secret_facts(changed)}


@router.delete("/secrets/{secret_id}")
def delete_secret(secret: PathSecret, user: Caller, services: HubServices) -> dict[str, Any]:
    """Delete a secret; environments that it was linked to lose it."""
    with services.database.write() as session:
        service.remove_global(session, secret.id)
        audit.record(session, user, "secret.delete", secret.name, owner_id=secret.owner_id)
    return _DONE


@router.get("/environmentshub/{environment_id}/secrets")
def list_environment_secrets(environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """List the secrets of an environment: its own, and those of its owner that are linked to it."""
    with services.database.read() as session:
        found = service.list_of_environment(session, environment)
        return {"data": [answers.environment_secret_facts(secret) for secret in found]}


@router.post("/environmentshub/{environment_id}/secrets")
def add_environment_secret(
    body: NewSecret, environment: PathEnvironment, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Add a secret of the environment's own."""
    with services.database.write() as session:
        added = service.add_to_environment(session, services.vault, environment, body)
        _note(session, user, "secret.add", added.name, environment)
        return {"data": answers.environment_secret_facts(added)}


@router.patch("/environmentshub/{environment_id}/secrets/{secret_id}")
def change_environment_secret(
    body: SecretChange, environment: PathEnvironment, user: Caller, secret_id: str, services: HubServices
) -> dict[str, Any]:
    """Change name, value or description of a secret of the environment's own."""
    with services.database.write() as session:
        secret = service.get_of_environment(session, environment, secret_id)
        changed = service.change_secret(session, services.vault, secret, body)
        _note(session, user, "secret.change", changed.name, environment)
        return {"data": answers.environment_secret_facts(changed)}


@router.delete("/environmentshub/{environment_id}/secrets/{secret_id}")
def delete_environment_secret(
    environment: PathEnvironment, user: Caller, secret_id: str, services: HubServices
) -> dict[str, Any]:
    """Delete a secret of the environment's own."""
    with services.database.write() as session:
        doomed = service.get_of_environment(session, environment, secret_id)
        session.delete(doomed)
        _note(session, user, "secret.delete", doomed.name, environment)
    return _DONE


@router.post("/environmentshub/{environment_id}/secrets/link/{global_id}")
def link_secret(environment: PathEnvironment, user: Caller, global_id: str, services: HubServices) -> dict[str, Any]:
    """Link a secret of the environment's owner to it."""
    with services.database.write() as session:
        secret = service.get_global(session, user, global_id)
        linked = service.link(session, environment, secret)
        _note(session, user, "secret.link", secret.name, environment)
        return {"data": answers.link_facts(linked, secret)}


@router.delete("/environmentshub/{environment_id}/secrets/link/{global_id}")
def unlink_secret(environment: PathEnvironment, user: Caller, global_id: str, services: HubServices) -> dict[str, Any]:
    """Take a linked secret from an environment; the secret itself stays."""
    with services.database.write() as session:
        service.unlink(session, environment, global_id)
        _note(session, user, "secret.unlink", global_id, environment)
    return _DONE


@router.get("/environmentshub/{environment_id}/variables")
def list_variables(environment: PathEnvironment, services: HubServices) -> dict[str, Any]:
    """List the variables of an environment with their values."""
    with services.database.read() as session:
        found = service.list_variables(session, environment)
        return {"data": [answers.variable_facts(variable, services.vault) for variable in found]}


@router.post("/environmentshub/{environment_id}/variables")
def add_variable(
    body: NewVariable, environment: PathEnvironment, user: Caller, services: HubServices
) -> dict[str, Any]:
    """Add a variable to an environment."""
    with services.database.write() as session:
        added = service.add_variable(session, services.vault, environment, body)
        _note(session, user, "variable.add", added.name, environment)
        return {"data": answers.variable_facts(added, services.vault)}


@router.patch("/environmentshub/{environment_id}/variables/{variable_id}")
def change_variable(
    body: SecretChange, environment: PathEnvironment, user: Caller, variable_id: str, services: HubServices
) -> dict[str, Any]:
    """Change name, value or description of a variable."""
    with services.database.write() as session:
        variable = service.get_variable(session, environment, variable_id)
        changed = service.change_variable(session, services.vault, variable, body)
        _note(session, user, "variable.change", changed.name, environment)
        return {"data": answers.variable_facts(changed, services.vault)}


@router.delete("/environmentshub/{environment_id}/variables/{variable_id}")
def delete_variable(
    environment: PathEnvironment, user: Caller, variable_id: str, services: HubServices
) -> dict[str, Any]:
    """Delete a variable."""
    with services.database.write() as session:
        doomed = service.get_variable(session, environment, variable_id)
        session.delete(doomed)
        _note(session, user, "variable.delete", doomed.name, environment)
    return _DONE


def _note(session: Session, user: User, action: str, name: str, environment: Environment) -> None:
    """Note a change in the audit log of the environment's owner."""
    where = f"{environment.owner.slug}/{environment.name}"
    audit.record(session, user, action, name, owner_id=environment.owner_id, environment=where)
