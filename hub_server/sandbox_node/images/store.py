"""The store of images on a node's disk: which name leads to which root file system.

    <folder>/
      names.json             what each name and alias means; changed under `lock`, replaced whole
      lock
      contents/<digest>/     one image, never changed after it took this name
        facts.json           its configuration; whoever uses the image holds a shared lock on this file
        root/
      aside/<random>/        what is being made or removed; whoever does so holds a lock on its `lock`

A process may be killed at any moment. What it was making lies in `aside` and is removed when the store is next opened.
An image that is removed while a sandbox uses it loses its name at once, and its files when the last one has ended.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import json
import os
import secrets
import subprocess
import threading
import weakref
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hub_server.sandbox_node.backends import RootFilesystem
from hub_server.sandbox_node.errors import ImageNotThere, ImageRefused
from hub_server.sandbox_node.images.archives import as_layout
from hub_server.sandbox_node.images.debian import make_debian_archive
from hub_server.sandbox_node.images.layouts import read_layout
from hub_server.sandbox_node.images.references import HOST, normalised
from hub_server.sandbox_node.images.unpacking import UnpackLimits, unpack
from prime_cli.core.files import flush, write_json_atomically

_FORMAT = 1
_HOST_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_HOST_IMAGE = RootFilesystem(HOST, None, _HOST_ENVIRONMENT)


@dataclass(frozen=True)
class StoredImage:
    """One name in the store. An alias has `alias_of` and no digest of its own."""

    name: str
    source: str  # where it came from: a path, a registry, a Debian suite
    added_at: datetime | None = None
    digest: str | None = None
    size_bytes: int = 0
    alias_of: str | None = None


@dataclass
class _Names:
    images: dict[str, dict[str, str]] = field(default_factory=dict)  # name -> content, source, added_at
    aliases: dict[str, str] = field(default_factory=dict)


class ImageStore:
    """The images of one node; several processes may use one store at once.

    Every method may take long and blocks; all may be called from any thread.
    """

    def __init__(self, folder: Path, limits: UnpackLimits | None = None) -> None:
        self.folder = folder
        self._limits = limits or UnpackLimits()
        self._images: weakref.WeakValueDictionary[tuple[str, Path], RootFilesystem] = weakref.WeakValueDictionary()
        self._guard = threading.Lock()
        self._read: tuple[tuple[int, int, int], _Names] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        # Files of images keep their owners: nobody else of the host is to come by them.
        folder.chmod(0o700)
        for name in ("contents", "aside"):
            (folder / name).mkdir(exist_ok=True)
        self._sweep()

    def find(self, reference: str) -> RootFilesystem:
        """Return the image of a name, through aliases; its files stay as long as anybody has what this returns.

        Raises:
            ImageNotThere: the store has none of this name.
        """
        name = normalised(reference)
        while True:
            names = self._names()
            target = names.aliases.get(name, name)
            if target == HOST:
                return _HOST_IMAGE
            entry = names.images.get(target)
            if entry is None:
                raise ImageNotThere(
                    f"no image {name} on this node" + (f" (an alias of {target})" if target != name else ""),
                    "its operator can add it: prime sandbox image import, or prime sandbox image pull",
                )
            image = self._hold(target, self.folder / "contents" / entry["content"])
            if image is not None:
                return image

    def names(self) -> list[str]:
        """Return all names and aliases, that of the host's own system first."""
        names = self._names()
        return [HOST, *sorted([*names.images, *names.aliases])]

    def list(self) -> list[StoredImage]:
        """Return all names, that of the host's own system first, then by name."""
        names = self._names()
        listed = [StoredImage(name, "an alias", alias_of=target) for name, target in names.aliases.items()]
        for name, entry in names.images.items():
            with contextlib.suppress(FileNotFoundError):
                facts = json.loads((self.folder / "contents" / entry["content"] / "facts.json").read_bytes())
                added_at = datetime.fromisoformat(entry["added_at"])
                listed.append(StoredImage(name, entry["source"], added_at, facts["digest"], facts["size_bytes"]))
        return [StoredImage(HOST, "this machine's own system"), *sorted(listed, key=lambda image: image.name)]

    def add_alias(self, alias: str, target: str) -> StoredImage:
        """Let `alias` mean another image of the store, for example `python:3.11-slim` the host's own system.

        Raises:
            ImageNotThere: there is no image `target`.
            ImageRefused: `alias` is the name of an image itself.
        """
        name, target_name = normalised(alias), self.find(target).name
        with self._changed_names() as names:
            if name == HOST or name in names.images:
                raise ImageRefused(f"{name} is an image itself", "remove it first, or choose another name")
            names.aliases[name] = target_name
        return StoredImage(name, "an alias", alias_of=target_name)

    def import_archive(
        self, path: Path, name: str, *, tag: str | None = None, source: str | None = None
    ) -> StoredImage:
        """Import an OCI layout or archive, a Docker archive, or a tar archive of a root file system, as `name`.

        An image that had the name is replaced for sandboxes made from now on. `tag` picks one image of several.

        Raises:
            NotPossible: a program for it is not installed.
            ImageRefused: there is no sound image in it.
        """
        with self.aside() as aside:
            return self.add_layout(as_layout(path, tag, aside, self._limits), aside, name, source or str(path))

    def import_debian(
        self, suite: str, name: str, *, packages: Collection[str] = (), mirror: str | None = None
    ) -> StoredImage:
        """Make an image of a Debian or Ubuntu release and packages with mmdebstrap, and keep it as `name`.

        Raises:
            NotPossible: mmdebstrap is not installed.
            ImageRefused: it could not be made.
        """
        _nameable(name)
        with self.aside() as aside:
            archive = make_debian_archive(aside, suite, packages, mirror, self._limits)
            what = f"{suite} with {', '.join(sorted(packages))}" if packages else suite
            layout = as_layout(archive, None, aside, self._limits)
            archive.unlink()
            return self.add_layout(layout, aside, name, f"mmdebstrap {what}")

    def add_layout(self, layout: Path, aside: Path, name: str, source: str) -> StoredImage:
        """Unpack a layout that lies in a folder of `aside()`, and let `name` lead to it.

        Raises:
            NotPossible: a program for it is not installed.
            ImageRefused: it cannot be unpacked, is too large, or for another machine.
        """
        name = _nameable(name)
        config = read_layout(layout)
        content = self.folder / "contents" / config.digest.replace(":", "-")
        made = aside / "content"
        # Whether it is here already is looked up under the lock again; unpacking takes too long to hold it.
        if not content.exists():
            made.mkdir()
            size = unpack(aside, layout, made / "root", self._limits)
            facts = {"size_bytes": size, **asdict(config), "format": _FORMAT}
            (made / "facts.json").write_text(json.dumps(facts))
            subprocess.run(["sync", "--file-system", made], check=True)
        entry = {"content": content.name, "source": source, "added_at": datetime.now(UTC).isoformat(timespec="seconds")}
        with self._changed_names() as names:
            if not content.exists():
                if not made.exists():  # it was removed meanwhile
                    raise ImageRefused(f"{name} was removed while it was imported", "import it again")
                os.replace(made, content)
                flush(content.parent)
            names.aliases.pop(name, None)
            replaced = names.images.get(name)
            names.images[name] = entry
        if replaced and replaced["content"] != content.name:
            self._remove_unnamed()
        return next(image for image in self.list() if image.name == name)

    def remove(self, reference: str) -> bool:
        """Remove a name; return whether its files are gone too, and not still in use under it or held by another name.

        Raises:
            ImageNotThere: there is no such name.
            ImageRefused: it cannot be removed: the host's own system, or an image that has aliases.
        """
        name = normalised(reference)
        with self._changed_names() as names:
            aliases = sorted(alias for alias, target in names.aliases.items() if target == name)
            if name == HOST or aliases:
                why = "every node has it" if name == HOST else f"{', '.join(aliases)} would lead nowhere"
                raise ImageRefused(f"{name} cannot be removed: {why}")
            if names.aliases.pop(name, None) is not None:
                return True
            entry = names.images.pop(name, None)
            if entry is None:
                raise ImageNotThere(f"no image {name} in the store", "prime sandbox image list shows them")
        self._remove_unnamed()
        return not (self.folder / "contents" / entry["content"]).exists()

    def collect(self) -> None:
        """Remove the files of images that were removed, or replaced, and that nobody uses any more."""
        if any(self._contents_unnamed()):
            self._remove_unnamed()

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """Yield an empty folder in the store; it is removed at the end, or when the store is opened after a crash."""
        folder = self.folder / "aside" / secrets.token_hex(8)
        # The lock comes first: a folder that has none is one of a process that was killed.
        with self._locked():
            folder.mkdir()
            descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            work = folder / "work"
            work.mkdir()
            yield work
        finally:
            remove_tree(folder)
            os.close(descriptor)

    def _hold(self, name: str, content: Path) -> RootFilesystem | None:
        """Lock an image's files against removal, and return it; None where they were just removed."""
        with self._guard:
            image = self._images.get((name, content))
            if image is not None:
                return image
            try:
                descriptor = os.open(content / "facts.json", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            try:
                same = os.path.samestat(os.fstat(descriptor), os.stat(content / "facts.json"))
            except FileNotFoundError:
                same = False
            if not same:
                os.close(descriptor)
                return None
            facts = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
            image = RootFilesystem(name, content / "root", facts["environment"], facts["working_dir"])
            self._images[name, content] = image
            weakref.finalize(image, os.close, descriptor).atexit = False
            return image

    def _contents_unnamed(self) -> Iterator[Path]:
        named = {entry["content"] for entry in self._names().images.values()}
        return (content for content in (self.folder / "contents").iterdir() if content.name not in named)

    def _remove_unnamed(self) -> None:
        with self.aside() as aside, self._locked():
            for content in self._contents_unnamed():
                with (content / "facts.json").open("rb") as facts:
                    try:
                        fcntl.flock(facts, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:  # in use
                        continue
                    os.replace(content, aside / content.name)

    def _sweep(self) -> None:
        """Remove what processes that were killed left behind."""
        with self._locked():
            for folder in (self.folder / "aside").iterdir():
                descriptor = None
                with contextlib.suppress(FileNotFoundError):
                    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
                # What a tool still writes that is just ending itself goes when the store is opened again.
                with contextlib.suppress(BlockingIOError, subprocess.CalledProcessError):
                    if descriptor is not None:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_tree(folder)
                if descriptor is not None:
                    os.close(descriptor)
        self._remove_unnamed()

    def _names(self) -> _Names:
        """Return what names mean now; the file is read again only when another one took its place."""
        path = self.folder / "names.json"
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            return _Names()
        state = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        read = self._read
        if read is None or read[0] != state:
            stored = json.loads(path.read_bytes())
            if stored.get("format") != _FORMAT:
                raise ImageRefused(f"{self.folder} was written by another version", "use another data folder")
            read = self._read = state, _Names(stored["images"], stored["aliases"])
        return read[1]

    @contextlib.contextmanager
    def _changed_names(self) -> Iterator[_Names]:
        with self._locked():
            names = copy.deepcopy(self._names())
            yield names
            write_json_atomically(self.folder / "names.json", {"format": _FORMAT, **asdict(names)})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def remove_tree(folder: Path) -> None:
    """Remove a folder whose content strangers made: however deep it is, and whatever its modes are."""
    if os.geteuid() != 0:
        subprocess.run(["chmod", "--recursive", "--silent", "u+rwX", folder], check=False)
    subprocess.run(["rm", "--recursive", "--force", "--one-file-system", folder], check=True)


def _nameable(name: str) -> str:
    normal = normalised(name)
    if normal == HOST:
        raise ImageRefused(f"{HOST} is the name of the host's own system", "choose another name")
    return normal
