"""Lock a data folder, and name what is in it.

    lock         held as long as a store is open; text: the process that holds it
    meta.db      SQLite: exchanges, queues, bindings, users, policies
    messages.db  SQLite: messages, and their state
    messages.db-redo   commits that are not in messages.db yet; `redo_log.py`
    streams/     the messages of streams; `segments.py` knows the files in it
    reserve, reserve-drain   room for a start and for acknowledgements on a disk that is full; `reserve.py`

`database.py` knows what the databases hold, and checks their format.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

LOCK: Final = "lock"
META: Final = "meta.db"
MESSAGES: Final = "messages.db"
STREAMS: Final = "streams"


class BadFolder(Exception):  # noqa: N818 - reads well as `raise BadFolder`
    """A data folder cannot be used. The text names it, and says why and what can be done."""


class Folder:
    """A data folder, locked until it is released. It is created if necessary, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        """Lock the folder. Raises BadFolder if it cannot be created, or another process has it."""
        self.path = path.absolute()
        self.meta = self.path / META
        self.messages = self.path / MESSAGES
        make(self.path)
        self._lock = _locked(self.path)
        self._watched: list[tuple[str, tuple[int, int]]] = []  # paths, with device and inode of each

    def watch(self) -> None:
        """Remember which files the lock and the databases are. Raises OSError."""
        files = (self.path / LOCK, self.meta, self.messages)
        self._watched = [(os.fspath(each), identity_of(os.stat(each))) for each in files]

    def lost(self) -> Path | None:
        """Return a file that has been deleted, moved or replaced since `watch`; None if there is none.

        A process that has such a file open goes on writing to it without an error, and the next start does not find
        it. To look takes 5 us.
        """
        for file, before in self._watched:
            if is_lost(file, before):
                return Path(file)
        return None

    def release(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)  # releases the lock
            self._lock = -1


def identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def is_lost(file: str | Path, before: tuple[int, int]) -> bool:
    """Return whether a path leads to another file than before, or to none; not if that cannot be seen."""
    try:
        return identity_of(os.stat(file)) != before
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def make(path: Path) -> None:
    """Create a folder, if there is none. Raises BadFolder."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise BadFolder(
            f"the data folder {path} cannot be made: there is something else of this name"
        ) from None
    except OSError as error:
        raise BadFolder(f"the data folder {path} cannot be made: {error.strerror}") from None


def _locked(path: Path) -> int:
    """Return the descriptor that holds the lock; the system releases it when the process ends, however that happens."""
    file = path / LOCK
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadFolder(f"the data folder {path} cannot be used: {file}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise BadFolder(f"the data folder {path} cannot be locked: {error.strerror}") from None
        who = f"the process {holder}" if holder.isdecimal() else "another process"
        raise BadFolder(f"the data folder {path} is in use by {who}: two nodes cannot share one") from None
    _say_whose(lock)
    return lock


def _say_whose(lock: int) -> None:
    """Write the number of this process into its lock, or nothing where there is no room: the lock holds without it."""
    octets = f"{os.getpid()}\n".encode()
    try:
        os.ftruncate(lock, os.pwrite(lock, octets, 0))  # writing first, it needs no room except its own
    except OSError:
        with suppress(OSError):
            os.ftruncate(lock, 0)


def require(path: Path) -> None:
    """Check that a folder has been used as a data folder. Raises BadFolder if not."""
    if not any((path / name).exists() for name in (MESSAGES, META)):
        raise BadFolder(f"{path} is no data folder: it has neither {MESSAGES} nor {META}")


def holder(path: Path) -> int | None:
    """Return the process that holds a folder's lock: None if there is none, 0 if it is unknown."""
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
