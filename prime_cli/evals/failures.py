"""What kind of failure ended a rollout: whether trying again may help, and whether all others will fail alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from prime_cli.environments.rollout_errors import error_text


class FailureKind(Enum):
    """Whose the failure is, and what that means for other rollouts."""

    KEY_REFUSED = "the server refuses the key"
    MODEL_UNKNOWN = "the server does not know the model, or the address"
    REQUEST_REFUSED = "the server refuses the request"
    RATE_LIMITED = "the server is asked too much"
    UNAVAILABLE = "the server does not answer as it should"
    TRANSIENT = "what the environment needs failed, or the answer was none"
    OWN = "the environment's, the scoring's or the rollout's own"

    @property
    def is_worth_a_retry(self) -> bool:
        """Whether the same rollout may well succeed a little later."""
        return self in (FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE, FailureKind.TRANSIENT)

    @property
    def is_the_servers(self) -> bool:
        """Whether the model's server said no, or nothing."""
        return self not in (FailureKind.TRANSIENT, FailureKind.OWN)


# By the names of the exceptions, which the clients of several providers share.
_KINDS = {
    "AuthenticationError": FailureKind.KEY_REFUSED,
    "PermissionDeniedError": FailureKind.KEY_REFUSED,
    "NotFoundError": FailureKind.MODEL_UNKNOWN,
    "BadRequestError": FailureKind.REQUEST_REFUSED,
    "UnprocessableEntityError": FailureKind.REQUEST_REFUSED,
    "RateLimitError": FailureKind.RATE_LIMITED,
    "InternalServerError": FailureKind.UNAVAILABLE,
    "APIConnectionError": FailureKind.UNAVAILABLE,
    "APITimeoutError": FailureKind.UNAVAILABLE,
    "ConflictError": FailureKind.UNAVAILABLE,
    "APIStatusError": FailureKind.UNAVAILABLE,
    "InfraError": FailureKind.TRANSIENT,
    "SandboxError": FailureKind.TRANSIENT,
    "BrowserSandboxError": FailureKind.TRANSIENT,
    "TunnelError": FailureKind.TRANSIENT,
    "InvalidModelResponseError": FailureKind.TRANSIENT,
    "EmptyModelResponseError": FailureKind.TRANSIENT,
    "EnvironmentWorkerDied": FailureKind.TRANSIENT,
}
_OWN = {"ScoringError", "OverlongPromptError"}  # a judge's server is not the model's, a prompt is one example's
_NO_MONEY = "insufficient_quota"
_WORDS_OF_THE_SERVER = re.compile(r"""['"]message\\?['"]: (?P<quote>\\?['"])(?P<text>.+?)(?P=quote)""")
_AFTER_THE_CODE = re.compile(r"Error code: \d+ - (?P<text>[^{].*?)['\"]?\)?$", re.MULTILINE)


def kind_of(error: Any) -> FailureKind:
    """Return the kind of a rollout's `error`, by the names in its chain of exceptions."""
    if not isinstance(error, Mapping):
        return FailureKind.OWN
    chain = str(error.get("error_chain_str") or error.get("error") or "")
    names = re.findall(r"\w+", chain)
    if not _OWN.isdisjoint(names):
        return FailureKind.OWN
    kind = next((_KINDS[name] for name in names if name in _KINDS), FailureKind.OWN)
    if kind is FailureKind.RATE_LIMITED and _NO_MONEY in str(error.get("error_chain_repr")):
        return FailureKind.KEY_REFUSED
    return kind


def servers_words(error: Any) -> str:
    """Return what the server said of the failure, without what the client put around it."""
    text = error_text(error)
    chain = str(error.get("error_chain_repr") or "") if isinstance(error, Mapping) else ""
    forms = (_WORDS_OF_THE_SERVER, _AFTER_THE_CODE)
    found = next((match for where in (chain, text) for form in forms if (match := form.search(where))), None)
    return re.sub(r"\\+(['\"])", r"\1", found["text"]) if found else text
