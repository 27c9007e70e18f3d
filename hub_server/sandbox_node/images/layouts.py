"""Folders of the OCI image layout: one image read, and one made of a root file system's archive."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from hub_server.sandbox_node.errors import ImageRefused
from hub_server.sandbox_node.images.references import host_architecture

TAG = "image"
"""The name that the one image of a layout of ours has in its index."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MOST_JSON_BYTES = 4 * 1024**2
_MOST_VARIABLES = 1000


@dataclass(frozen=True)
class ImageConfig:
    """What an image says of itself: `digest` is its manifest's."""

    digest: str
    architecture: str
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"


def read_layout(folder: Path) -> ImageConfig:
    """Read the configuration of the one image of a layout.

    Raises:
        ImageRefused: it is no sound layout, or its image is for another machine.
    """
    try:
        manifests = _json(folder / "index.json")["manifests"]
        digest = manifests[0]["digest"]
        manifest = _json(_blob(folder, digest))
        config = _json(_blob(folder, manifest["config"]["digest"]))
        inner = config.get("config") or {}
        pairs = [str(pair).partition("=") for pair in (inner.get("Env") or [])[:_MOST_VARIABLES]]
        environment = {name: value for name, equals, value in pairs if name and equals and "\0" not in name + value}
        working_dir = str(inner.get("WorkingDir") or "/")
        read = ImageConfig(digest, str(config.get("architecture") or ""), environment, working_dir)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ImageRefused(f"the image is damaged: {type(error).__name__} {error}") from error
    if read.architecture and read.architecture != host_architecture():
        raise ImageRefused(
            f"the image is for {read.architecture}, and this machine is {host_architecture()}",
            "import the one for this machine",
        )
    if not working_dir.startswith("/") or "\0" in working_dir:
        raise ImageRefused(f"the image's working directory {working_dir!r} is no absolute path")
    return read


def wrap_root_archive(layer: BinaryIO, folder: Path, most_bytes: int) -> None:
    """Make a layout in `folder` whose only layer is an uncompressed tar archive of a root file system.

    Raises:
        ImageRefused: the archive is larger than `most_bytes`.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    aside = blobs / "layer"
    hashed = hashlib.sha256()
    with aside.open("wb") as copy:
        while chunk := layer.read(1024**2):
            hashed.update(chunk)
            copy.write(chunk)
            if copy.tell() > most_bytes:
                raise ImageRefused(f"the archive holds more than {most_bytes} bytes")
        size = copy.tell()
    os.replace(aside, blobs / hashed.hexdigest())
    layer_digest = f"sha256:{hashed.hexdigest()}"
    config = {
        "architecture": host_architecture(), "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }  # fmt: skip
    config_digest, config_size = _put(blobs, config)
    manifest = {
        "schemaVersion": 2, "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "digest": config_digest, "size": config_size},
        "layers": [{"mediaType": _LAYER, "digest": layer_digest, "size": size}],
    }  # fmt: skip
    digest, manifest_size = _put(blobs, manifest)
    described = {"mediaType": _MANIFEST, "digest": digest, "size": manifest_size}
    described["annotations"] = {"org.opencontainers.image.ref.name": TAG}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _put(blobs: Path, document: Mapping[str, Any]) -> tuple[str, int]:
    data = json.dumps(document, sort_keys=True).encode()
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return f"sha256:{name}", len(data)


def _blob(folder: Path, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    if not (algorithm.isalnum() and value.isalnum()):
        raise ValueError(f"{digest!r} is no digest")
    return folder / "blobs" / algorithm / value


def _json(path: Path) -> Any:
    with path.open("rb") as file:
        data = file.read(_MOST_JSON_BYTES + 1)
    if len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_JSON_BYTES} bytes")
    return json.loads(data)
