"""The acknowledgement time-out of a link (like X028): it requeues late deliveries, or ends the link.

A requeued delivery is settled with the peer, as modified with delivery-failed (AMQP 1.0, part 2.6.12: either end may
settle first). An outcome that crosses with that concerns no delivery, and is ignored. The state `received`, which is no
outcome, renews a delivery that is not settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from leveret.config.compat import TimeoutResponse
from leveret.delivery import Delivery
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.shared.broker.ack_timeouts import AckTimeouts, is_late, late_text, report

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.link_consumer import LinkConsumer
    from leveret.protocols.shared.machine.numbered_table import NumberedTable

REQUEUE: Final = TimeoutResponse.REQUEUE

TAKEN_BACK: Final = p.Modified(delivery_failed=True)


class Timeouts(AckTimeouts):
    """A watch over the unsettled deliveries of a link."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: LinkConsumer) -> None:
        super().__init__(consumer.session.broker.timers)
        self._consumer: LinkConsumer | None = consumer

    def end(self) -> None:
        self.stop()
        self._consumer = None

    def check(self, now: float) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        link, session = consumer.link, consumer.session
        unsent = cast("list[Delivery]", list(link.unsent))
        sent = cast("NumberedTable[Delivery]", link.unsettled)
        free = session.transactions.not_held(list(sent.items()))
        late = {id: delivery for id, delivery in free if is_late(delivery, now)}
        stuck = next((delivery for delivery in unsent if is_late(delivery, now)), None)
        response = session.broker.compat.consumer_timeout_response
        requeues = response is REQUEUE and not consumer.exclusive
        if stuck is not None or (late and not requeues):  # the peer gives no window for what is not sent
            oldest = stuck or next(iter(late.values()))
            text = late_text(f"link '{link.name}'", oldest.allowed_s)
            consumer.keep_nothing()
            link.detach(AmqpError(p.PRECONDITION_FAILED, text))
            return
        if late:
            self._take_back(consumer, late)
        for delivery in (*sent.values(), *unsent):
            self.watch(delivery)

    def _take_back(self, consumer: LinkConsumer, late: dict[int, Delivery]) -> None:
        consumer.link.settle(list(late), TAKEN_BACK)
        consumer.session.wire.flush()
        report(late.values(), consumer.session.client.name, f"link '{consumer.link.name}'")
        consumer.retire([*late.values()], TAKEN_BACK)
