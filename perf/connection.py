"""A socket and the publishers or consumers that share it: octets out as far as it takes them, octets in."""

from __future__ import annotations

import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from perf.ends import Source, Subscription
from perf.errors import UNREACHABLE, PerfError

READ: Final = 256 << 10  # octets at a time
TURNS: Final = 8  # blocks, and then it is another's turn
NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Inbox:
    """Where a worker reads into, one connection after another; as large as its largest frame needs."""

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
    """If that fails, nothing stays open."""
    try:
        yield talk
    except BaseException:
        talk.socket.close()
        raise


class Connection(ABC):
    """One that is set up. Its reader tells runs of deliveries, and is told what else comes."""

    def __init__(self, made: socket.socket, tail: bytes, inbox: Inbox) -> None:
        made.setblocking(False)
        self.socket = made
        self.sources: Sequence[Source] = ()
        self.subscriptions: dict[int, Subscription] = {}  # by channel
        self.unanswered = 0  # consumers that the broker has not yet agreed to
        self.is_full = False  # the socket takes no more for now
        self.is_watched = False  # for room
        self._tail = tail
        self._inbox = inbox
        self._leaving: memoryview = memoryview(b"")
        self._behind: list[bytes] = []  # what is said between two blocks
        self._turn = 0

    @abstractmethod
    def take(self, octets: bytearray, end: int, now: int) -> int:
        """Handle what is whole; answer how many octets that was. Raises PerfError."""

    @abstractmethod
    def acknowledge(self, channel: int, subscription: Subscription, at_least: int = 0) -> None:
        """Say what is handled, if it is so many, or as many as it says at a time."""

    def keep_alive(self, now: int) -> None:
        """Now and then."""

    # Out.

    def push(self, now: int) -> bool:
        """Send what may be sent. Whether there is more that could go at once."""
        for _ in range(TURNS):
            if not self._flush():
                return False
            octets = self._next(now)
            if octets is None:
                return False
            self._leaving = octets
        return self._flush()

    def due_ns(self) -> int | None:
        """When a publisher here has its next message, if it waits for nothing else."""
        if not self.sources or self.is_full:
            return None
        return min((due for each in self.sources if (due := each.due_ns()) is not None), default=None)

    def say(self, octets: bytes) -> None:
        self._behind.append(octets)
        self._flush()

    def _next(self, now: int) -> memoryview | None:
        """From the publishers in turn."""
        for _ in self.sources:
            self._turn = (self._turn + 1) % len(self.sources)
            octets = self.sources[self._turn].next(now)
            if octets is not None:
                return octets
        return None

    def _flush(self) -> bool:
        """Whether all has left."""
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
        """The broker has hung up: mostly it said why before."""
        with contextlib.suppress(OSError):
            self._read(0)
        raise PerfError(f"the connection was lost: {error}", UNREACHABLE)

    # In.

    def receive(self, now: int) -> None:
        while self._read(now):
            pass

    def _read(self, now: int) -> bool:
        """Whether there may be more at once."""
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
            raise PerfError("the broker has closed the connection without a word", UNREACHABLE)
        self._handle(octets, kept + count, now)
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def receive_once(self) -> None:
        """What comes next, on a socket that waits."""
        self._read(0)

    def begin(self, now: int) -> None:
        """Handle what came while it was set up."""
        octets = self._inbox.octets
        self._inbox.room(len(self._tail) + READ)
        octets[: len(self._tail)] = self._tail
        self._handle(octets, len(self._tail), now)

    def _handle(self, octets: bytearray, end: int, now: int) -> None:
        done = self.take(octets, end, now)
        self._tail = bytes(octets[done:end])
        for channel, each in self.subscriptions.items():
            self.acknowledge(channel, each)
