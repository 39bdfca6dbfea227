"""Bytes on their way out of one connection: gathered while a read is worked through, sent in one go after it."""

from __future__ import annotations


class Outbox:
    """Pieces of bytes for one peer. The node sends them and says `sent`; a full outbox gets no further deliveries.

    `ready` is the node's list of outboxes with something to send; an outbox puts itself there when its first piece
    arrives. `limit` is the high-water mark in octets.
    """

    __slots__ = ("limit", "pieces", "ready", "size", "waiting")

    def __init__(self, ready: list[Outbox], limit: int = 1 << 20) -> None:
        self.ready = ready
        self.limit = limit
        self.pieces: list[bytes] = []
        self.size = 0  # octets written and not yet taken by the operating system
        self.waiting = False  # a consumer was passed over because this outbox was full

    def write(self, data: bytes) -> None:
        if not self.pieces:
            self.ready.append(self)
        self.pieces.append(data)
        self.size += len(data)

    @property
    def full(self) -> bool:
        return self.size > self.limit

    def take(self) -> list[bytes]:
        """Everything gathered so far; the caller reports each octet it got rid of with `sent`."""
        pieces = self.pieces
        self.pieces = []
        return pieces

    def sent(self, count: int) -> None:
        self.size -= count
