"""AMQP 1.0 connections from the client's side, §10 of the acceptance list: logging in, opening, limits, the end."""

from __future__ import annotations

import logging

import attrs
import pytest

from leveret.broker import WORK_MAX
from leveret.limits import UserLimits
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Symbol, UInt
from leveret.version import VERSION
from tests.amqp091.peer import TWO_HOSTS
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE, LOOPBACK

from .parts import data, frame
from .peer import HEADER, SASL_HEADER, Peer, declare, plain

OK, AUTH = 0, 1  # codes of an outcome


def refused_login(peer: Peer, mechanism: str, response: bytes | None) -> None:
    """The login fails, and that is the end."""
    assert peer.authenticate(mechanism, response) == p.SaslOutcome(code=AUTH)
    assert peer.front.closed


# Headers.


CLOSED = 'compat.refused_open = "close"\n'  # and told why
CHECKED = 'compat.update_secret = "check"\n'


@pytest.mark.parametrize(
    "toml",
    [
        'compat.without_sasl = "refuse"',
        'protocols.amqp10.mechanisms = ["PLAIN"]',
        'security.anonymous_user = ""',
    ],
)
def test_s002_1_0_without_sasl_is_answered_with_the_header_of_sasl_and_the_end(toml: str) -> None:
    peer = Peer(ClientBench(toml))
    peer.send_bytes(HEADER + frame(0, p.Open(container_id="test")))
    assert peer.take_bytes() == SASL_HEADER
    assert peer.front.closed


def test_s002_1_0_without_sasl_is_anonymous_where_that_is_offered() -> None:
    peer = Peer()
    peer.ask_open()
    assert peer.headers == [HEADER]
    assert peer.opened is not None
    facts = peer.front.facts()
    assert facts is not None
    assert (facts.user, facts.mechanism) == ("guest", "ANONYMOUS")
    assert peer.begin().sender("/exchanges/amq.fanout").publish(data(b"hello")) == p.Released()


def test_s002_the_anonymous_user_may_have_to_come_from_this_machine() -> None:
    peer = Peer(address=ELSEWHERE)
    peer.send_bytes(HEADER + frame(0, p.Open(container_id="test")))
    assert peer.take_bytes() == SASL_HEADER
    assert peer.front.closed


def test_s003_other_headers_are_answered_with_the_header_of_sasl_and_the_end() -> None:
    for header in (b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x02\x00\x00", b"NONSENSE"):
        peer = Peer()
        peer.send_bytes(header)
        assert peer.take_bytes() == SASL_HEADER
        assert peer.front.closed


def test_who_speaks_something_else_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    with caplog.at_level(logging.INFO, "leveret.amqp10"):
        peer.send_bytes(b"NONSENSE")
        peer.drop()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].endswith("refused, detected an unknown protocol")


# Logging in.


@pytest.mark.parametrize(
    ("toml", "offered"),
    [
        ("", ["PLAIN", "ANONYMOUS"]),
        ('protocols.amqp10.mechanisms = ["ANONYMOUS", "PLAIN"]', ["ANONYMOUS", "PLAIN"]),
        ('protocols.amqp10.mechanisms = ["PLAIN"]', ["PLAIN"]),
        ('security.anonymous_user = ""', ["PLAIN"]),
    ],
)
def test_s164_the_mechanisms_are_offered_in_the_configured_order(toml: str, offered: list[str]) -> None:
    assert Peer(ClientBench(toml)).greet() == offered


@pytest.mark.parametrize(
    "response",
    [
        plain("guest", "wrong"),
        plain("nobody", "guest"),
        plain("guest", ""),
        b"guest",
        b"",
        b"\xff\0\xff\0\xff",
        None,
    ],
)
def test_s164_who_cannot_log_in_is_told_with_code_1_and_left(response: bytes | None) -> None:
    peer = Peer()
    peer.greet()
    refused_login(peer, "PLAIN", response)
    assert peer.headers == [SASL_HEADER]  # no second header


def test_s164_the_log_says_why_a_login_failed_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    peer.greet()
    with caplog.at_level(logging.INFO, "leveret"):
        refused_login(peer, "PLAIN", plain("guest", "my secret"))
        peer.drop()
    assert "login refused: user 'guest': invalid credentials" in caplog.text
    assert "my secret" not in caplog.text


