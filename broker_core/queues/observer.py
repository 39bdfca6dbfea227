"""The contract of an observer of one queue: it is told of messages that come in, come back, and leave.

    push ──> entered        release ──> returned        accept, die, purge ──> left

A queue without observers pays one test of an attribute for each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueObserver:
    """An observer of one queue. It is called in the middle of operations: it must not call the queue, nor raise."""

    __slots__ = ()

    def entered(self, delivery: Delivery) -> None:
        """Called for each message that a work queue has taken in."""

    def entered_all(self, deliveries: list[Delivery]) -> None:
        """Called for the messages of a run, in place of `entered`."""

    def appended(self, offset: int, message: Message) -> None:
        """Called for each message that a stream has taken in."""

    def acquired(self, delivery: Delivery) -> None:
        """Called for a message that a client took by its position, without being served by the queue."""

    def returned(self, delivery: Delivery) -> None:
        """Called for a message that a consumer gave back, and that stays in the queue."""

    def dies(self, delivery: Delivery, reason: str) -> None:
        """Called before `left`, for a message that dies for a reason (`REJECTED` and the others)."""

    def left(self, delivery: Delivery) -> None:
        """Called for a message that has left the queue for good."""

    def purged(self) -> None:
        """Called before all waiting messages are dropped; `left` may follow for some of them."""


class BothObservers(QueueObserver):
    """Passes on to two observers, in order, what one queue tells."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: QueueObserver, second: QueueObserver) -> None:
        self._first = first
        self._second = second

    def entered(self, delivery: Delivery) -> None:
        self._first.entered(delivery)
        self._second.entered(delivery)

    def entered_all(self, deliveries: list[Delivery]) -> None:
        self._first.entered_all(deliveries)
        self._second.entered_all(deliveries)

    def appended(self, offset: int, message: Message) -> None:
        self._first.appended(offset, message)
        self._second.appended(offset, message)

    def acquired(self, delivery: Delivery) -> None:
        self._first.acquired(delivery)
        self._second.acquired(delivery)

    def returned(self, delivery: Delivery) -> None:
        self._first.returned(delivery)
        self._second.returned(delivery)

    def dies(self, delivery: Delivery, reason: str) -> None:
        self._first.dies(delivery, reason)
        self._second.dies(delivery, reason)

    def left(self, delivery: Delivery) -> None:
        self._first.left(delivery)
        self._second.left(delivery)

    def purged(self) -> None:
        self._first.purged()
        self._second.purged()


def joined(first: QueueObserver | None, second: QueueObserver | None) -> QueueObserver | None:
    """Return one observer that stands for two, of which each may be missing."""
    if first is None or second is None:
        return first or second
    return BothObservers(first, second)
