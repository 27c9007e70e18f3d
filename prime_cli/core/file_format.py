"""How the contents of files are described: one model for each kind of object, with the meaning of every key.

The reference is written from these descriptions, and tests hold what the writers wrote against them; nothing is written
or read through them, so that a writer stays free of their cost.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FileObject(BaseModel):
    """Base of descriptions: an object with these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OpenFileObject(FileObject):
    """An object with further keys, which its description says where to find."""

    model_config = ConfigDict(extra="allow", strict=True)
