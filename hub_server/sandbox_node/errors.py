"""What can go wrong on a node.

SandboxError
    NotPossible          this host or backend cannot give what was asked; says how to get it
    NotStarted           a sandbox could not be made; `kind` is its errorType where the wire has one
        ImageNotThere    no image of this name and tag is in the store, and none could be pulled
        Full             the node has as many sandboxes as it may; the caller is to wait
    ImageRefused         an archive holds no image, or one that is not let in
    Gone                 the sandbox has ended; `end` says why
    FileRefused          a file operation inside the sandbox failed; `reason` is one of its kinds
    NoSession            no command session of this name or process id
    SessionTaken         a session of this name runs another command
"""

from __future__ import annotations

from typing import Literal

from hub_server.sandbox_node.specification import End

FileProblem = Literal["not_found", "not_a_file", "is_a_directory", "denied", "too_large", "no_space", "other"]


class SandboxError(Exception):
    """Something about a sandbox; its text is one line for the user."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail, self.hint = detail, hint


class NotPossible(SandboxError):
    """This host or backend cannot give what was asked."""


class NotStarted(SandboxError):
    """A sandbox could not be made."""

    kind: str | None = None


class ImageNotThere(NotStarted):
    """No such image, here or where it could be pulled from."""

    kind = "IMAGE_PULL_FAILED"


class Full(NotStarted):
    """The node has as many sandboxes as it may have; later there may be room."""


class ImageRefused(SandboxError):
    """What was to be imported holds no image, or one that is not let in."""


class Gone(SandboxError):
    """The sandbox has ended, and nothing runs in it any more."""

    def __init__(self, end: End) -> None:
        super().__init__(f"the sandbox has ended: {end.message}")
        self.end = end


class FileRefused(SandboxError):
    """A file inside the sandbox could not be read or written."""

    def __init__(self, reason: FileProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason: FileProblem = reason


class NoSession(SandboxError):
    """No command session of this name or process id; it never was, or its retention is over."""


class SessionTaken(SandboxError):
    """A session of this name exists and runs something else."""
