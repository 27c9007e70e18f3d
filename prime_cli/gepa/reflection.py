"""Asks the reflection model for a better prompt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import httpx

from prime_cli.core.errors import PrimeError
from prime_cli.evals.cost import PricedEndpoint
from prime_cli.gepa.journal import Journal
from prime_cli.gepa.progress import Meter
from prime_cli.gepa.prompts import sha256_of

_ANSWER_TIMEOUT_S = 600.0
_CONNECT_TIMEOUT_S = 10.0
_LONGEST_WAIT_S = 60.0
_WORTH_A_RETRY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSALS = frozenset({401, 403, 404})
_THOUGHTS = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)

Messages = Sequence[Mapping[str, Any]]


class ReflectionModel:
    """An OpenAI-compatible model whose answers are kept in the journal.

    Args:
        sleep: waits between retries, which grow from a second unless the server says how long to wait.
    """

    def __init__(
        self,
        model: PricedEndpoint,
        journal: Journal,
        meter: Meter,
        *,
        max_retries: int,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint = model.endpoint
        self._price = model.price
        self._journal = journal
        self._meter = meter
        self._max_retries = max_retries
        self._sleep = sleep
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {endpoint.api_key}", **endpoint.headers},
            timeout=httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            follow_redirects=True,
        )

    async def check(self) -> None:
        """Ask for a few tokens, so that a wrong name or key is found before anything is paid for.

        Raises:
            PrimeError: the model refuses, or does not answer.
        """
        response = await self._post([{"role": "user", "content": "Say OK."}], max_tokens=16)
        if response.status_code in _REFUSALS:
            raise self._refusal(response)

    async def ask(self, prompt: str | list[dict[str, Any]]) -> str:
        """Return the model's answer without its thoughts, from the journal where it is there.

        Raises:
            PrimeError: the model refuses, does not answer, or answers without a text, retries and all.
        """
        messages: Messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        key = ("reflection", sha256_of(repr(messages)))
        number = self._journal.next_number(key)
        record = self._journal.find(key, number)
        if record is None:
            self._meter.check_cost()
            record = await self._answer(messages)
            self._journal.add(key, number, record)
        self._meter.reflection(record)
        return _THOUGHTS.sub("", str(record["answer"]))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _answer(self, messages: Messages) -> dict[str, Any]:
        for last in [False] * self._max_retries + [True]:
            response = await self._post(messages)
            if response.status_code != httpx.codes.OK:
                raise self._refusal(response)
            try:
                body = response.json()
                text = body["choices"][0]["message"]["content"]
            except (ValueError, KeyError, IndexError, TypeError):
                raise PrimeError(f"{self._name} did not answer as an OpenAI-compatible server does") from None
            if _THOUGHTS.sub("", text or "").strip():
                return {"answer": text, "usage": body.get("usage"), "cost": self._cost(body.get("usage"))}
            if last:
                break
        raise PrimeError(f"{self._name} answered without a text", hint="does it need more tokens for its thoughts?")

    async def _post(self, messages: Messages, **options: Any) -> httpx.Response:
        body = {"model": self._endpoint.model, "messages": list(messages), **options}
        url = f"{self._endpoint.base_url.rstrip('/')}/chat/completions"
        for attempt in range(self._max_retries + 1):
            wait_s = min(_LONGEST_WAIT_S, 2.0**attempt)
            try:
                response = await self._client.post(url, json=body)
            except httpx.HTTPError as error:
                if attempt == self._max_retries:
                    reason = str(error) or type(error).__name__
                    raise PrimeError(
                        f"{self._name} does not answer: {reason}", hint="check that its server runs"
                    ) from None
            else:
                if response.status_code not in _WORTH_A_RETRY or attempt == self._max_retries:
                    return response
                wait_s = _asked_wait_s(response) or wait_s
            await self._sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _cost(self, usage: Mapping[str, Any] | None) -> float | None:
        if self._price is None or not usage:
            return None
        return self._price.of(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)

    def _refusal(self, response: httpx.Response) -> PrimeError:
        try:
            said = response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            said = next(iter(response.text.splitlines()), "")
        hints = {401: "check its API key", 403: "check its API key", 404: "check the name of the model and the URL"}
        return PrimeError(
            f"{self._name} refuses with status {response.status_code}: {said}", hint=hints.get(response.status_code)
        )

    @property
    def _name(self) -> str:
        return f"the reflection model {self._endpoint.model} at {self._endpoint.base_url}"


def _asked_wait_s(response: httpx.Response) -> float | None:
    try:
        return min(_LONGEST_WAIT_S, max(0.0, float(response.headers["Retry-After"])))
    except (KeyError, ValueError):
        return None
