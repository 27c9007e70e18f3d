"""A model client that is cheap per request; used by `worker.py`, in the workspace's interpreter.

On a CPU the training of a small model waits for its environment workers, and most of what a worker did per rollout was
the client's: building and checking the request against its types took as long as everything else together. Requests
here go out by aiohttp, several as one where the server takes that (`worker_together.py`), and answers are parsed in one
step into the same types. Whatever is unusual (an error status, an
option that is not part of the body) is left to the client's own path, with its retries and its error types.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from prime_cli.environments.worker_patience import Patience

# Long, because it runs while this process is too busy to notice that it is connected.
CONNECT_TIMEOUT_S = 30.0
_REQUEST_TIMEOUT_S = 3600.0
_RETRIES = 2
# Given to `create`, these are no part of the body.
_UNUSUAL = ("stream", "extra_query", "timeout")


def model_client(
    endpoint: dict[str, Any], patience: Patience | None = None, together: Callable[[Any, str], Any] | None = None
) -> Any:
    """Return a client for `endpoint` (base_url, api_key, headers) that stands in for `openai.AsyncOpenAI`.

    With `patience` a request that is refused because there are too many waits, and is sent again. `together` makes what
    sends several requests as one, of a session and an address, for an endpoint that `takes_many`.
    """
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
        # Otherwise aiohttp reads the environment and the user's netrc again for every request, the latter in a thread.
        trust_env=_is_proxied(endpoint["base_url"]),
    )
    gathered = together(session, endpoint["base_url"]) if together is not None and endpoint.get("takes_many") else None
    return LeanClient(full, session, endpoint["base_url"], patience, gathered)


def _is_proxied(url: str) -> bool:
    """Say whether the environment's settings send requests to `url` through a proxy."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


class LeanClient:
    """`openai.AsyncOpenAI` with a quicker `chat.completions.create` and `post`; everything else is its own."""

    def __init__(
        self, full: Any, session: Any, base_url: str, patience: Patience | None = None, together: Any = None
    ) -> None:
        self._full = full
        self._patience = patience
        self._session = session
        self._together = together
        self._base_url = base_url.rstrip("/")
        self._elsewhere: dict[str, LeanClient] = {}
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._full, name)

    def with_options(self, **options: Any) -> Any:
        """Return a client with other options; one that only differs in its address shares the connections."""
        if options.keys() != {"base_url"}:
            return self._full.with_options(**options)
        address = str(options["base_url"])
        if address not in self._elsewhere:
            self._elsewhere[address] = LeanClient(
                self._full.with_options(**options), self._session, address, self._patience, self._together
            )
        return self._elsewhere[address]

    async def post(self, path: str, *, cast_to: Any, body: Any = None, options: Any = None, **rest: Any) -> Any:
        """Post `body` to a path or an address, as the full client does."""
        answer = None
        if not rest and isinstance(body, dict):
            url = path if path.startswith("http") else f"{self._base_url}/{path.lstrip('/')}"
            answer = await self._post(url, body, (options or {}).get("headers"))
        if answer is None:
            return await self._full.post(path, cast_to=cast_to, body=body, options=options or {}, **rest)
        return _parsed(answer, cast_to)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._full.close()

    async def _create(self, **arguments: Any) -> Any:
        from openai.types.chat import ChatCompletion

        answer = None
        if not any(name in arguments for name in _UNUSUAL):
            body = {**arguments, **(arguments.get("extra_body") or {})}
            headers = body.pop("extra_headers", None)
            body.pop("extra_body", None)
            answer = await self._post(f"{self._base_url}/chat/completions", body, headers)
        if answer is None:
            return await self._full.chat.completions.create(**arguments)
        return _parsed(answer, ChatCompletion)

    async def _post(self, url: str, body: dict[str, Any], headers: Any) -> bytes | None:
        """Return the body of a successful answer, else None."""
        import aiohttp

        try:
            data = json.dumps(body).encode()
        except TypeError:  # the client knows how to encode its own objects
            return None
        if self._together is not None and not headers:
            together: bytes | None = await self._together.ask(url, data)
            if together is not None or self._patience is None:
                return together
        patience, tries = self._patience, 0
        since = patience.now() if patience is not None else 0.0
        while True:
            if patience is not None:
                await patience.wait()
            try:
                async with self._session.post(url, data=data, headers=headers) as response:
                    answer = bytes(await response.read())
                    if response.status == 200:
                        return answer
                    refusal, tries = (response.status, response.headers, answer), tries + 1
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None
            if patience is None or not patience.allows_another_try(*refusal, since, tries):
                return None


def _parsed(body: bytes, cast_to: Any) -> Any:
    from pydantic import ValidationError

    if not hasattr(cast_to, "model_validate_json"):
        return json.loads(body)
    try:
        return cast_to.model_validate_json(body)
    except ValidationError:
        # Some servers leave fields out; this way of reading takes what there is.
        return cast_to.construct(**json.loads(body))


def takes_empty_answers(client: Any) -> Any:
    """Return `client`, one of the library's, which from now on takes an empty message for an answer if it was sampled.

    The library makes an error of it, and a rollout with an error is not trained on: then nothing would keep a policy
    from saying nothing, and it learns to. What the environment makes of the empty message is the environment's to say.
    """
    refuse_empty = client.raise_from_native_response

    async def refuse_unsampled(response: Any) -> None:
        if not _was_sampled(response):
            await refuse_empty(response)

    client.raise_from_native_response = refuse_unsampled
    return client


def sends_headers_from_state(client: Any, keys: dict[str, str], *, among_arguments: bool) -> None:
    """Let `client`, one of the library's, send headers whose values are those of the rollout's state under `keys`.

    Args:
        among_arguments: this kind of client looks for headers among the sampling arguments.
    """
    if not keys:
        return
    get_response = client.get_response

    @functools.wraps(get_response)
    async def with_headers(prompt: Any, model: Any, sampling_args: Any, *rest: Any, **named: Any) -> Any:
        state = named.get("state") or {}
        headers = {name: str(state[key]) for name, key in keys.items() if state.get(key) is not None}
        if among_arguments:
            sampling_args = {**(sampling_args or {}), "extra_headers": headers}
        elif headers:
            named["extra_headers"] = headers
        return await get_response(prompt, model, sampling_args, *rest, **named)

    client.get_response = with_headers


def _was_sampled(response: Any) -> bool:
    """Say whether the answer names the tokens that it is made of, be it only the one that ends it."""
    if isinstance(response, dict):
        return bool(response.get("completion_ids"))
    choices = getattr(response, "choices", None) or []
    return len(choices) == 1 and bool(getattr(choices[0], "token_ids", None))
