"""The beginning of a connection: its first eight octets, login, limits, virtual host."""

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import FieldTable, Method
from leveret.protocols.amqp091.machine.connection import AmqpError, State, Tuning
from tests.harness.machine import must_end_at

from .machine import CAPABLE, HEADER, Peer, in_state, message, opened, publish_arguments, start_ok, tune_ok

PROPERTIES = b"\x10\x00\x02"


def test_s001_the_header_is_answered_with_start() -> None:
    tuning = Tuning(mechanisms=("PLAIN", "AMQPLAIN"), server_properties={"product": "Leveret"})
    peer = Peer(tuning).says(HEADER)
    assert peer.hears() == [(0, m.ConnectionStart(0, 9, {"product": "Leveret"}, b"PLAIN AMQPLAIN", b"en_US"))]
    assert peer.connection.peer_spoke == "AMQP 0-9-1"


def test_the_header_of_0_9_is_taken_for_ours() -> None:
    peer = Peer().says(b"AMQP\x01\x01\x00\x09")
    assert isinstance(peer.hears()[0][1], m.ConnectionStart)


@pytest.mark.parametrize(
    ("header", "answer", "spoke"),
    [
        (b"AMQP\x00\x00\x09\x00", HEADER, "an unknown version of AMQP"),
        (b"AMQP\x00\x00\x0a\x00", HEADER, "an unknown version of AMQP"),
        (b"AMQP\x00\x00\x08\x00", HEADER, "AMQP 0-8"),
        (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", "AMQP 1.0"),
        (b"AMQP\x03\x01\x00\x00", b"AMQP\x03\x01\x00\x00", "AMQP 1.0 with SASL"),
        (
            b"AMQP\x01\x01\x00\x0a",
            b"AMQP\x03\x01\x00\x00",
            "AMQP 0-10, which is served where protocols.amqp010.enabled is true",
        ),
        (b"SSH-2.0-", b"AMQP\x03\x01\x00\x00", "an unknown protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    ],
)
def test_s003_x001_another_header_is_answered_and_the_connection_closed(
    header: bytes, answer: bytes, spoke: str
) -> None:
    peer = Peer().says(header + b"and more")
    assert (peer.outbox.data, peer.connection.peer_spoke, peer.gone()) == (answer, spoke, True)
    assert peer.handler.taken() == [("closed",)]


def test_x001_http_is_answered_in_its_own_words() -> None:
    peer = Peer().says(b"GET / HTTP/1.1\r\n\r\n")
    head, body = peer.outbox.data.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert (peer.connection.peer_spoke, peer.gone()) == ("HTTP GET", True)


def test_the_header_may_come_octet_by_octet() -> None:
    peer = Peer()
    for octet in HEADER:
        assert peer.connection.state is State.AWAITING_HEADER
        peer.says(bytes([octet]))
    assert peer.connection.state is State.STARTING


def test_the_handshake_from_header_to_open() -> None:
    peer = Peer().says(HEADER, start_ok(), tune_ok(10, 8192, 30), (0, m.ConnectionOpen("/")))
    assert [type(method) for _, method in peer.hears()] == [
        m.ConnectionStart,
        m.ConnectionTune,
        m.ConnectionOpenOk,
    ]
    assert peer.handler.taken() == [("start_ok", "PLAIN", b"\0guest\0guest", CAPABLE), ("open", "/")]
    assert (peer.connection.channel_max, peer.connection.frame_max) == (10, 8192)
    assert peer.connection.client_properties == CAPABLE


def test_s009_the_limits_offered() -> None:
    peer = in_state(State.STARTING).says(start_ok())
    assert peer.hears() == [(0, m.ConnectionTune(2047, 131_072, 60))]


def test_x004_challenges_go_on_until_the_mechanism_is_content() -> None:
    peer = in_state(State.STARTING)
    peer.handler.challenges += [b"one", b"two"]
    peer.says(start_ok(), (0, m.ConnectionSecureOk(b"1")), (0, m.ConnectionSecureOk(b"2")))
    assert peer.hears() == [
        (0, m.ConnectionSecure(b"one")),
        (0, m.ConnectionSecure(b"two")),
        (0, m.ConnectionTune(2047, 131_072, 60)),
    ]


def test_s006_a_mechanism_that_was_not_offered_is_command_invalid() -> None:
    close = in_state(State.STARTING).says(start_ok(mechanism="X")).close_heard()
    assert (close.reply_code, close.reply_text) == (
        503,
        "COMMAND_INVALID - unknown authentication mechanism 'X'",
    )
    assert (close.failing_class_id, close.failing_method_id) == (10, 11)


def test_s007_a_refused_login_is_told_to_who_can_be_told() -> None:
    peer = in_state(State.STARTING)
    peer.handler.refusals["start_ok"] = AmqpError(403, "Login was refused")
    close = peer.says(start_ok()).close_heard()
    assert (close.reply_code, close.reply_text) == (403, "ACCESS_REFUSED - Login was refused")


@pytest.mark.parametrize("properties", [{}, {"capabilities": {}}, {"capabilities": "all"}])
def test_s007_without_the_capability_a_refused_login_closes_silently(properties: FieldTable) -> None:
    peer = in_state(State.STARTING)
    peer.handler.refusals["start_ok"] = AmqpError(403, "Login was refused")
    peer.says(start_ok(properties))
    assert (peer.hears(), peer.gone()) == ([], True)
    assert peer.connection.ended_because == "ACCESS_REFUSED - Login was refused"


def test_x003_a_malformed_response_is_a_syntax_error() -> None:
    peer = in_state(State.STARTING)
    peer.handler.refusals["start_ok"] = AmqpError(502, "malformed")
    assert peer.says(start_ok({})).close_heard().reply_code == 502


@pytest.mark.parametrize(
    ("tuned", "text"),
    [
        (tune_ok(frame_max=131_073), "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (tune_ok(frame_max=0), "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"),
        (tune_ok(frame_max=4095), "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (tune_ok(channel_max=2048), "channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (
            tune_ok(channel_max=0),
            "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
    ],
)
def test_s010_s011_s012_limits_out_of_bounds_are_not_allowed(tuned: tuple[int, Method], text: str) -> None:
    close = in_state(State.TUNING).says(tuned).close_heard()
    assert (close.reply_code, close.reply_text) == (530, f"NOT_ALLOWED - negotiated {text}")


def test_without_limits_of_ours_the_client_may_have_none() -> None:
    peer = opened(Tuning(channel_max=0, frame_max=0), channel_max=0, frame_max=0)
    body = bytes(1_000_000)
    peer.says(message(body, frame_max=0))
    assert peer.handler.taken() == [("publish", 1, publish_arguments(), PROPERTIES, body)]


def test_without_limits_of_frames_methods_have_their_room_however_small_bodies_must_be() -> None:
    peer = opened(Tuning(frame_max=0, body_size_max=0), frame_max=0)
    declare = m.QueueDeclare("q" * 255)
    peer.says((1, declare))
    assert peer.handler.taken() == [("method", 1, declare)]


def test_s015_a_virtual_host_that_is_refused_ends_the_connection() -> None:
    peer = in_state(State.OPENING)
    peer.handler.refusals["open"] = AmqpError(530, "access to vhost 'x' refused for user 'u'")
    close = peer.says((0, m.ConnectionOpen("x"))).close_heard()
    assert close.reply_text == "NOT_ALLOWED - access to vhost 'x' refused for user 'u'"


def test_s004_a_handshake_that_takes_too_long_is_cut_off() -> None:
    for state in (State.AWAITING_HEADER, State.STARTING, State.SECURING, State.TUNING, State.OPENING):
        peer = in_state(state)
        must_end_at(peer, 10.0)
        assert peer.handler.taken() == [("closed",)]


def test_a_frame_larger_than_the_initial_limit_is_refused_before_it_comes() -> None:
    peer = in_state(State.STARTING).says(b"\x01\x00\x00\x00\x00\x20\x01" + b"\0")
    assert peer.close_heard().reply_code == 501
    assert peer.gone()


def test_a_channel_before_open_is_an_unexpected_frame() -> None:
    assert in_state(State.OPENING).says((1, m.ChannelOpen())).close_heard().reply_code == 505
