"""Connections from the client's side, §1 of the acceptance list: greeting, limits, secrets, endings.

Logging in is in test_s01_login.py, what frames may look like in test_s01_frames.py.
"""

from __future__ import annotations

import logging

import attrs
import pytest

from leveret.limits import NodeLimits, UserLimits, VirtualHostLimits
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method
from leveret.security.access import Access
from leveret.version import VERSION
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK

from .peer import HEADER, TWO_HOSTS, Content, Peer, start_ok, started


def tuned(bench: ClientBench | None = None, user: str = "guest", password: str = "guest") -> Peer:
    """A client that has logged in and agreed to the limits."""
    peer = Peer(bench or ClientBench())
    assert isinstance(peer.log_in(user, password), m.ConnectionTune)
    peer.tune()
    return peer


# The greeting.


def test_s001_the_header_is_answered_with_start_for_version_0_9() -> None:
    start = Peer().start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert b"en_US" in start.locales.split()
    assert start.mechanisms.split() == [b"PLAIN", b"AMQPLAIN", b"ANONYMOUS"]


def test_s003_an_older_or_newer_version_is_answered_with_ours_and_the_end() -> None:
    newer = (b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x00\x0a\x00")
    older = (
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x01\x01\x09\x01",
        b"AMQP\x00\x00\x08\x00",
        b"AMQP\x01\x01\x00\x08",
    )
    for header in (*newer, *older):
        peer = Peer()
        peer.send_bytes(header)
        peer.read()
        assert peer.greeting == b"AMQP\x00\x00\x09\x01"
        assert peer.front.closed


def test_s002_s003_any_other_header_is_answered_with_that_of_1_0_sasl_and_the_end() -> None:
    """S002: 1.0 without SASL is refused that way. (With SASL it is another front-end's.)"""
    for header in (b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"AMQP\x09\x09\x09\x09", b"NONSENSE"):
        peer = Peer()
        peer.send_bytes(header)
        peer.read()
        assert peer.greeting == b"AMQP\x03\x01\x00\x00"
        assert peer.front.closed


def test_s003_where_1_0_is_not_served_nobody_is_sent_looking_for_it() -> None:
    for served, answer in (
        (("amqp091",), b"AMQP\x00\x00\x09\x01"),
        (("amqp091", "amqp10"), b"AMQP\x03\x01\x00\x00"),
    ):
        for header in (b"AMQP\x03\x01\x00\x00", b"AMQP\x01\x01\x00\x0a", b"NONSENSE"):
            peer = Peer(ClientBench(), attrs.evolve(LOOPBACK, served=served))
            peer.send_bytes(header)
            peer.read()
            assert peer.greeting == answer


@pytest.mark.parametrize(
    ("first", "answer", "detected"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 400 ", "detected HTTP GET"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x15\x03", "detected TLS"),
    ],
)
def test_x001_http_and_tls_are_recognised_and_refused(
    first: bytes, answer: bytes, detected: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    peer.send_bytes(first)
    peer.read()
    assert peer.greeting.startswith(answer)
    assert peer.front.closed
    peer.drop()
    assert detected in caplog.text
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_x002_a_peer_that_leaves_without_a_word_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Peer().drop()
    assert not caplog.records


def test_s004_a_handshake_that_takes_longer_than_allowed_is_ended() -> None:
    bench = ClientBench()
    silent, slow, done = Peer(bench), tuned(bench), Peer(bench).open()
    bench.advance(9.9)
    assert not any(peer.front.closed for peer in (silent, slow))
    bench.advance(0.2)
    assert silent.front.closed
    assert slow.front.closed
    assert not done.front.closed


def test_s004_the_time_for_the_handshake_can_be_set() -> None:
    bench = ClientBench("limits.handshake_timeout_s = 2")
    peer = started(bench)
    bench.advance(2)
    assert peer.front.closed


def test_s005_the_server_says_it_is_rabbitmq_where_the_configuration_wants_that() -> None:
    properties = Peer(ClientBench('compat.product = "rabbitmq-4"')).start().server_properties
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "4.4.0")


def test_s005_the_server_says_what_it_is_and_can() -> None:
    properties = Peer().start().server_properties
    assert properties["product"] == "Leveret"
    assert properties["version"] == VERSION
    assert str(properties["platform"]).startswith("Python")
    assert properties["capabilities"] == {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
        "direct_reply_to": True,
    }


