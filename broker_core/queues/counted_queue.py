"""A counted queue is a stored queue that counts its deliveries and their answers.

    ready ──give, hand_out──> unsettled ──accept──> accepted
                                  └───────lost

Nothing else changes these counts but the kinds of queues, each for its own operations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from leveret.delivery import answered, copy_of, weight
from leveret.queues.stored_queue import StoredQueue

if TYPE_CHECKING:
    from leveret.delivery import Consumer, Delivery
    from leveret.durability import AbsentEntries
    from leveret.queues.contract import QueueHost
    from leveret.queues.observer import QueueObserver


@mypyc_attr(allow_interpreted_subclasses=True)
class CountedQueue(StoredQueue):
    """A queue, as far as it gives messages to consumers and to those that fetch, and hears of their answers."""

    __slots__ = (
        "absent",
        "accepted",
        "bounded",
        "came_back",
        "delivered",
        "delivered_settled",
        "fetched",
        "fetched_none",
        "fetched_settled",
        "hidden",
        "present",
        "published",
        "ready",
        "ready_bytes",
        "redelivered",
        "refused",
        "settling",
        "unsettled",
        "unsettled_bytes",
    )

    def __init__(self, virtual_host: QueueHost, name: str) -> None:
        super().__init__(virtual_host, name)
        self.settling = virtual_host.settling
        self.ready = 0  # messages waiting
        self.ready_bytes = 0  # of their bodies
        self.unsettled = 0  # messages delivered and not answered
        self.unsettled_bytes = 0  # of their bodies
        self.present: QueueObserver | None = None  # told of messages that come back and leave
        self.came_back = False  # a message has come back, and may wait here to be redelivered
        # Of those without an answer: created with the first that is on disk only.
        self.absent: AbsentEntries | None = None
        self.bounded = False  # it has given messages to consumers with bounds on what they have not answered
        # Counts since it was declared, in messages.
        self.published = self.delivered = self.accepted = 0
        self.delivered_settled = 0  # of those delivered to consumers: without an answer expected
        # The following attributes are seldom read.
        self.refused = self.redelivered = 0
        self.fetched = self.fetched_settled = 0  # of those delivered: by fetching, without a consumer
        self.fetched_none = 0  # fetches that found nothing
        self.hidden = False  # not listed: it serves the broker's own purposes

    @abstractmethod
    def touch(self) -> None:
        """Have the queue dispatch in the next settle, because something changed."""

    # Deliveries.

    def give(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Deliver these to a consumer, which has to answer them unless it is `settled`."""
        count = len(deliveries)
        self.delivered += count
        consumer.credit -= count
        consumer.window.credit -= count
        consumer.given += count
        if self.came_back:
            self._count_redelivered(deliveries)
        if consumer.settled:
            self.accepted += count
            self.delivered_settled += count
            self.forget(deliveries)
        else:
            now, octets = self.settling.now, 0
            for delivery in deliveries:
                delivery.consumer = consumer
                delivery.given_at = now
                octets += delivery.message.size
            self.unsettled += count
            self.unsettled_bytes += octets
            if consumer.bounds:
                self.bounded = True
                weighed = sum([weight(delivery.message) for delivery in deliveries])
                for bound in consumer.bounds:
                    bound.octets += weighed
        consumer.deliver(deliveries)
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, consumer.facts(), deliveries)

    def hand_out(self, delivery: Delivery, settled: bool) -> Delivery:
        """Count a fetched message as delivered, to be answered unless it is `settled`, and return it."""
        self.delivered += 1
        self.fetched += 1
        if self.came_back:
            self._count_redelivered((delivery,))
        if settled:
            self.accepted += 1
            self.fetched_settled += 1
            self.forget((delivery,))
        else:
            delivery.given_at = self.settling.now
            self.unsettled += 1
            self.unsettled_bytes += delivery.message.size
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, tracer.asking(), (delivery,))
        self.touch()
        return delivery

    def show(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Show these to a consumer that browses, and take them off its credit."""
        count = len(deliveries)
        consumer.credit -= count
        consumer.window.credit -= count
        consumer.deliver(deliveries)

    def _count_redelivered(self, deliveries: Iterable[Delivery]) -> None:
        self.redelivered += sum(delivery.redelivered for delivery in deliveries)
        self.came_back = self.ready > 0

    # Answers.

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery that the consumer has processed."""
        if self.absent is not None:
            self._accept_absent((delivery,))
        if self.bounded:
            self.answered((delivery,))
        self.unsettled -= 1
        self.unsettled_bytes -= delivery.message.size
        self.accepted += 1
        if delivery.stored and self.journal is not None:
            self.journal.settled.append(delivery)
        if self.present is not None:
            self.present.left(delivery)

    def accept_run(self, deliveries: list[Delivery]) -> None:
        """Accept several deliveries, all of this queue."""
        if self.absent is not None:
            self._accept_absent(deliveries)
        if self.bounded:
            self.answered(deliveries)
        octets = 0
        for delivery in deliveries:
            octets += delivery.message.size
        self.unsettled -= len(deliveries)
        self.unsettled_bytes -= octets
        self.accepted += len(deliveries)
        self.forget(deliveries)

    def _accept_absent(self, deliveries: Sequence[Delivery]) -> None:
        assert self.absent is not None, "some were put away"
        if self.present is not None:
            self.absent.bring(deliveries)  # for whom is told of them
        self.absent.accepted(deliveries)

    @property
    def returning(self) -> int:
        """Return how many messages were given back, and are read from the disk before they wait again."""
        return 0 if self.absent is None else self.absent.answers

    def bring(self, deliveries: Sequence[Delivery]) -> None:
        """Read unanswered messages at once that are on disk only. Those that cannot be read stay away."""
        if self.absent is not None:
            self.absent.bring(deliveries)

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """Settle these deliveries in the store, which need not keep them."""
        if self.present is not None:
            deliveries = list(deliveries)
            for delivery in deliveries:
                self.present.left(delivery)
        if self.journal is not None:
            self.journal.settled += [delivery for delivery in deliveries if delivery.stored]

    def answered(self, deliveries: Iterable[Delivery]) -> None:
        """Called for settled deliveries where something waits for answers (`bounded`)."""
        answered(deliveries)

    def stand_in(self, delivery: Delivery) -> Delivery:
        """Return what stands for a message that its consumer has accepted, and that a guest has from now on.

        It is not in the store. The guest accepts it in the end, or has it taken back.
        """
        if self.bounded:
            self.answered((delivery,))
        return copy_of(delivery)

    def accepted_elsewhere(self, count: int, octets: int) -> None:
        """Count unsettled messages as accepted that the store records apart from the queue, and their bytes."""
        self.unsettled -= count
        self.unsettled_bytes -= octets
        self.accepted += count

    def not_accepted(self, octets: int) -> None:
        """Count a message of so many bytes as unsettled again that was counted as accepted when it was sent."""
        self.accepted -= 1
        self.unsettled += 1
        self.unsettled_bytes += octets

    def lost(self, count: int, octets: int) -> None:
        """Subtract unsettled messages that are neither accepted nor come back, and their bytes."""
        self.unsettled -= count
        self.unsettled_bytes -= octets

    def renew(self, delivery: Delivery) -> None:
        """Begin the time anew in which a delivery has to be answered."""
        delivery.given_at = self.settling.now

    def count_refused(self) -> None:
        """Count a message that was refused."""
        self.refused += 1

    def count_fetched_none(self) -> None:
        """Count a fetch that found nothing."""
        self.fetched_none += 1
