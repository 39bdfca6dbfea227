"""Reserve room on the disk of a data folder, and give it up where others have left none.

    reserve         for a start: indexes of the logs, the note that a node runs; deleted by a start that finds no room
    reserve-drain   for acknowledgements and deletions, which make room; lent to the databases where they find none

Both are allocated while there is plenty of room. While `reserve-drain` is not whole, publishers are held back (the
store is `short`): what it held is for consumers, until enough of what they have taken is given back to the disk.

Whoever fills a disk may take what is given up before the store has it. So the reserve is given up in small steps, and
what it gives is allocated at once for the file that needs it, in pieces as large as there is room for. Those who take a
page every few microseconds may get most of it all the same: files that will need room have it before (`grow`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.alarms import disk_octets, free_octets
from leveret.durable.store import quota
from leveret.durable.store.syncing import write_all

RESERVE: Final = "reserve"
RESERVE_OCTETS: Final = 1 << 20  # a start needs about a tenth
DRAIN: Final = "reserve-drain"
DRAIN_OCTETS: Final = 8 << 20  # at most, and
DRAIN_SHARE: Final = 16  # this part of a small disk
PLENTY: Final = 2  # times its size are free on the disk before a reserve is filled
STEP_OCTETS: Final = 1 << 16  # given up at a time
PIECE_OCTETS: Final = 1 << 12  # allocated at a time, at least
SMALLER: Final = 4  # times is the next piece smaller than one for which there was no room


class Reserve:
    """One reserve of a data folder, which has to be locked. Errors of the disk are ignored here."""

    __slots__ = ("_borrowers", "_file", "_free", "is_given_up", "octets")

    def __init__(
        self,
        folder: Path,
        name: str = RESERVE,
        octets: int = RESERVE_OCTETS,
        free: Callable[[Path], int | None] = free_octets,
    ) -> None:
        """`octets` is the size of the reserve in bytes; with 0 there is none."""
        self._file = folder / name
        self._free = free
        self.octets = octets
        self.is_given_up = False  # it was needed, and is not filled again
        self._borrowers: dict[Path, int] = {}  # files to which room was lent, open

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._file.parent

    def free(self) -> int | None:
        """Return the bytes that can still be written to the disk; None: unknown."""
        try:
            return self._free(self._file.parent)
        except OSError:
            return None

    def fill(self) -> None:
        """Allocate what is missing of the file if there is plenty of room; it counts as given up if there is little."""
        missing = self.octets - self.left if self.octets else 0
        if not (missing or self.is_given_up):
            return
        free = self.free()
        if free is None or free < missing + (PLENTY - 1) * self.octets:
            self.is_given_up = self.is_given_up or (free is not None and free < missing)
            return
        with suppress(OSError):
            if missing:
                self._allocate()
            self.is_given_up = False

    def release(self) -> None:
        """Delete the file if the disk has less room left than its size, or a quota leaves none."""
        free = self.free()
        if (free is not None and free < self.octets) or quota.is_used_up(self.folder):
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def need(self) -> None:
        """Count it as given up, although nothing of it may be taken yet, until it is whole and there is room again."""
        self.is_given_up = bool(self.octets)

    @property
    def left(self) -> int:
        """Return the bytes that are still in reserve."""
        try:
            found = self._file.lstat()
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def lend(self, path: Path, size: int) -> bool:
        """Have a file grow to `size` bytes, at the reserve's expense if there is no other room.

        What it grows by is zeros. Returns whether it has that size now.
        """
        while not self.grow(path, size):
            if path not in self._borrowers or not self.give_up(STEP_OCTETS):
                return False
        return True

    def grow(self, path: Path, size: int) -> bool:
        """Have a file grow to `size` bytes, or as far as there is room without the reserve.

        The file stays open, as closing it would end the locks that SQLite has on it in this process. Returns whether it
        has that size now.
        """
        if not self.octets:
            return False
        try:
            if path not in self._borrowers:
                self._borrowers[path] = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            return _grow(self._borrowers[path], size)
        except OSError:
            return False

    def close(self) -> None:
        """Close the files to which room was lent; SQLite has to have closed them before."""
        while self._borrowers:
            os.close(self._borrowers.popitem()[1])

    def give_up(self, octets: int) -> bool:
        """Give up some bytes of the reserve, and return whether there were any."""
        if not self.octets:
            return False
        self.is_given_up = True
        if not (left := self.left):
            return False
        try:
            os.truncate(self._file, max(0, left - octets))
        except OSError:
            return False
        return True

    def _allocate(self) -> None:
        """Allocate what is missing of the file. Raises OSError."""
        left = min(self.left, self.octets)
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(file, left)
            allocate(file, left, self.octets - left)
        except OSError:
            os.ftruncate(file, left)
            if not left:
                self._file.unlink()
            raise
        finally:
            os.close(file)


def _grow(file: int, size: int) -> bool:
    """Have a file grow to `size` bytes, or as far as there is room; return whether it has that size. Raises OSError."""
    at = os.fstat(file).st_size
    piece = size - at
    while at < size:
        octets = min(piece, size - at)
        try:
            allocate(file, at, octets)
        except OSError:
            if piece <= PIECE_OCTETS:
                return False
            piece = max(PIECE_OCTETS, piece // SMALLER)
        else:
            at += octets
    return True


def allocate(file: int, size: int, octets: int) -> None:
    """Have the disk set aside so many bytes behind those of a file of a `size`. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, size, octets)  # where the file system cannot, the C library writes
    else:
        write_all(file, bytes(octets), size)


def drain_octets(folder: Path) -> int:
    """Return the size in bytes of the reserve for draining, by that of the disk; 0: unknown, and so none."""
    size = disk_octets(folder)
    return 0 if size is None else min(DRAIN_OCTETS, size // DRAIN_SHARE)
