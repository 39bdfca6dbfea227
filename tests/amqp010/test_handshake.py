"""Coming in: who is let in, as whom, and where to; what a connection is told; alarms, turns and the end."""

from __future__ import annotations

import logging

import attrs
import pytest

from leveret.alarms import Monitor
from leveret.front_end import Peer as Address
from leveret.limits import UserLimits
from leveret.protocols.amqp010.broker import adapter
from leveret.protocols.amqp010.broker.registration import PROTOCOL
from leveret.protocols.amqp010.codec import commands as c
from tests.amqp091.peer import TWO_HOSTS
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE, LOOPBACK

from .attack import command
from .client import FOREVER, ConnectionEnded, SessionEnded
from .peer import Peer


def refusal(peer: Peer, **options: str) -> c.ConnectionClose:
    """How the connection is refused; the peer answers, and that is the end."""
    with pytest.raises(ConnectionEnded) as ended:
        peer.open(**options)
    assert ended.value.close is not None
    assert peer.front.closed
    return ended.value.close


def started_with(mechanism: str, response: bytes | None, bench: ClientBench | None = None) -> Peer:
    peer = Peer(bench)
    peer.greet()
    peer.control(c.ConnectionStartOk({}, mechanism, response))
    peer.read()
    return peer


# Introductions.


def test_the_server_says_who_it_is() -> None:
    start = Peer(ClientBench('node.name = "hare"')).greet()
    assert start.server_properties["product"]
    assert start.server_properties["host"] == "hare"
    assert start.mechanisms == ["PLAIN", "ANONYMOUS"]
    assert start.locales == ["en_US"]


def test_nobody_is_offered_to_be_anonymous_where_there_is_no_anonymous_user() -> None:
    start = Peer(ClientBench('security.anonymous_user = ""')).greet()
    assert start.mechanisms == ["PLAIN"]


def test_what_is_configured_is_told() -> None:
    bench = ClientBench("[protocols.amqp010]\nsession_max = 5\nframe_max = 5000\nheartbeat_s = 7")
    assert Peer(bench).log_in() == c.ConnectionTune(5, 5000, 0, 7)


# Who.


def test_a_password_lets_in() -> None:
    peer = Peer().open()
    assert peer.front.description == "user 'guest', vhost '/'"


def test_a_wrong_password_is_refused_in_words(caplog: pytest.LogCaptureFixture) -> None:
    close = refusal(Peer(), password="wrong")
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED
    assert "Login was refused using authentication mechanism PLAIN" in close.reply_text
    assert "user 'guest': invalid credentials" in caplog.text
    assert "wrong" not in caplog.text


def test_guest_comes_from_this_machine_only() -> None:
    close = refusal(Peer(ClientBench(), ELSEWHERE))
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_anybody_is_the_anonymous_user() -> None:
    peer = started_with("ANONYMOUS", b"anonymous@host")
    assert peer.tune is not None
    assert peer.front.client.user.name == "guest"


def test_who_is_anonymous_need_not_say_anything() -> None:
    assert started_with("ANONYMOUS", None).tune is not None


def test_who_has_not_begun_is_asked_to() -> None:
    """RFC 4422: a client that may speak first and did not is sent an empty challenge."""
    peer = started_with("PLAIN", None)
    assert peer.secure == c.ConnectionSecure(b"")
    peer.control(c.ConnectionSecureOk(b"\0guest\0guest"))
    peer.read()
    assert peer.tune is not None


def test_an_empty_response_is_a_response_and_a_wrong_one() -> None:
    peer = started_with("PLAIN", b"")
    assert peer.secure is None
    assert peer.closed is not None
    assert peer.closed.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_a_mechanism_of_two_steps() -> None:
    bench = ClientBench('protocols.amqp010.mechanisms = ["RABBIT-CR-DEMO"]')
    peer = started_with("RABBIT-CR-DEMO", b"guest", bench)
    assert peer.secure is not None
    peer.control(c.ConnectionSecureOk(b"My password is guest"))
    peer.read()
    assert peer.tune is not None


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    peer = started_with("AMQPLAIN", b"")
    assert peer.closed is not None
    assert peer.closed.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


