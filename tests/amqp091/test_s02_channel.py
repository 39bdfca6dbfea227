"""Channels from the client's side, §2 of the acceptance list."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import Method
from tests.amqp091.peer import opened, with_queue
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content, Peer

SERVES_FLOW = ("", '[compat]\nprofile = "spec"')
REFUSES_FLOW = (
    '[compat]\nprofile = "rabbitmq-3.13"',
    '[compat]\nprofile = "rabbitmq-4"',
    "[compat]\nchannel_flow = false",
)


# Opening and closing.


@pytest.mark.parametrize(
    "method", [m.QueueDeclare("q"), m.BasicAck(1), m.TxSelect(), m.ChannelClose(), m.ChannelCloseOk()]
)
def test_s027_any_method_on_a_channel_that_is_not_open_ends_the_connection(method: Method) -> None:
    text = Peer().open().closed_with(7, method)
    assert text == "504 CHANNEL_ERROR - expected 'channel.open'"


def test_s027_a_publish_on_a_channel_that_is_not_open_ends_the_connection() -> None:
    peer = Peer().open()
    ClientChannel(peer, 7).publish("", "q", b"body")
    assert peer.refusal() == "504 CHANNEL_ERROR - expected 'channel.open'"


def test_s028_opening_a_channel_twice_ends_the_connection() -> None:
    channel = opened()
    assert channel.peer.closed_with(1, m.ChannelOpen()) == "504 CHANNEL_ERROR - second 'channel.open' seen"


def test_s029_after_its_close_the_server_drops_methods_until_close_ok() -> None:
    channel = opened()
    close = channel.call(m.QueueBind("nowhere", "amq.direct"))
    assert isinstance(close, m.ChannelClose)
    channel.send(m.QueueDeclare("late"))
    channel.publish("", "late", b"late")
    channel.send(m.BasicGet("late"))
    assert channel.all() == []
    assert "late" not in channel.peer.bench.host.queues


def test_s029_after_close_ok_the_number_can_be_used_again_at_once() -> None:
    channel = opened()
    channel.declare("old")
    channel.call(m.QueueBind("nowhere", "amq.direct"))
    channel.peer.send_bytes(
        wire.method_frame(1, m.ChannelCloseOk().encode())
        + wire.method_frame(1, m.ChannelOpen().encode())
        + wire.method_frame(1, m.QueueDeclare("new").encode())
    )
    assert channel.all() == [m.ChannelOpenOk(), m.QueueDeclareOk("new", 0, 0)]
    assert channel.refused(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"
    assert channel.closed_with(m.QueuePurge("")) == "404 NOT_FOUND - no previously declared queue"


def test_s029_a_close_that_crosses_the_servers_is_answered() -> None:
    channel = opened()
    channel.call(m.QueueBind("nowhere", "amq.direct"))
    assert isinstance(channel.call(m.ChannelClose(200, "bye")), m.ChannelCloseOk)
    channel.send(m.ChannelCloseOk())
    assert channel.peer.channel(1)


def test_s029_what_follows_an_error_in_the_same_read_is_dropped() -> None:
    channel = opened()
    channel.peer.send_bytes(
        wire.method_frame(1, m.QueueBind("nowhere", "amq.direct").encode())
        + wire.method_frame(1, m.QueueDeclare("late").encode())
    )
    assert isinstance(channel.next(), m.ChannelClose)
    assert channel.next() is None
    assert "late" not in channel.peer.bench.host.queues


def test_s030_an_error_on_one_channel_leaves_the_others_working() -> None:
    one = opened()
    other = one.peer.channel(2)
    other.declare("q")
    other.consume("q", "t", no_ack=True)
    one.declare("mine")
    one.consume("mine", "t")
    one.publish("", "mine", b"back")
    one.all()
    assert one.closed_with(m.BasicGet("nowhere")).startswith("404 NOT_FOUND")
    other.publish("", "q", b"on")
    assert [content.body for content in other.deliveries()] == [b"on"]
    assert other.bodies("mine") == [b"back"]


def test_a_client_closes_a_channel_and_its_deliveries_return() -> None:
    channel = with_queue()
    channel.publish("", "q", b"back")
    channel.get("q", no_ack=False)
    assert isinstance(channel.call(m.ChannelClose(200, "bye")), m.ChannelCloseOk)
    content = channel.peer.channel(1).get("q")
    assert content is not None
    assert content.method.redelivered


# Flow.


@pytest.mark.parametrize("toml", [*SERVES_FLOW, *REFUSES_FLOW])
def test_s031_flow_active_is_answered_in_kind(toml: str) -> None:
    assert opened(toml).call(m.ChannelFlow(True)) == m.ChannelFlowOk(True)


@pytest.mark.parametrize("toml", SERVES_FLOW)
def test_s032_flow_inactive_stops_deliveries_until_it_is_active_again(toml: str) -> None:
    channel = with_queue(ClientBench(toml))
    channel.consume("q", "t", no_ack=True)
    assert channel.call(m.ChannelFlow(False)) == m.ChannelFlowOk(False)
    for text in (b"1", b"2"):
        channel.publish("", "q", text)
    assert channel.all() == []
    channel.send(m.ChannelFlow(True))
    assert channel.next() == m.ChannelFlowOk(True)
    assert [content.body for content in channel.deliveries()] == [b"1", b"2"]


@pytest.mark.parametrize("toml", SERVES_FLOW)
def test_s032_flow_inactive_does_not_stop_get_nor_other_channels(toml: str) -> None:
    channel = opened(toml)
    other = channel.peer.channel(2)
    channel.declare("q")
    channel.consume("q", "t", no_ack=True)
    channel.does(m.ChannelFlow(False))
    channel.publish("", "q", b"fetched")
    content = channel.get("q")
    assert content is not None
    assert content.body == b"fetched"
    other.consume("q", "o", no_ack=True)
    channel.publish("", "q", b"to the other")
    assert [content.body for content in other.deliveries()] == [b"to the other"]


@pytest.mark.parametrize("toml", REFUSES_FLOW)
def test_s032_where_a_profile_does_not_serve_it_flow_inactive_ends_the_connection(toml: str) -> None:
    channel = opened(toml)
    assert channel.peer.closed_with(1, m.ChannelFlow(False)) == "540 NOT_IMPLEMENTED - active=false"


def test_a_consumer_started_while_flow_is_inactive_waits_too() -> None:
    channel = with_queue()
    channel.publish("", "q", b"later")
    channel.does(m.ChannelFlow(False))
    channel.consume("q", "t", no_ack=True)
    assert channel.all() == []
    channel.does(m.ChannelFlow(True))
    assert [content.body for content in channel.deliveries()] == [b"later"]


# Commits, and old friends.


def test_s033_a_commit_never_pends_what_follows_it_in_the_same_read_finds_it_done() -> None:
    """In memory a commit is answered before the next method is looked at, so there is nothing to refuse with 504."""
    channel = with_queue()
    channel.does(m.TxSelect())
    channel.publish("", "q", b"committed", settle=False)
    channel.peer.send_bytes(
        wire.method_frame(1, m.TxCommit().encode()) + wire.method_frame(1, m.BasicGet("q", True).encode())
    )
    assert isinstance(channel.next(), m.TxCommitOk)
    content = channel.next()
    assert isinstance(content, Content)
    assert content.body == b"committed"


def test_x011_access_request_is_answered_with_ticket_1() -> None:
    assert opened().call(m.AccessRequest("/data", active=True, read=True)) == m.AccessRequestOk(1)


NO_WAIT: list[tuple[Method, Callable[[ClientBench], bool]]] = [
    (m.ExchangeDeclare("x", "direct", no_wait=True), lambda bench: "x" in bench.host.exchanges),
    (m.ExchangeDelete("gone", no_wait=True), lambda bench: "gone" not in bench.host.exchanges),
    (m.ExchangeBind("amq.fanout", "amq.direct", "k", no_wait=True), lambda bench: any(bench.host.bindings())),
    (m.QueueDeclare("new", no_wait=True), lambda bench: "new" in bench.host.queues),
    (m.QueueBind("q", "amq.direct", "k", no_wait=True), lambda bench: any(bench.host.bindings())),
    (m.QueuePurge("q", no_wait=True), lambda bench: bench.queue("q").ready == 0),
    (m.QueueDelete("q", no_wait=True), lambda bench: "q" not in bench.host.queues),
    (m.BasicConsume("empty", "t", no_wait=True), lambda bench: bool(bench.queue("empty").consumers)),
    (m.BasicCancel("t", no_wait=True), lambda bench: True),
    (m.ConfirmSelect(no_wait=True), lambda bench: True),
]


@pytest.mark.parametrize(("method", "is_done"), NO_WAIT, ids=lambda value: getattr(value, "name", ""))
def test_no_wait_is_done_without_an_answer(method: Method, is_done: Callable[[ClientBench], bool]) -> None:
    channel = with_queue()
    channel.declare("empty")
    channel.exchange("gone")
    channel.publish("", "q", b"")
    assert channel.call(method) is None
    assert is_done(channel.peer.bench)


def test_no_wait_does_not_keep_an_error_quiet() -> None:
    text = opened().closed_with(m.QueueBind("nowhere", "amq.direct", no_wait=True))
    assert text == "404 NOT_FOUND - no queue 'nowhere' in vhost '/'"


def test_any_number_up_to_65535_can_be_a_channel() -> None:
    peer = Peer().open()
    assert peer.channel(65535).declare("q")
