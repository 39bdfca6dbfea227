"""Clients of AMQP 0-10, whose sessions have transactions of their own, branches of distributed ones, or neither."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from leveret.protocols.amqp010.codec import commands as c
from tests.amqp010.client import SessionEnded
from tests.amqp010.peer import Peer

from .client import Client, Moves

if TYPE_CHECKING:
    from .place import Place

SUBSCRIPTIONS_MAX = 3


class Client010(Client):
    """One connection with one session, and with another once the broker has ended that."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.peer = Peer(place.bench).open("guest", "guest")
        self._begin()

    def _begin(self) -> None:
        self.session = self.peer.attach(self.place.name("session"))
        self.mode = self.random.choice(("plain", "tx", "dtx", "dtx"))
        self.waiting: dict[int, bytes] = {}  # for completion, by command
        self.unacked: dict[int, bytes] = {}
        self.settled: dict[str, bool] = {}  # of each subscription: whether it settles what it gets
        self.published_in: list[bytes] = []  # the transaction
        self.accepted_in: dict[int, bytes] = {}
        self.branch: c.Xid | None = None
        self.is_associated = self.is_prepared = False
        if self.mode != "plain":
            self.session.call(c.TxSelect() if self.mode == "tx" else c.DtxSelect())

    @property
    def is_in(self) -> bool:
        """Return whether what it publishes and accepts waits for a commit."""
        return self.mode == "tx" or self.is_associated

    def in_transactions(self) -> Iterable[bytes]:
        return (*self.published_in, *self.accepted_in.values())

    def moves(self) -> Moves:
        return {
            self._publish: 25,
            self._answer: 25,
            self._transact: 20,
            self._subscribe: 8,
            self._flow: 8,
            self._cancel: 3,
        }

    def step(self) -> None:
        try:
            super().step()
        except SessionEnded:
            self._ended()

    def _ended(self) -> None:
        """Begin anew: what its transaction had is in its queues, or went to them, or neither."""
        self.ledger.excuse((*self.published_in, *self.accepted_in.values(), *self.waiting.values()))
        if self.peer.closed is not None or self.peer.front.closed:
            self.is_over = True
        else:
            self._begin()

    # What it does.

    def _publish(self) -> None:
        for _ in range(self.random.choice((1, 2, 8))):
            queue, body = self.place.publishing()
            delivery = c.DeliveryProperties(
                routing_key=queue,
                delivery_mode=c.DELIVERY_MODE_PERSISTENT,
                ttl=self.random.choice((None, None, 500)),
                priority=self.random.choice((None, 1, 6)),
            )
            number = self.session.publish(queue, body, delivery=delivery)
            if self.is_in:
                self.published_in.append(body)
            else:
                self.waiting[number] = body
        self.session.sync()

    def _subscribe(self) -> None:
        if len(self.settled) == SUBSCRIPTIONS_MAX:
            return
        name, settles = self.place.name("subscription"), self.chance(0.15)
        self.settled[name] = settles
        self.session.subscribe(
            self.place.queue(),
            name,
            messages=self.random.choice((1, 5, 50)),
            accept_mode=c.ACCEPT_MODE_NONE if settles else c.ACCEPT_MODE_EXPLICIT,
            flow_mode=self.random.choice((c.FLOW_MODE_WINDOW, c.FLOW_MODE_CREDIT)),
        )

    def _flow(self) -> None:
        if self.settled:
            self.session.flow(self.random.choice([*self.settled]), self.random.choice((1, 10)))

    def _cancel(self) -> None:
        if self.settled:
            name = self.random.choice([*self.settled])
            self.session.call(c.MessageCancel(name))
            self.hear()
            del self.settled[name]

    def _answer(self) -> None:
        if not self.unacked:
            return
        some = self.random.sample([*self.unacked], min(len(self.unacked), self.random.choice((1, 1, 4))))
        bodies = {each: self.unacked.pop(each) for each in some}
        answer = self.random.choice(("accept", "accept", "release", "fail", "reject"))
        if answer == "accept":
            if self.is_in:
                self.accepted_in |= bodies
            else:
                for body in bodies.values():
                    self.ledger.settle(body)
            self.session.accept(*some)
        elif answer == "reject":
            self.session.reject(*some)
        else:
            self.session.release(*some, redelivered=answer == "fail")

    # Transactions.

    def _transact(self) -> None:
        if self.mode == "tx":
            if self.chance(0.7):
                self.session.call(c.TxCommit())
                self._committed()
            else:
                self.session.call(c.TxRollback())
                self.unacked |= self.accepted_in
                self._rolled_back()
        elif self.mode == "dtx":
            self._work_on_branch()

    def _work_on_branch(self) -> None:
        if self.branch is None:
            self.branch = c.Xid(1, self.place.name("branch").encode(), b"b")
            self.is_associated, self.is_prepared = True, False
            self.session.call(c.DtxStart(self.branch))
        elif self.is_associated:
            self.session.call(c.DtxEnd(self.branch, fail=False))
            self.is_associated = False
        elif not self.is_prepared and self.chance(0.5):
            self.session.call(c.DtxPrepare(self.branch))
            self.is_prepared = True
        else:
            branch, self.branch = self.branch, None
            if not self.chance(0.6):
                self.session.call(c.DtxRollback(branch))
                self._rolled_back()
                return
            result = self.session.call(c.DtxCommit(branch, one_phase=not self.is_prepared))
            if getattr(result, "status", None) == c.XA_STATUS_XA_OK:
                self._committed()
            else:  # a queue that it publishes to is full, or gone
                self.ledger.excuse((*self.published_in, *self.accepted_in.values()))
                self._rolled_back()

    def _committed(self) -> None:
        self.ledger.confirmed.update(self.published_in)
        for body in self.accepted_in.values():
            self.ledger.settle(body)
        self._rolled_back()

    def _rolled_back(self) -> None:
        self.published_in, self.accepted_in = [], {}

    # What it hears.

    def hear(self) -> None:
        self.peer.read()
        for name, inbox in self.session.inboxes.items():
            for received in inbox.all() if inbox.waiting else ():
                self.ledger.came(received.body)
                if self.settled.get(name, False):
                    self.ledger.settle(received.body)
                else:
                    self.unacked[received.id] = received.body
        for number in [each for each in self.waiting if each in self.session.completed]:
            self.ledger.confirmed.add(self.waiting.pop(number))
        if self.session.is_over:
            self._ended()

    def leave(self) -> None:
        if not self.is_over:
            self.hear()
        self.ledger.excuse((*self.published_in, *self.accepted_in.values()))
        self.peer.drop()
