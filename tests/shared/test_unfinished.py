"""Contents that have been received in part: who may not publish keeps nothing, and what does not go on is given up."""

from __future__ import annotations

from struct import pack
from typing import Final

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.shared.machine.unfinished import LARGEST, SIZE_MIN, STALLED_S, UnfinishedContents
from tests.amqp010 import peer as peer010
from tests.amqp010.client import SessionEnded
from tests.amqp010.client import frame as frame010
from tests.amqp010.peer import session_of
from tests.amqp091.machine import content, opened
from tests.amqp091.peer import ClientChannel, Peer
from tests.amqp10.machine import begun, detach_heard, sender, transfer
from tests.harness.bench import ClientBench

HALF: Final = STALLED_S / 2
PROPERTIES: Final = b"\x00\x00"
SMALL: Final = 'limits.message_size_max = "1MiB"\n'


# The bookkeeping.


def test_what_is_held_is_counted_by_owner_and_bounded_for_all_together() -> None:
    contents = UnfinishedContents()
    contents.bound(2 * SIZE_MIN)
    assert contents.size_max == 2 * LARGEST * SIZE_MIN
    contents.bound(1)
    assert contents.size_max == LARGEST * SIZE_MIN
    assert contents.add(1, contents.size_max - 1, 0.0)
    assert contents.add(2, 1, 0.0)
    assert not contents.add(2, 1, 0.0)
    contents.remove(2)
    contents.remove(3)
    assert contents.size == contents.size_max - 1
    contents.remove(1)
    assert (contents.size, contents.deadline()) == (0, None)


def test_a_content_that_goes_on_is_never_given_up_and_one_that_does_not_is() -> None:
    contents = UnfinishedContents()
    contents.add(1, 1, 0.0)
    contents.add(2, 1, 0.0)
    for look in range(1, 10):
        now = look * HALF
        contents.add(1, 1, now - 1)  # the other one is first now
        assert contents.deadline() == now
        assert contents.stalled(now, 0.0) == (None if look == 1 else 2)


def test_a_frame_that_is_still_coming_may_belong_to_the_content() -> None:
    contents = UnfinishedContents()
    contents.add(1, 1, 0.0)
    assert contents.stalled(HALF, HALF - 1) is None
    assert contents.stalled(2 * HALF, 2 * HALF - 1) is None
    assert contents.stalled(3 * HALF, 2 * HALF - 1) == 1


def test_a_node_that_was_suspended_looks_twice() -> None:
    contents = UnfinishedContents()
    contents.add(1, 1, 0.0)
    assert contents.stalled(10_000.0, 0.0) is None
    assert contents.deadline() == 10_000.0 + HALF
    contents.add(1, 1, 10_001.0)
    assert contents.stalled(10_000.0 + HALF, 0.0) is None


# 0-9-1.


def begin(channel: ClientChannel, exchange: str, key: str, size: int, body: bytes = b"") -> None:
    """A publish with its header, and a part of its body."""
    header = wire.header_frame(channel.number, 60, size, PROPERTIES)
    part = pack(">BHI", m.FRAME_BODY, channel.number, len(body)) + body + b"\xce" if body else b""
    publish = wire.method_frame(channel.number, m.BasicPublish(exchange, key).encode())
    channel.peer.send_bytes(publish + header + part)


@pytest.mark.parametrize(
    ("exchange", "code"),
    [("", "403 ACCESS_REFUSED"), ("amq.direct", "403 ACCESS_REFUSED"), ("missing", "404 NOT_FOUND")],
)
def test_x093_0_9_1_refuses_a_message_at_its_header_and_keeps_nothing_of_its_body(
    exchange: str, code: str
) -> None:
    bench = ClientBench()
    bench.user("weak", write="^missing$")
    peer = Peer(bench).open("weak", "weak")
    channel = peer.channel()
    begin(channel, exchange, "q", 1000, b"x" * 10)
    assert channel.refusal().startswith(code)
    assert peer.front.wire.unfinished.size == 0
    assert peer.channel().declare("own", exclusive=True)  # the rest of the connection goes on


def test_0_9_1_asks_for_topics_at_the_header_too() -> None:
    bench = ClientBench()
    bench.user("weak")
    bench.broker.access.set_topic_permissions("weak", "/", "amq.topic", "^a$", ".*")
    channel = Peer(bench).open("weak", "weak").channel()
    begin(channel, "amq.topic", "a", 3, b"x")
    channel.peer.send_bytes(content(b"xy")[-10:])
    assert channel.all() == []
    begin(channel, "amq.topic", "b", 3)
    assert channel.refusal().startswith("403 ACCESS_REFUSED")


def test_0_9_1_takes_a_message_in_parts_as_before() -> None:
    channel = Peer().open().channel()
    channel.declare("q")
    begin(channel, "", "q", 4, b"ab")
    wired = channel.peer.front.wire
    assert wired.unfinished.size == 2 + 2 + 12
    channel.peer.send_bytes(pack(">BHI", m.FRAME_BODY, 1, 2) + b"cd\xce")
    assert (wired.unfinished.size, channel.bodies("q")) == (0, [b"abcd"])


def test_0_9_1_bounds_what_all_channels_keep_together_and_ends_the_one_that_is_too_much() -> None:
    bench = ClientBench(SMALL)
    peer = Peer(bench).open(frame_max=131_072)
    part = b"x" * 100_000
    channels = [peer.channel(number) for number in range(1, 100)]
    for channel in channels:
        begin(channel, "amq.fanout", "", 200_000, part)
    bound = LARGEST * SIZE_MIN
    assert peer.front.wire.unfinished.size <= bound
    closed = [channel for channel in channels if channel.all()]
    assert len(closed) == 99 - bound // (len(part) + 14)
    begin(channels[0], "amq.fanout", "", 10)  # a wrong frame of one that goes on: it still expects a body
    assert "505 UNEXPECTED_FRAME" in peer.refusal()
    assert peer.front.wire.unfinished.size == 0


