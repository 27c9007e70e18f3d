"""What the hub refuses, and with which HTTP status.

Refusal            the base: `status`, and `detail` as the client shows it
  Malformed        400  what was sent cannot be right
  NotAuthenticated 401  nobody, or a key that is wrong
  Forbidden        403  known, but without the right
  NotFound         404  not there, or not for the caller's eyes
  Conflict         409  it would change what is published, or take what is taken
  TooLarge         413  over a limit
  TooManyRequests  429  too often
  Unavailable      503  the hub itself is not in order; its operator has to act
  NotServing       the server cannot start (for the operator, never on the wire)
"""

from __future__ import annotations

from prime_cli.core.errors import PrimeError


class Refusal(Exception):
    """A request that the hub refuses: `detail` says what was wrong and what to do."""

    status = 400

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Malformed(Refusal):
    """What was sent cannot be right."""


class NotAuthenticated(Refusal):
    """The route needs a user, and the request has none."""

    status = 401


class Forbidden(Refusal):
    """The caller is known, and has not the right."""

    status = 403


class NotFound(Refusal):
    """There is no such thing that the caller may see."""

    status = 404


class Conflict(Refusal):
    """It would change what is published, or take a name that is taken."""

    status = 409


class TooLarge(Refusal):
    """It is over a limit of this hub."""

    status = 413


class TooManyRequests(Refusal):
    """It came too often; `retry_after_s` says when it may come again."""

    status = 429

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(Refusal):
    """The hub itself is not in order for this; its operator has to act."""

    status = 503


class NotServing(PrimeError):
    """The server cannot start."""
