"""Sessions and links of a 1.0 client in memory; peer.py tells how they are used."""

from __future__ import annotations

from collections import deque
from struct import pack
from typing import TYPE_CHECKING, TypeAlias

from leveret.protocols.amqp10.codec import performatives as p

from .parts import Delivery, Section, message, told

if TYPE_CHECKING:
    from .peer import Peer

SENDER, RECEIVER = False, True  # roles
UNSETTLED, SETTLED, MIXED = 0, 1, 2  # snd-settle-mode

Address10: TypeAlias = "str | p.Source | p.Target | p.Coordinator | None"


class Session:
    """A session, seen from the client."""

    def __init__(self, peer: Peer, channel: int) -> None:
        self.peer = peer
        self.channel = channel
        self.begun: p.Begin | None = None
        self.ended: p.End | None = None
        self.window = 100_000  # transfers we take now
        self.next_incoming = 0  # id of the next transfer
        self.next_outgoing = 0
        self.next_delivery = 0  # id of our next delivery
        self.flows: list[p.Flow] = []  # every one that came
        self.links: dict[str, list[Link]] = {}  # by name, until the answer comes
        self.handles: dict[int, Link] = {}  # by the broker's handle
        self.outcomes: dict[int, p.DeliveryState | None] = {}  # of what we sent, by delivery id
        self.settled: set[int] = set()  # of these
        self.told: dict[int, p.DeliveryState | None] = {}  # what the broker says of what it sent
        self._next_handle = 0

    def send(self, performative: object, payload: bytes = b"", settle: bool = True) -> None:
        self.peer.send(self.channel, performative, payload, settle)

    def hear(self, what: object, payload: bytes) -> None:
        """What has come, as far as it concerns this session."""
        if isinstance(what, p.Transfer):
            self.next_incoming += 1
            self.window -= 1
            link = self.handles[what.handle]
            assert isinstance(link, Receiver)
            link.hear_transfer(what, payload)
        elif isinstance(what, p.Disposition):
            self._hear_disposition(what)
        elif isinstance(what, p.Flow):
            self.flows.append(what)
            if what.handle is not None:
                self.handles[what.handle].hear_flow(what)
        elif isinstance(what, p.Attach):
            link = self.links[what.name].pop(0)
            link.attached = what
            self.handles[what.handle] = link
        elif isinstance(what, p.Detach):
            self.handles.pop(what.handle).detached = what
        elif isinstance(what, p.Begin):
            assert what.remote_channel == self.channel
            self.begun = what
            self.next_incoming = what.next_outgoing_id
        else:
            assert isinstance(what, p.End), what
            self.ended = what

    def _hear_disposition(self, what: p.Disposition) -> None:
        last = what.first if what.last is None else what.last
        about = self.outcomes if what.role is RECEIVER else self.told
        for number in range(what.first, last + 1):
            about[number] = what.state
            if what.settled and what.role is RECEIVER:
                self.settled.add(number)

    def flow(self, settle: bool = True, **fields: object) -> None:
        """A flow of the session, or with a `handle` of a link."""
        begun = self.begun is not None
        fields.setdefault("next_incoming_id", self.next_incoming if begun else None)
        fields.setdefault("incoming_window", self.window)
        self.send(
            p.Flow(next_outgoing_id=self.next_outgoing, outgoing_window=100_000, **fields), settle=settle
        )

    def dispose(
        self,
        state: p.DeliveryState | None,
        first: int,
        last: int | None = None,
        settled: bool = True,
        role: bool = RECEIVER,
    ) -> None:
        self.send(p.Disposition(role=role, first=first, last=last, settled=settled, state=state))

    # Links.

    def attach(self, link: Link, **fields: object) -> Link:
        """Attach; whether the answer grants or refuses it is for the caller to look at."""
        link.handle = fields.setdefault("handle", self._next_handle)
        self._next_handle = max(self._next_handle, link.handle + 1)
        self.links.setdefault(link.name, []).append(link)
        self.send(p.Attach(name=link.name, role=isinstance(link, Receiver), **fields))
        self.peer.read()
        return link

    def ask_sender(self, target: Address10 = None, name: str | None = None, **fields: object) -> Sender:
        """Attach a sender to an address, or to a terminus; None as address is the anonymous terminus."""
        fields.setdefault("target", terminus(p.Target, target))
        fields.setdefault("source", p.Source(address="test"))
        fields.setdefault("initial_delivery_count", 0)
        sender = Sender(self, name or f"sender {self._next_handle}")
        sender.settles = fields.get("snd_settle_mode") == SETTLED
        self.attach(sender, **fields)
        return sender

    def sender(self, target: Address10 = None, name: str | None = None, **fields: object) -> Sender:
        sender = self.ask_sender(target, name, **fields)
        assert sender.attached is not None, self.ended
        assert sender.detached is None, sender.detached
        return sender

    def ask_receiver(self, source: Address10 = None, name: str | None = None, **fields: object) -> Receiver:
        """Attach a receiver to an address, or to a terminus."""
        fields.setdefault("source", terminus(p.Source, source))
        fields.setdefault("target", p.Target(address="test"))
        receiver = Receiver(self, name or f"receiver {self._next_handle}")
        self.attach(receiver, **fields)
        return receiver

    def receiver(
        self, source: Address10 = None, credit: int = 0, name: str | None = None, **fields: object
    ) -> Receiver:
        receiver = self.ask_receiver(source, name, **fields)
        assert receiver.attached is not None, self.ended
        assert receiver.detached is None, receiver.detached
        if credit:
            receiver.want(credit)
        return receiver

    # Going.

    def end(self) -> None:
        self.send(p.End())
        self.peer.read()
        assert self.ended == p.End(), self.ended
        del self.peer.sessions[self.channel]

    def refusal(self) -> str:
        """The condition and description of the end that has come; it is answered, the channel is free again."""
        self.peer.read()
        assert self.ended is not None, self.peer.closed
        self.send(p.End())
        del self.peer.sessions[self.channel]
        return told(self.ended.error)


