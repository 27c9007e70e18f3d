"""Brings images that a node lacks from registries, those alone from which its operator lets it.

Who creates a sandbox names its image, and with that a server to which the node would connect: so the list of registries
is empty unless the operator fills it, and the node's own saved logins are never used.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.errors import ImageNotThere, ImageRefused, NotPossible, SandboxError
from hub_server.sandbox_node.images.archives import copy_image
from hub_server.sandbox_node.images.references import DOCKER_HUB, HOST, Reference, normalised, parse
from hub_server.sandbox_node.images.store import ImageStore, StoredImage
from hub_server.sandbox_node.images.unpacking import UnpackLimits

_MOST_PULLS_AT_ONCE = 2
_REFUSALS_KEPT_S = 30.0
_COLLECT_EVERY_S = 60.0
_MOST_REFUSALS_KEPT = 1000
_LAST_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Registry:
    """A registry that images may come from. `name` is what references call it, `address` where it is reached."""

    name: str
    address: str
    encrypted: bool = True

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read `docker.io`, `http://127.0.0.1:5000`, or a mirror: `docker.io=https://mirror.example.org`.

        Raises:
            NotPossible: the text is none of these.
        """
        name, _, address = text.rpartition("=")
        address = address if "://" in address else f"https://{address}"
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or "@" in parts.netloc:
            raise NotPossible(
                f"{text!r} is no registry", "write docker.io, http://localhost:5000, or docker.io=https://a-mirror"
            )
        return cls((name or parts.netloc).lower(), parts.netloc, parts.scheme == "https")


class NodeImages:
    """The images of a node: those of its store, and what the store lacks, fetched when it is first asked for."""

    def __init__(
        self,
        store: ImageStore,
        registries: Sequence[Registry] = (),
        *,
        logins: Path | None = None,
        limits: UnpackLimits | None = None,
        timeout_s: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pull into `store` from `registries`. `logins` is a file that `skopeo login` wrote."""
        self.store, self._registries, self._logins = store, {each.name: each for each in registries}, logins
        self._limits, self._timeout_s, self._clock = limits or UnpackLimits(), timeout_s, clock
        self._pulls: dict[str, asyncio.Task[StoredImage]] = {}
        self._refused: dict[str, tuple[float, SandboxError]] = {}
        self._collected = clock()
        self._collecting: asyncio.Task[None] | None = None
        self._at_once = asyncio.Semaphore(_MOST_PULLS_AT_ONCE)

    def known(self, name: str) -> RootFilesystem | None:
        """Return the image that the store has under a name now; None where it has none."""
        try:
            return self.store.find(name)
        except ImageNotThere:
            return None

    def names(self) -> list[str]:
        """Return the names of all images and aliases that are in the store."""
        return self.store.names()

    def collect(self) -> None:
        """Remove the files of images that have no name any more and that no sandbox has; it may block."""
        self.store.collect()

    async def find(self, reference: str) -> RootFilesystem:
        """Return the image of a name, pulling it first where the store has none; many callers share one pull.

        Raises:
            ImageNotThere: it is not in the store and cannot be pulled; the message says what was tried.
        """
        self._collect_later()
        try:
            return self.store.find(reference)
        except ImageNotThere:
            name = normalised(reference)
        self._registry_of(parse(name))
        refused = self._refused.get(name)
        if refused is not None and self._clock() - refused[0] < _REFUSALS_KEPT_S:
            raise refused[1]
        pull = self._pulls.get(name)
        if pull is None:
            pull = self._pulls[name] = asyncio.create_task(self._pull_in_turn(name))
            pull.add_done_callback(lambda done: self._ended(name, done))
        # A caller that gives up leaves the pull to the others.
        await asyncio.shield(pull)
        return self.store.find(name)

    def pull(self, reference: str) -> StoredImage:
        """Pull an image now, whether the store has it or not; what it had under this name is replaced.

        Raises:
            ImageNotThere: it cannot be pulled; the message says what was tried.
            NotPossible: a program for it is not installed.
        """
        name = normalised(reference)
        parsed = parse(name)
        registry = self._registry_of(parsed)
        separator, version = ("@", parsed.digest) if parsed.digest else (":", parsed.tag)
        source = f"{registry.address}/{parsed.in_registry}{separator}{version}"
        options = [] if registry.encrypted else ["--src-tls-verify=false"]
        options += [f"--src-authfile={self._logins}"] if self._logins else ["--src-no-creds"]
        with self.store.aside() as aside:
            try:
                copy_image(
                    aside, f"docker://{source}", aside / "layout", self._limits, network=True, options=options,
                    reads=[self._logins] if self._logins else [], timeout_s=self._timeout_s,
                )  # fmt: skip
                return self.store.add_layout(aside / "layout", aside, name, source)
            except ImageRefused as error:
                raise ImageNotThere(
                    f"no image {name} on this node, and {source}: {_shortened(error.detail)}"
                ) from error

    def _collect_later(self) -> None:
        """Remove in a while what nobody uses any more; called often, it looks seldom."""
        if self._clock() - self._collected > _COLLECT_EVERY_S:
            self._collected = self._clock()
            self._collecting = asyncio.create_task(asyncio.to_thread(self.store.collect))

    async def _pull_in_turn(self, name: str) -> StoredImage:
        async with self._at_once:
            return await asyncio.to_thread(self.pull, name)

    def _ended(self, name: str, pull: asyncio.Task[StoredImage]) -> None:
        del self._pulls[name]
        error = None if pull.cancelled() else pull.exception()
        if isinstance(error, SandboxError):
            if len(self._refused) >= _MOST_REFUSALS_KEPT:
                self._refused.clear()
            self._refused[name] = self._clock(), error

    def _registry_of(self, reference: Reference) -> Registry:
        where = reference.registry or DOCKER_HUB
        registry = self._registries.get(where)
        if registry is None or reference.name == f"{HOST}:latest":
            raise ImageNotThere(
                f"no image {reference.name} on this node, and it pulls none from {where}",
                "its operator can add it: prime sandbox image import; "
                f"or let the node pull it: prime sandbox serve --registry {where}",
            )
        return registry


def _shortened(message: str) -> str:
    """Take the reason out of a line of skopeo's log."""
    found = _LAST_MESSAGE.search(message)
    return found[1].replace('\\"', '"') if found else message
