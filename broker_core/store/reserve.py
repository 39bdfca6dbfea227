"""Reserve room on the disk of a data folder, and give it up where others have left none.

    reserve         for a start: indexes of the logs, the note that a node runs; deleted by a start that finds no room
    reserve-drain   for acknowledgements and deletions, which make room; deleted by a commit that finds none

Both are allocated while there is plenty of room. While `reserve-drain` is missing, publishers are held back (the store
is `short`): what it held is for consumers, until enough of what they have taken is given back to the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker_core.flow import disk_octets, free_octets

RESERVE: Final = "reserve"
RESERVE_OCTETS: Final = 1 << 20  # a start needs about a tenth
DRAIN: Final = "reserve-drain"
DRAIN_OCTETS: Final = 8 << 20  # at most, and
DRAIN_SHARE: Final = 16  # this part of a small disk
PLENTY: Final = 2  # times its size are free on the disk before a reserve is filled


class Reserve:
    """One reserve of a data folder, which has to be locked. Errors of the disk are ignored here."""

    __slots__ = ("_file", "_free", "is_given_up", "octets")

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

    def free(self) -> int | None:
        """Return the bytes that can still be written to the disk; None: unknown."""
        try:
            return self._free(self._file.parent)
        except OSError:
            return None

    def fill(self) -> None:
        """Allocate the file if it is missing and there is plenty of room; it counts as given up if there is little."""
        if not self.octets:
            return
        with suppress(OSError):
            if self._size() != self.octets:
                free = self.free()
                if free is None or free < PLENTY * self.octets:
                    self.is_given_up = self.is_given_up or (free is not None and free < self.octets)
                    return
                self._allocate()
            self.is_given_up = False

    def release(self) -> None:
        """Delete the file if the disk has less room left than its size."""
        free = self.free()
        if free is not None and free < self.octets:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def give_up(self) -> bool:
        """Delete the file whatever room is left, and return whether it was there."""
        if not self.octets:
            return False
        self.is_given_up = True
        try:
            self._file.unlink()
        except OSError:
            return False
        return True

    def _size(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def _allocate(self) -> None:
        self._file.unlink(missing_ok=True)
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            allocate(file, self.octets)
        except OSError:
            self._file.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)


def allocate(file: int, octets: int) -> None:
    """Have the disk set aside so many bytes for an empty file. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, octets)  # where the file system cannot, the C library writes
    elif os.write(file, bytes(octets)) != octets:
        raise OSError("a write was cut short")


def drain_octets(folder: Path) -> int:
    """Return the size in bytes of the reserve for draining, by that of the disk; 0: unknown, and so none."""
    size = disk_octets(folder)
    return 0 if size is None else min(DRAIN_OCTETS, size // DRAIN_SHARE)