# Where.


def test_no_virtual_host_means_the_first_one() -> None:
    assert Peer(ClientBench(TWO_HOSTS)).open(virtual_host="").front.client.host.name == "/"


def test_or_that_of_the_listener() -> None:
    address = attrs.evolve(LOOPBACK, virtual_host="blue")
    for named, expected in (("", "blue"), ("/", "/")):
        peer = Peer(ClientBench(TWO_HOSTS), address).open(virtual_host=named)
        assert peer.front.client.host.name == expected


def test_a_virtual_host_is_known_by_its_name() -> None:
    assert Peer(ClientBench(TWO_HOSTS)).open(virtual_host="blue").front.client.host.name == "blue"


def test_an_unknown_virtual_host_is_an_invalid_path() -> None:
    close = refusal(Peer(), virtual_host="green")
    assert (close.reply_code, close.reply_text) == (c.CLOSE_CODE_INVALID_PATH, "vhost green not found")


def test_a_virtual_host_may_be_closed_to_a_user() -> None:
    close = refusal(Peer(ClientBench(TWO_HOSTS)), user="ann", password="secret", virtual_host="blue")
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED
    assert "access to vhost 'blue' refused for user 'ann'" in close.reply_text


def test_a_node_has_room_for_so_many_connections() -> None:
    bench = ClientBench("limits.connections_max = 1")
    Peer(bench).open()
    close = refusal(Peer(bench))
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_a_connection_that_has_ended_makes_room() -> None:
    bench = ClientBench("limits.connections_max = 1")
    for _ in range(3):
        peer = Peer(bench).open()
        peer.close()
        peer.drop()
    assert bench.host.connections == 0


def test_a_user_has_no_more_sessions_than_channels() -> None:
    bench = ClientBench()
    guest = bench.broker.access.user("guest")
    assert guest is not None
    bench.broker.access.put_user(attrs.evolve(guest, limits=UserLimits(max_channels=2)))
    peer = Peer(bench).open()
    peer.attach("a", 1)
    peer.attach("b", 2)
    with pytest.raises(SessionEnded) as ended:
        peer.attach("c", 3)
    assert ended.value.detached == c.SessionDetached(b"c", c.DETACH_CODE_TRANSPORT_BUSY)
    peer.sessions[1].detach()
    assert peer.attach("d", 4).attached


# Time.


def test_heartbeats_go_both_ways() -> None:
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    for _ in range(8):
        bench.advance(5)
        peer.control(c.ConnectionHeartbeat())
        peer.read()
    assert peer.heartbeats >= 7
    assert not peer.front.closed
    for _ in range(6):
        bench.advance(5)
    assert peer.front.closed


def test_a_handshake_is_not_waited_for_for_ever() -> None:
    bench = ClientBench("limits.handshake_timeout_s = 5")
    peer = Peer(bench)
    peer.greet()
    bench.advance(6)
    assert peer.front.closed


# The node.


def test_a_node_that_shuts_down_says_so() -> None:
    peer = Peer().open()
    peer.front.shut_down("the node is shutting down")
    peer.read()
    assert peer.closed == c.ConnectionClose(c.CLOSE_CODE_CONNECTION_FORCED, "the node is shutting down")


def test_who_speaks_something_else_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    peer.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    peer.drop()
    assert peer.take_bytes() == b"AMQP\x01\x01\x00\x0a"
    assert "refused, detected HTTP GET" in caplog.text


def test_how_it_ended_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    peer = Peer().open()
    peer.close()
    peer.drop()
    assert "ended, 'the client closed it: 200 bye'" in caplog.text


def test_the_front_end_is_made_by_its_registration() -> None:
    bench = ClientBench()
    address = Address("127.0.0.1", 1, "127.0.0.1", 2, True)
    front = PROTOCOL.factory(bench.broker, bench.config, Peer(bench).outbox, address, 0.0)
    assert isinstance(front, adapter.Adapter010)
    assert PROTOCOL.encoding is not None
    assert PROTOCOL.encoding().name == "amqp010"


