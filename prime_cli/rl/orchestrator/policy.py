"""Follows the trainer's broadcasts and loads each new version into the inference server, while it goes on serving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from prime_cli.core.errors import PrimeError
from prime_cli.rl.inference.weight_updates import update_weights
from prime_cli.rl.inference_config import WeightTransfer
from prime_cli.rl.run_directory import RunDirectory

_POLL_S = 0.01
_ADMIN_TIMEOUT_S = 300.0

INFERENCE_VARIABLE = "PRIME_RUN_INFERENCE"
"""The environment variable in which the launcher tells the orchestrator the server's address, as JSON."""


@dataclass(frozen=True)
class InferenceAddress:
    """Where the run's inference server is: `base_url` ends in /v1; the admin routes lie at `admin_url`.

    `weight_transfer` is how it takes new weights; `takes_many` says that it is one embedded server, without a gateway.
    """

    base_url: str
    model: str
    admin_url: str
    admin_token: str
    weight_transfer: WeightTransfer = "filesystem"
    takes_many: bool = False


class InferenceAdmin:
    """The control routes, named alike by vLLM (in development mode) and by the embedded engine."""

    def __init__(self, address: InferenceAddress) -> None:
        self._client = httpx.AsyncClient(
            base_url=address.admin_url,
            headers={"Authorization": f"Bearer {address.admin_token}"},
            timeout=_ADMIN_TIMEOUT_S,
        )
        self._transfer = address.weight_transfer
        self._first = True

    async def load_weights(self, run: RunDirectory, version: int) -> None:
        """Load the broadcast weights of `version` between two decoding steps; running requests are kept.

        Raises:
            PrimeError: the server refused, or did not answer.
        """
        folder = run.broadcast(version).resolve()
        await update_weights(self._transfer, self._post, folder, version, first=self._first)
        self._first = False

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _post(self, path: str, **request: object) -> None:
        try:
            response = await self._client.post(path, **request)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            raise PrimeError(f"the inference server did not answer {path}: {error or type(error).__name__}") from error
        if response.status_code != 200:
            raise PrimeError(f"the inference server refused {path}: HTTP {response.status_code} {response.text[:200]}")


class PolicyWatcher:
    """Keeps the server's weights at the newest broadcast version.

    `version` is what the server samples with now; `observers` are called whenever it has risen.

    Args:
        version: what the server samples with at first; -1 where that is no version of this run, because it goes on from
            a checkpoint and the server has the model's own weights still.
    """

    def __init__(self, run: RunDirectory, admin: InferenceAdmin, *, version: int = 0) -> None:
        self.version = version
        self.observers: list[Callable[[], None]] = []
        self.update_seconds = 0.0
        self._run = run
        self._admin = admin

    async def reach(self, version: int, timeout_s: float) -> None:
        """Wait until the server samples with `version`, or a later one; `follow` must run beside it.

        Raises:
            PrimeError: it does not within `timeout_s`.
        """
        risen = asyncio.Event()
        self.observers.append(risen.set)
        try:
            async with asyncio.timeout(timeout_s):
                while self.version < version:
                    risen.clear()
                    await risen.wait()
        except TimeoutError:
            raise PrimeError(
                f"the orchestrator waited {timeout_s:.0f} s for policy {version}, with which the run goes on",
                hint="look at the logs of the trainer and the inference server",
            ) from None
        finally:
            self.observers.remove(risen.set)

    async def follow(self) -> None:
        """Poll for broadcasts for ever, loading the newest and skipping those in between."""
        loop = asyncio.get_running_loop()
        while True:
            newest = self._run.newest_broadcast()
            if newest is None or newest <= self.version:
                await asyncio.sleep(_POLL_S)
                continue
            started = loop.time()
            await self._admin.load_weights(self._run, newest)
            self.update_seconds = loop.time() - started
            self.version = newest
            for observer in self.observers:
                observer()
