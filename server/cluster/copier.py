"""Copy bytes between pairs of sockets in a thread, which waits for all of them at once.

    readable ── recv ── send ──> done                          three system calls for a piece, and no task wakes up
                          └─ not all taken: kept ── writable ──> sent; nothing is read from the other side meanwhile

All bytes go through one buffer. Only what a side does not take at once is copied and kept, so that a pair keeps one
piece at most. A side that has sent its last byte is told so to the other, which may still send.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from threading import Thread
from typing import Final

from leveret.durable.store.wakeup import Wakeup

PIECE: Final = 262_144  # bytes in one read


class RelayedSide:
    """One socket of a pair."""

    __slots__ = ("events", "line", "other", "reads", "rest", "socket")

    other: RelayedSide

    def __init__(self, line: RelayedPair, end: socket.socket) -> None:
        self.line = line
        self.socket = end
        self.events = 0  # that are waited for
        self.reads = True  # False once the peer has sent its last byte
        self.rest = memoryview(b"")  # what the peer has not taken yet


class RelayedPair:
    """A pair of sockets, and what is called when its bytes are copied no more."""

    __slots__ = ("client", "is_over", "server", "tell")

    def __init__(self, client: socket.socket, server: socket.socket, tell: Callable[[], object]) -> None:
        self.tell = tell
        self.is_over = False
        self.client, self.server = RelayedSide(self, client), RelayedSide(self, server)
        self.client.other, self.server.other = self.server, self.client


class Copier:
    """The thread, and the pairs that it copies between."""

    def __init__(self) -> None:
        self.octets = 0  # copied since the start, in both directions
        self._buffer = bytearray(PIECE)
        self._view = memoryview(self._buffer)
        self._selector = selectors.DefaultSelector()
        self._orders: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup, EVENT_READ)
        self._closing = False
        self._thread = Thread(target=self._run, name="leveret-relay", daemon=True)
        self._thread.start()

    # Called by any thread.

    def add(self, client: socket.socket, server: socket.socket, tell: Callable[[], object]) -> RelayedPair:
        """Copy between these sockets, which do not block, until both have ended or one fails; then call `tell` once.

        The sockets stay open, and are the caller's again then.
        """
        line = RelayedPair(client, server, tell)
        self._order(lambda: self._begin(line))
        return line

    def drop(self, line: RelayedPair) -> None:
        """Copy no more between a pair, and call its `tell`, unless it was called already."""
        self._order(lambda: self._end(line))

    def close(self) -> None:
        """End the thread."""
        self._order(self._stop)
        self._thread.join()
        self._selector.close()
        self._wakeup.close()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._wakeup.wake()

    # The thread.

    def _run(self) -> None:
        while not self._closing:
            for key, events in self._selector.select():
                if isinstance(side := key.data, RelayedSide):
                    if events & side.events & EVENT_WRITE:  # what came before may have ended the pair
                        self._go_on(side)
                    if events & side.events & EVENT_READ:
                        self._copy(side)
                else:
                    self._obey()

    def _obey(self) -> None:
        self._wakeup.hear()
        while self._orders:
            self._orders.popleft()()

    def _stop(self) -> None:
        self._closing = True

    def _begin(self, line: RelayedPair) -> None:
        for side in (line.client, line.server):
            self._watch(side)

    def _end(self, line: RelayedPair) -> None:
        if line.is_over:
            return
        line.is_over = True
        for side in (line.client, line.server):
            self._change(side, 0)
        line.tell()

    def _watch(self, side: RelayedSide) -> None:
        """Wait for what a side is to do: send what is left for its peer, and read unless the other side is full."""
        reads = side.reads and not side.other.rest
        self._change(side, EVENT_READ * reads | EVENT_WRITE * bool(side.rest))

    def _change(self, side: RelayedSide, events: int) -> None:
        if events == side.events:
            return
        if not side.events:
            self._selector.register(side.socket, events, side)
        elif events:
            self._selector.modify(side.socket, events, side)
        else:
            self._selector.unregister(side.socket)
        side.events = events

    def _copy(self, side: RelayedSide) -> None:
        """Read a piece, and send it to the other side."""
        try:
            size = side.socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(side.line)
            return
        if not size:
            self._read_all(side)
            return
        self.octets += size
        other = side.other
        try:
            sent = other.socket.send(self._view[:size])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._end(side.line)
            return
        if sent < size:
            other.rest = memoryview(bytes(self._view[sent:size]))
            self._watch(other)
            self._watch(side)

    def _go_on(self, side: RelayedSide) -> None:
        """Send what was left for a peer."""
        try:
            side.rest = side.rest[side.socket.send(side.rest) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(side.line)
            return
        if not side.rest:
            self._watch(side)
            self._watch(side.other)

    def _read_all(self, side: RelayedSide) -> None:
        """Tell the other side that a peer has sent its last byte."""
        side.reads = False
        self._watch(side)
        with contextlib.suppress(OSError):
            side.other.socket.shutdown(socket.SHUT_WR)
        if not side.other.reads:
            self._end(side.line)
