"""Frames from the client's side, §1 of the acceptance list: heartbeats, sizes, contents, and what an error ends."""

from __future__ import annotations

import logging
from struct import pack

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import AmqpError, BasicProperties, Method
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content, Peer

PUBLISH = wire.method_frame(1, m.BasicPublish("", "q").encode())
NO_PROPERTIES = BasicProperties().encode()
SOFT = (311, 312, 313, 403, 404, 405, 406)
HARD = (320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541)


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + end


def header(size: int, class_id: int = 60, channel: int = 1) -> bytes:
    return frame(m.FRAME_HEADER, channel, pack(">HHQ", class_id, 0, size) + NO_PROPERTIES)


def body(octets: bytes, channel: int = 1) -> bytes:
    return frame(m.FRAME_BODY, channel, octets)


def opened(frame_max: int = 131072) -> Peer:
    """A connection with channel 1 and queue `q`."""
    peer = Peer().open(frame_max=frame_max)
    peer.channel().declare("q")
    return peer


def refused(*frames: bytes) -> str:
    peer = opened()
    peer.send_bytes(b"".join(frames))
    return peer.refusal()


# Heartbeats.


def test_s013_an_idle_server_sends_a_heartbeat_each_half_interval() -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    for count in range(1, 9):
        bench.advance(5)
        peer.send_bytes(wire.heartbeat_frame())
        peer.read()
        assert peer.heartbeats == count


def test_s013_a_silent_peer_is_dropped_after_two_to_three_intervals_and_its_messages_return() -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    channel = peer.channel()
    channel.declare("q")
    channel.publish("", "q", b"kept")
    channel.get("q", no_ack=False)
    for seconds in (10, 10, 9):
        bench.advance(seconds)
        assert not peer.front.closed
    bench.advance(1)
    assert peer.front.closed
    assert bench.queue("q").ready == 1


def test_the_log_says_why_a_connection_ended(caplog: pytest.LogCaptureFixture) -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    for _ in range(3):
        bench.advance(10)
    with caplog.at_level(logging.INFO, "leveret"):
        peer.drop()
    assert "missed heartbeats from client, timeout: 10s" in caplog.text


def test_s013_any_octet_is_a_sign_of_life() -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    for _ in range(5):
        bench.advance(15)
        peer.send_bytes(wire.heartbeat_frame())
    assert not peer.front.closed


def test_s013_an_interval_of_0_switches_heartbeats_off() -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=0)
    bench.advance(100_000)
    peer.read()
    assert peer.heartbeats == 0
    assert not peer.front.closed


def test_x006_a_heartbeat_on_a_channel_is_an_unexpected_frame() -> None:
    assert refused(frame(m.FRAME_HEARTBEAT, 1, b"")).startswith("505 UNEXPECTED_FRAME - ")


def test_x006_an_unknown_kind_of_frame_is_a_frame_error() -> None:
    text = refused(frame(9, 1, b"?"))
    assert text == "501 FRAME_ERROR - type 9, channel 1: unknown frame type"


# Sizes and ends.


def test_s021_a_frame_longer_than_agreed_is_a_frame_error() -> None:
    peer = opened(frame_max=4096)
    peer.send_bytes(PUBLISH + header(5000) + body(bytes(4097)))
    text = peer.refusal()
    assert text == "501 FRAME_ERROR - type 3, channel 1: frame too large, 4097 octets of at most 4096"


def test_s021_eight_octets_over_are_forgiven() -> None:
    peer = opened(frame_max=4096)
    peer.send_bytes(PUBLISH + header(4096) + body(bytes(4096)))
    assert peer.bench.queue("q").ready_bytes == 4096


def test_s022_a_frame_that_ends_otherwise_is_a_frame_error() -> None:
    peer, bystander = opened(), None
    bystander = Peer(peer.bench).open().channel()
    peer.send_bytes(frame(m.FRAME_METHOD, 1, m.BasicGet("q").encode(), end=b"\x00"))
    text = peer.refusal()
    assert text == "501 FRAME_ERROR - type 1, channel 1: the frame does not end with 0xce"
    assert bystander.declare("q")


# Contents.


def test_s023_a_body_where_a_header_is_expected() -> None:
    assert refused(PUBLISH, body(b"early")) == (
        "505 UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
    )


def test_s023_a_header_of_another_class() -> None:
    assert refused(PUBLISH, header(5, class_id=10)) == (
        "505 UNEXPECTED_FRAME - expected content header for class 60, got one for class 10 instead"
    )


def test_s023_another_frame_inside_a_body() -> None:
    for other in (PUBLISH, header(5)):
        assert refused(PUBLISH, header(10), body(b"half"), other) == (
            "505 UNEXPECTED_FRAME - expected content body, got non content body frame instead"
        )


def test_s023_a_content_without_a_method() -> None:
    assert refused(header(5)) == (
        "505 UNEXPECTED_FRAME - expected method frame, got non method frame instead"
    )


def test_x007_more_body_than_declared_is_a_frame_error() -> None:
    text = refused(PUBLISH, header(5), body(b"123"), body(b"456"))
    assert text == "501 FRAME_ERROR - content body frame exceeds remaining content size"