def test_x046_a_mechanism_that_was_not_offered(caplog: pytest.LogCaptureFixture) -> None:
    for mechanism in ("EXTERNAL", "AMQPLAIN", "plain", ""):
        peer = Peer()
        peer.greet()
        refused_login(peer, mechanism, b"")
        assert f"login refused: unknown authentication mechanism '{mechanism}'" in caplog.text


def test_s008_loopback_users_come_from_this_machine_only(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(ClientBench(), ELSEWHERE)
    peer.greet()
    refused_login(peer, "PLAIN", plain("guest", "guest"))
    assert "user 'guest' can only connect via localhost" in caplog.text
    bench = ClientBench()
    bench.user("ann")
    Peer(bench, ELSEWHERE).open("ann")


def test_anonymous_is_the_anonymous_user() -> None:
    peer = Peer()
    peer.greet()
    assert peer.authenticate("ANONYMOUS", b"whoever") == p.SaslOutcome(code=OK)
    peer.ask_open()
    assert peer.front.description == "user 'guest', vhost '/'"


def test_a_mechanism_of_several_steps() -> None:
    bench = ClientBench('protocols.amqp10.mechanisms = ["RABBIT-CR-DEMO"]')
    right, wrong = Peer(bench), Peer(bench)
    for peer in (right, wrong):
        peer.greet()
        challenge = peer.authenticate("RABBIT-CR-DEMO", b"guest")
        assert challenge == p.SaslChallenge(challenge=b"Please tell me your password")
    assert right.respond(b"My password is guest") == p.SaslOutcome(code=OK)
    assert right.ask_open().opened is not None
    assert wrong.respond(b"My password is secret") == p.SaslOutcome(code=AUTH)
    assert wrong.front.closed


# The virtual host.


@pytest.mark.parametrize(
    ("hostname", "virtual_host"),
    [
        (None, "/"),
        ("", "/"),
        ("localhost", "/"),
        ("blue", "/"),
        ("vhost", "/"),
        ("VHOST:blue", "/"),
        ("vhost:/", "/"),
        ("vhost:blue", "blue"),
    ],
)
def test_s165_the_hostname_may_name_the_virtual_host(hostname: str | None, virtual_host: str) -> None:
    peer = Peer(ClientBench(TWO_HOSTS)).open(hostname=hostname)
    assert peer.front.client.host.name == virtual_host


def test_s165_the_default_virtual_host_is_the_first_configured() -> None:
    bench = ClientBench('virtual_hosts = [{name = "green"}, {name = "/"}]')
    bench.broker.access.set_permissions("guest", "green", "", "", "")
    assert Peer(bench).open().front.client.host.name == "green"


def test_s165_or_that_of_the_listener() -> None:
    address = attrs.evolve(LOOPBACK, virtual_host="blue")
    for hostname, expected in (("localhost", "blue"), (None, "blue"), ("vhost:/", "/")):
        peer = Peer(ClientBench(TWO_HOSTS), address=address).open(hostname=hostname)
        assert peer.front.client.host.name == expected


def test_s166_a_virtual_host_that_is_not_there() -> None:
    for name in ("blue", "", "vhost:/"):
        peer = Peer(ClientBench(CLOSED)).log_in().ask_open(f"vhost:{name}")
        why = f"AMQP 1.0 connection failed: virtual host '{name}' does not exist"
        assert peer.refusal() == f"amqp:unauthorized-access {why}"


def test_s166_a_refused_open_ends_the_connection_without_a_close(caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ's client for Python connects again for ever, inside of its own handler, if a close comes."""
    peer = Peer().log_in().ask_open("vhost:blue")
    assert (peer.opened, peer.closed) == (None, None)
    assert peer.front.closed
    assert caplog.messages[-1].endswith("AMQP 1.0 connection failed: virtual host 'blue' does not exist")
    assert Peer(ClientBench('compat.profile = "spec"')).log_in().ask_open("vhost:blue").opened is not None


def test_s015_a_virtual_host_that_the_user_may_not_enter() -> None:
    peer = Peer(ClientBench(CLOSED + TWO_HOSTS)).log_in("ann", "secret").ask_open("vhost:blue")
    why = "access to vhost 'blue' refused for user 'ann'"
    assert peer.refusal() == f"amqp:unauthorized-access {why}"


def test_s166_the_refusal_comes_behind_our_own_open() -> None:
    """Part 2, section 2.4.1: an open is what each side says first."""
    peer = Peer(ClientBench(CLOSED)).log_in().ask_open("vhost:blue")
    assert [type(what) for what in peer.taken()][-2:] == [p.Open, p.Close]


# Limits.


def test_x047_connections_to_the_node() -> None:
    bench = ClientBench(CLOSED + "limits.connections_max = 1")
    first = Peer(bench).open()
    why = "connection refused: node connection limit (1) is reached"
    assert Peer(bench).log_in().ask_open().refusal() == f"amqp:resource-limit-exceeded {why}"
    first.close()
    Peer(bench).open()


def test_x047_connections_to_a_virtual_host() -> None:
    bench = ClientBench(CLOSED + 'virtual_hosts = [{name = "/", connections_max = 1}]')
    first = Peer(bench).open()
    why = "access to vhost '/' refused for user 'guest': vhost connection limit (1) is reached"
    assert Peer(bench).log_in().ask_open().refusal() == f"amqp:resource-limit-exceeded {why}"
    first.drop()
    Peer(bench).open()


def test_x047_connections_of_a_user() -> None:
    bench = ClientBench(CLOSED)
    bench.broker.access.add_user("ann", "ann", limits=UserLimits(max_connections=1))
    bench.broker.access.set_permissions("ann", "/", "", "", "")
    Peer(bench).open("ann")
    why = "connection refused for user 'ann': user connection limit (1) is reached"
    assert Peer(bench).log_in("ann", "ann").ask_open().refusal() == f"amqp:resource-limit-exceeded {why}"
    Peer(bench).open()


def test_sessions_count_as_a_users_channels() -> None:
    bench = ClientBench()
    bench.broker.access.add_user("ann", "ann", limits=UserLimits(max_channels=2))
    bench.broker.access.set_permissions("ann", "/", "", "", "")
    peer = Peer(bench).open("ann")
    first, _ = peer.begin(), peer.begin()
    why = "number of channels opened for user 'ann' has reached the maximum allowed user limit of (2)"
    assert peer.ask_begin().refusal() == f"amqp:resource-limit-exceeded {why}"
    first.end()
    peer.begin()
    peer.drop()
    assert bench.broker.channels_of == {}


def test_x051_no_more_sessions_than_were_offered() -> None:
    peer = Peer(ClientBench("protocols.amqp10.session_max = 2")).open()
    assert peer.opened.channel_max == 1
    peer.begin()
    peer.begin()
    peer.send_bytes(frame(2, p.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    why = "channel number (2) exceeds maximum channel number (1)"
    assert peer.refusal() == f"amqp:connection:framing-error {why}"


def test_x048_frames_may_not_be_limited_to_less_than_512_octets() -> None:
    peer = Peer().log_in().ask_open(max_frame_size=511)
    why = "max_frame_size (511) < minimum maximum frame size (512)"
    assert peer.refusal() == f"amqp:frame-size-too-small {why}"
    assert Peer().open(max_frame_size=512).opened.max_frame_size == 131_072


@pytest.mark.parametrize("milliseconds", [1, 999])
def test_s167_an_idle_time_out_below_a_second_is_refused(milliseconds: int) -> None:
    peer = Peer().log_in().ask_open(idle_time_out=milliseconds)
    why = f"idle-time-out ({milliseconds} ms) < minimum idle-time-out (1000 ms)"
    assert peer.refusal() == f"amqp:not-allowed {why}"


def test_s167_half_of_our_idle_time_out_is_told() -> None:
    assert Peer().open(idle_time_out=1000).opened.idle_time_out == 30_000
    bench = ClientBench("protocols.amqp10.idle_timeout_s = 10")
    assert Peer(bench).open().opened.idle_time_out == 5_000
    bench = ClientBench("protocols.amqp10.idle_timeout_s = 0")
    assert Peer(bench).open().opened.idle_time_out is None


def test_x049_who_is_silent_for_too_long_is_given_up() -> None:
    bench = ClientBench("protocols.amqp10.idle_timeout_s = 10")
    silent, alive = Peer(bench).open(), Peer(bench).open()
    bench.advance(5)
    bench.advance(5)
    assert not silent.front.closed
    alive.send_bytes(frame(0, p.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    bench.advance(5)
    why = "no frame received from client within idle timeout threshold"
    assert silent.refusal() == f"amqp:resource-limit-exceeded {why}"
    assert not alive.front.closed


# What the node says of itself.


def test_x050_the_open_says_what_the_node_is_and_can() -> None:
    opened = Peer(ClientBench('node.name = "east"')).open().opened
    assert opened.container_id == "east"
    assert opened.channel_max == 63
    assert opened.max_frame_size == 131_072
    assert set(opened.offered_capabilities) == {
        "ANONYMOUS-RELAY",
        "DELAYED_DELIVERY",
        "LINK_PAIR_V1_0",
        "sole-connection-for-container",
        "SHARED-SUBS",
    }
    properties = opened.properties
    assert properties["product"] == "Leveret"
    assert properties["version"] == VERSION
    assert properties["platform"].startswith("Python")
    assert properties["node"] == "east"


def test_x050_the_node_says_it_is_rabbitmq_where_the_configuration_wants_that() -> None:
    properties = Peer(ClientBench('compat.product = "rabbitmq-4"')).open().opened.properties
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "4.4.0")


def test_the_log_knows_who_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "leveret.amqp10"):
        peer = Peer().open()
        assert peer.front.description == "user 'guest', vhost '/'"
        peer.close()
        peer.drop()
    name = "127.0.0.1:40000 -> 127.0.0.1:5672"
    assert caplog.messages[0] == f"{name}: logged in: user 'guest', vhost '/', client 'test'"
    assert caplog.messages[1].startswith(f"{name}: ended, ")
    assert len(caplog.messages) == 2


# Secrets.


def test_x086_any_secret_will_do_for_a_user_with_a_password() -> None:
    peer = Peer().open()
    assert peer.front.change_secret(b"wrong")
    peer.begin()


def test_x086_a_fresh_secret_is_taken() -> None:
    bench = ClientBench(CHECKED)
    bench.user("ann")
    peer = Peer(bench).open("ann")
    bench.broker.access.add_user("ann", "fresh")
    peer.front.change_secret(b"fresh")
    assert peer.front.client.user is bench.broker.access.user("ann")
    peer.begin()


def test_x086_a_wrong_secret_is_refused() -> None:
    peer = Peer(ClientBench(CHECKED)).open()
    with pytest.raises(AmqpError) as refused:
        peer.front.change_secret(b"wrong")
    assert refused.value.condition == "amqp:unauthorized-access"
    assert "wrong" not in str(refused.value)


def test_x086_receivers_that_may_no_longer_read_are_detached() -> None:
    bench = ClientBench()
    bench.user("ann")
    declare(bench, "mine")
    declare(bench, "yours")
    peer = Peer(bench).open("ann")
    session = peer.begin()
    staying, going = session.receiver("/queues/mine"), session.receiver("/queues/yours")
    bench.broker.access.set_permissions("ann", "/", "", "", "^mine$")
    peer.front.change_secret(b"ann")
    why = "read access to queue 'yours' in vhost '/' refused for user 'ann'"
    assert going.refusal() == f"amqp:unauthorized-access {why}"
    assert (session.ended, staying.detached) == (None, None)


# The end.


def test_x009_an_operator_ends_a_connection() -> None:
    peer = Peer().open()
    peer.front.shut_down("the node goes down")
    assert peer.refusal() == "amqp:connection:forced Connection forced: the node goes down"


def test_x009_who_is_not_open_yet_is_left_at_once() -> None:
    for step in (lambda peer: None, Peer.greet, Peer.log_in):
        peer = Peer()
        step(peer)
        peer.front.shut_down("the node goes down")
        assert peer.front.closed


def test_what_a_connection_held_is_free_when_it_has_gone() -> None:
    bench = ClientBench()
    for end in (Peer.close, Peer.drop):
        peer = Peer(bench).open()
        peer.begin()
        bench.host.declare_queue("mine", exclusive=True, owner=peer.front.client)
        peer.front.client.exclusive_queues[bench.queue("mine")] = None
        assert bench.host.connections == 1
        end(peer)
        assert bench.host.connections == 0
        assert "mine" not in bench.host.queues
        assert bench.broker.clients == {}
        assert bench.broker.channels_of == {}


def test_a_connection_that_ends_before_it_was_open_leaves_nothing() -> None:
    bench = ClientBench()
    for step in (lambda peer: None, Peer.greet, Peer.log_in):
        peer = Peer(bench)
        step(peer)
        peer.drop()
    assert bench.broker.clients == {}
    assert not bench.broker.connections_of


# Many messages.


def test_one_read_that_fans_out_widely_stops_for_others() -> None:
    """As in 0-9-1: what one publisher sends in one read may become so many copies that others would wait."""
    bench = ClientBench()
    for number in range(100):
        declare(bench, f"q{number}")
        bench.host.bind(bench.host.exchange("amq.fanout"), bench.queue(f"q{number}"), "")
    peer = Peer(bench).open()
    sender = peer.begin().sender("/exchanges/amq.fanout")
    batch = b"".join(
        frame(
            sender.session.channel,
            p.Transfer(handle=0, delivery_id=UInt(number), delivery_tag=b"%d" % number, settled=True),
            data(b"x"),
        )
        for number in range(150)
    )
    peer.front.receive(batch, bench.broker.tick())
    assert peer.front.halted
    assert WORK_MAX <= bench.queue("q0").ready * 100 <= WORK_MAX + 200
    bench.broker.settle()
    while peer.front.halted:
        peer.front.receive(b"", bench.broker.tick())
        bench.broker.settle()
    assert bench.queue("q0").ready == 150


# Sole connections.

SOLE = {"desired_capabilities": [Symbol("sole-connection-for-container")]}


@pytest.mark.parametrize("first", [{}, SOLE])
@pytest.mark.parametrize("second", [{}, SOLE])
def test_a_container_that_is_to_have_one_connection_has_no_other(
    first: dict[str, object], second: dict[str, object]
) -> None:
    """AMQP Enforcing Connection Uniqueness: so nobody steals a durable subscription under its consumer."""
    bench = ClientBench()
    holder, other = Peer(bench).open(container_id="shop", **first), Peer(bench).log_in()
    other.ask_open(container_id="shop", **second)
    if not (first or second):
        assert other.closed is None
        return
    assert other.opened.properties["amqp:connection-establishment-failed"] is True
    assert other.closed.error.info == {"invalid-field": "container-id"}
    assert other.refusal() == "amqp:invalid-field container-id 'shop' is in use by another connection"
    Peer(bench).open(container_id="stall", **second)
    holder.read()
    assert holder.closed is None
    holder.drop()
    Peer(bench).open(container_id="shop", **second)


def test_a_container_may_replace_its_own_connection() -> None:
    bench = ClientBench()
    bench.user("ann")
    replacing = {**SOLE, "properties": {Symbol("sole-connection-enforcement-policy"): UInt(1)}}
    first = Peer(bench).open(container_id="shop", **SOLE)
    strange = Peer(bench).log_in("ann", "ann").ask_open(container_id="shop", **replacing)
    assert strange.refusal().startswith("amqp:invalid-field container-id 'shop'")
    Peer(bench).open(container_id="shop", **replacing)
    first.read()
    assert first.closed.error.info == {"sole-connection-enforcement": True}
    assert first.refusal().startswith("amqp:resource-locked container-id 'shop' is in use by a newer")
    assert Peer(bench).log_in().ask_open(container_id="shop", **SOLE).closed is not None


def test_virtual_hosts_have_containers_of_their_own() -> None:
    bench = ClientBench(TWO_HOSTS)
    Peer(bench).open(container_id="shop", hostname="vhost:/", **SOLE)
    Peer(bench).open(container_id="shop", hostname="vhost:blue", **SOLE)
