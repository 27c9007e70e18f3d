"""Names of images: what people write, and the one form under which the store knows each of them."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass

from hub_server.sandbox_node.errors import ImageNotThere

HOST = "host"
"""The image that every node has: the host's own system, read-only."""

DOCKER_HUB = "docker.io"
_DOCKER_HUB_ALSO = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MOST_CHARACTERS = 512
_REGISTRY = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?)(?::[0-9]{1,5})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """An image's name in parts. `registry` is None where the name gives none: the store's own, or Docker Hub's."""

    registry: str | None
    repository: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """Return the form in which the store keeps it: `python:3.11-slim`, `ghcr.io/someone/tool@sha256:...`."""
        where = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return f"{where}@{self.digest}" if self.digest else f"{where}:{self.tag}"

    @property
    def in_registry(self) -> str:
        """Return the path of its repository in its registry; on Docker Hub, official ones are in `library`."""
        official = self.registry is None and "/" not in self.repository
        return f"library/{self.repository}" if official else self.repository


def parse(text: str) -> Reference:
    """Take a name apart as container tools do: `python`, `docker.io/library/python:latest` and so on are the same.

    Raises:
        ImageNotThere: the text cannot be the name of an image.
    """
    rest, _, digest = text.strip().partition("@")
    last = rest.rpartition("/")[2]
    tag = last.partition(":")[2] if ":" in last else ""
    rest = rest.removesuffix(f":{tag}") if tag else rest
    registry, slash, path = rest.partition("/")
    if not slash or not (any(mark in registry for mark in ".:") or registry == "localhost"):
        registry, path = "", rest
    reference = Reference(registry.lower() or None, path, None if digest else tag or "latest", digest or None)
    if reference.registry in (DOCKER_HUB, *_DOCKER_HUB_ALSO):
        reference = Reference(None, path.removeprefix("library/"), reference.tag, reference.digest)
    if len(text) > _MOST_CHARACTERS or "://" in text or ("@" in text and not digest) or last.endswith(":"):
        raise _no_name(text)
    if not _is_sound(reference):
        raise _no_name(text)
    return reference


def normalised(text: str) -> str:
    """Return the store's form of an image's name; `host` and `host:latest` are `host`.

    Raises:
        ImageNotThere: the text cannot be the name of an image.
    """
    name = parse(text).name
    return HOST if name == f"{HOST}:latest" else name


def host_architecture() -> str:
    """Return this machine's architecture as images name it: amd64, arm64."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _is_sound(reference: Reference) -> bool:
    parts = reference.repository.split("/")
    return (
        (reference.registry is None or _REGISTRY.fullmatch(reference.registry) is not None)
        and all(_PART.fullmatch(part) for part in parts)
        and (reference.tag is None or _TAG.fullmatch(reference.tag) is not None)
        and (reference.digest is None or _DIGEST.fullmatch(reference.digest) is not None)
    )


def _no_name(text: str) -> ImageNotThere:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return ImageNotThere(
        f"{shown!r} is no name of an image", "name it like python:3.11-slim or ghcr.io/someone/tool:1.0"
    )