# Limits.


def test_s009_the_limits_offered() -> None:
    tune = Peer().log_in()
    assert isinstance(tune, m.ConnectionTune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize(
    ("tune_ok", "text"),
    [
        ((2047, 131073, 0), "frame_max = 131073 is higher than the maximum allowed value (131072)"),  # S010
        ((2047, 0, 0), "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"),  # S010
        ((2047, 4095, 0), "frame_max = 4095 is lower than the minimum allowed value (4096)"),  # S011
        ((2048, 131072, 0), "channel_max = 2048 is higher than the maximum allowed value (2047)"),  # S012
        ((0, 131072, 0), "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
    ],
)
def test_s010_s011_s012_limits_out_of_bounds_end_the_connection(
    tune_ok: tuple[int, int, int], text: str
) -> None:
    peer = Peer()
    peer.log_in()
    assert peer.closed_with(0, m.ConnectionTuneOk(*tune_ok)) == f"530 NOT_ALLOWED - negotiated {text}"


@pytest.mark.parametrize(
    ("toml", "least"),
    [
        ("", 4096),
        ('[compat]\nprofile = "spec"', 4096),
        ('[compat]\nprofile = "rabbitmq-4"', 8192),
        ("[compat]\nframe_min_size = 8192", 8192),
    ],
)
def test_s011_the_smallest_frame_can_be_chosen(toml: str, least: int) -> None:
    refused, content = Peer(ClientBench(toml)), Peer(ClientBench(toml))
    refused.log_in()
    text = refused.closed_with(0, m.ConnectionTuneOk(2047, least - 1, 0))
    assert text.endswith(f"frame_max = {least - 1} is lower than the minimum allowed value ({least})")
    assert content.open(frame_max=least)


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("", "530 NOT_ALLOWED - vhost nowhere not found"),
        ('[compat]\nprofile = "spec"', "402 INVALID_PATH - vhost nowhere not found"),
        ('[compat]\nunknown_virtual_host = "invalid-path"', "402 INVALID_PATH - vhost nowhere not found"),
        ('[compat]\nprofile = "rabbitmq-4"', "530 NOT_ALLOWED - vhost nowhere not found"),
    ],
)
def test_s014_a_virtual_host_that_is_not_there(toml: str, text: str) -> None:
    assert tuned(ClientBench(toml)).closed_with(0, m.ConnectionOpen("nowhere")) == text


def test_s015_a_virtual_host_one_may_not_enter() -> None:
    bench = ClientBench(TWO_HOSTS)
    text = tuned(bench, "ann", "secret").closed_with(0, m.ConnectionOpen("blue"))
    assert text == "530 NOT_ALLOWED - access to vhost 'blue' refused for user 'ann'"
    text = tuned(bench, "nobody", "secret").closed_with(0, m.ConnectionOpen("/"))
    assert text == "530 NOT_ALLOWED - access to vhost '/' refused for user 'nobody'"


def test_s016_a_virtual_host_takes_only_so_many_connections() -> None:
    bench = ClientBench('[[virtual_hosts]]\nname = "/"\nconnections_max = 2')
    first = Peer(bench).open()
    Peer(bench).open()
    text = tuned(bench).closed_with(0, m.ConnectionOpen("/"))
    assert text == (
        "530 NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached"
    )
    first.call(0, m.ConnectionClose())
    assert Peer(bench).open()


def test_s016_a_limit_of_0_refuses_all_and_a_negative_one_nobody() -> None:
    bench = ClientBench()
    bench.host.limits = VirtualHostLimits(max_connections=0)
    text = tuned(bench).closed_with(0, m.ConnectionOpen("/"))
    assert text.endswith("connection limit (0) is reached")
    bench.host.limits = VirtualHostLimits(max_connections=-1)
    assert Peer(bench).open()


def test_x005_a_user_has_only_so_many_connections() -> None:
    bench = ClientBench()
    bench.broker.access.add_user("guest", "guest", limits=UserLimits(max_connections=1))
    peer = Peer(bench).open()
    text = tuned(bench).closed_with(0, m.ConnectionOpen("/"))
    assert text == (
        "530 NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached"
    )
    peer.drop()
    assert Peer(bench).open()


