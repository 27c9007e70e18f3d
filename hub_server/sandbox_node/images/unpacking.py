"""Makes a root file system of an image's layers, and takes out of it what no sandbox may find there.

Layers are made by strangers, and are unpacked as root where the node is root's. umoci resolves every path inside of the
target; beside that it runs where nothing else can be written. What it made is then gone through: no device, no set-uid
program and no extended attribute is kept, so neither a sandbox nor a user of the host who finds the folder gains by it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hub_server.sandbox_node.errors import ImageRefused
from hub_server.sandbox_node.images.layouts import TAG
from hub_server.sandbox_node.images.tools import run_kept_in

# Where a sandbox's own file systems are mounted; a link there would lead a mount astray.
_MOUNT_POINTS = (("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755), ("run/prime", 0o755), ("tmp", 0o1777))
_MOST_PATH_BYTES = 3000  # of one path inside; the store's own comes before it, and 4,096 is the most that Linux takes


@dataclass(frozen=True)
class UnpackLimits:
    """What one image may take of the store's disk, and how long it may take."""

    most_bytes: int = 20 * 1024**3
    most_files: int = 2_000_000
    least_free_bytes: int = 1024**3
    timeout_s: float = 1800.0


def unpack(folder: Path, layout: Path, root: Path, limits: UnpackLimits) -> int:
    """Unpack the image of `layout` as `root`, both in `folder`, and return how many bytes it holds.

    Raises:
        NotPossible: a program for it is not installed.
        ImageRefused: it cannot be unpacked, is too large, or would lead mounts astray.
    """
    argv = ["umoci", "raw", "unpack", *([] if os.geteuid() == 0 else ["--rootless"])]
    run_kept_in(
        folder, [*argv, "--image", f"{layout}:{TAG}", str(root)], timeout_s=limits.timeout_s,
        most_bytes=limits.most_bytes, least_free_bytes=limits.least_free_bytes,
    )  # fmt: skip
    size = _clean(root, limits)
    root.chmod(0o755)
    for name, mode in _MOUNT_POINTS:
        point = root / name
        if point.is_symlink() or (point.exists() and not point.is_dir()):
            raise ImageRefused(f"in the image /{name} is no directory, and sandboxes need one there")
        if not point.exists():
            point.mkdir()
            point.chmod(mode)
    return size


def _clean(root: Path, limits: UnpackLimits) -> int:
    """Go through all files, without recursion: folders may lie as deep as paths go."""
    size = files = 0
    seen: set[int] = set()
    waiting = [os.fspath(root)]
    while waiting:
        folder = waiting.pop()
        _strip_attributes(folder)
        if len(folder) - len(os.fspath(root)) > _MOST_PATH_BYTES:
            raise ImageRefused("the image has folders that lie too deep")
        with os.scandir(folder) as entries:
            for entry in entries:
                files += 1
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    waiting.append(entry.path)
                    continue
                if facts.st_ino not in seen:
                    seen.add(facts.st_ino)
                    size += facts.st_blocks * 512
                _clean_file(entry.path, facts)
        if size > limits.most_bytes or files > limits.most_files:
            raise ImageRefused(f"the image is larger than {limits.most_bytes} bytes or {limits.most_files} files")
    return size


def _clean_file(path: str, facts: os.stat_result) -> None:
    if stat.S_ISLNK(facts.st_mode):
        return
    if not stat.S_ISREG(facts.st_mode):
        os.unlink(path)
        return
    if facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
        os.chmod(path, stat.S_IMODE(facts.st_mode) & 0o777)
    _strip_attributes(path)


def _strip_attributes(path: str) -> None:
    # Capabilities of files, and attributes by which overlays would hide or redirect what lies below.
    for name in os.listxattr(path, follow_symlinks=False):
        os.removexattr(path, name, follow_symlinks=False)
