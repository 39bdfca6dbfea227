"""The data folder: a path to a place that is ours alone.

    lock         held as long as a store is open; text: the process that holds it
    meta.db      SQLite: exchanges, queues, bindings, users, policies
    messages.db  SQLite: messages, and what became of them
    streams/     the messages of streams; `segments.py` knows the files in it
    reserve      room for a start on a disk that is full; `reserve.py`

What the databases hold, and that their format is one we know, is `database.py`'s business.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK: Final = "lock"
META: Final = "meta.db"
MESSAGES: Final = "messages.db"
STREAMS: Final = "streams"


class BadFolder(Exception):  # noqa: N818 - `raise BadFolder` says it
    """A data folder cannot be used. The text names it, says why, and what can be done."""


class Folder:
    """A data folder, ours until it is released. It is made if need be, for its owner only."""

    def __init__(self, path: Path) -> None:
        """Raises BadFolder: it cannot be made, or another process has it."""
        self.path = path.absolute()
        self.meta = self.path / META
        self.messages = self.path / MESSAGES
        make(self.path)
        self._lock = _locked(self.path)

    def release(self) -> None:
        """Let others have it."""
        if self._lock >= 0:
            os.close(self._lock)  # which gives up the lock
            self._lock = -1


def make(path: Path) -> None:
    """Make a folder, if there is none. Raises BadFolder."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadFolder(f"the data folder {path} cannot be made: {error.strerror}") from None


def _locked(path: Path) -> int:
    """The descriptor that holds the lock; the system lets go of it when the process ends, however that ends."""
    file = path / LOCK
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadFolder(f"the data folder {path} cannot be used: {file}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said = f"{os.getpid()}\n".encode()
        os.ftruncate(lock, os.pwrite(lock, said, 0))  # in this order no room is needed that was not its own
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise BadFolder(f"the data folder {path} cannot be locked: {error.strerror}") from None
        who = f"the process {holder}" if holder.isdecimal() else "another process"
        raise BadFolder(f"the data folder {path} is in use by {who}: two nodes cannot share one") from None
    return lock


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk, not only what they stand for. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require(path: Path) -> None:
    """Raises BadFolder: nobody has ever used it as a data folder."""
    if not any((path / name).exists() for name in (MESSAGES, META)):
        raise BadFolder(f"{path} is no data folder: it has neither {MESSAGES} nor {META}")


def holder(path: Path) -> int | None:
    """The process that has a folder, as its lock says; None: nobody."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        number = os.pread(lock, 32, 0).strip()
        return int(number) if number.isdigit() else 0
    finally:
        os.close(lock)
    return None
