"""Show why the AMQP 1.0 machine is our own: how Qpid Proton's engine answers violations, and how fast it is.

The engine gets bytes as a server gets them from a socket; the first table shows its answers. The second compares it,
driven through the C functions of its Python binding, with protocols/amqp10, which does the same work in the same run:
receive messages and accept them, send messages and learn that they were accepted.

    python -m benchmarks proton
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import proton
from cproton_ffi import ffi, lib

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.codec.types import Value
from leveret.protocols.amqp10.machine.connection import Connection
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
from leveret.protocols.shared.machine.contract import Writer

SENDER, RECEIVER = False, True  # roles
CREDIT: Final = 10
WINDOW: Final = 4  # frames of 512 bytes that the session of the first table accepts
BODY: Final = b"\x00\x53\x75\xa0\x64" + b"x" * 100  # a section of data


def frame(performative: p.Record, payload: bytes = b"") -> bytes:
    return wire.frame(0, performative.encode() + payload)


def begun() -> bytes:
    """Return how a client begins: header, open, begin."""
    begin = p.Begin(next_outgoing_id=0, incoming_window=1 << 30, outgoing_window=1 << 30)
    return wire.HEADER_AMQP + frame(p.Open(container_id="client")) + frame(begin)


def attach(role: bool, name: str = "link", handle: int = 0, address: str = "q", **more: object) -> bytes:
    source, target = p.Source(address=address), p.Target(address=address)
    count = None if role else 0
    record = p.Attach(
        name=name, handle=handle, role=role, source=source, target=target, initial_delivery_count=count
    )
    for field, value in more.items():
        setattr(record, field, value)
    return frame(record)


def transfer(number: int, handle: int = 0, settled: bool = False, more: bool = False) -> bytes:
    tag = number.to_bytes(4)
    record = p.Transfer(
        handle=handle, delivery_id=number, delivery_tag=tag, message_format=0, settled=settled, more=more
    )
    return frame(record, BODY)


def flow(
    next_incoming: int = 0, handle: int | None = None, credit: int | None = None, echo: bool = False
) -> bytes:
    return frame(
        p.Flow(
            next_incoming_id=next_incoming,
            incoming_window=1 << 20,
            next_outgoing_id=0,
            outgoing_window=1 << 20,
            handle=handle,
            delivery_count=None if handle is None else 0,
            link_credit=credit,
            echo=echo,
        )
    )


# The engine's answers.

CASES: Final = (
    ("S168", "a handle in use: end, handle-in-use", [attach(SENDER), attach(SENDER, name="other")]),
    ("S169", "a transfer on no handle: end, unattached-handle", [transfer(0, handle=7)]),
    ("S169", "a flow on no handle: end, unattached-handle", [flow(handle=7, credit=1)]),
    ("S170", "transfers beyond the window: end, window-violation", [
        attach(SENDER), b"".join(transfer(number) for number in range(WINDOW + 1))
    ]),
    ("S171", "a transfer without credit: detach, transfer-limit-exceeded", [
        attach(SENDER), *(transfer(number) for number in range(CREDIT + 1))
    ]),
    ("X054", "next-incoming-id ahead: end, window-violation", [flow(next_incoming=1000)]),
    ("X056", "another delivery-id within a message: detach, invalid-field", [
        attach(SENDER), transfer(0, more=True), transfer(5)
    ]),
    ("X056", "unsettled, after settled, within a message: detach, invalid-field", [
        attach(SENDER), transfer(0, settled=True, more=True), transfer(0)
    ]),
    ("S176", "deliveries to resume: noticed", [attach(SENDER, unsettled={b"tag": p.Accepted()})]),
    ("S176", "incomplete-unsettled: noticed", [attach(SENDER, incomplete_unsettled=True)]),
    ("S180", "echo: answered with a flow", [attach(RECEIVER), flow(handle=0, credit=1, echo=True)]),
    ("S187", "an address of a, NUL and b: read", [attach(RECEIVER, address="a\0b")]),
    ("1.1", "a flow whose list ends early: close, decode-error", [wire.frame(0, wire.FLOW + b"\xc0\x05\x04\x43")]),
)  # fmt: skip


class Probe:
    """A server on the engine's Python classes: it opens what the client opens, and gives credit."""

    def __init__(self, window: int) -> None:
        self.transport = proton.Transport(proton.Transport.SERVER)
        self.transport.max_frame_size = 512
        self.connection, self.events = proton.Connection(), proton.Collector()
        self.window = window
        self.links: list[proton.Link] = []
        self.connection.collect(self.events)
        self.transport.bind(self.connection)

    def answers(self, data: bytes) -> list[p.Record]:
        self.transport.push(data)
        sent = b""
        while True:
            self._react()
            pending = self.transport.pending()
            if pending <= 0:
                return performatives(sent)
            sent += self.transport.peek(pending)
            self.transport.pop(pending)

    def _react(self) -> None:
        while event := self.events.peek():
            if event.type == proton.Event.CONNECTION_REMOTE_OPEN:
                event.connection.open()
            elif event.type == proton.Event.SESSION_REMOTE_OPEN:
                event.session.incoming_capacity = 512 * self.window
                event.session.open()
            elif event.type == proton.Event.LINK_REMOTE_OPEN:
                self._open(event.link)
            self.events.pop()

    def _open(self, link: proton.Link) -> None:
        self.links.append(link)
        link.open()
        if link.is_receiver:
            link.flow(CREDIT)


