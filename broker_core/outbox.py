"""Outboxes gather the bytes for a peer while a read is processed; the node sends them in one go after it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

OVERHEAD: Final = 64  # bytes that a delivery takes in an outbox besides properties and body, roughly


@mypyc_attr(allow_interpreted_subclasses=True)
class Outbox:
    """An outbox holds pieces of bytes for one peer. The node takes and sends them; a full outbox gets no deliveries.

    `ready` is the node's list of outboxes with something to send; an outbox puts itself there when its first piece
    arrives. `limit` is the high-water mark in bytes, where deliveries stop, give or take a message. Answers may exceed
    it by `answers_max` bytes; then the peer has to read before it may ask for more.
    """

    __slots__ = ("answers_max", "gone", "limit", "pieces", "ready", "size", "waiting")

    def __init__(self, ready: list[Outbox], limit: int = 1 << 20, answers_max: int = 1 << 24) -> None:
        self.ready = ready
        self.limit = limit
        self.answers_max = answers_max
        self.pieces: list[bytes] = []
        self.size = 0  # bytes written that the operating system has not taken yet
        self.gone = 0  # bytes that the operating system has taken
        self.waiting = False  # a consumer was passed over because this outbox was full

    def write(self, data: bytes) -> None:
        if not self.pieces:
            self.ready.append(self)
        self.pieces.append(data)
        self.size += len(data)

    def open(self) -> list[bytes]:
        """Return the list to append pieces to; `wrote` must follow. For the delivery path: one call a batch."""
        if not self.pieces:
            self.ready.append(self)
        return self.pieces

    def wrote(self, count: int) -> None:
        """Count the bytes that were appended to the list that `open` gave."""
        self.size += count

    def written(self) -> int:
        """Return how many bytes were ever written here."""
        return self.gone + self.size

    def room(self) -> int:
        """Return the bytes left until the high-water mark; at 0 or less the node calls `FrontEnd.drained` later."""
        room = self.limit - self.size
        if room <= 0:
            self.waiting = True
        return room

    def shut(self) -> None:
        """Leave no room for deliveries any more, because the connection ends. Answers are taken still."""
        self.limit = -1

    @property
    def full(self) -> bool:
        """True if the peer has to read before it may ask for more."""
        return self.size > self.limit + self.answers_max

    def take(self) -> list[bytes]:
        """Remove and return the pieces gathered so far; the caller reports with `sent` the bytes that it has sent."""
        pieces = self.pieces
        self.pieces = []
        return pieces

    def sent(self, count: int) -> bool:
        """Count bytes that were sent. True: consumers that were passed over can go on."""
        self.size -= count
        self.gone += count
        if self.waiting and self.size * 2 <= self.limit:
            self.waiting = False
            return True
        return False
