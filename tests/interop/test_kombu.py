"""kombu, and below it py-amqp: what Celery stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, need_module, wait_until

kombu = need_module("kombu")
kombu_pools = need_module("kombu.pools")
amqp = need_module("amqp")

if TYPE_CHECKING:
    from kombu import Connection

pytestmark = pytest.mark.interop
Connect = Callable[..., "Connection"]


@pytest.fixture
def connect(node: RunningNode) -> Iterator[Connect]:
    """A function that opens connections, which are closed after the test."""
    opened: list[Connection] = []

    def connect(**settings: object) -> Connection:
        opened.append(kombu.Connection(node.url, **settings))
        return opened[-1].connect() and opened[-1]

    yield connect
    for connection in opened:
        connection.release()


def drain(connection: Connection, received: list[object], count: int) -> None:
    while len(received) < count:
        connection.drain_events(timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("kind", "binding", "key"),
    [("direct", "k", "k"), ("fanout", "", "any"), ("topic", "eu.*", "eu.new"), ("headers", "", "")],
)
def test_json_through_every_exchange_type(connect: Connect, kind: str, binding: str, key: str):
    connection = connect()
    exchange = kombu.Exchange(f"x-{kind}", type=kind, durable=False, auto_delete=True)
    arguments = {"x-match": "any", "colour": "red"} if kind == "headers" else None
    queue = kombu.Queue("", exchange, binding, exclusive=True, binding_arguments=arguments)
    received: list[object] = []

    def on_message(body: object, message: kombu.Message) -> None:
        received.append((body, message.content_type, message.headers))
        message.ack()

    with connection.Consumer(queue, callbacks=[on_message], accept=["json"]):
        producer = connection.Producer(serializer="json")
        producer.publish({"hello": ["world", 1, None]}, key, exchange=exchange, headers={"colour": "red"})
        drain(connection, received, 1)
    assert received == [({"hello": ["world", 1, None]}, "application/json", {"colour": "red"})]


def test_a_compressed_message_comes_back(connect: Connect):
    connection = connect()
    queue = connection.SimpleQueue("q", queue_opts={"exclusive": True})
    queue.put({"big": "x" * 100_000}, compression="zlib")
    message = queue.get(timeout=TIMEOUT_S)
    assert message.headers == {"compression": "application/x-gzip"}
    assert message.payload == {"big": "x" * 100_000}
    message.ack()
    queue.close()


def test_priorities_come_first(connect: Connect):
    connection = connect()
    queue = kombu.Queue("q", max_priority=10, exclusive=True)
    with connection.Producer() as producer:
        for priority in (0, 5, 10, 5, 0):
            producer.publish(priority, "q", declare=[queue], priority=priority)
    received: list[object] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: received.append(body)], no_ack=True):
        drain(connection, received, 5)
    assert received == [10, 5, 5, 0, 0]


def test_requeue_and_reject(node: RunningNode, connect: Connect):
    connection = connect()
    queue = kombu.Queue("q", durable=False)(connection)
    queue.declare()
    connection.Producer().publish("again", "q")
    first = queue.get()
    first.requeue()
    second = queue.get()
    assert second.delivery_info["redelivered"]
    second.reject()
    assert queue.get() is None
    assert (node.ready("q"), node.unsettled("q")) == (0, 0)


def test_a_consumer_raises_its_prefetch_while_it_runs(connect: Connect):
    """As Celery does for every task with an ETA, with a prefetch that the channel's consumers share."""
    connection = connect()
    queue = kombu.Queue("q", exclusive=True)
    received: list[object] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: received.append(body)]) as consumer:
        consumer.qos(prefetch_count=1, apply_global=True)
        for number in range(5):
            connection.Producer().publish(number, "q")
        for count in (1, 3, 5):
            consumer.qos(prefetch_count=count, apply_global=True)
            drain(connection, received, count)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.05)
        assert received == [0, 1, 2, 3, 4]


def test_heartbeats_are_checked_from_both_sides(connect: Connect):
    connection = connect(heartbeat=3)  # longer than a busy machine stands still
    transport = connection.connection
    before = transport.bytes_recv  # py-amqp counts frames, not octets

    def three_came() -> bool:
        connection.heartbeat_check(rate=2)  # raises if none came for two intervals
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.05)
        return bool(transport.bytes_recv >= before + 3)

    wait_until(three_came, "three heartbeats")


def test_confirms_are_waited_for_and_an_unroutable_message_comes_back(connect: Connect):
    connection = connect(transport_options={"confirm_publish": True})
    returned: list[tuple[object, ...]] = []
    producer = connection.Producer(
        on_return=lambda exception, exchange, key, message: returned.append((str(exception), key))
    )
    producer.publish("x", "nowhere", mandatory=True)
    assert len(returned) == 1
    assert "NO_ROUTE" in str(returned[0][0])
    assert returned[0][1] == "nowhere"


def test_errors_have_their_codes(connect: Connect):
    connection = connect()
    channel = connection.channel()
    with pytest.raises(amqp.NotFound, match="no queue 'missing' in vhost '/'"):
        channel.queue_declare("missing", passive=True)
    with pytest.raises(amqp.PreconditionFailed, match="inequivalent arg 'durable'"):
        connection.channel().exchange_declare("amq.direct", "direct", durable=False, auto_delete=False)
    with pytest.raises(amqp.AMQPNotImplementedError):
        connection.channel().basic_qos(10, 0, False)


def test_a_broadcast_reaches_every_consumer(connect: Connect):
    """kombu's pidbox and Celery's remote control are made of this."""
    connection = connect()
    received: list[object] = []
    exchange = kombu.Exchange("cast", "fanout", durable=False)
    queues = [
        kombu.Queue(f"cast-{number}", exchange, durable=False, auto_delete=True, expires=10.0)
        for number in range(3)
    ]
    consumers = [
        connection.Consumer(queue, callbacks=[lambda body, message: received.append(body)], no_ack=True)
        for queue in queues
    ]
    for consumer in consumers:
        consumer.consume()
    connection.Producer().publish("to all", exchange=exchange)
    drain(connection, received, 3)
    assert received == ["to all"] * 3
