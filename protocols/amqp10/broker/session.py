"""One session of a 1.0 connection: who serves what the peer attaches, and when its publishes are answered.

| the peer attaches                            | served by                       |
|----------------------------------------------|---------------------------------|
| a sender to a coordinator                    | coordinator.py                  |
| a sender or a receiver to `/management`      | management.py                   |
| any other sender                             | publishing.py                   |
| any other receiver                           | consuming.py                    |

Everything that the core refuses is raised as a `Failure`; here it becomes the error for the peer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from broker_core.delivery import Consumer
from broker_core.errors import AccessRefused, Failure
from protocols.amqp10.broker import consuming, coordinator, kept_links, publishing, resumption
from protocols.amqp10.broker.errors import refusal
from protocols.amqp10.broker.management import link_pair
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.machine.contract import IncomingOwner, OutgoingOwner, SessionOwner
from protocols.amqp10.machine.receiving import IncomingLink
from protocols.amqp10.machine.sending import OutgoingLink
from protocols.amqp10.machine.session import Session

if TYPE_CHECKING:
    from protocols.amqp10.broker.adapter import Connection10
    from protocols.amqp10.broker.coordinator import ControlLink
    from protocols.amqp10.broker.management.link_pair import Pair
    from protocols.amqp10.broker.publishing import Publishing

MANAGEMENT: Final = "/management"


class ServedSession(SessionOwner):
    """The broker's side of one session. It is a `Publisher`."""

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
        "outbox",
        "pairs",
        "persistent",
        "returned",
        "transactions",
        "wire",
    )

    def __init__(self, connection: Connection10, wire: Session) -> None:
        self.connection = connection
        self.wire = wire
        self.broker = connection.broker
        self.client = connection.client
        self.outbox = connection.outbox
        self.consumers: dict[Consumer, None] = {}  # of its links; whoever serves them keeps this
        self.transactions = connection.transactions
        self.pairs: dict[str, Pair] = {}  # of management links, by their name
        self.persistent = False
        # Counts for operators, in messages.
        self.confirmed = self.returned = (
            0  # of the peer's: those that were accepted, and those that found no queue
        )
        self.delivered_settled = self.accepted = (
            0  # of ours: those sent settled, and those that the peer accepted
        )
        self._waiting: list[Publishing | ControlLink] = []  # links with messages that are to be answered
        self._announced = False  # on the broker's list of publishers for this settle
        self._marked = 0  # the last mark
        self._marks: deque[tuple[int, list[Publishing | ControlLink]]] = deque()  # and who waits for each

    # Links.

    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        try:
            target = attach.target
            if isinstance(target, p.Coordinator):
                return coordinator.attach(self, link, attach)
            if isinstance(target, p.Target) and target.address == MANAGEMENT:
                return link_pair.attach_requests(self, link, attach)
            return publishing.attach(self, link, attach)
        except Failure as failure:
            raise refusal(failure) from None

    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        resumption.require_none(attach)
        try:
            source = attach.source
            if isinstance(source, p.Source) and source.address == MANAGEMENT:
                return link_pair.attach_responses(self, link, attach)
            return consuming.attach(self, link, attach)
        except Failure as failure:
            raise refusal(failure) from None

    # Publishing.

    def published(self, link: Publishing | ControlLink) -> None:
        """A link has messages to answer, once the broker has settled. Called for the first of them only."""
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
        """S226: every publish before the mark is answered now, none before."""
        marks = self._marks
        while marks and marks[0][0] <= mark:
            for link in marks.popleft()[1]:
                link.answer()
        self.wire.flush()

    # Consuming.

    def on_window(self) -> None:
        self.wake_all()

    def wake_all(self) -> None:
        """There is room again for deliveries."""
        for consumer in list(self.consumers):
            consumer.wake()

    def recheck(self) -> None:
        """Permissions or credentials changed: if a consumer may no longer read, that ends the session (S182)."""
        for consumer in self.consumers:
            queue = consumer.queue
            if not self.client.may_still_read(queue):
                host, user = self.client.host.name, self.client.user.name
                why = f"read access to queue '{queue.name}' in vhost '{host}' refused for user '{user}'"
                self.wire.end(refusal(AccessRefused(why)))
                return

    # The end.

    def on_ended(self) -> None:
        kept_links.ended(self.client.host, self)
        self.connection.session_ended(self)
