"""Archives and folders as people have them, made one image layout: what kind each is, its content says."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tarfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, cast

from hub_server.sandbox_node.errors import ImageRefused
from hub_server.sandbox_node.images.layouts import TAG, wrap_root_archive
from hub_server.sandbox_node.images.references import host_architecture
from hub_server.sandbox_node.images.tools import require, run_kept_in
from hub_server.sandbox_node.images.unpacking import UnpackLimits

_HOST_POLICY = Path("/etc/containers/policy.json")
# By these an archive is told from others without reading all of it: image archives hold few files beside them.
_MOST_MEMBERS_LOOKED_AT = 20_000
_ROOT_FOLDERS = frozenset({"bin", "etc", "lib", "sbin", "usr", "nix"})
_COMPRESSIONS: dict[bytes, str] = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Kind(StrEnum):
    """What an archive or folder holds."""

    OCI_FOLDER = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    ROOT_ARCHIVE = "root file system"


def kind_of(path: Path) -> Kind:
    """Say what `path` holds.

    Raises:
        ImageRefused: nothing that an image can be made of.
    """
    if path.is_dir():
        if (path / "oci-layout").is_file():
            return Kind.OCI_FOLDER
        raise ImageRefused(
            f"{path} is a folder without an image layout", f"pack a root file system: tar -C {path} -cf root.tar ."
        )
    try:
        with tarfile.open(path, "r:*") as archive:
            names = _first_names(archive)
            layouts = _images_listed(archive) if "index.json" in names else 0
    except (OSError, tarfile.TarError, EOFError, lzma.LZMAError, ValueError) as error:
        hint = f"unpack it first: zstd -d {path}" if _compression(path) == "zstd" else None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no tar archive, or a damaged one"
        raise ImageRefused(f"{path} cannot be read: {reason}", hint) from error
    # Newer Docker writes both kinds into one archive; its own has the name of each image.
    if "oci-layout" in names and (layouts == 1 or "manifest.json" not in names):
        return Kind.OCI_ARCHIVE
    if "manifest.json" in names:
        return Kind.DOCKER_ARCHIVE
    if {name.split("/")[0] for name in names} & _ROOT_FOLDERS:
        return Kind.ROOT_ARCHIVE
    raise ImageRefused(
        f"{path} holds neither an image nor a root file system",
        "an OCI or Docker archive, or a tar archive with usr, bin or etc at its top",
    )


def as_layout(path: Path, tag: str | None, folder: Path, limits: UnpackLimits) -> Path:
    """Copy what `path` holds into a layout in `folder`, and return that. `tag` picks one image of several.

    Raises:
        NotPossible: skopeo is not installed.
        ImageRefused: there is no sound image in it.
    """
    layout = folder / "layout"
    path = path.resolve()
    kind = kind_of(path)
    if kind is Kind.ROOT_ARCHIVE:
        layout.mkdir()
        with _opened(path) as file:
            wrap_root_archive(file, layout, limits.most_bytes)
        return layout
    source = f"{kind.value}:{path}{f':{tag}' if tag else ''}"
    copy_image(folder, source, layout, limits, reads=[path])
    return layout


def copy_image(
    folder: Path,
    source: str,
    layout: Path,
    limits: UnpackLimits,
    *,
    reads: Sequence[Path] = (),
    network: bool = False,
    options: Sequence[str] = (),
    timeout_s: float | None = None,
) -> None:
    """Let skopeo copy an image into `layout`; it checks every digest.

    Raises:
        NotPossible: skopeo is not installed.
        ImageRefused: it could not be copied.
    """
    require("skopeo", "umoci")
    # An operator's rules on signatures hold; without a file of them skopeo would refuse everything.
    policy = [] if _HOST_POLICY.exists() else ["--insecure-policy"]
    argv = ["skopeo", *policy, "--tmpdir", str(folder), "--override-os", "linux", "--override-arch"]
    argv += [host_architecture(), "copy", "--quiet", "--remove-signatures", *options, source, f"oci:{layout}:{TAG}"]
    run_kept_in(
        folder, argv, reads=reads, network=network, timeout_s=timeout_s or limits.timeout_s,
        most_bytes=limits.most_bytes, least_free_bytes=limits.least_free_bytes,
    )  # fmt: skip


def _first_names(archive: tarfile.TarFile) -> set[str]:
    names = set()
    for count, member in enumerate(archive):
        names.add(os.path.normpath(member.name).lstrip("/"))
        if count >= _MOST_MEMBERS_LOOKED_AT:
            break
    return names


def _images_listed(archive: tarfile.TarFile) -> int:
    for member in archive:
        if os.path.normpath(member.name) == "index.json" and member.size < 1024**2:
            file = archive.extractfile(member)
            return len(json.load(file).get("manifests") or []) if file else 0
    return 0


def _compression(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError:
        return None
    return next((name for magic, name in _COMPRESSIONS.items() if start.startswith(magic)), None)


def _opened(path: Path) -> BinaryIO:
    compression = _compression(path)
    if compression == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if compression == "bzip2":
        return cast(BinaryIO, bz2.open(path, "rb"))
    return cast(BinaryIO, lzma.open(path, "rb")) if compression == "xz" else path.open("rb")
