"""The other end of a 1.0 connection under test, joined in memory: it says performatives and reads what comes back.

Its owners note every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack_from

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import Described, Value
from leveret.protocols.amqp10.machine.connection import Connection, State
from leveret.protocols.amqp10.machine.contract import (
    Handler,
    IncomingOwner,
    OutgoingOwner,
    SessionOwner,
    Tuning,
)
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
from leveret.protocols.amqp10.machine.session import Session
from leveret.protocols.shared.machine.contract import Wait
from tests.harness.machine import Call, Logins, Notes, Pieces

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
AMQP, SASL = 0, 1  # types of frames
SENDER, RECEIVER = False, True  # roles
FIRST, SECOND = 0, 1  # rcv-settle-mode
MANY = 0x7FFF_FFFF
LAST = 0xFFFF_FFFF
Said = bytes | p.Record | tuple[int, p.Record]


def frame(
    performative: p.Record | bytes,
    payload: bytes = b"",
    channel: int = 0,
    kind: int = AMQP,
    extended: bytes = b"",
) -> bytes:
    body = performative if isinstance(performative, bytes) else performative.encode()
    offset = 2 + len(extended) // 4
    size = 8 + len(extended) + len(body) + len(payload)
    return pack(">IBBH", size, offset, kind, channel) + extended + body + payload


def sasl(performative: p.Record) -> bytes:
    return frame(performative, kind=SASL)


class Recorder(Logins, Handler):
    """Owner of a connection."""

    wait = Wait.WAIT

    def __init__(self) -> None:
        super().__init__()
        self.notes = Notes()
        self.last: bytes | None = None  # words
        self.sessions: list[Session] = []
        self.owners: list[SessionRecorder] = []

    def on_sasl_init(self, mechanism: str, response: bytes) -> bytes | Wait | None:
        self.notes.note("init", mechanism, response)
        return self.next_answer()

    def on_sasl_response(self, response: bytes) -> bytes | Wait | None:
        self.notes.note("response", response)
        return self.next_answer()

    def on_sasl_checked(self) -> bytes | Wait | None:
        if self.checking:
            return Wait.WAIT
        self.notes.note("checked")
        return self.next_answer()

    def last_words(self) -> bytes | None:
        return self.last

    def on_open(self, open: p.Open) -> dict[str, Value]:
        self.notes.note("open", open)
        return {"product": "machine"}

    def on_begin(self, session: Session) -> SessionOwner:
        self.sessions.append(session)
        self.notes.note("begin", session.channel)
        self.owners.append(SessionRecorder(self.notes, session))
        return self.owners[-1]

    def on_closed(self) -> None:
        self.notes.note("closed")


class SessionRecorder(SessionOwner):
    """Owner of a session: attaches every link with the termini that the peer asked for."""

    def __init__(self, notes: Notes, session: Session) -> None:
        self.notes = notes
        self.session = session
        self.incoming: list[IncomingLink] = []
        self.outgoing: list[OutgoingLink] = []
        self.fields: dict[str, object] = {}  # of our attaches, besides the termini

    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        self.incoming.append(link)
        self.notes.note("attach_incoming", link.name)
        link.attach(attach.source, attach.target, **self.fields)  # type: ignore[arg-type]
        self.notes.note("attached_incoming", link.name)
        return IncomingRecorder(self.notes, link)

    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        self.outgoing.append(link)
        self.notes.note("attach_outgoing", link.name)
        link.attach(attach.source, attach.target, **self.fields)  # type: ignore[arg-type]
        self.notes.note("attached_outgoing", link.name)
        return OutgoingRecorder(self.notes, link)

    def on_window(self) -> None:
        self.notes.note("window", self.session.sending.room())

    def on_ended(self) -> None:
        self.notes.note("ended", self.session.channel)


class IncomingRecorder(IncomingOwner):
    """Owner of a link on which the peer sends."""

    def __init__(self, notes: Notes, link: IncomingLink) -> None:
        self.notes = notes
        self.link = link

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        self.notes.note("message", self.link.name, delivery_id, tag, payload, settled, state)

    def on_detached(self, closed: bool) -> None:
        self.notes.note("detached", self.link.name, closed)


class OutgoingRecorder(OutgoingOwner):
    """Owner of a link on which the peer receives."""

    def __init__(self, notes: Notes, link: OutgoingLink) -> None:
        self.notes = notes
        self.link = link

    def on_credit(self, link: OutgoingLink) -> None:
        self.notes.note("credit", link.name, link.credit, link.drain)

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        self.notes.note("outcomes", self.link.name, list(ids), tokens, state, settled)

    def on_detached(self, tokens: list[object], closed: bool) -> None:
        self.notes.note("detached", self.link.name, tokens, closed)


class Peer:
    """A client's end: `says` performatives or bytes, `hears` performatives. A performative alone is on channel 0."""

    def __init__(self, tuning: Tuning | None = None, handler: Recorder | None = None) -> None:
        self.handler = handler or Recorder()
        self.notes = self.handler.notes
        self.outbox = Pieces()
        self.now = 0.0
        self.connection = Connection(self.handler, tuning or Tuning(), self.outbox, self.now)

    def says(self, *what: Said) -> Peer:
        self.connection.receive(octets(*what), self.now)
        self.connection.flush()
        return self

    @property
    def session(self) -> Session:
        """The last that was begun."""
        return self.handler.sessions[-1]

    @property
    def incoming(self) -> IncomingLink:
        """The last link that was attached to send."""
        return self.handler.owners[-1].incoming[-1]

    @property
    def outgoing(self) -> OutgoingLink:
        """The last link that was attached to receive."""
        return self.handler.owners[-1].outgoing[-1]

    def gone(self) -> bool:
        return self.connection.closed

    def called(self) -> list[Call]:
        """The calls since the last time."""
        return self.notes.taken()

    def forget(self) -> Peer:
        """What it has heard and what was called until now is not looked at."""
        self.outbox.take()
        self.called()
        return self

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Type, channel and body of every frame heard; protocol headers are of type -1."""
        return frames(self.outbox.take())

    def hears_all(self) -> list[tuple[int, p.Record, bytes]]:
        """Channel, performative and payload of every frame."""
        found = []
        for kind, channel, body in self.frames():
            assert kind in (AMQP, SASL)
            performative, at = p.decode(body, 0, len(body))
            found.append((channel, performative, body[at:]))
        return found

    def hears(self) -> list[p.Record]:
        """Every performative heard."""
        return [performative for _, performative, _ in self.hears_all()]

    def hears_one(self, of: type[p.Record]) -> p.Record:
        """The only performative heard."""
        [performative] = self.hears()
        assert isinstance(performative, of), performative
        return performative


def octets(*what: Said) -> bytes:
    return b"".join(
        item
        if isinstance(item, bytes)
        else frame(item[1], channel=item[0])
        if isinstance(item, tuple)
        else frame(item)
        for item in what
    )


def frames(data: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while data:
        if data.startswith(b"AMQP"):
            found.append((-1, 0, data[:8]))
            data = data[8:]
            continue
        size, offset, kind, channel = unpack_from(">IBBH", data)
        assert 8 <= 4 * offset <= size <= len(data)
        found.append((kind, channel, data[4 * offset : size]))
        data = data[size:]
    return found


LOGIN: bytes = (
    SASL_HEADER + sasl(p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest")) + AMQP_HEADER
)


def open_(**fields: object) -> p.Open:
    return p.Open(**{"container_id": "client", "hostname": "localhost", **fields})  # type: ignore[arg-type]


def begin(incoming_window: int = MANY, next_outgoing_id: int = 0, handle_max: int = MANY) -> p.Begin:
    return p.Begin(
        next_outgoing_id=next_outgoing_id,
        incoming_window=incoming_window,
        outgoing_window=MANY,
        handle_max=handle_max,
    )


def sender(name: str = "in", handle: int = 0, **fields: object) -> p.Attach:
    """The peer's attach of a link on which it sends."""
    all_fields = {
        "source": p.Source(address="here"),
        "target": p.Target(address="/queues/q"),
        "initial_delivery_count": 0,
        **fields,
    }
    return p.Attach(name=name, handle=handle, role=SENDER, **all_fields)  # type: ignore[arg-type]


