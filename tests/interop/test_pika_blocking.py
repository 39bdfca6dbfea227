"""pika's BlockingConnection: what most Python programs use."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator

import pika
import pytest
from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exchange_type import ExchangeType

from tests.interop.conftest import TIMEOUT_S, RunningNode, wait_until

pytestmark = pytest.mark.interop

MIB = 1 << 20
Connect = Callable[..., BlockingConnection]


@pytest.fixture
def connect(node: RunningNode) -> Iterator[Connect]:
    """A function that opens connections, which are closed after the test."""
    yield from connecting(node)


def connecting(node: RunningNode) -> Iterator[Connect]:
    opened: list[BlockingConnection] = []

    def connect(user: str = "guest", password: str = "guest", **settings: object) -> BlockingConnection:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", node.port, credentials=pika.PlainCredentials(user, password), **settings
        )
        opened.append(BlockingConnection(parameters))
        return opened[-1]

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    return connect().channel()


def bodies(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """The bodies of the next `count` messages, acknowledged."""
    found = []
    for method, _, body in channel.consume(queue, inactivity_timeout=TIMEOUT_S):
        assert method is not None, f"{len(found)} of {count} messages came"
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == count:
            break
    channel.cancel()
    return found


def work_until(connection: BlockingConnection, condition: Callable[[], object], what: str) -> None:
    """Let pika read its socket until the condition holds."""

    def holds() -> object:
        connection.process_data_events(time_limit=0.01)
        return condition()

    wait_until(holds, what)


# Publish, route, consume.


@pytest.mark.parametrize(
    ("kind", "binding", "key", "reached"),
    [
        (ExchangeType.direct, "a", "a", True),
        (ExchangeType.direct, "a", "b", False),
        (ExchangeType.fanout, "", "whatever", True),
        (ExchangeType.topic, "eu.*.new", "eu.orders.new", True),
        (ExchangeType.topic, "eu.#", "us.orders", False),
    ],
)
def test_every_exchange_type_routes(
    channel: BlockingChannel, kind: ExchangeType, binding: str, key: str, reached: bool
):
    channel.exchange_declare("x", kind)
    channel.queue_declare("q", exclusive=True)
    channel.queue_bind("q", "x", binding)
    channel.confirm_delivery()
    channel.basic_publish("x", key, b"hello")
    assert (channel.basic_get("q")[2] == b"hello") is reached


def test_a_headers_exchange_routes_by_headers(channel: BlockingChannel):
    channel.exchange_declare("x", ExchangeType.headers)
    channel.queue_declare("q", exclusive=True)
    channel.queue_bind("q", "x", "", {"x-match": "all", "kind": "invoice", "copies": 2})
    channel.confirm_delivery()
    for headers in ({"kind": "invoice", "copies": 2}, {"kind": "invoice", "copies": 3}):
        channel.basic_publish("x", "", repr(headers).encode(), pika.BasicProperties(headers=headers))
    assert channel.queue_declare("q", passive=True).method.message_count == 1


def test_an_exchange_bound_to_an_exchange_passes_on(channel: BlockingChannel):
    channel.exchange_declare("outer", ExchangeType.topic)
    channel.exchange_declare("inner", ExchangeType.fanout, internal=True)
    channel.exchange_bind("inner", "outer", "eu.#")
    channel.queue_declare("q", exclusive=True)
    channel.queue_bind("q", "inner")
    channel.basic_publish("outer", "eu.new", b"1")
    channel.exchange_unbind("inner", "outer", "eu.#")
    channel.basic_publish("outer", "eu.new", b"2")
    assert bodies(channel, "q", 1) == [b"1"]
    assert channel.queue_purge("q").method.message_count == 0


def test_messages_come_in_order_to_a_consumer(channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    for number in range(500):
        channel.basic_publish("", "q", str(number).encode())
    assert bodies(channel, "q", 500) == [str(number).encode() for number in range(500)]


def test_a_callback_consumes_until_it_is_cancelled(channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    for number in range(3):
        channel.basic_publish("", "q", str(number).encode())
    got = []

    def on_message(channel: BlockingChannel, method, properties, body: bytes) -> None:
        got.append((method.delivery_tag, method.redelivered, body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 3:
            channel.stop_consuming()

    channel.basic_consume("q", on_message)
    channel.start_consuming()
    assert got == [(1, False, b"0"), (2, False, b"1"), (3, False, b"2")]


def test_prefetch_bounds_what_is_unacknowledged(node: RunningNode, channel: BlockingChannel):
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=2)
    for number in range(5):
        channel.basic_publish("", "q", str(number).encode())
    tags: list[int] = []
    channel.basic_consume("q", lambda channel, method, properties, body: tags.append(method.delivery_tag))
    work_until(channel.connection, lambda: len(tags) == 2, "two deliveries")
    assert (node.ready("q"), node.unsettled("q")) == (3, 2)
    channel.basic_ack(tags[-1], multiple=True)
    work_until(channel.connection, lambda: len(tags) == 4, "two more")
    assert (node.ready("q"), node.unsettled("q")) == (1, 2)


def test_a_consumer_with_auto_ack_waits_while_the_prefetch_of_its_channel_is_used_up(
    channel: BlockingChannel, node: RunningNode
):
    for name in ("answered", "taken"):
        channel.queue_declare(name, exclusive=True)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    heard: list[bytes] = []
    for name, auto_ack in (("answered", False), ("taken", True)):
        channel.basic_consume(
            name, lambda channel, method, properties, body: heard.append(body), auto_ack=auto_ack
        )
    channel.basic_publish("", "answered", b"first")
    work_until(channel.connection, lambda: heard, "the first message")
    channel.basic_publish("", "taken", b"second")
    channel.queue_declare("answered", passive=True)  # what was published before is in its queue
    assert (heard, node.ready("taken")) == ([b"first"], 1)
    channel.basic_ack(0, multiple=True)
    work_until(channel.connection, lambda: len(heard) == 2, "the second message")


def test_a_nacked_message_comes_back_redelivered(channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    channel.basic_publish("", "q", b"again")
    method, _, _ = channel.basic_get("q")
    assert not method.redelivered
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get("q")
    assert method.redelivered
    channel.basic_recover(requeue=True)
    method, _, _ = channel.basic_get("q")
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get("q") == (None, None, None)


def test_a_rejected_message_is_dead_lettered(channel: BlockingChannel):
    channel.queue_declare("dead", exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", exclusive=True, arguments=arguments)
    channel.basic_publish("", "q", b"bad")
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=False)
    _, properties, body = channel.basic_get("dead", auto_ack=True)
    assert body == b"bad"
    (death,) = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)
    assert isinstance(death["time"], datetime.datetime)


# Confirms, returns, transactions.


def test_confirms_tell_what_was_unroutable_or_refused(channel: BlockingChannel):
    channel.confirm_delivery()
    channel.queue_declare(
        "full", exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    channel.basic_publish("", "full", b"1", mandatory=True)
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("", "full", b"2")
    with pytest.raises(exceptions.UnroutableError) as caught:
        channel.basic_publish("", "nowhere", b"3", mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert returned.body == b"3"


def test_returns_and_confirms_of_one_write_keep_their_order(connect: Connect):
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("q", exclusive=True)
    heard: list[str] = []
    plain = channel._impl
    plain.confirm_delivery(lambda frame: heard.append(f"ack {frame.method.delivery_tag}"))
    plain.add_on_return_callback(lambda _, method, *rest: heard.append(f"return {method.routing_key}"))
    for key in ("q", "nowhere", "q"):
        plain.basic_publish("", key, b"body", mandatory=True)
    work_until(connection, lambda: heard[-1:] == ["ack 3"], "the last confirm")
    assert [each for each in heard if each != "ack 2"] == ["ack 1", "return nowhere", "ack 3"]


def test_a_return_without_confirms_comes_to_the_callback(channel: BlockingChannel):
    returned: list[tuple[str, bytes]] = []
    channel.add_on_return_callback(
        lambda channel, method, properties, body: returned.append((method.routing_key, body))
    )
    channel.basic_publish("amq.direct", "nobody", b"back", mandatory=True)
    work_until(channel.connection, lambda: returned, "the return")
    assert returned == [("nobody", b"back")]


def test_a_transaction_shows_at_commit_and_vanishes_at_rollback(channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"kept")
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    channel.tx_commit()
    channel.basic_publish("", "q", b"dropped")
    channel.tx_rollback()
    method, _, body = channel.basic_get("q")
    assert body == b"kept"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_nack(method.delivery_tag)  # the ack was taken back, so the message is still ours to answer
    channel.tx_commit()
    assert channel.basic_get("q")[0].redelivered


# Properties and bodies.

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
HEADERS = {
    "text": "héllo",
    "octets": b"\x00\xff",
    "yes": True,
    "no": False,
    "small": -1,
    "large": 1 << 40,
    "negative": -(1 << 40),
    "decimal": decimal.Decimal("12.34"),
    "moment": MOMENT,
    "nothing": None,
    "list": [1, "two", [True, {"four": 4}]],
    "table": {"deep": {"deeper": ["deepest"]}},
    "long": "x" * 5000,
}


def test_headers_of_every_type_and_all_properties_come_back(channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers=HEADERS,
        delivery_mode=2,
        priority=7,
        correlation_id="c-1",
        reply_to="answers",
        expiration="60000",
        message_id="m-1",
        timestamp=1_700_000_000,
        type="greeting",
        user_id="guest",
        app_id="tests",
        cluster_id="none",
    )
    channel.basic_publish("", "q", b"{}", sent)
    _, got, _ = channel.basic_get("q", auto_ack=True)
    assert vars(got) == vars(sent)
    assert all(isinstance(got.headers[name], type(value)) for name, value in HEADERS.items())


@pytest.mark.parametrize("size", [0, 1, 4087, 131_064, 131_065, MIB])
def test_bodies_of_any_size_come_back(channel: BlockingChannel, size: int):
    channel.queue_declare("q", exclusive=True)
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    channel.basic_publish("", "q", body)
    assert bodies(channel, "q", 1) == [body]


# Queues.


def test_an_exclusive_queue_is_locked_and_goes_with_its_connection(connect: Connect):
    owner, other = connect(), connect()
    owner.channel().queue_declare("mine", exclusive=True)
    with pytest.raises(exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare("mine", passive=True)
    assert caught.value.reply_code == 405
    owner.close()
    with pytest.raises(exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare("mine", passive=True)
    assert caught.value.reply_code == 404


def test_a_deleted_queue_cancels_its_consumer(channel: BlockingChannel, connect: Connect):
    channel.queue_declare("q")
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("q", lambda *message: None)
    connect().channel().queue_delete("q")
    work_until(channel.connection, lambda: cancelled, "the cancel")
    assert cancelled == [tag]


def test_a_server_named_queue_is_bound_as_the_current_one(channel: BlockingChannel):
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.queue_bind("", "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"for all")
    assert bodies(channel, name, 1) == [b"for all"]


def test_an_auto_delete_queue_goes_with_its_last_consumer(node: RunningNode, channel: BlockingChannel):
    channel.queue_declare("q", auto_delete=True)
    tag = channel.basic_consume("q", lambda *message: None)
    assert node.consumers("q") == 1
    channel.basic_cancel(tag)
    assert node.find("q") is None


def test_messages_and_queues_expire_by_themselves(node: RunningNode, channel: BlockingChannel):
    channel.queue_declare("ttl", arguments={"x-message-ttl": 30})
    channel.queue_declare("gone", arguments={"x-expires": 30})
    channel.basic_publish("", "ttl", b"short-lived")
    wait_until(lambda: node.ready("ttl") == 0, "the message expires")
    wait_until(lambda: node.find("gone") is None, "the queue expires")


# Direct reply-to.


def test_a_request_is_answered_directly(channel: BlockingChannel, connect: Connect):
    server = connect().channel()
    server.queue_declare("requests", exclusive=False)
    answers: list[tuple[str | None, bytes]] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda channel, method, properties, body: answers.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    request = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    channel.basic_publish("", "requests", b"6 x 9", request)
    work_until(server.connection, lambda: server.queue_declare("requests").method.message_count, "a request")
    _, asked, _ = server.basic_get("requests", auto_ack=True)
    answer = pika.BasicProperties(correlation_id=asked.correlation_id)
    server.basic_publish("", asked.reply_to, b"42", answer)
    work_until(channel.connection, lambda: answers, "the answer")
    assert answers == [("7", b"42")]


# Alarms and heartbeats.


def test_a_publisher_is_told_that_it_is_blocked_and_free_again(node: RunningNode, connect: Connect):
    connection = connect()
    told: list[str] = []
    connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("q")
    node.raise_alarm("low on memory")
    channel.basic_publish("", "q", b"1")
    work_until(connection, lambda: told, "blocked")
    channel.basic_publish("", "q", b"2")  # lies in the socket: nobody reads it
    assert node.ready("q") <= 1  # a message comes in pieces; the first may be enough to be blocked
    node.clear_alarm("low on memory")
    work_until(connection, lambda: len(told) == 2, "unblocked")
    assert told == ["low on memory", "unblocked"]
    wait_until(lambda: node.ready("q") == 2, "the second message")


def test_consumers_go_on_during_an_alarm(node: RunningNode, channel: BlockingChannel):
    channel.queue_declare("q", exclusive=True)
    channel.basic_publish("", "q", b"before")
    wait_until(lambda: node.ready("q") == 1, "the publish has been read")
    node.raise_alarm("low on memory")
    assert bodies(channel, "q", 1) == [b"before"]


def test_a_blocked_publisher_gives_up_after_its_own_timeout(node: RunningNode, connect: Connect):
    connection = connect(blocked_connection_timeout=0.2)
    node.raise_alarm("low on disk")
    connection.channel().basic_publish("", "anywhere", b"")
    with pytest.raises(exceptions.ConnectionBlockedTimeout):
        work_until(connection, lambda: False, "pika gives up")


def test_heartbeats_keep_a_quiet_connection(connect: Connect):
    """At an interval of 3 s either side is given up after about 6: longer than a busy machine stands still."""
    connection = connect(heartbeat=3)
    sent = connection._impl._heartbeat_checker
    work_until(connection, lambda: sent._heartbeat_frames_received >= 3, "three heartbeats")
    assert connection.is_open
    connection.channel().queue_declare("alive", exclusive=True)


def test_a_silent_peer_is_given_up(node: RunningNode, connect: Connect):
    silent = connect(heartbeat=1)
    assert node.clients() == 1
    wait_until(lambda: node.clients() == 0, "the broker gives the silent client up")
    with pytest.raises(exceptions.AMQPConnectionError):
        silent.close()


# Refusals.


def test_a_wrong_password_is_told(connect: Connect):
    with pytest.raises(exceptions.ProbableAuthenticationError) as caught:
        connect(password="wrong")
    assert "403" in str(caught.value)
    assert "ACCESS_REFUSED" in str(caught.value)


def test_an_unknown_virtual_host_is_refused(connect: Connect):
    with pytest.raises(exceptions.ProbableAccessDeniedError) as caught:
        connect(virtual_host="elsewhere")
    assert "(530)" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        (404, lambda channel: channel.queue_bind("no-queue", "amq.direct", "k")),
        (404, lambda channel: channel.basic_consume("no-queue", lambda *message: None)),
        (403, lambda channel: channel.exchange_declare("amq.mine")),
        (406, lambda channel: channel.exchange_declare("amq.direct", "fanout", passive=False, durable=True)),
        (406, lambda channel: channel.queue_declare("q", arguments={"x-max-length": -1})),
        (406, lambda channel: channel.exchange_declare("x", "no-such-type")),
        (406, lambda channel: channel.tx_commit()),
    ],
)
def test_a_mistake_closes_the_channel_with_its_code(
    channel: BlockingChannel, code: int, mistake: Callable[[BlockingChannel], object]
):
    with pytest.raises(exceptions.ChannelClosedByBroker) as caught:
        mistake(channel)
    assert caught.value.reply_code == code
    assert channel.connection.channel().queue_declare("", exclusive=True).method.message_count == 0


def test_a_hard_mistake_closes_the_connection(channel: BlockingChannel):
    with pytest.raises(exceptions.ConnectionClosedByBroker) as caught:
        channel.basic_qos(prefetch_size=1)
    assert caught.value.reply_code == 540


def test_an_operator_closes_every_connection(node: RunningNode, connect: Connect):
    connection = connect()
    assert node.close_connections() == 1
    with pytest.raises(exceptions.ConnectionClosedByBroker) as caught:
        work_until(connection, lambda: False, "the close")
    assert caught.value.reply_code == 320


def test_what_a_closed_channel_had_goes_back(node: RunningNode, connect: Connect):
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"1")
    assert channel.basic_get("q")[2] == b"1"
    assert (node.ready("q"), node.unsettled("q")) == (0, 1)
    channel.close()
    assert (node.ready("q"), node.unsettled("q")) == (1, 0)
    assert connection.channel().basic_get("q")[0].redelivered
    connection.close()
    wait_until(lambda: node.ready("q") == 1, "the message goes back")


def test_x008_a_new_secret_of_a_password_user_may_be_anything(connect: Connect):
    connection = connect()
    connection.update_secret("anything", "rotation")
    connection.channel().queue_declare("still here", exclusive=True)


def test_s066_ones_own_exclusive_queue_is_locked_as_another_kind(channel: BlockingChannel):
    channel.queue_declare("mine", exclusive=True)
    with pytest.raises(exceptions.ChannelClosedByBroker, match="cannot obtain exclusive access") as closed:
        channel.queue_declare("mine", exclusive=False)
    assert closed.value.reply_code == 405


def test_dead_letters_at_least_once_wait_for_room_in_their_target(channel: BlockingChannel) -> None:
    source = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    channel.queue_declare("source", durable=True, arguments=source)
    channel.queue_declare("dead", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "source", body)
        method, _, _ = channel.basic_get("source")
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
    with pytest.raises(exceptions.NackError):
        channel.basic_publish("", "dead", b"4")
    assert channel.queue_declare("source", passive=True).method.message_count == 0
    assert bodies(channel, "dead", 3) == [b"1", b"2", b"3"]


def test_s125_a_transaction_whose_queue_went_returns_or_delivers_what_it_published(node: RunningNode) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    channel, returned = connection.channel(), []
    channel.add_on_return_callback(lambda _, method, __, body: returned.append((method.reply_code, body)))
    channel.tx_select()
    for again in (False, True):
        channel.queue_declare("short")
        channel.basic_publish("", "short", b"work", mandatory=True)
        channel.queue_delete("short")
        if again:
            channel.queue_declare("short")
        channel.tx_commit()
        connection.process_data_events(0)
    assert returned == [(312, b"work")]
    assert channel.basic_get("short", auto_ack=True)[2] == b"work"
    connection.close()