def test_x005_a_node_takes_only_so_many_connections() -> None:
    bench = ClientBench("[limits]\nconnections_max = 1")
    peer = Peer(bench).open()
    text = tuned(bench).closed_with(0, m.ConnectionOpen("/"))
    assert text == "530 NOT_ALLOWED - connection refused: node connection limit (1) is reached"
    bench.broker.node_limits = NodeLimits(max_connections=None)
    assert Peer(bench).open()
    assert not peer.front.closed


def test_a_user_has_only_so_many_channels_over_all_connections() -> None:
    bench = ClientBench()
    bench.broker.access.add_user("guest", "guest", limits=UserLimits(max_channels=2))
    one, other = Peer(bench).open(), Peer(bench).open()
    one.channel(1)
    other.channel(1)
    assert other.closed_with(2, m.ChannelOpen()) == (
        "530 NOT_ALLOWED - number of channels opened for user 'guest' "
        "has reached the maximum allowed user limit of (2)"
    )
    assert one.channel(2)  # the other connection's channel has gone with it


def test_virtual_hosts_share_nothing() -> None:
    bench = ClientBench(TWO_HOSTS)
    white = Peer(bench).open().channel()
    blue = Peer(bench).open(virtual_host="blue").channel()
    for channel in (white, blue):
        channel.exchange("x", "fanout")
        channel.declare("q")
        channel.bind("q", "x")
    white.publish("x", "", b"white")
    blue.publish("", "q", b"blue")
    assert blue.bodies("q") == [b"blue"]
    assert white.bodies("q") == [b"white"]
    white.declare("only white")
    missing = blue.closed_with(m.QueueDeclare("only white", passive=True))
    assert missing == "404 NOT_FOUND - no queue 'only white' in vhost 'blue'"


# Secrets, states and the end.


CHECKED = 'compat.update_secret = "check"'


def test_x008_a_good_new_secret_is_accepted() -> None:
    peer = Peer().open()
    assert isinstance(
        peer.call(0, m.ConnectionUpdateSecret(b"guest", "rotation")), m.ConnectionUpdateSecretOk
    )


def test_x008_any_secret_will_do_for_a_user_with_a_password() -> None:
    """RabbitMQ asks only backends whose credentials expire."""
    peer = Peer().open()
    assert isinstance(
        peer.call(0, m.ConnectionUpdateSecret(b"wrong", "rotation")), m.ConnectionUpdateSecretOk
    )
    assert peer.front.client.user.name == "guest"
    peer.channel()


def test_x008_a_new_secret_that_is_refused_ends_the_connection() -> None:
    text = Peer(ClientBench(CHECKED)).open().closed_with(0, m.ConnectionUpdateSecret(b"wrong", "rotation"))
    assert text == "530 NOT_ALLOWED - New secret was refused by one of the backends"


def test_x008_consumers_that_may_no_longer_read_are_cancelled() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    channel = peer.channel()
    for queue in ("kept", "lost"):
        channel.declare(queue)
        channel.consume(queue, tag=queue)
    bench.broker.access.set_permissions("guest", "/", ".*", ".*", "^kept$")
    peer.send(0, m.ConnectionUpdateSecret(b"guest", "rotation"))
    assert channel.all() == [m.BasicCancel("lost", True)]
    assert isinstance(peer.next(0), m.ConnectionUpdateSecretOk)
    channel.publish("", "kept", b"on")
    channel.publish("", "lost", b"off")
    assert [content.body for content in channel.deliveries()] == [b"on"]


def test_x008_who_waits_for_replies_goes_on_waiting_whatever_he_may_read() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    channel = peer.channel()
    channel.consume("amq.rabbitmq.reply-to", "replies", no_ack=True)
    bench.broker.access.set_permissions("guest", "/", ".*", ".*", "^$")
    assert isinstance(
        peer.call(0, m.ConnectionUpdateSecret(b"guest", "rotation")), m.ConnectionUpdateSecretOk
    )
    assert channel.all() == []
    assert len(bench.host.hidden_queues) == 1


def test_x008_who_may_no_longer_enter_is_out_with_the_next_secret() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    bench.broker.access.clear_permissions("guest", "/")
    text = peer.closed_with(0, m.ConnectionUpdateSecret(b"guest", "rotation"))
    assert text == "530 NOT_ALLOWED - access to vhost '/' refused for user 'guest'"