def receiver(name: str = "out", handle: int = 0, **fields: object) -> p.Attach:
    """The peer's attach of a link on which it receives."""
    all_fields = {"source": p.Source(address="/queues/q"), "target": p.Target(address="here"), **fields}
    return p.Attach(name=name, handle=handle, role=RECEIVER, **all_fields)  # type: ignore[arg-type]


def flow(handle: int | None = None, credit: int | None = None, **fields: object) -> p.Flow:
    """The peer's flow; of a link that it receives on, if there is credit."""
    all_fields = {
        "next_incoming_id": 0,
        "incoming_window": MANY,
        "next_outgoing_id": 0,
        "outgoing_window": MANY,
        "handle": handle,
        "link_credit": credit,
        "delivery_count": None if handle is None else 0,
        **fields,
    }
    return p.Flow(**all_fields)  # type: ignore[arg-type]


def transfer(
    delivery_id: int | None = 0,
    payload: bytes = b"hello",
    handle: int = 0,
    tag: bytes | None = b"tag",
    channel: int = 0,
    **fields: object,
) -> bytes:
    performative = p.Transfer(
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        **{"message_format": 0, **fields},  # type: ignore[arg-type]
    )
    return frame(performative, payload, channel)


def disposition(first: int, last: int | None = None, settled: bool = True, **fields: object) -> p.Disposition:
    """The peer's, about what it received."""
    all_fields = {"role": RECEIVER, "state": p.Accepted(), **fields}
    return p.Disposition(first=first, last=last, settled=settled, **all_fields)  # type: ignore[arg-type]


