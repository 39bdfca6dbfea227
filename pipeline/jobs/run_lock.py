"""Keep two runs from working at one checkpoint: a lock of the system on a file in it, released however a run ends.

The kernel drops the lock of a process that is killed, on this machine and on NFS. Where a file system has no locks, or
the checkpoint is not in one, the log of the table still refuses what another run has added (see delta.py), and the
broker a batch that it has published; so the lock only lets the later run end at once, in one line.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from leveret.pipeline.errors import PipelineError

FILE: Final = "leveret.lock"
HOLDER_MAX: Final = 1024  # bytes that say which process it is
NO_LOCKS: Final = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))


class Busy(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when another run works at the checkpoint."""


@contextmanager
def held(folder: Path | None, now: Callable[[], float] = time.time) -> Iterator[None]:
    """Hold a checkpoint for the block; None is one that is not on this machine. Raises Busy, OSError.

    A folder that is made here, and in which nothing was planned in the end, is removed again.
    """
    if folder is None:
        yield
        return
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = _locked(folder / FILE, now())
    try:
        yield
    finally:
        if is_new:
            _remove_unused(folder)
        os.close(lock)


def _locked(file: Path, now: float) -> int:
    """Return the descriptor that holds the lock."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(lock, file)
            if not _is_there(lock, file):  # the run before has removed it
                os.close(lock)
                continue
            began = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"
            value = json.dumps({"process": os.getpid(), "machine": os.uname().nodename, "since": began})
            os.ftruncate(lock, os.pwrite(lock, value.encode(), 0))
        except BaseException:
            os.close(lock)
            raise
        return lock


def _take(lock: int, file: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(
            f"another run works at the checkpoint {file.parent}: {_holder(lock)}; this one has done nothing,"
            " and can be run when that one has ended"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _is_there(lock: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), file.stat())
    except FileNotFoundError:
        return False


def _holder(lock: int) -> str:
    try:
        content = json.loads(os.pread(lock, HOLDER_MAX, 0))
        return f"process {content['process']} on {content['machine']}, since {content['since']}"
    except (ValueError, TypeError, KeyError):
        return "a process that has just begun"


def _remove_unused(folder: Path) -> None:
    """Remove what a run has made before it planned anything; what holds more stays."""
    if any((folder / "offsets").glob("[0-9]*")):
        return
    for name in (FILE, "metadata", ".metadata.crc"):
        (folder / name).unlink(missing_ok=True)
    for each in (folder / "offsets", folder / "commits", folder / "sources", folder):
        with suppress(OSError):
            each.rmdir()
