"""How secrets and variables look on the wire; the names are the published ones. No answer has the value of a secret."""

from __future__ import annotations

from typing import Any

from hub_server.secrets import service
from hub_server.secrets.tables import Secret, SecretLink, Variable
from hub_server.secrets.vault import Vault


def secret_facts(secret: Secret) -> dict[str, Any]:
    """Return all there is to say of a secret but its value."""
    return {**_facts(secret), "isFile": secret.is_file}


def environment_secret_facts(secret: Secret) -> dict[str, Any]:
    """Return the same as a secret of an environment: `source` is `environment`, or `global` for a linked one."""
    return {**secret_facts(secret), "source": "environment" if secret.environment_id else "global"}


def variable_facts(variable: Variable, vault: Vault) -> dict[str, Any]:
    """Return a variable with its value, which its writers may read."""
    return {**_facts(variable), "value": service.value_of(vault, variable)}


def link_facts(link: SecretLink, secret: Secret) -> dict[str, Any]:
    """Return what ties a secret to an environment."""
    return {
        "id": link.id,
        "secretId": secret.id,
        "secretName": secret.name,
        "environmentId": link.environment_id,
        "createdAt": link.created_at.isoformat(),
    }


def _facts(row: Secret | Variable) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description or None,
        "createdAt": row.created_at.isoformat(),
        "updatedAt": row.updated_at.isoformat(),
    }