def performatives(sent: bytes) -> list[p.Record]:
    found = []
    at = wire.HEADER_SIZE if sent.startswith(wire.HEADER_AMQP) else 0
    while at < len(sent):
        size, offset, _, _ = wire.FRAME_START.unpack_from(sent, at)
        if size > 4 * offset:
            found.append(p.decode(sent, at + 4 * offset, at + size)[0])
        at += size
    return found


def answer(statement: str, frames: list[bytes]) -> str:
    """Return the engine's reaction to the last of these frames, in a few words."""
    probe = Probe(WINDOW if statement == "S170" else 1000)
    probe.answers(begun())
    *before, last = frames
    for each in before:
        probe.answers(each)
    said = [_said(each) for each in probe.answers(last)]
    if statement == "S187":
        return f"read as {probe.links[0].remote_source.address!r}"
    return ", ".join(said) or "nothing"


def _said(record: p.Record) -> str:
    name = record.NAME.split(":")[1]
    error = getattr(record, "error", None)
    return name if error is None else f"{name} {error.condition} ({error.description})"


def answers() -> None:
    """Print what the engine makes of what is forbidden."""
    print(f"\n## What the engine of Qpid Proton {'.'.join(map(str, proton.VERSION))} answers\n")
    print("| statement | asked for | answered |\n|---|---|---|")
    for statement, asked, frames in CASES:
        print(f"| {statement} | {asked} | {answer(statement, frames)} |")


# Speed.

MESSAGES: Final = 50_000
BATCH: Final = 100  # messages in one read, and sent between two
INCOMING, OUTGOING = 0, 1  # handles
LOGIN: Final = wire.HEADER_SASL + wire.frame(
    0, p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest").encode(), wire.FRAME_SASL
)
LINKS: Final = (
    attach(SENDER, "in", INCOMING) + attach(RECEIVER, "out", OUTGOING) + flow(handle=OUTGOING, credit=1 << 30)
)


class Engine(ABC):
    """Both engines, seen alike."""

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Process bytes from the client: each message is accepted."""

    @abstractmethod
    def send(self, count: int) -> None:
        """Send `count` messages to the client."""

    @abstractmethod
    def sent(self) -> bytes:
        """Return the bytes for the client."""


class ByC(Engine):
    """Proton's engine, without any of its Python classes once the links stand."""

    def __init__(self) -> None:
        self.probe = probe = Probe(1 << 20)
        probe.answers(begun())
        probe.answers(LINKS)
        incoming, outgoing = probe.links
        incoming.flow(2 * MESSAGES)
        self.outgoing = outgoing._impl
        self.transport, self.events = probe.transport._impl, probe.events._impl
        self.octets = ffi.new("char[]", 1 << 16)
        self.number = 0

    def take(self, data: bytes) -> None:
        at = 0
        octets = ffi.from_buffer(data)
        while at < len(data):
            at += lib.pn_transport_push(self.transport, octets + at, len(data) - at)
            self._react()

    def _react(self) -> None:
        events = self.events
        while (event := lib.pn_collector_peek(events)) != ffi.NULL:
            if lib.pn_event_type(event) == lib.PN_DELIVERY:
                delivery = lib.pn_event_delivery(event)
                if lib.pn_delivery_updated(delivery):
                    lib.pn_delivery_settle(delivery)
                else:
                    self._accept(delivery)
            lib.pn_collector_pop(events)

    def _accept(self, delivery: object) -> None:
        size = lib.pn_delivery_pending(delivery)
        lib.pn_link_recv(lib.pn_delivery_link(delivery), self.octets, size)
        assert len(ffi.buffer(self.octets, size)[:]) == len(BODY)
        lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        lib.pn_delivery_settle(delivery)

    def send(self, count: int) -> None:
        link = self.outgoing
        for _ in range(count):
            self.number += 1
            tag = self.number.to_bytes(4)
            lib.pn_delivery(link, (len(tag), ffi.from_buffer(tag)))
            lib.pn_link_send(link, BODY, len(BODY))
            lib.pn_link_advance(link)

    def sent(self) -> bytes:
        found = []
        while (pending := lib.pn_transport_pending(self.transport)) > 0:
            size = lib.pn_transport_peek(self.transport, self.octets, min(pending, 1 << 16))
            found.append(ffi.buffer(self.octets, size)[:])
            lib.pn_transport_pop(self.transport, size)
            self._react()
        return b"".join(found)


