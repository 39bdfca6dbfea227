"""Clients of AMQP 1.0, with links of both directions and transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.client import Link, Receiver, Sender
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import data
from tests.amqp10.peer import Peer

from .client import Client, Moves

if TYPE_CHECKING:
    from .place import Place

LINKS_MAX = 3  # of each direction
OUTCOMES = (
    p.Accepted(),
    p.Accepted(),
    p.Released(),
    p.Rejected(),
    p.Modified(delivery_failed=True),
    p.Modified(delivery_failed=True, undeliverable_here=True),
)


class Client10(Client):
    """One connection with one session."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.peer = Peer(place.bench).open()
        self.session = self.peer.begin(incoming_window=1_000_000)
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.waiting: dict[int, bytes] = {}  # for an outcome, by delivery id
        self.control: Control | None = None
        self.transaction: bytes | None = None
        self.published_in: list[bytes] = []  # the transaction
        self.accepted_in: list[bytes] = []

    def in_transactions(self) -> Iterable[bytes]:
        return (*self.published_in, *self.accepted_in)

    def moves(self) -> Moves:
        return {
            self._send: 25,
            self._answer: 25,
            self._want: 10,
            self._receive: 6,
            self._attach_sender: 5,
            self._transact: 10,
            self._detach: 2,
        }

    # What it does.

    def _attach_sender(self) -> None:
        if len(self.senders) < LINKS_MAX:
            self.senders.append(self.session.ask_sender(f"/queues/{self.place.queue()}"))

    def _receive(self) -> None:
        if len(self.receivers) < LINKS_MAX:
            mode = self.random.choice((0, 0, 0, 1))
            source = f"/queues/{self.place.queue()}"
            self.receivers.append(self.session.ask_receiver(source, snd_settle_mode=mode))

    def _send(self) -> None:
        if not self.senders:
            return
        link = self.random.choice(self.senders)
        for _ in range(self.random.choice((1, 2, 10))):
            if link.credit <= 0 or link.detached is not None:
                break
            assert link.attached is not None
            body = self.place.publishing(str(link.attached.target.address).rpartition("/")[2])[1]
            header = p.Header(
                durable=True,
                ttl=self.random.choice((None, None, 500)),
                priority=self.random.choice((4, 4, 6)),
            )
            is_in = self.transaction is not None and self.chance(0.7)
            state = in_tx(self.transaction) if is_in and self.transaction is not None else None
            number = link.send(header, data(body), settle=self.chance(0.5), state=state)
            if is_in:
                self.published_in.append(body)
            else:
                self.waiting[number] = body
        self.place.bench.settle()

    def _want(self) -> None:
        if self.receivers:
            self.random.choice(self.receivers).want(self.random.choice((0, 1, 3, 20)), drain=self.chance(0.2))

    def _answer(self) -> None:
        links = [each for each in self.receivers if each.unsettled]
        if not links:
            return
        link = self.random.choice(links)
        delivery = link.unsettled[self.random.choice([*link.unsettled])]
        outcome = self.random.choice(OUTCOMES)
        if self.transaction is not None and self.chance(0.7):
            if isinstance(outcome, p.Accepted):
                self.accepted_in.append(delivery.body)
            link.answer(in_tx(self.transaction, outcome), delivery)
            return
        if isinstance(outcome, p.Accepted):
            self.ledger.settle(delivery.body)
        link.answer(outcome, delivery)

    def _transact(self) -> None:
        if self.control is None:
            self.control = Control(self.session)
        if self.transaction is None:
            self.transaction = self.control.declare()
            return
        is_commit = self.chance(0.7)
        end = self.control.commit if is_commit else self.control.roll_back
        outcome, self.transaction = end(self.transaction), None
        published, accepted = self.published_in, self.accepted_in
        self.published_in, self.accepted_in = [], []
        if is_commit and isinstance(outcome, p.Accepted):
            self.ledger.confirmed.update(published)
            for body in accepted:
                self.ledger.settle(body)

    def _detach(self) -> None:
        if links := [*self.receivers, *self.senders]:
            self._forget(self.random.choice(links))

    def _forget(self, link: Link) -> None:
        if isinstance(link, Receiver):
            self.receivers.remove(link)
        elif isinstance(link, Sender):
            self.senders.remove(link)
        self.session.send(p.Detach(handle=link.handle, closed=True))
        self.peer.read()

    # What it hears.

    def hear(self) -> None:
        self.peer.read()
        if self.peer.closed is not None or self.session.ended is not None:
            self.is_over = True
            return
        for number in [each for each in self.waiting if each in self.session.settled]:
            body = self.waiting.pop(number)
            if isinstance(self.session.outcomes[number], p.Accepted):
                self.ledger.confirmed.add(body)
        told, self.session.told = self.session.told, {}
        for receiver in self.receivers:
            for number in told:  # the broker has settled it
                receiver.unsettled.pop(number, None)
            for delivery in receiver.all():
                self.ledger.came(delivery.body)
                if delivery.settled:
                    self.ledger.settle(delivery.body)
        for link in [each for each in (*self.receivers, *self.senders) if each.detached is not None]:
            self._forget(link)

    def leave(self) -> None:
        if not self.is_over:
            self.hear()
        self.peer.drop()
