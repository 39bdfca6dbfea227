"""Share a socket between publishers or consumers: send bytes as the socket takes them, and read."""

from __future__ import annotations

import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from leveret.perf.ends import ConsumerEnd, PublisherEnd
from leveret.perf.errors import UNREACHABLE, PerfError

READ: Final = 256 << 10  # bytes at a time
TURNS: Final = 8  # blocks, before another connection has its turn
NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Inbox:
    """The buffer into which a worker reads, one connection after another; it grows to the largest frame."""

    def __init__(self) -> None:
        self.octets = bytearray(2 * READ)

    def room(self, size: int) -> None:
        if len(self.octets) < size:
            self.octets = bytearray(2 * size)


class HasSocket(Protocol):
    socket: socket.socket


Talking = TypeVar("Talking", bound=HasSocket)


@contextmanager
def set_up(talk: Talking) -> Iterator[Talking]:
    """Close the socket if setting up fails."""
    try:
        yield talk
    except BaseException:
        talk.socket.close()
        raise


class Connection(ABC):
    """A connection that is set up. Subclasses read frames, count deliveries, and handle the rest."""

    def __init__(self, made: socket.socket, tail: bytes, inbox: Inbox) -> None:
        made.setblocking(False)
        self.socket = made
        self.sources: Sequence[PublisherEnd] = ()
        self.subscriptions: dict[int, ConsumerEnd] = {}  # by channel
        self.unanswered = 0  # consumers that the broker has not confirmed yet
        self.is_full = False  # the socket takes no more for now
        self.is_watched = False  # polled for room to send
        self._tail = tail
        self._inbox = inbox
        self._leaving: memoryview = memoryview(b"")
        self._behind: list[bytes] = []  # frames to send between two blocks
        self._turn = 0
        self.single_acks = False  # acknowledge each message by itself

    @abstractmethod
    def take(self, octets: bytearray, end: int, now: int) -> int:
        """Handle complete frames and return how many bytes they were. Raises PerfError."""

    @abstractmethod
    def acknowledge(self, channel: int, subscription: ConsumerEnd, at_least: int = 0) -> None:
        """Acknowledge handled messages if there are `at_least` as many, or as many as the plan says."""

    def keep_alive(self, now: int) -> None:
        """Called now and then, to send a heartbeat if one is due."""

    # Sending.

    def push(self, now: int) -> bool:
        """Send what may be sent. Return whether more could be sent at once."""
        for _ in range(TURNS):
            if not self._flush():
                return False
            octets = self._next(now)
            if octets is None:
                return False
            self._leaving = octets
        return self._flush()

    def due_ns(self) -> int | None:
        """Return when a publisher here has its next message due, if it waits for nothing else."""
        if not self.sources or self.is_full:
            return None
        return min((due for each in self.sources if (due := each.due_ns()) is not None), default=None)

    def say(self, octets: bytes) -> None:
        self._behind.append(octets)
        self._flush()

    def _next(self, now: int) -> memoryview | None:
        """Return the next block, from the publishers in turn."""
        for _ in self.sources:
            self._turn = (self._turn + 1) % len(self.sources)
            octets = self.sources[self._turn].next(now)
            if octets is not None:
                return octets
        return None

    def _flush(self) -> bool:
        """Send what is pending, and return whether all of it has been sent."""
        while True:
            if not self._leaving:
                if not self._behind:
                    self.is_full = False
                    return True
                self._leaving = memoryview(b"".join(self._behind))
                self._behind.clear()
            try:
                self._leaving = self._leaving[self.socket.send(self._leaving) :]
            except NOT_NOW:
                self.is_full = True
                return False
            except OSError as error:
                self._explain(error)

    def _explain(self, error: OSError) -> None:
        """Raise PerfError for a lost connection, after reading what the broker may have said before."""
        with contextlib.suppress(OSError):
            self._read(0)
        raise PerfError(f"the connection was lost: {error}", UNREACHABLE)

    # Reading.

    def receive(self, now: int) -> None:
        while self._read(now):
            pass

    def _read(self, now: int) -> bool:
        """Read once, and return whether more may be there at once."""
        tail = self._tail
        kept = len(tail)
        self._inbox.room(kept + READ)
        octets = self._inbox.octets
        octets[:kept] = tail
        try:
            with memoryview(octets) as view:
                count = self.socket.recv_into(view[kept : kept + READ])
        except NOT_NOW:
            return False
        except OSError as error:
            raise PerfError(f"the connection was lost: {error}", UNREACHABLE) from None
        if not count:
            raise PerfError("the broker has closed the connection without a reason", UNREACHABLE)
        self._handle(octets, kept + count, now)
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def receive_once(self) -> None:
        """Read what comes next from a blocking socket."""
        self._read(0)

    def begin(self, now: int) -> None:
        """Handle what came while the connection was set up."""
        octets = self._inbox.octets
        self._inbox.room(len(self._tail) + READ)
        octets[: len(self._tail)] = self._tail
        self._handle(octets, len(self._tail), now)

    def _handle(self, octets: bytearray, end: int, now: int) -> None:
        done = self.take(octets, end, now)
        self._tail = bytes(octets[done:end])
        for channel, each in self.subscriptions.items():
            self.acknowledge(channel, each)
