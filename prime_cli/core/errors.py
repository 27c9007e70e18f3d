"""The exception tree of the tool.

PrimeError                 something that a user can act on: one line, a hint, exit code 1
  BadInput                 the command line or a value on it cannot be right: exit code 2
  ConfigError              a configuration file is wrong: names the key and what was expected
  NotLoggedIn              the hub needs to know who asks
  HubError                 the hub refused, or did not answer
  ProcessDied              a process of a run ended when it should not have

Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations


class PrimeError(Exception):
    """A problem the user can act on: `message` says what happened, `hint` what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInput(PrimeError):
    """What was typed cannot be right."""

    exit_code = 2


class ConfigError(PrimeError):
    """A configuration file cannot be used as it stands."""


class NotLoggedIn(PrimeError):
    """The hub needs an API key and none is stored for this context."""

    def __init__(self, base_url: str) -> None:
        super().__init__(f"not logged in to {base_url}", hint="run `prime login`")


class HubError(PrimeError):
    """The hub refused a request or did not answer. `status` is the HTTP status, or None without an answer."""

    def __init__(self, message: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status


class ProcessDied(PrimeError):
    """A process that a run depends on ended when it should not have."""
