"""What the launcher tells the gateway."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

GATEWAY_VARIABLE = "PRIME_RUN_GATEWAY"
"""The environment variable that holds the settings, as JSON."""

ADMIN_TOKEN_VARIABLE = "PRIME_RUN_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that holds the token of the control routes, for the gateway and for embedded servers."""


@dataclass(frozen=True)
class GatewaySettings:
    """What stands behind the gateway: servers by name, all of one engine, that serve the policy as `model`."""

    servers: dict[str, str]
    engine: str
    model: str
    liveness_timeout_s: float

    def variables(self) -> dict[str, str]:
        """Return what `from_environment` reads, as environment variables."""
        return {GATEWAY_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> GatewaySettings:
        """Return what the launcher told."""
        return cls(**json.loads(os.environ[GATEWAY_VARIABLE]))
