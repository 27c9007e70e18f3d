"""A model client that is cheap per request; used by `worker.py`, in the workspace's interpreter.

On a CPU the training of a small model waits for its environment workers, and most of what a worker did per rollout was
the client's: building and checking the request against its types took as long as everything else together. Requests
here go out by aiohttp, and answers are parsed in one step into the same types. Whatever is unusual (an error status, an
option that is not part of the body) is left to the client's own path, with its retries and its error types.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 3600.0
_RETRIES = 2
# Given to `create`, these are no part of the body.
_UNUSUAL = ("stream", "extra_query", "timeout")


def model_client(endpoint: dict[str, Any]) -> Any:
    """Return a client for `endpoint` (base_url, api_key, headers) that stands in for `openai.AsyncOpenAI`."""
    import openai

    full = openai.AsyncOpenAI(
        base_url=endpoint["base_url"],
        api_key=endpoint["api_key"] or "EMPTY",
        default_headers=endpoint["headers"],
        timeout=openai.Timeout(_REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        max_retries=_RETRIES,
    )
    try:
        import aiohttp
    except ModuleNotFoundError:
        return full
    # The service may take long to answer, never to accept.
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Authorization": f"Bearer {full.api_key}", "Content-Type": "application/json", **endpoint["headers"]},
        timeout=timeout,
        trust_env=True,
    )
    return LeanClient(full, session, endpoint["base_url"].rstrip("/") + "/chat/completions")


class LeanClient:
    """`openai.AsyncOpenAI` with a quicker `chat.completions.create`; everything else is its own."""

    def __init__(self, full: Any, session: Any, url: str) -> None:
        self._full = full
        self._session = session
        self._url = url
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._full, name)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._full.close()

    async def _create(self, **arguments: Any) -> Any:
        answer = None
        if not any(name in arguments for name in _UNUSUAL):
            answer = await self._post(dict(arguments))
        if answer is None:
            return await self._full.chat.completions.create(**arguments)
        return _parsed(answer)

    async def _post(self, arguments: dict[str, Any]) -> bytes | None:
        """Return the body of a successful answer, else None."""
        import aiohttp

        headers = arguments.pop("extra_headers", None)
        body = {**arguments, **(arguments.pop("extra_body", None) or {})}
        body.pop("extra_body", None)
        try:
            data = json.dumps(body).encode()
        except TypeError:  # the client knows how to encode its own objects
            return None
        try:
            async with self._session.post(self._url, data=data, headers=headers) as response:
                return bytes(await response.read()) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def _parsed(body: bytes) -> Any:
    from openai.types.chat import ChatCompletion
    from pydantic import ValidationError

    try:
        return ChatCompletion.model_validate_json(body)
    except ValidationError:
        # Some servers leave fields out; this way of reading takes what there is.
        return ChatCompletion.construct(**json.loads(body))