def opened(tuning: Tuning | None = None, **fields: object) -> Peer:
    """An open connection, nothing noted and nothing unread."""
    return quiet(Peer(tuning).says(LOGIN, open_(**fields)))


def begun(
    tuning: Tuning | None = None, incoming_window: int = MANY, next_outgoing_id: int = 0, **fields: object
) -> Peer:
    """An open connection with a session on channel 0."""
    return quiet(opened(tuning, **fields).says(begin(incoming_window, next_outgoing_id)))


def opening() -> Peer:
    """The peer's open is awaited."""
    peer = Peer().says(LOGIN)
    return peer.forget()


def linked() -> Peer:
    """Two sessions, links of both directions on channel 0 and an incoming one on channel 1."""
    return quiet(begun().says((1, begin()), sender(), receiver(handle=1), (1, sender(name="other"))))


def closing() -> Peer:
    """We have closed, the peer has not; there was a session."""
    peer = begun()
    peer.connection.fail(AmqpError("amqp:internal-error", "for the test", Ends.CONNECTION))
    assert peer.connection.state is State.CLOSING
    return peer.forget()


def closed() -> Peer:
    peer = begun()
    peer.connection.lost()
    peer.called()
    return peer


def quiet(peer: Peer) -> Peer:
    assert peer.connection.state is State.OPEN, peer.connection.ended_because
    return peer.forget()


# What is heard when something ends: its condition and description.


def close_heard(peer: Peer) -> tuple[str, str | None]:
    """Of the close that must be the last thing said."""
    channel, close, _ = peer.hears_all()[-1]
    assert isinstance(close, p.Close)
    assert channel == 0
    return of_error(close.error)


def end_heard(peer: Peer, channel: int = 0) -> tuple[str, str | None]:
    """Of the end that must be the last thing said, while the connection goes on."""
    *_, (number, end, _) = peer.hears_all()
    assert isinstance(end, p.End)
    assert number == channel
    assert peer.connection.state is State.OPEN
    return of_error(end.error)


def detach_heard(peer: Peer) -> tuple[str, str | None]:
    """Of the detach that must be the only thing said."""
    detach = peer.hears_one(p.Detach)
    assert isinstance(detach, p.Detach)
    assert detach.closed
    return of_error(detach.error)


def of_error(error: p.Error | Described | None) -> tuple[str, str | None]:
    assert isinstance(error, p.Error)
    return error.condition, error.description


# Links on which the peer sends.


def receiving(tuning: Tuning | None = None, **fields: object) -> Peer:
    """A session with one such link, `in`."""
    return quiet(begun(tuning).says(sender(**fields)))


def message(
    delivery_id: int = 0,
    payload: bytes = b"hello",
    settled: bool = False,
    tag: bytes = b"tag",
    state: p.DeliveryState | None = None,
) -> Call:
    """The call for a message that came there."""
    return ("message", "in", delivery_id, tag, payload, settled, state)


def credits_heard(peer: Peer) -> list[tuple[int | None, int | None]]:
    """Delivery-count and link-credit of the flows heard."""
    return [(each.delivery_count, each.link_credit) for each in peer.hears() if isinstance(each, p.Flow)]


# Links on which it receives.


def sending(credit: int = 100, incoming_window: int = MANY, **fields: object) -> Peer:
    """A session with one such link, `out`, that has credit."""
    peer = begun(incoming_window=incoming_window, **fields).says(receiver())
    return quiet(peer.says(flow(0, credit, incoming_window=incoming_window)))


def send(peer: Peer, *tokens: object, settled: bool = False) -> None:
    """Send a message for each token."""
    for token in tokens:
        peer.outgoing.send(token, [b"body"], 4, settled)