def test_s024_an_empty_body_needs_no_frame_and_gets_none() -> None:
    peer = opened()
    peer.send_bytes(PUBLISH + header(0))
    peer.send(1, m.BasicGet("q", True))
    sent = peer.take_bytes()
    assert bytes([m.FRAME_BODY]) + b"\x00\x01" not in sent
    assert sent.endswith(header(0))


@pytest.mark.parametrize("size", [1, 4088, 4089, 8176, 10_000])
def test_s024_a_body_is_split_into_frames_of_at_most_frame_max_less_8(size: int) -> None:
    peer = opened(frame_max=4096)
    channel = ClientChannel(peer, 1)
    channel.publish("", "q", bytes(size))
    channel.send(m.BasicGet("q", True))
    sent, sizes = peer.take_bytes(), []
    at = 0
    while at < len(sent):
        kind, length = sent[at], int.from_bytes(sent[at + 3 : at + 7], "big")
        sizes += [length] if kind == m.FRAME_BODY else []
        at += length + 8
    assert sum(sizes) == size
    assert all(length == 4088 for length in sizes[:-1])
    assert max(sizes) <= 4088


def test_s024_a_body_in_many_small_frames_arrives_whole() -> None:
    peer = opened()
    octets = bytes(range(256))
    peer.send_bytes(PUBLISH + header(256) + b"".join(body(octets[at : at + 7]) for at in range(0, 256, 7)))
    content = ClientChannel(peer, 1).get("q")
    assert content is not None
    assert content.body == octets


# What an error says and ends.


def test_s025_a_reply_names_the_condition_and_the_method_that_failed() -> None:
    peer = opened()
    close = peer.call(1, m.QueueBind("q", "nowhere", "key"))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_text == "NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    assert (close.failing_class_id, close.failing_method_id) == (50, 20)


def test_s025_a_reply_that_no_method_caused_names_none() -> None:
    peer = opened()
    peer.front.shut_down("maintenance")
    close = peer.next(0)
    assert isinstance(close, m.ConnectionClose)
    assert (close.failing_class_id, close.failing_method_id) == (0, 0)


def test_s025_a_failed_publish_is_named_as_such() -> None:
    peer = opened()
    ClientChannel(peer, 1).publish("nowhere", "key")
    close = peer.next(1)
    assert isinstance(close, m.ChannelClose)
    assert (close.failing_class_id, close.failing_method_id) == (60, 40)


@pytest.mark.parametrize("letter", ["x", "ü", "✋"])
def test_s025_a_reply_is_cut_to_255_octets(letter: str) -> None:
    name = letter * (240 // len(letter.encode()))
    channel = ClientChannel(opened(), 1)
    close = channel.call(m.QueueDeclare(name, passive=True))
    assert isinstance(close, m.ChannelClose)
    text = close.reply_text.encode()
    assert 250 <= len(text) <= 255
    assert text.decode().startswith(f"NOT_FOUND - no queue '{letter}")


@pytest.mark.parametrize("code", SOFT)
def test_s026_soft_errors_end_the_channel(code: int) -> None:
    peer = opened()
    peer.front.wire.fail_channel(1, AmqpError(code, "told so"))
    close = peer.next()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == code
    assert peer.channel(2)


@pytest.mark.parametrize("code", HARD)
def test_s026_hard_errors_end_the_connection(code: int) -> None:
    peer = opened()
    peer.front.wire.fail_channel(1, AmqpError(code, "told so"))
    assert peer.refusal() == f"{code} {m.REPLY_NAMES[code]} - told so"


def test_x010_an_unknown_method_of_a_known_class_is_unimplemented() -> None:
    text = refused(frame(m.FRAME_METHOD, 1, pack(">HH", 60, 99)))
    assert text.startswith(("503 COMMAND_INVALID - unimplemented method", "501 "))


@pytest.mark.parametrize(
    "method", [m.QueueDeclareOk("q", 0, 0), m.BasicDeliver("t", 1), m.ConnectionBlocked("x")]
)
def test_x010_a_method_that_only_a_server_sends_is_unimplemented(method: Method) -> None:
    assert opened().closed_with(1, method) == "503 COMMAND_INVALID - unimplemented method"


def test_x010_a_method_cut_short_cannot_be_read() -> None:
    text = refused(frame(m.FRAME_METHOD, 1, m.QueueDeclare("queue").encode()[:8]))
    assert text.startswith(("501 FRAME_ERROR - ", "502 SYNTAX_ERROR - "))


def test_an_error_of_one_connection_is_no_other_ones() -> None:
    bench = ClientBench()
    broken, well = Peer(bench).open(), Peer(bench).open().channel()
    broken.channel()
    well.declare("q")
    well.consume("q", "t", no_ack=True)
    broken.send_bytes(b"\x09" * 20)
    assert broken.refusal().startswith("501 FRAME_ERROR")
    well.publish("", "q", b"untouched")
    assert [content.body for content in well.deliveries()] == [b"untouched"]
    assert isinstance(well.call(m.BasicGet("q", True)), m.BasicGetEmpty | Content)
