"""Between a request over HTTP and the engine: submits, waits, and frees the slot when the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from prime_cli.rl.inference.answers import answer, refusal
from prime_cli.rl.inference.engine import Completion, SlotEngine
from prime_cli.rl.inference.sampling import SamplingParameters

_DISCONNECT_CHECK_S = 1.0

Routes = TypeVar("Routes")


@dataclass(frozen=True)
class Asked:
    """A request that was understood: what is to be completed, how, and what is answered then."""

    prompt_ids: list[int]
    parameters: SamplingParameters
    body_of: Callable[[Completion], dict[str, Any]]


Reader = Callable[[Any], Asked]
"""Understands the body of a request, parsed already; raises ValueError where it cannot."""


async def complete(engine: SlotEngine, asked: Asked, http: Request) -> Completion:
    """Return the completion of a prompt.

    Raises:
        ValueError: the prompt cannot be completed.
        ClientDisconnect: nobody waits for the answer any more; the request was cancelled.
        RuntimeError: the engine has stopped, or failed.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Completion] = loop.create_future()

    def deliver(result: Completion | Exception) -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(RuntimeError(f"the engine failed: {result}"))
        else:
            future.set_result(result)

    def on_done(result: Completion | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result)

    cancelled = engine.submit(asked.prompt_ids, asked.parameters, on_done)
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=_DISCONNECT_CHECK_S)
            if not future.done() and await http.is_disconnected():
                raise ClientDisconnect
        return future.result()
    finally:
        cancelled.set()


async def answered(engine: SlotEngine, asked: Asked, http: Request) -> Response:
    """Return the answer to a request; raises what `complete` raises."""
    completion = await complete(engine, asked, http)
    return answer(asked.body_of(completion), completion)


def answering(
    handler: Callable[[Routes, Request], Awaitable[Response]],
) -> Callable[[Routes, Request], Awaitable[Response]]:
    """Turn what a handler raises into the status that it means: 400, 499 or 503."""

    @wraps(handler)
    async def guarded(self: Routes, request: Request) -> Response:
        try:
            return await handler(self, request)
        except (ValidationError, ValueError) as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it; the slot is free again
        except RuntimeError as error:
            return refusal(error, status=503, kind="server_error")

    return guarded
