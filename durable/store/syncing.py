"""Write files whole, and sync files and folders to disk, so that a power cut loses nothing of them.

On macOS fsync(2) only gives the contents to the drive, which may keep them in a memory of its own; F_FULLFSYNC of
fcntl(2) has the drive write that down. `database.py` asks SQLite for the same.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import Final

# The file system has no F_FULLFSYNC.
UNKNOWN: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


def write_all(descriptor: int, octets: bytes, at: int) -> int:
    """Write all bytes from a place on, however many calls that takes. Returns their number. Raises OSError.

    A disk that is almost full takes a part.
    """
    rest = memoryview(octets)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        if not written:
            raise OSError("a write was cut short")
        rest, at = rest[written:], at + written
    return len(octets)


def sync_file(descriptor: int) -> None:
    """Sync the contents of an open file to disk. Raises OSError; a sync that has failed is not tried again."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
            os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to disk, not only the contents of its files. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if sys.platform == "darwin":
            sync_file(folder)
        else:
            os.fsync(folder)
    finally:
        os.close(folder)


def have_folder(path: Path) -> None:
    """Create a folder and those above it that are missing, and sync their names to disk. Raises OSError."""
    if not path.is_dir():
        have_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
