"""Notices that a model's server fails all rollouts alike, so that an evaluation stops before thousands have failed."""

from __future__ import annotations

from typing import Any

from prime_cli.core.errors import PrimeError
from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.evals.failures import FailureKind, kind_of, servers_words

_IN_A_ROW = 10
_IN_A_ROW_AT_FIRST = {
    FailureKind.KEY_REFUSED: 3,
    FailureKind.MODEL_UNKNOWN: 3,
    FailureKind.RATE_LIMITED: 5,
    FailureKind.UNAVAILABLE: 5,
}
_HINTS = {
    FailureKind.KEY_REFUSED: "the key is in the environment variable that `key` of the endpoint or --api-key-var names",
    FailureKind.MODEL_UNKNOWN: "its models are listed under /models there; the URL usually ends in /v1",
    FailureKind.REQUEST_REFUSED: "check the sampling arguments (-S, -t, -T)",
    FailureKind.RATE_LIMITED: "ask less at once with --max-concurrent, or wait",
    FailureKind.UNAVAILABLE: "check that the server runs",
}


class EndpointFailed(PrimeError):
    """The model's server fails all rollouts alike. `had_answered` says whether it ever did better."""

    def __init__(self, message: str, hint: str, *, had_answered: bool) -> None:
        super().__init__(message, hint)
        self.had_answered = had_answered


class OutageWatch:
    """Counts rollouts in a row that the model's server failed in one way.

    Args:
        total: how many rollouts there are; when they all fail, that is enough.
        had_answered: the server answered in an earlier part of the evaluation.
    """

    def __init__(self, total: int, *, had_answered: bool) -> None:
        self._total = total
        self.had_answered = had_answered
        self._kind: FailureKind | None = None
        self._in_a_row = 0

    def finished(self, error: Any, endpoint: ModelEndpoint) -> EndpointFailed | None:
        """Take notice of the `error` of a finished rollout, or of its absence; return why to stop, or None."""
        kind = kind_of(error) if error else None
        if kind is None or not kind.is_the_servers:
            self.had_answered, self._kind, self._in_a_row = True, None, 0
            return None
        self._in_a_row = self._in_a_row + 1 if kind is self._kind else 1
        self._kind = kind
        if self._in_a_row < self._enough(kind):
            return None
        return EndpointFailed(
            f"{_what(kind, endpoint)}: {servers_words(error)}", _HINTS[kind], had_answered=self.had_answered
        )

    def _enough(self, kind: FailureKind) -> float:
        if kind is FailureKind.REQUEST_REFUSED:  # after an answer it is about that request
            return float("inf") if self.had_answered else _IN_A_ROW
        return _IN_A_ROW if self.had_answered else min(_IN_A_ROW_AT_FIRST[kind], self._total)


def _what(kind: FailureKind, endpoint: ModelEndpoint) -> str:
    return {
        FailureKind.KEY_REFUSED: f"{endpoint.base_url} refuses the API key",
        FailureKind.MODEL_UNKNOWN: f"{endpoint.base_url} does not know the model {endpoint.model!r}",
        FailureKind.REQUEST_REFUSED: f"{endpoint.base_url} refuses every request",
        FailureKind.RATE_LIMITED: f"{endpoint.base_url} has refused requests as too many for a long time",
        FailureKind.UNAVAILABLE: f"{endpoint.base_url} does not answer as it should",
    }[kind]
