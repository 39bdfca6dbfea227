"""Choose what reads from connections that have logged in: rounds on Linux, elsewhere each connection's own task.

What only Linux has for that is named here, and not in `poller.py`, which is compiled on every system.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from leveret.server.node.poller import Poller

if TYPE_CHECKING:
    from leveret.server.node.batches import Batches


class Poll(Protocol):
    """The methods of select.epoll that `Poller` calls; for types only, as no other system has that class."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class TaskReaders:
    """Takes the place of `Poller` on other systems: no connection attends, as each is read from by its own task."""

    def __init__(self, node: Batches) -> None:
        """Called in the node's loop."""
        self._node = node
        self._token = trio.lowlevel.current_trio_token()
        self._is_closed = False

    def report(self, report: Callable[[], None]) -> None:
        """Have the node hear a report in a later turn of the loop; after `close` it is dropped.

        Any thread may call it.
        """
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._hear, report)

    def _hear(self, report: Callable[[], None]) -> None:
        if not self._is_closed:
            self._node.hear_report(report)

    def dismiss(self, number: int) -> None:
        """Do nothing: every connection has its own task already."""

    def close(self) -> None:
        """Hear nothing more, nor what was reported before: the store is closed."""
        self._is_closed = True


def readers(node: Batches) -> Poller | TaskReaders:
    """Return what reads from a node's connections. Called in the node's loop; raises OSError without descriptors."""
    chosen: Poller | TaskReaders
    if sys.platform == "linux":
        has_others = len(os.sched_getaffinity(0)) > 1
        chosen = Poller(node, select.epoll(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), has_others)
    else:
        chosen = TaskReaders(node)
    return chosen
