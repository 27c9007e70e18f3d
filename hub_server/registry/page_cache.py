"""Rendered index pages, kept in memory under a key that changes with their content."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_MAX_BYTES = 64 * 1024**2
_SMALLEST_COMPRESSED = 1024
_GZIP_LEVEL = 5


@dataclass(frozen=True)
class Page:
    """One page in one encoding, with the tag that names exactly these bytes."""

    body: bytes
    tag: str
    is_gzip: bool

    @classmethod
    def of(cls, text: str, *, gzipped: bool) -> Page:
        """Make a page; compressed only where that saves anything."""
        body = text.encode()
        digest = hashlib.sha256(body).hexdigest()[:32]
        if not gzipped or len(body) < _SMALLEST_COMPRESSED:
            return cls(body, f'"{digest}"', is_gzip=False)
        return cls(gzip.compress(body, _GZIP_LEVEL, mtime=0), f'"{digest}-gzip"', is_gzip=True)


class PageCache:
    """Pages by key, the least recently used dropped beyond a bound of bytes. Safe to use from many threads.

    Nothing is ever taken out because it changed: a key holds the serial of what it shows, so a page that changed is
    asked for under another key.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pages: OrderedDict[Hashable, Page] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Page]) -> Page:
        """Return the page of `key`, made when it is not here. Two threads may make it at once; one is kept."""
        with self._lock:
            page = self._pages.get(key)
            if page is not None:
                self._pages.move_to_end(key)
                return page
        page = make()
        with self._lock:
            if key not in self._pages:
                self._pages[key] = page
                self._size += len(page.body)
            while self._size > self._max_bytes and self._pages:
                _, dropped = self._pages.popitem(last=False)
                self._size -= len(dropped.body)
        return page
