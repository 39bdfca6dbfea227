"""Keep the messages of the local copy's chunks in plain files: a chunk is one write, and little when it goes.

    put ──> key: the end of the newest file, until that is full        drop ──> a file with little left is emptied

A key is never used again, and the row of a chunk has it. A merged chunk takes over the number of one that it replaces,
but not its key: a reader of an older moment finds the old messages, and one of a newer moment the new ones, however
long it takes until the old ones are deleted.

SQLite writes such bytes twice, with a checksum, and page by page: a chunk of 60 kB takes 146 us there,
and 63 with its messages here (processor time).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from leveret.durable.store.syncing import write_all

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
        self.chunks: dict[int, tuple[int, int]] = {}  # by key: offset and length of each

    @property
    def is_sparse(self) -> bool:
        return self.used * SPARSE < FILE_OCTETS

    def forget(self, key: int) -> None:
        """Count messages off."""
        self.used -= self.chunks.pop(key)[1]

    def close(self) -> None:
        """Close and delete it, if that has not been done."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.path.unlink(missing_ok=True)


class ChunkBodies:
    """The files. One thread at a time writes, others read."""

    def __init__(self, folder: Path) -> None:
        """`folder` is created with the first chunk."""
        self._folder = folder
        self._lock = Lock()  # of what readers see
        self._files: dict[int, BodyFile] = {}  # by key
        self._newest: BodyFile | None = None
        self._begun = 0  # files
        self._given = 0  # keys
        self._drops = 0  # calls of `drop`
        self._dropped: deque[tuple[int, Collection[int]]] = deque()  # keys that a reader may still have
        self._readers: list[int] = []  # for each: the drops before it began

    # Called while no other thread writes.

    def put(self, octets: bytes) -> int:
        """Keep the messages of a chunk, and return their key, which no others ever have. Raises OSError."""
        self._given += 1
        self._write(self._given, octets)
        return self._given

    def drop(self, keys: Collection[int]) -> None:
        """Delete messages, as soon as no reader is left that began before. Raises OSError."""
        with self._lock:
            self._drops += 1
            self._dropped.append((self._drops, keys))
        self.tidy()

    def tidy(self) -> None:
        """Delete what no reader can see any more. Raises OSError."""
        touched: set[BodyFile] = set()
        with self._lock:
            oldest = min(self._readers, default=self._drops)
            while self._dropped and self._dropped[0][0] <= oldest:
                for key in self._dropped.popleft()[1]:
                    touched.add(file := self._files.pop(key))
                    file.forget(key)
        for file in touched:
            if file is not self._newest and file.is_sparse:
                self._empty(file)

    def _write(self, key: int, octets: bytes) -> None:
        file = self._newest
        if file is None or file.octets >= FILE_OCTETS:
            file = self._begin()
        end = file.octets + write_all(file.descriptor, octets, file.octets)
        with self._lock:
            if (before := self._files.get(key)) is not None:
                before.forget(key)
            file.chunks[key] = file.octets, len(octets)
            file.used += len(octets)
            file.octets = end
            self._files[key] = file

    def _begin(self) -> BodyFile:
        before = self._newest
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._begun += 1
        self._newest = made = BodyFile(self._folder / str(self._begun))
        if before is not None and before.is_sparse:
            self._empty(before)
        return made

    def _empty(self, file: BodyFile) -> None:
        """Move what is left in a file to the newest one, and delete it. Raises OSError."""
        for key, (at, length) in list(file.chunks.items()):
            self._write(key, os.pread(file.descriptor, length, at))
        with self._lock:
            file.close()

    # Called by any thread.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Return a context within which no messages go that were there at its beginning."""
        with self._lock:
            mark = self._drops
            self._readers.append(mark)
        try:
            yield
        finally:
            with self._lock:
                self._readers.remove(mark)

    def read(self, key: int, start: int, length: int) -> bytes | None:
        """Return some bytes of a chunk's messages; None if they are not here. Fewer: it ends there."""
        with self._lock:
            if (file := self._files.get(key)) is None:
                return None
            at, size = file.chunks[key]
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
