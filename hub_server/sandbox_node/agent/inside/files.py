"""Files: looked at, read and written here, inside, so that no path ever leads out."""

from __future__ import annotations

import errno
import os
import stat

from .frames import CHUNK, DATA, END_OF_DATA, REPLY, WINDOW, credit_frame, json_frame
from .loop import Loop
from .starting import Refused

TYPE_CHECKING = False  # typing itself takes long to import
if TYPE_CHECKING:
    from typing import Any

_REASONS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EISDIR: "is_a_directory",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EFBIG: "too_large",
}


def refused_for(error: OSError, path: str) -> Refused:
    """Return the refusal that stands for an error of the system."""
    return Refused(_REASONS.get(error.errno or 0, "other"), f"{path}: {error.strerror}")


def facts(path: str) -> dict[str, Any]:
    """Return what there is at a path.

    Raises:
        Refused: nothing, or it may not be looked at.
    """
    try:
        found = os.stat(_absolute(path))
    except (OSError, ValueError) as error:
        raise _refusal(error, path) from None
    kind = "file" if stat.S_ISREG(found.st_mode) else "directory" if stat.S_ISDIR(found.st_mode) else "other"
    return {"size": found.st_size, "kind": kind, "mode": stat.S_IMODE(found.st_mode), "modified": found.st_mtime}


class Reading:
    """A file on its way to the node, as fast as that takes it."""

    def __init__(self, loop: Loop, channel: int, request: dict[str, Any]) -> None:
        path = request["path"]
        self._fd = _open(path, os.O_RDONLY)
        size = os.fstat(self._fd).st_size
        offset = request.get("offset") or 0
        if offset < 0:
            offset = max(0, size + offset)
        self._left = request.get("length")
        self._loop, self.channel = loop, channel
        self._credit = WINDOW
        self.is_over = False
        try:
            os.lseek(self._fd, offset, os.SEEK_SET)
        except OSError as error:
            os.close(self._fd)
            raise refused_for(error, path) from None
        loop.send(json_frame(REPLY, channel, {"size": size, "offset": offset}))
        self._send()

    def allow(self, size: int) -> None:
        """Let the node have `size` bytes more."""
        self._credit += size
        self._send()

    def _send(self) -> None:
        while not self.is_over and self._credit > 0:
            wanted = min(CHUNK, self._credit, CHUNK if self._left is None else self._left)
            try:
                data = os.read(self._fd, wanted) if wanted else b""
            except OSError:
                data = b""
            if not data:
                self._loop.send_frame(END_OF_DATA, self.channel)
                self.close()
                return
            self._credit -= len(data)
            if self._left is not None:
                self._left -= len(data)
            self._loop.send_frame(DATA, self.channel, data)

    def close(self) -> None:
        """Read no further."""
        if not self.is_over:
            self.is_over = True
            os.close(self._fd)


class Writing:
    """A file on its way from the node: aside first, so that nobody sees half of it."""

    def __init__(self, loop: Loop, channel: int, request: dict[str, Any]) -> None:
        self._path, self._most = request["path"], request["most_bytes"]
        self._loop, self.channel = loop, channel
        self._size = 0
        self.is_over = False
        try:
            target = os.path.realpath(_absolute(self._path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            mode = request.get("mode", 0o644)
            if os.path.lexists(target):
                found = os.stat(target)
                if stat.S_ISDIR(found.st_mode):
                    raise Refused("is_a_directory", f"{self._path} is a directory")
                if not stat.S_ISREG(found.st_mode):
                    raise Refused("not_a_file", f"{self._path} is no regular file")
                mode = stat.S_IMODE(found.st_mode)
            self._target = target
            self._aside = f"{target}.{os.urandom(6).hex()}.part"
            self._fd = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.fchmod(self._fd, mode & 0o777)
        except (OSError, ValueError) as error:
            raise _refusal(error, self._path) from None

    def feed(self, data: bytes) -> None:
        """Take the next bytes; none at all is the end of the file.

        Raises:
            Refused: they cannot be kept; nothing of the file is.
        """
        if not data:
            self._finish()
            return
        self._size += len(data)
        if self._size > self._most:
            self.close()
            raise Refused("too_large", f"{self._path} would be larger than {self._most} bytes")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.close()
            raise refused_for(error, self._path) from None
        self._loop.send(credit_frame(self.channel, len(data)))

    def _finish(self) -> None:
        try:
            os.replace(self._aside, self._target)
        except OSError as error:
            self.close()
            raise refused_for(error, self._path) from None
        os.close(self._fd)
        self.is_over = True
        self._loop.send(json_frame(REPLY, self.channel, {"size": self._size}))

    def close(self) -> None:
        """Give up what was written."""
        if not self.is_over:
            self.is_over = True
            os.close(self._fd)
            try:
                os.unlink(self._aside)
            except OSError:
                pass


def _open(path: str, flags: int) -> int:
    """Open a regular file without ever waiting, as the opening of a queue would."""
    try:
        fd = os.open(_absolute(path), flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _refusal(error, path) from None
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise Refused("is_a_directory", f"{path} is a directory")
    raise Refused("not_a_file", f"{path} is no regular file")


def _absolute(path: str) -> str:
    return path if path.startswith("/") else "/" + path


def _refusal(error: OSError | ValueError, path: str) -> Refused:
    if isinstance(error, OSError):
        return refused_for(error, path)
    return Refused("not_found", f"{path!r} is no path")  # a NUL in it
