"""A client that resumes its session, against a real broker: the transport is lost after any octet and any packet.

The client is the machine that the broker has as well, at the other end. Whatever is lost, each message is published
once, delivered once, and accepted once.
"""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import Id
from leveret.protocols.amqp010.machine.contract import Line, SessionLimits
from leveret.protocols.amqp010.machine.session import Session
from tests.harness.bench import ClientBench

from .client import FOREVER, ClientSession
from .peer import Peer
from .session_ends import NAME, Recorder, ids

CHANNEL = 1
MESSAGES = [b"m%d" % number for number in range(5)]
TIMEOUT = c.SessionRequestTimeout(60)


class Heard(ClientSession):
    """What the broker says on the channel, one after the other."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer, CHANNEL, NAME)
        self.packets: list[Control | tuple[Command, bytes]] = []

    def hear_control(self, control: Control) -> None:
        self.packets.append(control)

    def hear_command(self, command: Command, structs: list[object], body: bytes) -> None:
        self.packets.append((command, body))


class ClientLine(Line):
    """Octets that have not been sent yet. The client asks to be attached, where the broker says that it is."""

    def __init__(self) -> None:
        self.octets = b""

    def control(self, payload: bytes) -> None:
        if payload == c.SessionAttached(NAME).encode():
            payload = c.SessionAttach(NAME).encode()
        self.octets += control_frame(CHANNEL, payload)

    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        pieces: list[bytes] = []
        append_frames(pieces, CHANNEL, command, header, body, 4096)
        self.octets += b"".join(pieces)
        return len(self.octets)

    def released(self) -> None:
        raise AssertionError("the session was detached")

    def abandon(self) -> None:
        raise AssertionError("the broker sends no gap")

    def room(self) -> int:
        return 1 << 20


class Reading(Recorder):
    """Accepts every message as soon as it comes."""

    def on_transfer(
        self, id: Id, transfer: c.MessageTransfer, header: bytes | None, body: bytes | None, sync: bool
    ) -> None:
        super().on_transfer(id, transfer, header, body, sync)
        self.session.send(c.MessageAccept(ids((id, id))), sync=True)


class Resuming:
    """The client. Its transport is lost once, after so many octets were sent or packets heard."""

    def __init__(self, octets: int | None = None, packets: int | None = None) -> None:
        self.bench = ClientBench()
        declaring = Peer(self.bench).open().attach("other")
        declaring.declare("q")
        self.octets_left = self.packets_left = 1 << 30
        self.sent = self.heard = 0
        self.owner = Reading(60)
        self.session = self.owner.session = Session(NAME, self.owner, SessionLimits())
        self.losses = 0
        self.connect()
        self.line.octets += control_frame(CHANNEL, TIMEOUT.encode())
        self.session.on_control(TIMEOUT)
        self.run()
        self.octets_left = self.octets_left if octets is None else octets
        self.packets_left = self.packets_left if packets is None else packets
        self.sent = self.heard = 0

    def connect(self) -> None:
        self.peer = Peer(self.bench).open()
        self.channel = self.peer.sessions[CHANNEL] = Heard(self.peer)
        self.line = ClientLine()
        self.session.attach(self.line, CHANNEL)

    def lose(self) -> None:
        self.losses += 1
        self.octets_left = self.packets_left = 1 << 30
        self.peer.drop()
        self.session.detached()
        self.connect()

    def run(self) -> None:
        """Until neither has anything to say."""
        for _ in range(1000):
            self.session.settle()
            if not self.transmit() and not self.hear():
                return
        raise AssertionError("they never stop talking")

    def transmit(self) -> bool:
        octets, self.line.octets = self.line.octets, b""
        self.peer.send_bytes(octets[: self.octets_left])
        self.octets_left -= len(octets)
        self.sent += len(octets)
        if self.octets_left < 0:
            self.lose()
        return bool(octets)

    def hear(self) -> bool:
        self.peer.read()
        packets, self.channel.packets = self.channel.packets, []
        for packet in packets:
            if not self.packets_left:
                self.lose()
                return True
            self.packets_left -= 1
            self.heard += 1
            if isinstance(packet, Control):
                if not isinstance(packet, c.SessionAttached):
                    self.session.on_control(packet)
            else:
                command, body = packet
                self.session.on_command(command, False, None, body if command.HAS_CONTENT else None)
        return bool(packets)

    def talk(self) -> None:
        """Publish and consume on one session."""
        header = c.DeliveryProperties(routing_key="q").encode()
        transfer = c.MessageTransfer("", c.ACCEPT_MODE_EXPLICIT).encode(sync=True)
        session = self.session
        for number, body in enumerate(MESSAGES):
            session.send_transfer(transfer, header, body)
            if number == 2:
                session.send(c.MessageSubscribe("q", "d"))
                session.send(c.MessageSetFlowMode("d", c.FLOW_MODE_WINDOW))
                session.send(c.MessageFlow("d", c.CREDIT_UNIT_BYTE, FOREVER))
                session.send(c.MessageFlow("d", c.CREDIT_UNIT_MESSAGE, 2))
            self.run()

    def check(self) -> None:
        assert [body for _, body in self.owner.had if body in MESSAGES] == MESSAGES
        assert self.session.sending.first_incomplete == self.session.next_id
        assert sorted(self.owner.completed) == list(range(self.session.next_id))
        queue = self.bench.queue("q")
        assert (queue.ready, queue.unsettled) == (0, 0)
        assert self.owner.told.count("ended") == 0


def test_nothing_is_lost_when_nothing_is_lost() -> None:
    client = Resuming()
    client.talk()
    client.check()
    assert client.losses == 0


def whole() -> Resuming:
    client = Resuming()
    client.talk()
    return client


def test_the_transport_is_lost_after_any_octet() -> None:
    octets = whole().sent
    assert octets > 500
    for lost_after in range(0, octets, 7):
        client = Resuming(octets=lost_after)
        client.talk()
        client.check()
        assert client.losses == 1


def test_the_transport_is_lost_after_any_packet() -> None:
    packets = whole().heard
    assert packets >= 20
    for lost_after in range(packets):
        client = Resuming(packets=lost_after)
        client.talk()
        client.check()
        assert client.losses == 1


@pytest.mark.parametrize("seconds", [61, 3600])
def test_a_session_that_came_too_late_is_told_so(seconds: int) -> None:
    """The broker has begun a new one, which expects nothing: the client's is over, and it knows."""
    client = Resuming()
    client.talk()
    client.peer.drop()
    client.session.detached()
    client.bench.advance(seconds)
    client.connect()
    with pytest.raises(AssertionError, match="detached"):
        client.run()
    assert client.session.ended
