"""What kind of failure it was, and when to stop for it."""

from __future__ import annotations

from typing import Any

import pytest

from prime_cli.environments.runtime import ModelEndpoint
from prime_cli.evals.failures import FailureKind, kind_of, servers_words
from prime_cli.evals.outage import EndpointFailed, OutageWatch

ENDPOINT = ModelEndpoint("http://there/v1", "gpt")


def failed(name: str, status: int, says: str) -> dict[str, Any]:
    """Return the error of a rollout as the library writes it."""
    body = {"error": {"message": says}}
    chain = f"ModelError() -> {name}({f'Error code: {status} - {body}'!r})"
    return {"error": "ModelError", "error_chain_repr": chain, "error_chain_str": f"ModelError -> {name}"}


KEY, MODEL = failed("AuthenticationError", 401, "no such key"), failed("NotFoundError", 404, "it isn't there")
DOWN, BAD = failed("InternalServerError", 500, "oh no"), failed("BadRequestError", 400, "top_k?")
OWN = {"error": "ScoringError", "error_chain_repr": "ScoringError('x')", "error_chain_str": "ScoringError"}


def stopped_after(errors: list[Any], *, total: int = 1000, had_answered: bool = False) -> tuple[int, EndpointFailed]:
    watch = OutageWatch(total, had_answered=had_answered)
    for number, error in enumerate(errors, 1):
        if failure := watch.finished(error, ENDPOINT):
            return number, failure
    raise AssertionError("it did not stop")


@pytest.mark.parametrize(
    ("error", "after", "says"),
    [
        (KEY, 3, "http://there/v1 refuses the API key: no such key"),
        (MODEL, 3, "http://there/v1 does not know the model 'gpt': it isn't there"),
        (DOWN, 5, "http://there/v1 does not answer as it should: oh no"),
        (BAD, 10, "http://there/v1 refuses every request: top_k?"),
    ],
)
def test_the_first_rollouts_that_fail_alike_are_enough(error: Any, after: int, says: str) -> None:
    number, failure = stopped_after([error] * 1000)
    assert (number, failure.message, failure.had_answered) == (after, says, False)
    assert failure.hint


def test_an_evaluation_with_fewer_rollouts_stops_when_all_of_them_fail() -> None:
    assert stopped_after([KEY, KEY], total=2)[0] == 2


def test_after_an_answer_it_takes_ten_in_a_row() -> None:
    number, failure = stopped_after([None, *[DOWN] * 9, None, *[DOWN] * 10])
    assert (number, failure.had_answered) == (21, True)
    assert stopped_after([DOWN] * 10, had_answered=True)[0] == 10


def test_other_failures_do_not_stop_it_and_show_that_the_server_answers() -> None:
    watch = OutageWatch(1000, had_answered=False)
    assert not any(watch.finished(error, ENDPOINT) for error in [OWN, BAD] * 500)
    assert not any(watch.finished(BAD, ENDPOINT) for _ in range(100))


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ("ModelError -> RateLimitError", FailureKind.RATE_LIMITED),
        ("ModelError -> APIConnectionError -> ConnectError -> ConnectError", FailureKind.UNAVAILABLE),
        ("EmptyModelResponseError", FailureKind.TRANSIENT),
        ("SandboxError -> TimeoutError", FailureKind.TRANSIENT),
        ("EnvironmentWorkerDied", FailureKind.TRANSIENT),
        ("EnvironmentFailed", FailureKind.OWN),
        ("EnvironmentFailed -> AuthenticationError", FailureKind.KEY_REFUSED),
        ("OverlongPromptError -> BadRequestError", FailureKind.OWN),
        ("ScoringError -> RateLimitError", FailureKind.OWN),
    ],
)
def test_kinds_of_failures(chain: str, kind: FailureKind) -> None:
    assert kind_of({"error": "x", "error_chain_str": chain}) is kind


def test_an_account_without_money_is_no_matter_of_waiting() -> None:
    assert kind_of(failed("RateLimitError", 429, "insufficient_quota")) is FailureKind.KEY_REFUSED


def test_what_the_server_said_is_told_without_what_the_client_put_around_it() -> None:
    assert servers_words(KEY) == "no such key"
    assert servers_words({"error": "ModelError", "message": "something else\nmore"}) == "something else"
    assert servers_words("text") == "text"
    plain = {"error": "ModelError", "error_chain_repr": "ModelError() -> NotFoundError('Error code: 404 - gone (now)')"}
    assert servers_words(plain) == "gone (now)"
    raw = "the environment x failed: Error code: 401 - no key\n  File y"
    assert servers_words({"error": "EnvironmentFailed", "error_chain_repr": raw, "message": raw}) == "no key"
