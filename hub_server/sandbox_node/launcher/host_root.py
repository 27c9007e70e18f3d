"""The root of the image `host`: a small folder of links and made-up files, on which the host's /usr is bound.

Of the host's /etc only what programs need to run is copied, and only what everybody may read.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

# Folders that an image must have for commands to feel at home; the third is where work goes by default.
_FOLDERS = ("root", "home", "workspace", "app", "tmp", "var/tmp", "var/log", "var/lib", "run", "proc", "dev", "usr",
            "etc", "mnt", "opt", "srv")  # fmt: skip
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_COPIED = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "pki",
           "ca-certificates", "ca-certificates.conf", "localtime", "timezone", "mime.types", "magic", "services",
           "protocols", "networks", "host.conf", "gai.conf", "os-release", "debian_version", "bash.bashrc", "profile",
           "inputrc", "terminfo", "perl", "java-*-openjdk", "python3", "python3.*", "fonts", "locale.alias",
           "default/locale")  # fmt: skip
_MOST_BYTES = 1024**2  # of one file copied

_MADE = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "user:x:1000:1000:user:/home:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}


def make(folder: Path) -> list[str]:
    """Fill `folder`, which must not exist yet, and return the host's folders to bind on it, read-only."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    for name in _FOLDERS:
        aside.joinpath(name).mkdir(parents=True)
    bound = ["/usr"]
    for name in _SYSTEM:
        on_host = Path("/", name)
        if on_host.is_symlink():
            aside.joinpath(name).symlink_to(os.readlink(on_host))
        elif on_host.is_dir():
            aside.joinpath(name).mkdir()
            bound.append(str(on_host))
    for pattern in _COPIED:
        for source in Path("/etc").glob(pattern):
            _copy(source, aside / source.relative_to("/"))
    for made, text in _MADE.items():
        aside.joinpath(made).write_text(text)
    for name in ("tmp", "var/tmp"):
        aside.joinpath(name).chmod(0o1777)
    aside.joinpath("root").chmod(0o700)
    aside.chmod(0o755)
    aside.rename(folder)
    return bound


def _copy(source: Path, target: Path) -> None:
    """Copy what everybody may read; links stay links, since they point into /usr or /etc."""
    target.parent.mkdir(parents=True, exist_ok=True)
    facts = source.lstat()
    if stat.S_ISLNK(facts.st_mode):
        target.symlink_to(os.readlink(source))
    elif stat.S_ISDIR(facts.st_mode):
        if facts.st_mode & 0o005 == 0o005:
            target.mkdir(exist_ok=True)
            for entry in sorted(source.iterdir()):
                _copy(entry, target / entry.name)
    elif stat.S_ISREG(facts.st_mode) and facts.st_mode & 0o004 and facts.st_size <= _MOST_BYTES:
        shutil.copyfile(source, target)
        target.chmod(0o755 if facts.st_mode & 0o001 else 0o644)
        # What was compiled of it and lies in /usr would be stale, as Python's sitecustomize for each start of Python.
        os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))
