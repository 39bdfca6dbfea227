"""The part of a connection's socket that does not wait: one read, and all that can be sent at once.

Each read and each answer goes through here, so that it is compiled; the tasks of a connection, which wait, are those of
`transport.py`.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.errors import MISTAKES
from leveret.server.node.send_buffer import Line, SendBuffer, joined

if TYPE_CHECKING:
    import trio

    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.front_end import FrontEnd
    from leveret.intake import Intake
    from leveret.outbox import Outbox

READ_SIZE_MIN: Final = 1024
# Bytes asked for where little came last time: to ask for more costs an allocator more.
READ_LITTLE: Final = 65_536
MUCH: Final = 32_768  # bytes in one read: a peer that sends so many usually has more
JOINED_MAX: Final = 65_536  # bytes of several pieces that are joined even if one of them is large
SENT_MAX: Final = 1 << 20  # bytes sent before others have their turn, to a peer that reads as fast as we send
NOTHING_YET: Final = (BlockingIOError, InterruptedError)


@mypyc_attr(allow_interpreted_subclasses=True)
class SocketIO:
    """An accepted socket, its outbox and, once the first bytes have decided on the protocol, its front-end."""

    __slots__ = (
        "_all_sent",
        "_backlog",
        "_broker",
        "_ended",
        "_held",
        "_is_stranger",
        "_is_wrapped",
        "_read_size",
        "_read_size_max",
        "_socket",
        "_timer",
        "_turn_s",
        "ahead",
        "dismissed",
        "front",
        "halted",
        "has_more",
        "intake",
        "number",
        "octets_received",
        "outbox",
        "reads",
        "says_much",
        "writes",
    )

    def __init__(
        self,
        broker: Broker,
        connected: Line,
        outbox: Outbox,
        read_size: int,
        read_size_max: int,
        turn_s: float,
    ) -> None:
        """`read_size`: the bytes asked for in the first reads. `turn_s`: the limit for processing one read."""
        self.outbox = outbox
        self.front: FrontEnd | None = None
        self.intake: Intake | None = None  # that of the front-end
        self.number = connected.fileno()  # the file descriptor
        self.octets_received = self.reads = self.writes = 0
        self.ahead = False  # it publishes faster than the disk can keep up, and is not read from for now
        self.says_much = False  # its last read returned much
        # Its TLS or WebSocket has more to read, of which the operating system does not know.
        self.has_more = False
        self.halted = False  # its front-end has left some of its input for its next turn
        self.dismissed = False  # its own task is about to continue
        self._broker = broker
        self._socket: Line = connected
        self._is_wrapped = False  # TLS or a WebSocket has taken the place of the accepted socket
        self._is_stranger = True  # its user has not logged in
        self._ended = False  # the peer has closed its side
        self._read_size = read_size
        self._read_size_max = read_size_max
        self._turn_s = turn_s
        self._held: list[tuple[int, list[memoryview]]] = []  # commits, and bytes that wait for them
        self._backlog = SendBuffer()
        self._all_sent: trio.Event | None = None  # set once the second task has sent the backlog
        self._timer: Timer | None = None

    # What its tasks do.

    @abstractmethod
    def hang_up(self) -> None:
        """End the connection; what is in the outbox by the end of this batch is still sent."""

    @abstractmethod
    def end_by_mistake(self) -> None:
        """Log the exception that is being handled as a mistake of ours, and end this connection only."""

    @abstractmethod
    def lose(self) -> None:
        """Have the front-end release what it held, before the connection closes: that may take some time."""

    @abstractmethod
    def broken_off(self, failure: OSError) -> None:
        """Note that reading has failed."""

    @abstractmethod
    def begin_to_drain(self) -> None:
        """Have a task send the backlog, which the system does not take now, and set `_all_sent` meanwhile."""

    @abstractmethod
    def on_time(self, now: float) -> None:
        """Called at the front-end's deadline."""

    # Reading.

    def read(self) -> bytes:
        """Called by the poller: read once. Return nothing if there is nothing to process."""
        size_max = self._read_size
        if size_max > READ_LITTLE and not self.says_much and not self._is_wrapped:
            size_max = READ_LITTLE
        try:
            data: bytes = self._socket.recv(size_max)
        except NOTHING_YET:
            self.says_much = False
            return b""
        except OSError as failure:
            self.broken_off(failure)
            data = b""
        self.reads += 1
        size = len(data)
        if not size:
            self._ended = True
            return data
        if self._is_wrapped:
            self.has_more = self._has_decrypted()
        self.octets_received += size
        self.says_much = size >= MUCH or size == self._read_size
        return data

    def processed(self, size: int) -> None:
        """Adapt the size of a read, so that processing it does not keep other connections waiting for too long."""
        broker = self._broker
        took_s = broker.clock.now() - broker.now
        if took_s > self._turn_s:
            self._read_size = max(READ_SIZE_MIN, int(size * self._turn_s / took_s))
        elif self._read_size < self._read_size_max and not self._is_stranger:
            self._read_size = min(2 * self._read_size, SocketIO.read_max(self))

    def goes_on(self) -> bool:
        """Return whether the poller may read from this connection again, after its input has been processed."""
        front, intake = self.front, self.intake
        if front is None or intake is None or self._ended or intake.is_closed():
            self.lose()
            return False
        if front.throttled:
            self._read_size = min(self._read_size, front.read_max)
            return False
        self.halted = intake.is_halted()
        return not (self.ahead or front.blocked or front.waits or self.outbox.full)

    def read_max(self) -> int:
        """Return the most bytes to read at once."""
        front = self.front
        return self._read_size_max if front is None else min(self._read_size_max, front.read_max)

    def _has_decrypted(self) -> bool:
        """Return whether reading returns at once, with or without input in the operating system."""
        return not isinstance(self._socket, socket.socket) and self._socket.has_more

    def watch_deadline(self) -> None:
        """Keep a timer for the front-end's deadline. A deadline that moved to later is noticed when the timer fires."""
        try:
            deadline = None if self.intake is None else self.intake.due_at()
        except MISTAKES:
            self.end_by_mistake()
            return
        timer = self._timer
        if deadline is None or (timer is not None and not timer.cancelled and timer.at <= deadline):
            return
        timers = self._broker.timers
        timers.cancel(timer)
        self._timer = timers.at(deadline, self.on_time)

    # Sending.

    def flush(self) -> None:
        """Hand the outbox to the operating system; what it does not accept now is sent by a task of its own."""
        outbox = self.outbox
        pieces = outbox.take()
        if self._held:
            self._held[-1][1].extend(joined(pieces, self._socket))
        elif self._backlog or self._all_sent is not None or outbox.size > JOINED_MAX:
            self._backlog.add(joined(pieces, self._socket))
            self.send_backlog()
        elif pieces:
            SocketIO._send_at_once(self, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _send_at_once(self, octets: bytes) -> None:
        """Send with nothing queued before; usually the system accepts everything. The rest becomes the backlog."""
        piece = memoryview(octets)
        try:
            count: int = self._socket.send(piece)
        except OSError:  # raised again by the backlog if the peer has gone
            count = 0
        else:
            self.writes += 1
        if count < len(octets):
            self._backlog.add([piece[count:]])
        if count and self.outbox.sent(count):
            self._drained()
        if self._backlog:
            self.send_backlog()

    def send_backlog(self) -> None:
        """Send what waits; if the system does not take all of it now, a task goes on."""
        if self._all_sent is None and not self.send_some():
            self.begin_to_drain()

    def send_some(self) -> bool:
        """Send the backlog until it is empty (True), the system accepts no more, or others have their turn (False)."""
        until = self.outbox.gone + SENT_MAX
        while self._backlog:
            if self.outbox.gone >= until:
                return False
            try:
                count = self._backlog.send(self._socket)
            except NOTHING_YET:
                return False
            except OSError:
                self._backlog.clear()
                self.hang_up()
                return True
            self.writes += 1
            if self.outbox.sent(count):
                self._drained()
        return True

    def _drained(self) -> None:
        """Tell the front-end that deliveries may continue."""
        if self.front is not None:
            try:
                self.front.drained()
            except MISTAKES:
                self.end_by_mistake()
            self.watch_deadline()
