"""Root file systems of Debian and Ubuntu releases, made with mmdebstrap."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

from hub_server.sandbox_node.errors import ImageRefused
from hub_server.sandbox_node.images.tools import last_words, require
from hub_server.sandbox_node.images.unpacking import UnpackLimits

_NAME = re.compile(r"[a-z0-9][a-z0-9+.:-]*")


def make_debian_archive(
    folder: Path, suite: str, packages: Collection[str], mirror: str | None, limits: UnpackLimits
) -> Path:
    """Make a tar archive of a release's essential packages and of `packages`, in `folder`.

    The packages' own scripts run in a chroot, as they do whenever a package is installed on this machine: a mirror is
    trusted as much. `mirror` None takes the distribution's own.

    Raises:
        NotPossible: mmdebstrap is not installed.
        ImageRefused: it failed, or took too long.
    """
    require("mmdebstrap")
    for word in (suite, *packages):
        if not _NAME.fullmatch(word):
            raise ImageRefused(f"{word!r} is no name of a release or package")
    archive = folder / "root.tar"
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root" if os.geteuid() == 0 else "--mode=unshare"]
    if packages:
        argv.append(f"--include={','.join(packages)}")
    try:
        done = subprocess.run(
            [*argv, suite, str(archive), *([mirror] if mirror else [])], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=limits.timeout_s, env=os.environ | {"TMPDIR": str(folder), "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ImageRefused(f"mmdebstrap took longer than {limits.timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise ImageRefused(f"mmdebstrap failed: {last_words(done.stderr)}", "is the mirror reachable from here?")
    return archive