def test_0_9_1_tells_that_it_may_be_tried_again() -> None:
    peer = opened(channels=1)
    peer.connection.unfinished.size_max = 5
    peer.says((1, m.BasicPublish("exchange", "key")), wire.header_frame(1, 60, 100, PROPERTIES))
    assert peer.channel_close_heard().reply_code == m.CONTENT_TOO_LARGE


def test_0_9_1_ends_a_channel_whose_content_does_not_go_on() -> None:
    peer = opened(channels=2, heartbeat=0)
    for number in (1, 2):
        peer.says((number, m.BasicPublish("exchange", "key")), wire.header_frame(number, 60, 100, PROPERTIES))
    assert peer.connection.deadline() == HALF
    peer.connection.on_deadline(HALF)
    peer.now = HALF + 1
    peer.says(pack(">BHI", m.FRAME_BODY, 2, 1) + b"x\xce")
    peer.connection.on_deadline(STALLED_S)
    close = peer.channel_close_heard(1)
    assert close.reply_code == m.PRECONDITION_FAILED
    assert "60 s" in close.reply_text
    assert peer.connection.unfinished.size == 2 + 12 + 1


def test_0_9_1_does_not_count_the_time_in_which_nothing_is_read() -> None:
    peer = opened(channels=1, heartbeat=0)
    peer.says((1, m.BasicPublish("exchange", "key")), wire.header_frame(1, 60, 100, PROPERTIES))
    peer.connection.pause_monitor()
    assert peer.connection.deadline() is None
    for look in range(10):
        peer.connection.on_deadline(look * HALF)
    peer.connection.resume_monitor(1000.0)
    assert peer.connection.deadline() == 1000.0 + HALF
    peer.connection.on_deadline(1000.0 + HALF)
    assert peer.hears() == []


# 1.0, whose permissions are asked for when a link is attached.


def test_1_0_ends_a_link_whose_message_does_not_go_on() -> None:
    peer = begun().says(sender("a", handle=0), sender("b", handle=1))
    peer.outbox.take()
    for handle in (0, 1):
        peer.says(transfer(handle, b"x", handle=handle, more=True))
    peer.connection.on_deadline(HALF)
    peer.now = HALF + 1
    peer.says(transfer(1, b"x", handle=1, tag=None, more=True))
    peer.outbox.take()
    peer.connection.on_deadline(STALLED_S)
    condition, text = detach_heard(peer)
    assert condition == "amqp:resource-limit-exceeded"
    assert text is not None
    assert "60 s" in text
    assert peer.connection.unfinished.size == 2


# 0-10.


def parts_010(destination: str, body: bytes, channel: int = 1) -> bytes:
    """A transfer with its header, and a part of its body."""
    command = c.MessageTransfer(destination=destination).encode()
    header = c.DeliveryProperties(routing_key="q").encode()
    return (
        frame010(command, channel, 0x0B, 1)
        + frame010(header, channel, 0x03, 2)
        + frame010(body, channel, 0x06, 3)
    )


def test_0_10_refuses_a_transfer_before_its_body_is_whole() -> None:
    bench = ClientBench()
    bench.user("weak", write="^own$")
    session = session_of(bench, user="weak")
    session.declare("own")
    session.client.send_bytes(parts_010("amq.direct", b"x" * 1000, session.channel))
    with pytest.raises(SessionEnded) as ended:
        session.sync()
    assert ended.value.code == c.ERROR_CODE_UNAUTHORIZED_ACCESS
    assert ended.value.exception is not None
    assert ended.value.exception.command_id == 1  # the one after the declaration
    wired = session.client.front.wire  # type: ignore[attr-defined]
    assert wired.unfinished.size == 0
    for _ in range(5):
        session.client.send_bytes(frame010(b"x" * 1000, session.channel, 0x04, 3))
    assert wired.unfinished.size == 0


def test_0_10_takes_a_transfer_in_parts_as_before() -> None:
    bench = ClientBench()
    session = session_of(bench)
    session.declare("q")
    wired = session.client.front.wire  # type: ignore[attr-defined]
    session.client.send_bytes(parts_010("", b"ab", session.channel))
    assert wired.unfinished.size > 2
    session.client.send_bytes(frame010(b"cd", session.channel, 0x05, 3))
    assert (wired.unfinished.size, peer010.waiting(bench)) == (0, [b"abcd"])


def test_0_10_bounds_what_all_channels_keep_together() -> None:
    bench = ClientBench(SMALL)
    client = peer010.Peer(bench).open()
    client.front.wire.unfinished.size_max = 5000
    sessions = [client.attach(f"s{number}") for number in range(6)]
    for session in sessions:
        client.send_bytes(parts_010("amq.fanout", b"x" * 1000, session.channel))
    client.read()
    assert [session.is_over for session in sessions] == [False] * 4 + [True] * 2
    assert sessions[4].exception is not None
    assert sessions[4].exception.error_code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert client.front.wire.unfinished.size <= 5000


def test_0_10_ends_a_session_whose_command_does_not_go_on() -> None:
    bench = ClientBench()
    session = session_of(bench)
    session.client.send_bytes(parts_010("amq.fanout", b"x", session.channel))
    wired = session.client.front.wire  # type: ignore[attr-defined]
    now = bench.broker.now
    wired.on_deadline(now + HALF)
    session.client.read()
    assert not session.is_over
    wired.on_deadline(now + STALLED_S)
    session.client.read()
    assert session.exception is not None
    assert session.exception.error_code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert wired.unfinished.size == 0
