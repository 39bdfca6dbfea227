"""Reserve room on the disk for a data folder, so that a node can start where others have left none.

A start needs some, for the indexes of the logs and to record that a node runs. So a file of zeros is written while
there is plenty of room, and deleted when a start finds none: that frees enough, and lets consumers continue for a
while.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker_core.flow import free_octets

RESERVE: Final = "reserve"
RESERVE_OCTETS: Final = 1 << 20  # a start needs about a tenth
PLENTY: Final = 4 * RESERVE_OCTETS  # free on the disk before the reserve is filled


class Reserve:
    """The reserve of one data folder, which has to be locked. Errors of the disk are ignored here."""

    __slots__ = ("_file", "_free")

    def __init__(self, folder: Path, free: Callable[[Path], int | None] = free_octets) -> None:
        self._file = folder / RESERVE
        self._free = free

    def fill(self) -> None:
        """Write the file if it is not there and there is plenty of room."""
        with suppress(OSError):
            free = self._free(self._file.parent)
            if self._size() == RESERVE_OCTETS or free is None or free < PLENTY:
                return
            try:
                self._write()
            except OSError:
                self._file.unlink(missing_ok=True)

    def release(self) -> None:
        """Delete the file if the disk has less room left than its size."""
        with suppress(OSError):
            free = self._free(self._file.parent)
            if free is not None and free < RESERVE_OCTETS:
                self._file.unlink(missing_ok=True)

    def _size(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def _write(self) -> None:
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "wb", buffering=0) as opened:
            if opened.write(bytes(RESERVE_OCTETS)) != RESERVE_OCTETS:
                raise OSError("a write was cut short")