class Ours(Engine):
    """protocols/amqp10, with owners that only accept."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self.owner = Owner()
        tuning = Tuning(link_credit=2 * BATCH)
        self.connection = Connection(self.owner, tuning, self.pieces, 0.0)
        for data in (LOGIN, begun(), LINKS):
            self.take(data)

    def take(self, data: bytes) -> None:
        self.connection.receive(data, 0.0)
        self.connection.flush()

    def send(self, count: int) -> None:
        link = self.owner.session.outgoing
        for _ in range(count):
            link.send(None, [BODY], len(BODY), False)

    def sent(self) -> bytes:
        return self.pieces.taken()


class Pieces(Writer):
    """Collects output as a list."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.count = 0

    def write(self, data: bytes) -> None:
        self.found.append(data)
        self.count += len(data)

    def open(self) -> list[bytes]:
        return self.found

    def wrote(self, count: int) -> None:
        self.count += count

    def written(self) -> int:
        return self.count

    def taken(self) -> bytes:
        data = b"".join(self.found)
        self.found.clear()
        return data


class Owner(Handler):
    """Owns everything and wants nothing. One owner for each, as a class stands under one compiled contract only."""

    def __init__(self) -> None:
        self.session = Links()

    def on_sasl_init(self, mechanism: str, response: bytes) -> None:
        return None

    def on_sasl_response(self, response: bytes) -> None:
        return None

    def on_open(self, open: p.Open) -> dict[str, Value]:
        return {}

    def on_begin(self, session: Session) -> SessionOwner:
        return self.session

    def on_closed(self) -> None:
        pass


class Links(SessionOwner):
    incoming: IncomingLink
    outgoing: OutgoingLink

    def on_attach_incoming(self, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
        self.incoming = link
        link.attach(attach.source, attach.target)
        return Accepting(link)

    def on_attach_outgoing(self, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
        self.outgoing = link
        link.attach(attach.source, attach.target)
        return Sending()

    def on_window(self) -> None:
        pass

    def on_ended(self) -> None:
        pass


class Accepting(IncomingOwner):
    def __init__(self, link: IncomingLink) -> None:
        self._link = link

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        assert len(payload) == len(BODY)
        self._link.accept(delivery_id)

    def on_detached(self, *_: object) -> None:
        pass


class Sending(OutgoingOwner):
    def on_credit(self, link: OutgoingLink) -> None:
        pass

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        pass

    def on_detached(self, *_: object) -> None:
        pass


def receiving(engine: Engine) -> float:
    """Return transfers per second that come in and are accepted."""
    numbers = range(0, MESSAGES, BATCH)
    reads = [b"".join(transfer(first + each) for each in range(BATCH)) for first in numbers]
    engine.sent()
    started = time.perf_counter()
    octets = 0
    for data in reads:
        engine.take(data)
        octets += len(engine.sent())
    assert octets, "nothing was accepted"
    return MESSAGES / (time.perf_counter() - started)


def sending(engine: Engine) -> float:
    """Return transfers per second that go out and whose acceptance comes in."""
    numbers = range(0, MESSAGES, BATCH)
    outcomes = [frame(_accepted(first, first + BATCH - 1)) for first in numbers]
    engine.sent()
    started = time.perf_counter()
    octets = 0
    for data in outcomes:
        engine.send(BATCH)
        octets += len(engine.sent())
        engine.take(data)
    assert octets > MESSAGES * len(BODY), "not everything was sent"
    return MESSAGES / (time.perf_counter() - started)


def _accepted(first: int, last: int) -> p.Disposition:
    return p.Disposition(role=RECEIVER, first=first, last=last, settled=True, state=p.Accepted())


def speed(rounds: int) -> None:
    """Print transfers per second of both, taking turns."""
    print("\n## Transfers per second in memory, 100 octets, median (lowest to highest)\n")
    print("| | Proton's engine by its C functions | protocols/amqp10 | ratio |\n|---|---:|---:|---:|")
    for title, measure in (("received and accepted", receiving), ("sent and accepted", sending)):
        found = [(measure(ByC()), measure(Ours())) for _ in range(rounds + 1)][1:]  # the first warms up
        theirs, ours = zip(*found, strict=True)
        ratio = statistics.median(mine / other for other, mine in found)
        print(f"| {title} | {cell(theirs)} | {cell(ours)} | {ratio:.2f} |", flush=True)


def cell(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main(rounds: int = 5) -> None:
    answers()
    speed(rounds)


if __name__ == "__main__":
    main()