class Link:
    """One link, seen from the client."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.peer = session.peer
        self.name = name
        self.handle = 0  # ours
        self.attached: p.Attach | None = None
        self.detached: p.Detach | None = None

    def hear_flow(self, flow: p.Flow) -> None:
        """The broker says something about the link's credit."""

    def detach(self, closed: bool = True) -> None:
        self.session.send(p.Detach(handle=self.handle, closed=closed))
        self.peer.read()
        assert self.detached is not None
        assert self.detached.error is None, self.detached

    def refusal(self) -> str:
        """The condition and description of the closing detach that has come; it is answered."""
        self.peer.read()
        assert self.detached is not None, (self.session.ended, self.peer.closed)
        assert self.detached.closed
        self.session.send(p.Detach(handle=self.handle, closed=True))
        return told(self.detached.error)


class Sender(Link):
    """A link on which we send."""

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.sent = 0  # the delivery-count
        self.credit = 0
        self.settles = False  # everything is sent settled
        self.drain = False

    def hear_flow(self, flow: p.Flow) -> None:
        if flow.link_credit is not None:
            self.credit = (flow.delivery_count or 0) + flow.link_credit - self.sent

    def send(
        self,
        *sections: Section,
        settled: bool | None = None,
        state: p.DeliveryState | None = None,
        tag: bytes | None = None,
        settle: bool = True,
        frames: int = 1,
        message_format: int = 0,
        **fields: object,
    ) -> int:
        """Send a message, in so many frames (or more if it needs them); its delivery id."""
        octets = message(*sections)
        session, number = self.session, self.session.next_delivery
        session.next_delivery += 1
        size = min(max(-(-len(octets) // frames), 1), self.peer.frame_size_max - 512)
        pieces = [octets[at : at + size] for at in range(0, len(octets), size)] or [b""]
        for at, piece in enumerate(pieces):
            transfer = p.Transfer(
                handle=self.handle,
                delivery_id=number,
                delivery_tag=pack(">I", number) if tag is None else tag,
                message_format=message_format,
                settled=self.settles if settled is None else settled,
                more=at + 1 < len(pieces),
                state=state,
                **fields,
            )
            session.next_outgoing += 1
            session.send(transfer, piece, settle)
        self.sent += 1
        self.credit -= 1
        return number

    def outcome(self, number: int) -> p.DeliveryState | None:
        """What the broker has said of a delivery; None: nothing yet."""
        self.peer.read()
        return self.session.outcomes.get(number)

    def publish(self, *sections: Section, **fields: object) -> p.DeliveryState | None:
        """Send, and its outcome, which must be settled; None: nothing came."""
        number = self.send(*sections, **fields)
        outcome = self.outcome(number)
        assert outcome is None or number in self.session.settled, outcome
        return outcome

    def rejection(self, *sections: Section) -> str:
        """Send what will be rejected: the condition and description of the reason."""
        outcome = self.publish(*sections)
        assert isinstance(outcome, p.Rejected), outcome
        return told(outcome.error)


class Receiver(Link):
    """A link on which we receive."""

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.deliveries: deque[Delivery] = deque()  # not taken yet
        self.unsettled: dict[int, Delivery] = {}
        self.count = 0  # the delivery-count
        self.credit = 0
        self.drained = False  # the broker has used up our credit
        self.aborted = 0
        self._first: p.Transfer | None = None
        self._pieces: list[bytes] = []

    def hear_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        if self._first is None:
            self._first = transfer
            self.count += 1
            self.credit -= 1
            assert self.credit >= 0, "sent without credit"
        self._pieces.append(payload)
        if transfer.more and not transfer.aborted:
            return
        first, octets = self._first, b"".join(self._pieces)
        self._first, self._pieces = None, []
        if transfer.aborted:
            self.aborted += 1
            return
        delivery = Delivery(first.delivery_id, first.delivery_tag, bool(first.settled), octets, first.state)
        self.deliveries.append(delivery)
        if not delivery.settled:
            self.unsettled[delivery.id] = delivery

    def hear_flow(self, flow: p.Flow) -> None:
        if flow.drain and flow.link_credit == 0:
            self.drained = True
            assert flow.delivery_count is not None
            self.count, self.credit = flow.delivery_count, 0

    def want(self, credit: int, drain: bool = False, **fields: object) -> None:
        """Grant the broker credit, in all."""
        self.credit = credit
        self.drained = False
        self.session.flow(
            handle=self.handle, delivery_count=self.count, link_credit=credit, drain=drain, **fields
        )
        self.peer.read()

    def get(self) -> Delivery | None:
        """The next delivery, or None."""
        self.peer.read()
        return self.deliveries.popleft() if self.deliveries else None

    def all(self) -> list[Delivery]:
        self.peer.read()
        found = list(self.deliveries)
        self.deliveries.clear()
        return found

    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.all()]

    def answer(
        self, state: p.DeliveryState | None, delivery: Delivery | None = None, settled: bool = True
    ) -> None:
        """Say what became of a delivery; None: of the oldest one that is unsettled."""
        number = next(iter(self.unsettled)) if delivery is None else delivery.id
        if settled:
            self.unsettled.pop(number, None)
        self.session.dispose(state, number, settled=settled)
        self.peer.read()

    def accept(self, delivery: Delivery | None = None) -> None:
        self.answer(p.Accepted(), delivery)


def terminus(kind: type, address: Address10):
    return kind(address=address) if address is None or isinstance(address, str) else address
