"""A 1.0 client in memory: performatives in, performatives out, against a real broker and no socket.

peer = Peer(World()).open()           # a world is a broker with a clock that moves when told
session = peer.begin()
sender = session.sender("/queues/q")  # refused? sender.refusal() is the text
sender.send(data(b"hello"))           -> the delivery's id; sender.outcome(id) == p.Accepted()
receiver = session.receiver("/queues/q", credit=10)
receiver.get().body == b"hello"
receiver.accept()

Whatever comes is worked into peer, sessions and links as it arrives; `peer.taken()` tells the performatives in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from struct import pack, unpack_from
from typing import TypeAlias

import attrs

from broker_core.frontend import Peer as Address
from broker_core.outbox import Outbox
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types
from protocols.amqp10.adapter import Connection10
from protocols.amqp10.types import Described, Symbol, ULong, Value
from tests.amqp091.peer import ELSEWHERE, LOOPBACK, World

__all__ = ["ELSEWHERE", "LOOPBACK", "Delivery", "Link", "Peer", "Receiver", "Sender", "Session", "World"]

HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP, SASL = 0, 1  # types of frames
SENDER, RECEIVER = False, True  # roles
UNSETTLED, SETTLED, MIXED = 0, 1, 2  # snd-settle-mode
FIRST, SECOND = 0, 1  # rcv-settle-mode
MANY = 0xFFFF_FFFF

DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES = 0x71, 0x72, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

Address10: TypeAlias = "str | p.Source | p.Target | p.Coordinator | None"
Section: TypeAlias = "bytes | p.Header | p.Properties"


# Sections of a message.


def section(code: int, value: Value) -> bytes:
    return types.encode(Described(ULong(code), value))


def data(octets: bytes = b"") -> bytes:
    """A body."""
    return section(DATA, octets)


def annotations(values: Mapping[str, Value]) -> bytes:
    """Message annotations."""
    return section(MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in values.items()})


def application_properties(values: Mapping[str, Value]) -> bytes:
    return section(APPLICATION_PROPERTIES, dict(values))


def message(*sections: Section) -> bytes:
    """A message from sections in their order: octets, or p.Header and p.Properties."""
    return b"".join(each if isinstance(each, bytes) else each.encode() for each in sections)


@attrs.frozen
class Delivery:
    """A message received: its octets, and what each section says. Absent ones are None."""

    id: int
    tag: bytes
    settled: bool
    octets: bytes
    state: p.DeliveryState | None = None

    def sections(self) -> dict[int, list[tuple[bytes, Value]]]:
        """For each section's code, in order: its octets and its value (a composite's fields as a list)."""
        found: dict[int, list[tuple[bytes, Value]]] = {}
        at = 0
        while at < len(self.octets):
            value, end = types.value_at(self.octets, at, len(self.octets))
            assert isinstance(value, Described), value
            found.setdefault(int(value.descriptor), []).append((self.octets[at:end], value.value))
            at = end
        return found

    def _value(self, code: int):
        found = self.sections().get(code)
        return None if found is None else found[0][1]

    def _composite(self, code: int):
        found = self.sections().get(code)
        if found is None:
            return None
        octets = found[0][0]
        return p.decode(octets, 0, len(octets))[0]

    @property
    def header(self) -> p.Header:
        return self._composite(p.Header.CODE) or p.Header()

    @property
    def properties(self) -> p.Properties:
        return self._composite(p.Properties.CODE) or p.Properties()

    @property
    def delivery_annotations(self):
        return self._value(DELIVERY_ANNOTATIONS)

    @property
    def annotations(self):
        return self._value(MESSAGE_ANNOTATIONS) or {}

    @property
    def application_properties(self):
        return self._value(APPLICATION_PROPERTIES)

    @property
    def footer(self):
        return self._value(FOOTER)

    @property
    def body(self):
        """The data sections joined, or the value, or the list of sequences."""
        sections = self.sections()
        if VALUE in sections:
            return sections[VALUE][0][1]
        if SEQUENCE in sections:
            return [value for _, value in sections[SEQUENCE]]
        return b"".join(value for _, value in sections.get(DATA, ()))

    @property
    def bare(self) -> bytes:
        """The octets that nobody may change: properties, application properties and body, in the order given."""
        found = ((code, octets) for code, each in self.sections().items() for octets, _ in each)
        return b"".join(octets for code, octets in found if 0x73 <= code < FOOTER)


# The connection.


class Peer:
    """One connection, seen from the client."""

    def __init__(self, world: World | None = None, address: Address = LOOPBACK) -> None:
        self.world = world = world or World()
        limits = world.config.limits
        self.outbox = Outbox(world.ready, limits.outbox_size_max, limits.message_size_max)
        self.front = Connection10(world.broker, world.config, self.outbox, address, world.broker.tick())
        self.headers: list[bytes] = []  # protocol headers that came
        self.mechanisms: p.SaslMechanisms | None = None
        self.sasl: deque[object] = deque()  # challenges and the outcome
        self.opened: p.Open | None = None
        self.closed: p.Close | None = None
        self.empty_frames = 0
        self.sessions: dict[int, Session] = {}  # by the channel, the same in both directions
        self.frame_size_max = 131_072  # what we send at most in one frame
        self._heard: list[tuple[int, object]] = []  # channel and performative
        self._buffer = b""
        self._unread: list[bytes] = []  # sent while the broker did not read from us
        world.peers.append(self)

    # Bytes.

    def send_bytes(self, octets: bytes, settle: bool = True) -> None:
        if self.front.blocked:
            self._unread.append(octets)
            return
        self.front.receive(octets, self.world.broker.tick())
        if settle:
            self.world.settle()
        if self.front.halted and not self.outbox.full:
            self.send_bytes(b"", settle)

    def read_on(self) -> None:
        """What was sent while the broker did not read from us, as far as it reads now."""
        unread, self._unread = self._unread, []
        for octets in unread:
            self.send_bytes(octets)

    def take_bytes(self) -> bytes:
        """Everything sent since the last time; as if the operating system had taken it."""
        octets = b"".join(self.outbox.take())
        if self.outbox in self.world.ready:
            self.world.ready.remove(self.outbox)
        if self.outbox.sent(len(octets)):
            self.front.drained()
        return octets

    def read(self) -> None:
        """Work in what the broker has sent."""
        while octets := self.take_bytes():
            self.hear(octets)
            self.world.settle()

    def hear(self, octets: bytes) -> None:
        """Work in what has come, as far as it is whole."""
        buffer, at = self._buffer + octets, 0
        while len(buffer) - at >= 8:
            if buffer.startswith(b"AMQP", at):
                self.headers.append(buffer[at : at + 8])
                at += 8
                continue
            size, offset, kind, channel = unpack_from(">IBBH", buffer, at)
            if len(buffer) - at < size:
                break
            assert offset == 2
            self._frame(kind, channel, buffer[at + 8 : at + size])
            at += size
        self._buffer = buffer[at:]

    def _frame(self, kind: int, channel: int, body: bytes) -> None:
        if not body:
            self.empty_frames += 1
            return
        performative, end = p.decode(body, 0, len(body))
        self._heard.append((channel, performative))
        if kind == SASL:
            self.sasl.append(performative)
        elif isinstance(performative, p.Open):
            self.opened = performative
        elif isinstance(performative, p.Close):
            self.closed = performative
        else:
            self.sessions[channel].hear(performative, body[end:])

    def taken(self, *kinds: type) -> list:
        """The performatives since the last look, in order; of these kinds only, the others are passed over."""
        self.read()
        heard, self._heard = self._heard, []
        return [what for _, what in heard if not kinds or isinstance(what, kinds)]

    def send(self, channel: int, performative: object, payload: bytes = b"", settle: bool = True) -> None:
        self.send_bytes(frame(channel, performative, payload), settle)

    # Getting in.

    def greet(self) -> list[str]:
        """SASL header; the mechanisms offered."""
        self.send_bytes(SASL_HEADER)
        self.read()
        assert self.headers == [SASL_HEADER], self.headers
        mechanisms = self.sasl.popleft()
        assert isinstance(mechanisms, p.SaslMechanisms), mechanisms
        return [str(name) for name in mechanisms.sasl_server_mechanisms]

    def authenticate(self, mechanism: str, response: bytes | None = None):
        """The answer to sasl-init: an outcome, or a challenge; None: nothing came."""
        init = p.SaslInit(mechanism=Symbol(mechanism), initial_response=response, hostname="localhost")
        self.send_bytes(frame(0, init, kind=SASL))
        return self._sasl_answer()

    def respond(self, response: bytes):
        """The answer to sasl-response."""
        self.send_bytes(frame(0, p.SaslResponse(response=response), kind=SASL))
        return self._sasl_answer()

    def _sasl_answer(self):
        self.read()
        return self.sasl.popleft() if self.sasl else None

    def log_in(self, user: str = "guest", password: str = "guest") -> Peer:
        self.greet()
        outcome = self.authenticate("PLAIN", plain(user, password))
        assert outcome == p.SaslOutcome(code=0), outcome
        return self

    def ask_open(self, hostname: str | None = "localhost", **fields: object) -> Peer:
        """Protocol header and open; whether it is opened or refused is for the caller to look at."""
        fields.setdefault("container_id", "test")
        self.send_bytes(HEADER + frame(0, p.Open(hostname=hostname, **fields)))
        self.read()
        return self

    def open(
        self,
        user: str = "guest",
        password: str | None = None,
        hostname: str | None = "localhost",
        **fields: object,
    ) -> Peer:
        """Log in (everybody's password is his name, if not given) and open."""
        self.log_in(user, user if password is None else password).ask_open(hostname, **fields)
        assert self.opened is not None
        assert self.closed is None, self.closed
        if self.opened.max_frame_size is not None:
            self.frame_size_max = min(self.frame_size_max, self.opened.max_frame_size)
        return self

    def ask_begin(self, channel: int | None = None, **fields: object) -> Session:
        """Begin; whether the answer comes is for the caller to look at."""
        number = max(self.sessions, default=-1) + 1 if channel is None else channel
        session = self.sessions[number] = Session(self, number)
        fields = {"next_outgoing_id": 0, "incoming_window": 100_000, "outgoing_window": 100_000, **fields}
        session.window = fields["incoming_window"]
        self.send(number, p.Begin(**fields))
        self.read()
        return session

    def begin(self, channel: int | None = None, **fields: object) -> Session:
        session = self.ask_begin(channel, **fields)
        assert session.begun is not None, self._heard
        assert session.ended is None, session.ended
        return session

    # Going.

    def refusal(self) -> str:
        """The condition and description of the close that has come; it is answered, and that is the end."""
        self.read()
        assert self.closed is not None, self._heard
        if not self.front.closed:
            self.send(0, p.Close())
        assert self.front.closed
        return told(self.closed.error)

    def close(self) -> None:
        self.send(0, p.Close())
        self.read()
        assert self.closed == p.Close(), self.closed
        assert self.front.closed

    def drop(self) -> None:
        """The transport is gone."""
        self.world.broker.tick()
        self.front.lost()
        self.world.peers.remove(self)
        self.world.settle()


# Sessions and links.


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
                message_format=0,
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


# Parts.


def terminus(kind: type, address: Address10):
    return kind(address=address) if address is None or isinstance(address, str) else address


def frame(channel: int, performative: object, payload: bytes = b"", kind: int = AMQP) -> bytes:
    body = performative.encode() + payload
    return pack(">IBBH", 8 + len(body), 2, kind, channel) + body


def plain(user: str, password: str) -> bytes:
    return b"\0" + user.encode() + b"\0" + password.encode()


def told(error: p.Error | None) -> str:
    """An error as one line; an empty one if there is none."""
    if error is None:
        return ""
    return f"{error.condition} {error.description}" if error.description else str(error.condition)


def session_of(world: World, user: str = "guest") -> Session:
    """A session on a connection of its own; everybody's password is his name."""
    return Peer(world).open(user).begin()


def declare(world: World, name: str, **properties: object) -> str:
    """A queue in the default virtual host."""
    world.host.declare_queue(name, **properties)
    return name


def bind(world: World, exchange: str, queue: str, key: str = "") -> None:
    host = world.host
    host.bind(host.exchange(exchange), host.queue(queue), key)


def waiting(world: World, queue: str) -> list[bytes]:
    """The bodies that wait in a queue, as the publisher's protocol wrote them."""
    return [delivery.message.body for delivery in world.queue(queue).waiting()]


def declared(world: World, names: Iterable[str]) -> World:
    for name in names:
        declare(world, name)
    return world
