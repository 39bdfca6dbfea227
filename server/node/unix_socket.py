"""Unix domain sockets to listen on: from an address to a socket whose file has its mode and owner, and ends with it.

The file of a socket outlives a process that was killed, and nothing can be bound to its path before it is removed. That
is done at the next start if no process listens on it: a connect is then refused (unix(7)). Two processes that start at
once exclude each other by a lock on the folder (flock(2)) from the look at the old file until the new socket listens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import socket
import stat
import time
from collections.abc import Iterator
from grp import getgrnam
from pathlib import Path
from typing import Final

from leveret.config.config import ConfigError
from leveret.config.listener import ListenerEntry
from leveret.config.types import Problem, UnixAddress, printed

LOCK_WAIT_S: Final = 1.0  # for another process that is just binding a socket in the same folder
LOCK_TRY_S: Final = 0.01
UNCHANGED: Final = -1  # the user or group in chown(2)


class UnixListener(socket.socket):
    """A listening socket that removes its file before it closes: while it listens, no other node replaces the file."""

    identity: tuple[int, int] | None = None  # device and inode of its file; None: it has none

    def close(self) -> None:
        """Remove the file, if it is still this socket's, and close the socket."""
        if self.identity is not None and self.fileno() >= 0:
            path = self.getsockname()
            with contextlib.suppress(OSError):
                if _identity(path) == self.identity:
                    os.unlink(path)
        super().close()


def unix_listener(entry: ListenerEntry, backlog: int) -> UnixListener:
    """Return a socket that listens on a listener's address. Raises OSError, or ConfigError for an unknown owner."""
    address = entry.address
    assert isinstance(address, UnixAddress)
    owner = owner_of(entry)
    listener = UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        if address.is_abstract:
            listener.bind(address.name)
            listener.listen(backlog)
            return listener
        with _locked(Path(address.path).parent):
            _bind(listener, address.path)
            listener.identity = _identity(address.path)
            os.chown(address.path, *owner)
            os.chmod(address.path, int(entry.socket_mode, 8))
            listener.listen(backlog)  # nobody can connect before: the file has its mode and owner by then
    except BaseException:
        listener.close()
        raise
    return listener


def owner_of(entry: ListenerEntry, where: str = "") -> tuple[int, int]:
    """Return the user and group that own the file of a listener's socket, -1 for what stays.

    `where` is the listener's place in the configuration. Raises ConfigError.
    """
    user, _, group = (entry.socket_owner or "").partition(":")
    try:
        return (
            pwd.getpwnam(user).pw_uid if user else UNCHANGED,
            getgrnam(group).gr_gid if group else UNCHANGED,
        )
    except KeyError:
        accepted = "a user and a group of this machine, as USER, USER:GROUP or :GROUP"
        raise ConfigError(
            [Problem(f"{where or entry.address}.socket_owner", printed(entry.socket_owner), accepted)]
        ) from None


def _bind(listener: socket.socket, path: str) -> None:
    try:
        listener.bind(path)
    except OSError as failure:
        if failure.errno != errno.EADDRINUSE:
            raise
        _remove_stale(path)
        listener.bind(path)


def _remove_stale(path: str) -> None:
    """Remove the file of a socket on which no process listens. Raises OSError if there is something else."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "the file there is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.setblocking(False)
        number = attempt.connect_ex(path)
    if number != errno.ECONNREFUSED:  # it listens, or its backlog is full, or it is not for us to know
        raise OSError(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(number)
        yield
    finally:
        os.close(number)


def _lock(number: int) -> None:
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(errno.EBUSY, "another process keeps its folder locked") from None
            time.sleep(LOCK_TRY_S)


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
