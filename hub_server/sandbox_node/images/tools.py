"""Runs the programs that handle images, skopeo and umoci, kept from everything but one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from hub_server.sandbox_node.errors import ImageRefused, NotPossible

_LOOK_EVERY_S = 0.2
_MOST_ERROR_BYTES = 8 * 1024
# What is needed to write files of any owner and mode below one folder, and nothing that reaches out of it.
_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_MKNOD", "CAP_SETFCAP",
)  # fmt: skip
_PACKAGES = {"skopeo": "skopeo", "umoci": "umoci", "bwrap": "bubblewrap", "prlimit": "util-linux"}


def require(*programs: str) -> None:
    """Check that programs are installed.

    Raises:
        NotPossible: one is not; says how to get it.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(_PACKAGES.get(program, program) for program in missing)
        raise NotPossible(f"{' and '.join(missing)} not installed", f"apt install {packages}")


def run_kept_in(
    folder: Path,
    argv: Sequence[str],
    *,
    reads: Sequence[Path] = (),
    network: bool = False,
    timeout_s: float,
    most_bytes: int,
    least_free_bytes: int = 0,
) -> str:
    """Run a program that can write to `folder` alone, and return what it printed.

    It works on what strangers made, as root where the store is root's. So it sees the system's programs and
    configuration, the paths of `reads`, and `folder`; nothing else of the disk, no other process, and no network
    unless it is to have it.

    Raises:
        NotPossible: bubblewrap or the program is not installed.
        ImageRefused: it failed, took longer than `timeout_s`, wrote a file of more than `most_bytes`, or left less than
            `least_free_bytes` on the disk.
    """
    require("prlimit", "bwrap", argv[0])
    _check_room(folder, least_free_bytes)
    process = subprocess.Popen(
        ["prlimit", f"--fsize={most_bytes}", *_confinement(folder, reads, network), "--", *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", start_new_session=True,
        env=_environment(folder, network),
    )  # fmt: skip
    try:
        stdout, stderr = _watched(process, folder, argv[0], time.monotonic() + timeout_s, least_free_bytes)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if process.returncode != 0:
        raise ImageRefused(f"{argv[0]} failed: {last_words(stderr or stdout)}")
    return stdout.decode(errors="replace")


def _confinement(folder: Path, reads: Sequence[Path], network: bool) -> list[str]:
    argv = ["bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if not network:
        argv.append("--unshare-net")
    if os.geteuid() == 0:
        argv += ["--cap-drop", "ALL"]
        for capability in _CAPABILITIES:
            argv += ["--cap-add", capability]
    for system in ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        argv += ["--ro-bind-try", system, system]
    # Where names of hosts are looked up, /etc/resolv.conf may lead there.
    argv += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run/user"]  # noqa: S108
    for path in reads:
        argv += ["--ro-bind", str(path), str(path)]
    return [*argv, "--bind", str(folder), str(folder), "--remount-ro", "/"]


def _environment(folder: Path, network: bool) -> dict[str, str]:
    passed = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    names = (*passed, *proxies) if network else passed
    return {name: os.environ[name] for name in names if name in os.environ} | {
        "HOME": str(folder), "TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder),
    }  # fmt: skip


def _watched(
    process: subprocess.Popen[bytes], folder: Path, name: str, deadline: float, least_free_bytes: int
) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise ImageRefused(f"{name} took too long and was stopped") from None
            _check_room(folder, least_free_bytes)


def _check_room(folder: Path, least_free_bytes: int) -> None:
    if shutil.disk_usage(folder).free < least_free_bytes:
        raise ImageRefused("the disk of the image store is full but for what is kept free", "remove images, or files")


def last_words(output: bytes) -> str:
    """Return the last line that a program wrote, cut to a length that fits a message."""
    lines = [line.strip() for line in output[-_MOST_ERROR_BYTES:].decode(errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else "it said nothing")[-600:]