def test_x008_a_secret_that_cannot_be_checked_ends_the_connection() -> None:
    class Broken(Access):
        def authenticate(self, name: str, password: str | bytes) -> None:
            raise OSError("the directory does not answer")

    bench = ClientBench(CHECKED)
    peer = Peer(bench).open()
    bench.broker.access = Broken()
    text = peer.closed_with(0, m.ConnectionUpdateSecret(b"guest", "rotation"))
    assert text == "530 NOT_ALLOWED - Secret update failed"


def test_x009_an_operator_ends_a_connection() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    peer.channel().declare("own", exclusive=True)
    peer.front.shut_down("closed by an operator")
    assert "own" not in bench.host.queues
    assert peer.refusal() == "320 CONNECTION_FORCED - closed by an operator"


@pytest.mark.parametrize(
    ("method", "state"),
    [
        (m.ConnectionTuneOk(2047, 131072, 0), "starting"),
        (m.ConnectionOpen("/"), "starting"),
        (m.ConnectionUpdateSecret(b"guest", ""), "starting"),
    ],
)
def test_s017_a_method_before_its_time_is_a_channel_error(method: Method, state: str) -> None:
    text = started().closed_with(0, method)
    assert text == f"504 CHANNEL_ERROR - unexpected method in connection state {state}"


def test_s017_a_method_after_its_time_is_a_channel_error() -> None:
    for method in (start_ok("PLAIN", b"\0guest\0guest"), m.ConnectionTuneOk(), m.ConnectionOpen("/")):
        text = Peer().open().closed_with(0, method)
        assert text == "504 CHANNEL_ERROR - unexpected method in connection state running"


def test_s018_a_close_is_answered_when_channels_and_exclusive_queues_have_gone() -> None:
    bench = ClientBench()
    peer, other = Peer(bench).open(), Peer(bench).open().channel()
    channel = peer.channel()
    channel.declare("own", exclusive=True)
    channel.declare("shared")
    channel.publish("", "shared", b"taken, not answered")
    assert channel.get("shared", no_ack=False) is not None
    peer.send(0, m.ConnectionClose(200, "done"), settle=False)
    assert bench.queue("shared").ready == 1
    assert "own" not in bench.host.queues
    assert isinstance(peer.next(0), m.ConnectionCloseOk)
    assert peer.front.closed
    assert isinstance(answer := other.get("shared"), Content)
    assert answer.method.redelivered


def test_s019_after_its_close_the_server_hears_only_close_and_close_ok() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    channel = peer.channel()
    peer.front.shut_down("enough")
    channel.send(m.QueueDeclare("late"))
    channel.publish("", "late", b"")
    peer.send(0, m.ConnectionOpen("/"))
    assert "late" not in bench.host.queues
    assert isinstance(peer.next(), m.ConnectionClose)
    assert isinstance(peer.call(0, m.ConnectionClose(200, "me too")), m.ConnectionCloseOk)
    assert not peer.front.closed
    peer.send(0, m.ConnectionCloseOk())
    assert peer.front.closed


def test_s020_more_channels_than_agreed_end_the_connection() -> None:
    peer = Peer()
    peer.log_in()
    peer.tune(channel_max=2)
    peer.call(0, m.ConnectionOpen("/"))
    peer.channel(1)
    peer.channel(2)
    assert peer.closed_with(3, m.ChannelOpen()) == (
        "530 NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )


def test_s020_a_closed_channel_makes_room_for_another() -> None:
    peer = Peer()
    peer.log_in()
    peer.tune(channel_max=1)
    peer.call(0, m.ConnectionOpen("/"))
    peer.channel(1).does(m.ChannelClose())
    assert peer.channel(2)


def test_a_name_of_a_connection_says_from_where_to_where() -> None:
    peer = Peer(ClientBench(), LOOPBACK).open()
    assert peer.front.client.name == "127.0.0.1:40000 -> 127.0.0.1:5672"
    assert peer.front.description == "user 'guest', vhost '/'"


def test_the_greeting_may_come_octet_by_octet() -> None:
    peer = Peer()
    for octet in HEADER:
        peer.send_bytes(bytes([octet]))
    assert isinstance(peer.next(0), m.ConnectionStart)
