"""A frozen model that judges tokens: the log-probability that it gives to each one of a sequence."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from prime_cli.core.errors import ConfigError, PrimeError
from prime_cli.rl.algorithm_config import TeacherConfig

TEACHER_VARIABLE = "PRIME_RUN_TEACHER"
"""The environment variable in which the launcher tells the orchestrator the teacher's address, as JSON."""

_CONCURRENT = 32
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class TeacherAddress:
    """Where a teacher is served (`base_url` ends in /v1), under which name, and the variable that holds its key.

    `headers_from_env` names further headers, each with the variable that holds its value.
    """

    base_url: str
    model: str
    api_key_var: str | None = None
    headers_from_env: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        """The further headers with their values."""
        return {name: os.environ.get(variable, "") for name, variable in self.headers_from_env.items()}

    def variables(self) -> dict[str, str]:
        """Return what the orchestrator reads with `teacher_address`, as environment variables."""
        return {TEACHER_VARIABLE: json.dumps(asdict(self))}


def teacher_address() -> TeacherAddress | None:
    """Return the teacher that the launcher named, or None."""
    text = os.environ.get(TEACHER_VARIABLE)
    return None if text is None else TeacherAddress(**json.loads(text))


def check_teacher(teacher: TeacherConfig, policy: Path) -> None:
    """Look at what can be known of a teacher before anything is started.

    Raises:
        ConfigError: its folder uses another tokenizer than the policy's, or the key of its server is not set.
    """
    client = teacher.client
    named = {f"headers_from_env.{header}": variable for header, variable in client.headers_from_env.items()}
    for key, variable in {"api_key_var": client.api_key_var, **named}.items():
        if variable is not None and not os.environ.get(variable):
            raise ConfigError(f"teacher.client.{key} names {variable}, which is not set", hint=f"export {variable}=...")
    if teacher.client.base_url is None and _vocabulary(Path(teacher.model)) != _vocabulary(policy):
        raise ConfigError(
            f"the teacher {teacher.model} uses another tokenizer than {policy}",
            hint="a teacher judges the policy's own tokens, so both need the same tokenizer",
        )


def _vocabulary(folder: Path) -> Any:
    path = folder / "tokenizer.json"
    return json.loads(path.read_text())["model"] if path.is_file() else path


class Teacher:
    """Asks a server that speaks vLLM's completions, as the embedded engine does, for `prompt_logprobs`."""

    def __init__(self, address: TeacherAddress) -> None:
        self._model = address.model
        key = os.environ.get(address.api_key_var or "", "")
        headers = address.headers | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = httpx.AsyncClient(base_url=address.base_url, headers=headers, timeout=_TIMEOUT_S)
        self._free = asyncio.Semaphore(_CONCURRENT)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after those before it; the first, which nothing precedes, gets 0.

        Raises:
            PrimeError: the server did not answer, or not with one log-probability per token.
        """
        body = {
            "model": self._model, "prompt": list(token_ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0,
        }  # fmt: skip
        async with self._free:
            try:
                response = await self._client.post("completions", json=body)
            except httpx.HTTPError as error:
                raise PrimeError(f"the teacher did not answer: {error or type(error).__name__}") from error
        if response.status_code != httpx.codes.OK:
            raise PrimeError(
                f"the teacher refused to score: HTTP {response.status_code} {response.text[:200]}",
                hint="its server must take token ids and return `prompt_logprobs`, as vLLM and the embedded engine do",
            )
        try:
            entries = response.json()["choices"][0]["prompt_logprobs"]
            return [0.0, *(float(e[str(i)]["logprob"]) for i, e in zip(token_ids[1:], entries[1:], strict=True))]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PrimeError(f"the teacher's answer holds no log-probabilities of the prompt: {error!r}") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
