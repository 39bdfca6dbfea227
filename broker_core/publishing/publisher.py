"""The contract of publishers, which the broker tells when their messages are safe.

It is a typing protocol in a module that is never compiled: front-ends implement it beside other contracts, as in
`class Link(Consumer, Publisher)`. Compiled code finds a method of a compiled class at a fixed place in the object, and
an object has one such layout, not two.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol


class Publisher(Protocol):
    """A publisher is told when its messages so far are safe (for confirms, accepted, completion).

    It appends itself to `Broker.publishers`. At the end of the settle the broker takes it off that list and calls
    `mark`, then `taken`: at once if nothing of it is `persistent`, else when all of it is on disk. More may be
    published meanwhile, so several marks may be pending.
    """

    __slots__ = ()
    persistent: bool = False  # something published since the last `mark` must be on disk

    @abstractmethod
    def mark(self) -> int:
        """Return the publisher's position now, never less than before. Its next publish must join the list again."""

    @abstractmethod
    def taken(self, mark: int) -> None:
        """Called when all messages published before `mark` are in their queues, and on disk where they must be.

        Marks come in order; some may be skipped. The publisher may have ended in the meantime.
        """
