"""Keep the messages of the local copy's chunks in plain files: a chunk is one write, and little when it goes.

    put ──> the end of the newest file, until that is full        drop ──> a file with little left is emptied

SQLite writes such bytes twice, with a checksum, and page by page: a chunk of 60 kB takes 146 us there,
and 63 with its messages here (processor time).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from broker_core.store.syncing import write_all

FILE_OCTETS: Final = 16 << 20  # of a file, before the next one is begun; the last chunk may exceed it
SPARSE: Final = 4  # a file of which less than this part is in use is emptied
FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class BodyFile:
    """One file, and the places of the chunks in it."""

    __slots__ = ("chunks", "descriptor", "octets", "path", "used")

    def __init__(self, path: Path) -> None:
        """Create it. Raises OSError."""
        self.path = path
        self.descriptor = os.open(path, FLAGS, 0o600)
        self.octets = 0  # written
        self.used = 0  # of chunks that are there
        self.chunks: dict[int, tuple[int, int]] = {}  # offset and length of each

    @property
    def is_sparse(self) -> bool:
        return self.used * SPARSE < FILE_OCTETS

    def close(self) -> None:
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


class ChunkBodies:
    """The files. One thread writes, others read."""

    def __init__(self, folder: Path) -> None:
        """`folder` is created with the first chunk."""
        self._folder = folder
        self._lock = Lock()  # of what readers see
        self._files: dict[int, BodyFile] = {}  # by chunk
        self._newest: BodyFile | None = None
        self._begun = 0  # files
        self._readers = 0  # that may see chunks which are dropped
        self._dropped: list[int] = []  # while there were readers

    # Called by the thread that writes.

    def put(self, first: int, octets: bytes) -> None:
        """Keep the messages of a chunk; those that it had are replaced. Raises OSError."""
        file = self._newest
        if file is None or file.octets >= FILE_OCTETS:
            file = self._begin()
        end = file.octets + write_all(file.descriptor, octets, file.octets)
        with self._lock:
            self._forget(first)
            file.chunks[first] = file.octets, len(octets)
            file.used += len(octets)
            file.octets = end
            self._files[first] = file

    def drop(self, firsts: Iterable[int]) -> None:
        """Drop chunks, as soon as no reader is left that may still see them. Raises OSError."""
        self._dropped += firsts
        with self._lock:
            if self._readers:
                return
            touched = {self._forget(first) for first in self._dropped}
            self._dropped.clear()
        for file in touched:
            if file is not None and file is not self._newest and file.is_sparse:
                self._empty(file)

    def _begin(self) -> BodyFile:
        before = self._newest
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._begun += 1
        self._newest = made = BodyFile(self._folder / str(self._begun))
        if before is not None and before.is_sparse:
            self._empty(before)
        return made

    def _forget(self, first: int) -> BodyFile | None:
        """Count a chunk off its file, if it has one, and return that."""
        file = self._files.pop(first, None)
        if file is not None:
            file.used -= file.chunks.pop(first)[1]
        return file

    def _empty(self, file: BodyFile) -> None:
        """Move what is left in a file to the newest one, and delete it. Raises OSError."""
        for first, (at, length) in list(file.chunks.items()):
            self.put(first, os.pread(file.descriptor, length, at))
        with self._lock:
            file.close()

    # Called by any thread.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Return a context within which no chunk goes that was there at its beginning."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def read(self, first: int, start: int, length: int) -> bytes | None:
        """Return some bytes of a chunk's messages; None if they are not here. Fewer: it ends there."""
        with self._lock:
            if (file := self._files.get(first)) is None:
                return None
            at, size = file.chunks[first]
            return os.pread(file.descriptor, max(0, min(length, size - start)), at + start)

    @property
    def octets(self) -> int:
        """Return the bytes of all chunks that are here."""
        with self._lock:
            return sum(file.used for file in set(self._files.values()))

    def close(self) -> None:
        """Close the files, and delete them."""
        files = {*self._files.values()} | ({self._newest} if self._newest is not None else set())
        for file in files:
            file.close()
        self._files.clear()
        self._newest = None
