"""A session of a 1.0 connection: the owners of the links that the peer attaches, and the answers to its publishes.

| the peer attaches                            | owner                           |
|----------------------------------------------|---------------------------------|
| a sender to a coordinator                    | control_link.py                  |
| a sender or a receiver to `/management`      | management/link_pair.py         |
| any other sender                             | publishing.py                   |
| any other receiver                           | link_consumer.py                    |

Every refusal of the core is raised as a `Failure`; this module turns it into the error for the peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from leveret.delivery import Consumer, Delivery
from leveret.errors import AccessRefused, Failure
from leveret.protocols.amqp10.broker import control_link, link_consumer, publishing, resumption, termini
from leveret.protocols.amqp10.broker.errors import refusal
from leveret.protocols.amqp10.broker.management import link_pair
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.contract import IncomingOwner, OutgoingOwner, SessionOwner
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
from leveret.protocols.amqp10.machine.session import Session
from leveret.protocols.shared.broker.ack_timeouts import tagged

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.adapter import Adapter10
    from leveret.protocols.amqp10.broker.control_link import ControlLink
    from leveret.protocols.amqp10.broker.management.link_pair import Pair
    from leveret.protocols.amqp10.broker.publishing import Publishing

MANAGEMENT: Final = "/management"


class ServedSession(SessionOwner):
    """The broker's side of a session. It is a `Publisher`."""

    __slots__ = (
        "_announced",
        "_marked",
        "_marks",
        "_waiting",
        "accepted",
        "broker",
        "client",
        "confirmed",
        "connection",
        "consumers",
        "delivered_settled",
        "link_errors_end",
        "outbox",
        "pairs",
        "persistent",
        "returned",
        "transactions",
        "wire",
    )

    def __init__(self, connection: Adapter10, wire: Session) -> None:
        self.connection = connection
        self.wire = wire
        self.broker = connection.broker
        self.client = connection.client
        self.outbox = connection.outbox
        self.consumers: dict[Consumer, None] = {}  # of its links; their owners add and remove themselves
        self.transactions = connection.transactions
        self.link_errors_end = wire.connection.tuning.link_errors_end
        self.pairs: dict[str, Pair] = {}  # of management links, by their name
        self.persistent = False
        # Counts for management, in messages.
        self.confirmed = self.returned = 0  # of the peer's messages: accepted, unroutable
        self.delivered_settled = self.accepted = 0  # of our messages: sent settled, accepted by the peer
        self._waiting: list[Publishing | ControlLink] = []  # links with messages to answer
        self._announced = False  # on the broker's list of publishers for this settle
        self._marked = 0  # the last mark
        # The marks, with the links that wait for each.
        self._marks: deque[tuple[int, list[Publishing | ControlLink]]] = deque()

    def unsettled(self, tag: int | None) -> Iterable[tuple[int, Delivery]]:
        """Return the deliveries that the peer has to answer, with their ids: all, or the one with the id `tag`."""
        by_id = self.wire.sending.unsettled
        tokens = ((id, link.unsettled.get(id)) for id, link in tagged(by_id, tag))
        return ((id, token) for id, token in tokens if isinstance(token, Delivery))

    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        if link.second and not resumption.asks_to_keep(attach):
            link.settle_first()
        try:
            target = attach.target
            if isinstance(target, p.Coordinator):
                return control_link.attach(self, link, attach)
            if isinstance(target, p.Target) and target.address == MANAGEMENT:
                return link_pair.attach_requests(self, link, attach)
            return publishing.attach(self, link, attach)
        except Failure as failure:
            raise refusal(failure, self.link_errors_end) from None

    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        try:
            source = attach.source
            if isinstance(source, p.Source) and source.address == MANAGEMENT:
                resumption.require_none(attach)
                return link_pair.attach_responses(self, link, attach)
            return link_consumer.attach(self, link, attach)
        except Failure as failure:
            raise refusal(failure, self.link_errors_end) from None

    def published(self, link: Publishing | ControlLink) -> None:
        """Called when a link has a first message to answer, once the broker has settled."""
        self._waiting.append(link)
        if not self._announced:
            self._announced = True
            self.broker.publishers.append(self)

    def mark(self) -> int:
        self._announced = self.persistent = False
        self._marked += 1
        waiting, self._waiting = self._waiting, []
        for link in waiting:
            link.mark()
        self._marks.append((self._marked, waiting))
        return self._marked

    def taken(self, mark: int) -> None:
        """Answer every publish before the mark (S226)."""
        marks = self._marks
        while marks and marks[0][0] <= mark:
            for link in marks.popleft()[1]:
                link.answer()
        self.wire.flush()

    def on_window(self) -> None:
        self.wake_all()

    def wake_all(self) -> None:
        """Wake the consumers, because there is room again for deliveries."""
        for consumer in list(self.consumers):
            consumer.wake()

    def recheck(self) -> None:
        """Detach the consumers that may not read any more, after permissions or credentials changed (S182)."""
        for consumer in list(self.consumers):
            queue = consumer.queue
            if not queue.hidden and not self.client.may_still_read(queue):
                host, user = self.client.host.name, self.client.user.name
                why = f"read access to queue '{queue.name}' in vhost '{host}' refused for user '{user}'"
                if isinstance(consumer, link_consumer.LinkConsumer):
                    consumer.keep_nothing()
                    consumer.link.fail(refusal(AccessRefused(why), self.link_errors_end))

    def on_ended(self) -> None:
        termini.ended(self.client.host, self)
        self.connection.session_ended(self)
