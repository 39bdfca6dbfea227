"""Deliveries of a receiver that are on disk under their tags before they are sent, so that they outlive the node.

    the queue delivers ──noted──> waits for the commit ──on disk──> sent
    the receiver answers ──the note goes in the commit that settles the message──> settled with the receiver after that

A receiver asks for this with the durability `unsettled-state` of its source (AMQP 1.0 part 3, section 3.5.5). After a
restart of the node its deliveries are taken off the queue again, and kept for it (kept_deliveries.py). As a delivery is
noted before it is sent, nobody else gets a message that this receiver may be at work on; as the receiver hears of a
settlement only when that is on disk, a message that it has answered and forgotten does not come again.

A note is the delivery's position in its queue, by its tag. Messages that do not outlive the node have none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from leveret.protocols.amqp10.broker.encoding import pieces

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.features.unsettled_maps.unsettled_map import UnsettledMap
    from leveret.protocols.amqp10.broker.link_consumer import LinkConsumer

UNSETTLED_MAX: Final = 1024  # deliveries of a link; beyond that, it gets no more until some are settled


class RecordedDeliveries:
    """The unsettled deliveries of one link, with their tags. It is a `Publisher`, which waits for the disk."""

    persistent: bool = True

    __slots__ = (
        "_announced",
        "_consumer",
        "_count",
        "_marked",
        "_new",
        "_prefix",
        "_waiting",
        "tags",
        "unsettled",
    )

    def __init__(
        self, consumer: LinkConsumer, unsettled: UnsettledMap, kept: Mapping[bytes, Delivery], prefix: bytes
    ) -> None:
        """`kept`: those of an earlier link. `prefix`: bytes that no delivery tag has begun with before."""
        self.unsettled = unsettled
        self.tags: dict[object, bytes] = {}
        self._consumer = consumer
        self._prefix = prefix
        self._count = 0  # of tags
        self._announced = False  # it is on the broker's list of publishers for this settle
        self._marked = 0  # the last mark
        self._new: list[Delivery] = []  # since then
        self._waiting: deque[tuple[int, list[Delivery]]] = deque()  # for the disk, with their marks
        for tag, delivery in kept.items():
            self._note(delivery, tag)

    @property
    def room(self) -> int:
        """The number of deliveries that the link may get."""
        return max(0, UNSETTLED_MAX - len(self.tags))

    @property
    def waits(self) -> bool:
        """True while deliveries wait for the disk."""
        return bool(self._new or self._waiting)

    def hold(self, deliveries: list[Delivery]) -> None:
        """Note deliveries, and send them when the notes are on disk."""
        for delivery in deliveries:
            self._count += 1
            self._note(delivery, self._prefix + self._count.to_bytes(8))
        self._new += deliveries
        if not self._announced:
            self._announced = True
            self._consumer.session.broker.publishers.append(self)

    def _note(self, delivery: Delivery, tag: bytes) -> None:
        self.tags[delivery] = tag
        if delivery.stored:
            self.unsettled.note(tag, delivery.position)

    def mark(self) -> int:
        self._announced = False
        self._marked += 1
        self._waiting.append((self._marked, self._new))
        self._new = []
        return self._marked

    def taken(self, mark: int) -> None:
        """Send what is on disk."""
        consumer = self._consumer
        while self._waiting and self._waiting[0][0] <= mark:
            for delivery in self._waiting.popleft()[1]:
                self._send(delivery)
        if not consumer.link.ended:
            if not self.waits:
                consumer.is_recorded()
            consumer.session.wire.flush()

    def _send(self, delivery: Delivery) -> None:
        consumer = self._consumer
        try:
            begin, body = pieces(delivery.message, delivery)
        except Exception:  # the fault of another protocol's encoding: deliver the others
            consumer.refuse(delivery)
            return
        size = len(begin) + len(body)
        if consumer.is_too_large(size):
            consumer.cannot_send(delivery, size)
            return
        consumer.link.send_tagged(delivery, self.tags[delivery], [begin, body], size)
        consumer.timeouts.watch(delivery)

    def take_waiting(self) -> list[object]:
        """Return the deliveries that wait for the disk, and do not send them any more, as the link has ended."""
        found = [delivery for _, waiting in self._waiting for delivery in waiting] + self._new
        self._waiting, self._new = deque(), []
        return cast("list[object]", found)

    def forget(self, deliveries: Iterable[object]) -> None:
        """Remove the notes on deliveries that are settled, or go back to their queue, in the open commit."""
        for delivery in deliveries:
            if (tag := self.tags.pop(delivery, None)) is not None:
                self.unsettled.unnote(tag)
