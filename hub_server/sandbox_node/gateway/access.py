"""Who may drive which sandbox: a bearer of its token, while it lives.

NoSandbox   no sandbox of this name was ever here, as far as this node still knows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hub_server.sandbox_node.errors import SandboxError
from hub_server.sandbox_node.sandbox import Sandbox
from hub_server.sandboxes.tokens import Wrong, check_token


class NoSandbox(SandboxError):
    """No sandbox of this name is known here, and none that ended lately."""


class SandboxRegistry(Protocol):
    """The live sandboxes of a node."""

    def get(self, sandbox_id: str) -> Sandbox:
        """Return a live sandbox.

        Raises:
            KeyError: no such sandbox is known.
            Gone: it has ended; says why.
            NotStarted: it waits for room, or could not be made.
        """


@dataclass(frozen=True)
class Door:
    """Opens sandboxes to those who bring the token."""

    sandboxes: SandboxRegistry
    secret: bytes

    def open(self, sandbox_id: str, authorization: str) -> Sandbox:
        """Return the sandbox that a request with this `Authorization` header may drive.

        Raises:
            Refused: the token opens it not.
            NoSandbox, Gone, NotStarted: it cannot be driven.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Wrong("a bearer token of this sandbox is needed")
        check_token(self.secret, token.strip(), sandbox_id)
        try:
            return self.sandboxes.get(sandbox_id)
        except KeyError:
            raise NoSandbox(f"no sandbox {sandbox_id} is on this node") from None
