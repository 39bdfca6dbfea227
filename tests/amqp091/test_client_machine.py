"""The client's side of a connection: its handshake, and what it does with what a broker should not send."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import Method
from leveret.protocols.amqp091.machine.client import Client, Login, Owner
from tests.harness.machine import Pieces

LOGIN = Login("PLAIN", "shop", "sesame", "/", 10, 30.0, 1000)
START = m.ConnectionStart(0, 9, {}, b"PLAIN AMQPLAIN", b"en_US")


class Notes(Owner):
    """What the machine has told."""

    reopens: ClassVar[bool] = False

    def __init__(self) -> None:
        self.told: list[object] = []
        self.ends: list[str] = []

    def on_open(self) -> None:
        self.told.append("open")

    def on_method(self, method: Method) -> None:
        self.told.append(type(method))

    def on_content(self, method: Method, properties: bytes, body: bytes) -> None:
        self.told.append((type(method), properties, body))

    def on_refused(self, code: int, reason: str) -> bool:
        self.told.append(code)
        return self.reopens

    def on_end(self, reason: str) -> None:
        self.ends.append(reason)


class Reopening(Notes):
    reopens = True


class Talk:
    """A client, and what the broker says to it."""

    def __init__(self, notes: Notes | None = None, is_open: bool = True) -> None:
        self.notes = notes or Notes()
        self.out = Pieces()
        self.client = Client(self.notes, LOGIN, self.out, 0.0)
        self.client.begin()
        if is_open:
            for channel, method in HANDSHAKE:
                self.say(channel, method)
            self.out.take()

    def say(self, channel: int, method: Method) -> None:
        self.client.receive(wire.method_frame(channel, method.encode()), 1.0)

    def said(self) -> list[str]:
        """The names of the methods that the client has sent."""
        data, at, names = self.out.take(), 0, []
        while at < len(data):
            _, _, size = wire.FRAME_START.unpack_from(data, at)
            names.append(wire.method_at(data, at + 7, at + 7 + size).name)
            at += size + 8
        return names


HANDSHAKE: tuple[tuple[int, Method], ...] = (
    (0, START),
    (0, m.ConnectionTune(0, 131072, 60)),
    (0, m.ConnectionOpenOk()),
    (1, m.ChannelOpenOk()),
)
DELIVER = m.BasicDeliver("shovel", 1, False, "e", "k")


def test_a_channel_is_opened_byte_by_byte() -> None:
    talk = Talk(is_open=False)
    for channel, method in HANDSHAKE:
        for byte in wire.method_frame(channel, method.encode()):
            talk.client.receive(bytes([byte]), 1.0)
    assert talk.notes.told == ["open"]
    data = talk.out.take()
    assert data.startswith(b"AMQP\x00\x00\x09\x01")
    assert b"\0shop\0sesame" in data
    assert talk.client.heartbeat_s == 10


def test_a_message_arrives_in_any_pieces() -> None:
    talk = Talk()
    pieces: list[bytes] = []
    wire.append_content(pieces, 1, DELIVER.encode(), b"\x10\x00\x02", bytes(900), 200)
    data = b"".join(pieces)
    for at in range(0, len(data), 7):
        talk.client.receive(data[at : at + 7], 1.0)
    assert talk.notes.told == ["open", (m.BasicDeliver, b"\x10\x00\x02", bytes(900))]


def test_a_closed_channel_may_be_opened_again() -> None:
    talk = Talk(Reopening())
    talk.say(1, m.ChannelClose(404, "NOT_FOUND", 0, 0))
    assert talk.said() == ["channel.close-ok", "channel.open"]
    talk.say(1, m.ChannelOpenOk())
    assert talk.notes.told == ["open", 404, "open"]


def test_else_it_ends_the_connection() -> None:
    talk = Talk()
    talk.say(1, m.ChannelClose(404, "NOT_FOUND - no queue", 0, 0))
    assert talk.notes.ends == ["404 NOT_FOUND - no queue"]
    assert talk.said() == ["connection.close"]
    assert not talk.client.closed
    talk.say(0, m.ConnectionCloseOk())
    assert talk.client.closed


def test_a_close_is_answered() -> None:
    talk = Talk()
    talk.say(0, m.ConnectionClose(320, "CONNECTION_FORCED", 0, 0))
    assert talk.said() == ["connection.close-ok"]
    assert (talk.notes.ends, talk.client.closed) == (["320 CONNECTION_FORCED"], True)


def test_what_comes_before_the_answer_to_a_close_is_passed_over() -> None:
    talk = Talk()
    talk.client.close("done")
    talk.client.close("again")
    talk.client.receive(content(5) + b"\x03\x00\x01\x00\x00\x00\x05hello\xce", 2.0)
    talk.say(1, m.BasicQosOk())
    assert talk.notes.told == ["open"]
    assert not talk.client.closed
    talk.say(0, m.ConnectionCloseOk())
    assert (talk.notes.ends, talk.client.closed) == (["done"], True)


def test_a_broker_that_falls_silent_is_left_and_heartbeats_keep_it() -> None:
    talk = Talk()
    talk.client.receive(wire.heartbeat_frame(), 19.0)
    for now in (20.0, 30.0, 39.0):
        talk.client.on_deadline(now)
        assert not talk.notes.ends
    talk.client.on_deadline(40.0)
    assert talk.notes.ends == ["it was silent for more than 20 s"]
    talk.client.send(m.BasicQos(0, 1, False))  # nothing is sent any more
    talk.client.publish(m.BasicPublish("", "q"), b"\x00\x00", b"late")
    talk.client.close("too late")
    assert talk.notes.ends == ["it was silent for more than 20 s"]


def test_a_close_that_is_not_answered_is_given_up() -> None:
    talk = Talk()
    talk.client.close("done")
    talk.client.on_deadline(10.0)
    talk.client.on_deadline(41.0)
    assert talk.client.closed


def test_a_handshake_that_takes_too_long_is_given_up() -> None:
    talk = Talk(is_open=False)
    talk.client.on_deadline(30.0)
    assert talk.notes.ends == ["the handshake took too long (in state starting)"]


def test_a_login_that_is_not_offered_ends_it() -> None:
    talk = Talk(is_open=False)
    talk.say(0, m.ConnectionStart(0, 9, {}, b"EXTERNAL", b"en_US"))
    assert talk.notes.ends == ["it offers no login by PLAIN"]


def content(size: int) -> bytes:
    header = wire.header_frame(1, 60, size, b"\x00\x00")
    return wire.method_frame(1, DELIVER.encode()) + header


WRONG = {
    "another version": (False, b"AMQP\x00\x01\x00\x0a"),
    "not AMQP": (False, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a frame that is too large": (True, b"\x01\x00\x01\xff\xff\xff\xff\x00"),
    "a frame without its end": (True, b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x50\x00"),
    "another channel": (True, wire.method_frame(7, m.BasicQosOk().encode())),
    "a kind that is none": (True, b"\x09\x00\x01\x00\x00\x00\x00\xce"),
    "a message that is too large": (True, content(1001)),
    "a body that is too long": (True, content(2) + b"\x03\x00\x01\x00\x00\x00\x03abc\xce"),
    "a body without a header": (True, b"\x03\x00\x01\x00\x00\x00\x03abc\xce"),
    "a header without a method": (True, wire.header_frame(1, 60, 5, b"\x00\x00")),
    "a method in place of a body": (True, content(5) + wire.method_frame(1, m.BasicQosOk().encode())),
    "a method that is none": (True, b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\xc7\xce"),
    "frames that are too small": (
        False,
        wire.method_frame(0, START.encode()) + wire.method_frame(0, m.ConnectionTune(0, 100, 60).encode()),
    ),
    "a step that is not due": (False, wire.method_frame(0, m.ConnectionOpenOk().encode())),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_broker_should_not_send_ends_the_connection_with_a_reason(name: str) -> None:
    is_open, data = WRONG[name]
    talk = Talk(is_open=is_open)
    talk.client.receive(data, 2.0)
    talk.client.receive(bytes(100), 2.0)
    assert talk.client.closed
    (reason,) = talk.notes.ends
    assert reason.startswith(("it sent what", "it is no AMQP 0-9-1 broker"))


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_no_bytes_raise_anything(pieces: list[bytes], is_open: bool) -> None:
    talk = Talk(is_open=is_open)
    for piece in pieces:
        talk.client.receive(piece, 2.0)
    talk.client.lost()
    assert len(talk.notes.ends) == 1