def test_others_have_their_turn_after_so_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "WORK_MAX", 5)
    bench = ClientBench()
    peer = Peer(bench).open()
    session = peer.attach()
    for queue in ("a", "b", "c"):
        session.declare(queue)
        session.bind(queue, "amq.fanout")
    transfer = command(c.MessageTransfer("amq.fanout", c.ACCEPT_MODE_NONE), None, b"x")
    peer.front.receive(transfer * 10, bench.broker.tick())
    turns = 1
    while peer.front.halted:
        bench.settle()
        peer.front.receive(b"", bench.broker.tick())
        turns += 1
    bench.settle()
    assert turns == 6  # of two messages, six copies, each; and the last finds nothing left
    assert bench.queue("c").ready == 10


def test_who_does_not_read_gets_no_more_until_it_does() -> None:
    bench = ClientBench('limits.outbox_size_max = "64KiB"')
    session = Peer(bench).open().attach()
    session.declare("q")
    for _ in range(100):
        session.publish("q", bytes(8192))
    session.sync()
    peer = session.client
    session.send(c.MessageSubscribe("q", "d"))
    session.send(c.MessageFlow("d", c.CREDIT_UNIT_BYTE, FOREVER))
    session.send(c.MessageFlow("d", c.CREDIT_UNIT_MESSAGE, FOREVER))
    assert 64 << 10 <= peer.outbox.size < 80 << 10
    peer.read()
    assert len(session.inboxes["d"].waiting) == 100


def test_who_asks_and_does_not_read_is_not_heard_any_more() -> None:
    bench = ClientBench('limits.outbox_size_max = "64KiB"\nlimits.message_size_max = "64KiB"')
    session = Peer(bench).open().attach()
    peer = session.client
    query = command(c.QueueQuery("q" * 200))
    for _ in range(2000):
        peer.front.receive(query * 10, bench.broker.tick())
        bench.settle()
    assert peer.front.halted
    assert peer.outbox.size < 256 << 10


# Alarms.


class Switch(Monitor):
    """An alarm that is on or off."""

    reason = "low on memory"

    def __init__(self) -> None:
        self.on = False

    def low(self) -> bool:
        return self.on

    def describe(self) -> str:
        return "a switch"


@pytest.fixture
def alarmed() -> tuple[ClientBench, Switch]:
    switch = Switch()
    return ClientBench(monitors=(switch,)), switch


def raise_alarm(bench: ClientBench, switch: Switch, on: bool = True) -> None:
    switch.on = on
    bench.watch()


def test_who_publishes_while_an_alarm_is_raised_is_not_read_from(alarmed: tuple[ClientBench, Switch]) -> None:
    bench, switch = alarmed
    session = Peer(bench).open().attach()
    session.declare("q")
    raise_alarm(bench, switch)
    session.publish("q", b"the last one")
    assert session.client.front.blocked
    session.publish("q", b"waits")
    assert bench.queue("q").ready == 1
    raise_alarm(bench, switch, False)
    assert bench.queue("q").ready == 2


def test_who_only_receives_goes_on_during_an_alarm(alarmed: tuple[ClientBench, Switch]) -> None:
    bench, switch = alarmed
    session = Peer(bench).open().attach()
    session.declare("q")
    session.publish("q", b"before")
    session.sync()
    raise_alarm(bench, switch)
    inbox = session.subscribe("q")
    session.accept(inbox.get().id)
    assert not session.client.front.blocked


def test_who_is_not_read_from_is_not_missed(alarmed: tuple[ClientBench, Switch]) -> None:
    bench, switch = alarmed
    peer = Peer(bench).open(heartbeat=10)
    session = peer.attach()
    session.declare("q")
    raise_alarm(bench, switch)
    session.publish("q", b"the last one")
    for _ in range(20):
        bench.advance(5)
    assert not peer.front.closed


def test_a_blocked_connection_can_be_closed_by_the_node(alarmed: tuple[ClientBench, Switch]) -> None:
    bench, switch = alarmed
    session = Peer(bench).open().attach()
    session.declare("q")
    raise_alarm(bench, switch)
    session.publish("q", b"the last one")
    session.client.front.shut_down("enough")
    session.client.read()
    assert session.client.front.closed
