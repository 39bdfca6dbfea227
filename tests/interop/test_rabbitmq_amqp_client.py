"""RabbitMQ's own AMQP 1.0 client for Python: management over the link pair, publishers, consumers, and their words.

It refuses a broker that does not call itself RabbitMQ 4, so these nodes do.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.interop.conftest import RunningNode, Start, need_module, wait_until

rabbitmq = need_module("rabbitmq_amqp_python_client")

from rabbitmq_amqp_python_client import (  # noqa: E402
    AddressHelper,
    AmqpMessageRejectedException,
    AMQPMessagingHandler,
    ClassicQueueSpecification,
    Connection,
    ConsumerOptions,
    ConsumerSettleStrategy,
    Environment,
    Event,
    ExchangeSpecification,
    ExchangeToExchangeBindingSpecification,
    ExchangeToQueueBindingSpecification,
    ExchangeType,
    Management,
    Message,
    MessageProperties,
    OffsetSpecification,
    OutcomeState,
    Publisher,
    QueueType,
    QuorumQueueSpecification,
    RecoveryConfiguration,
    StreamConsumerOptions,
    StreamFilterOptions,
    StreamSpecification,
    ValidationCodeException,
)
from rabbitmq_amqp_python_client.qpid.proton._exceptions import ConnectionException  # noqa: E402
from rabbitmq_amqp_python_client.qpid.proton._utils import LinkDetached, SendException  # noqa: E402

pytestmark = pytest.mark.interop

# Its client discards with annotations by an outcome that, in AMQP 1.0, leaves the message to other receivers.
AS_RABBITMQ = 'compat.product = "rabbitmq-4"\ncompat.undeliverable_here = "dead-letter"'
Act = Callable[["Taking", Event], None]


@pytest.fixture
def rabbit_node(node_with: Start) -> RunningNode:
    return node_with(AS_RABBITMQ)


@pytest.fixture
def connection(rabbit_node: RunningNode) -> Iterator[Connection]:
    with connected(rabbit_node) as connection:
        yield connection


class connected:  # noqa: N801
    """A connection that does not come back by itself."""

    def __init__(self, node: RunningNode) -> None:
        recovery = RecoveryConfiguration(active_recovery=False)
        uri = f"amqp://guest:guest@127.0.0.1:{node.port}/"
        self.environment = Environment(uri=uri, recovery_configuration=recovery)

    def __enter__(self) -> Connection:
        connection = self.environment.connection()
        connection.dial()
        return connection

    def __exit__(self, *_: object) -> None:
        self.environment.close()


@pytest.fixture
def management(connection: Connection) -> Iterator[Management]:
    management = connection.management()
    yield management
    management.close()


def data(octets: bytes) -> Message:
    return Message(body=octets, inferred=True)


def accept(taking: Taking, event: Event) -> None:
    taking.delivery_context.accept(event)


class Enough(Exception):  # noqa: N818
    """The way out of `Consumer.run`."""


class Taking(AMQPMessagingHandler):
    """Takes so many messages and does with each what it was told."""

    def __init__(self, count: int, act: Act = accept) -> None:
        super().__init__()
        self.count, self.act = count, act
        self.found: list[tuple[bytes, dict[str, object]]] = []

    def on_amqp_message(self, event: Event) -> None:
        message = event.message
        self.found.append((bytes(message.body), dict(message.annotations or {})))
        self.act(self, event)
        if len(self.found) == self.count:
            raise Enough


def taken(node: RunningNode, queue: str, count: int, act: Act = accept, **options: object) -> list[bytes]:
    """The next bodies of a queue, by a consumer on a connection of its own."""
    return [body for body, _ in with_annotations(node, queue, count, act, **options)]


def with_annotations(
    node: RunningNode, queue: str, count: int, act: Act = accept, **options: object
) -> list[tuple[bytes, dict[str, object]]]:
    handler = Taking(count, act)
    with connected(node) as connection:
        consumer = connection.consumer(AddressHelper.queue_address(queue), message_handler=handler, **options)
        with pytest.raises(Enough):
            consumer.run()
        consumer.close()
    return handler.found


def put(connection: Connection, address: str, *bodies: bytes) -> list[int]:
    """The states of messages published to an address."""
    publisher = connection.publisher(address)
    try:
        return [publisher.publish(data(body)).remote_state for body in bodies]
    finally:
        publisher.close()


# Who it talks to.


def test_a_broker_of_another_name_is_refused(node: RunningNode):
    with pytest.raises(ValidationCodeException, match="Expected 'RabbitMQ', got 'Leveret'"):
        connected(node).__enter__()


# Management.


@pytest.mark.parametrize(
    ("specification", "kind"),
    [
        (ClassicQueueSpecification("q", max_len=10, message_ttl=timedelta(seconds=9)), QueueType.classic),
        (QuorumQueueSpecification("q", dead_letter_exchange="amq.fanout"), QueueType.quorum),
        (StreamSpecification("q", max_len_bytes=1_000_000), QueueType.stream),
    ],
)
def test_queues_of_every_kind_are_declared_described_and_deleted(
    rabbit_node: RunningNode, management: Management, specification: object, kind: QueueType
):
    """X077, X080, X081."""
    management.declare_queue(specification)
    management.declare_queue(specification)
    info = management.queue_info("q")
    assert (info.name, info.queue_type, info.is_durable) == ("q", kind, True)
    assert (info.message_count, info.consumer_count) == (0, 0)
    assert info.arguments["x-queue-type"] == kind.value
    management.delete_queue("q")
    assert rabbit_node.queue_names() == []
    with pytest.raises(ValidationCodeException, match="404"):
        management.queue_info("q")


def test_a_queue_without_a_type_gets_the_default_of_the_node(node_with: Start):
    with connected(node_with(f'{AS_RABBITMQ}\nnode.default_queue_type = "quorum"')) as connection:
        management = connection.management()
        management.request({"durable": True}, "/queues/q", "PUT", [201])
        management.request({"durable": True}, "/queues/q", "PUT", [200])
        info = management.queue_info("q")
        assert (info.queue_type, info.arguments["x-queue-type"]) == (QueueType.quorum, "quorum")
        management.close()


def test_a_queue_declared_otherwise_is_a_conflict(management: Management):
    """X077: the client takes 409 for an answer; the broker keeps what is there."""
    management.declare_queue(ClassicQueueSpecification("q", max_len=10))
    with pytest.raises(ValidationCodeException, match="ErrPreconditionFailed"):
        management.request(
            {"durable": True, "arguments": {"x-max-length": 11}}, "/queues/q", "PUT", [200, 201]
        )
    assert management.queue_info("q").arguments["x-max-length"] == 10


def test_names_need_percent_encoding_and_get_it(rabbit_node: RunningNode, management: Management):
    management.declare_queue(ClassicQueueSpecification("a/b c%"))
    assert rabbit_node.queue_names() == ["a/b c%"]
    assert management.queue_info("a/b c%").name == "a/b c%"


def test_what_is_not_allowed_says_why(management: Management):
    with pytest.raises(ValidationCodeException, match="403"):
        management.request({}, "/queues/amq.mine", "PUT", [201])
    with pytest.raises(ValidationCodeException, match="400"):
        management.request({"unknown": 1}, "/queues/q", "PUT", [201])


def test_exchanges_are_bound_and_unbound(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    """X082, X083."""
    management.declare_exchange(ExchangeSpecification("outer", exchange_type=ExchangeType.topic))
    management.declare_exchange(ExchangeSpecification("inner", exchange_type=ExchangeType.fanout))
    management.declare_queue(ClassicQueueSpecification("q"))
    management.bind(ExchangeToExchangeBindingSpecification("outer", "inner", "eu.#"))
    path = management.bind(ExchangeToQueueBindingSpecification("inner", "q"))
    address = AddressHelper.exchange_address("outer", "eu.orders")
    assert put(connection, address, b"one") == [OutcomeState.ACCEPTED]
    management.unbind(path)
    with pytest.raises(SendException):
        put(connection, address, b"two")
    management.delete_exchange("outer")
    with pytest.raises(LinkDetached, match="no exchange 'outer' in vhost '/'"):
        put(connection, address, b"three")
    assert rabbit_node.ready("q") == 1


def test_a_queue_is_purged(rabbit_node: RunningNode, connection: Connection, management: Management):
    """X081."""
    management.declare_queue(QuorumQueueSpecification("q"))
    put(connection, AddressHelper.queue_address("q"), b"1", b"2", b"3")
    assert management.purge_queue("q") == 3
    assert rabbit_node.ready("q") == 0


# Publishing.


def test_a_message_to_nowhere_is_released(connection: Connection):
    with pytest.raises(SendException) as caught:
        put(connection, AddressHelper.exchange_address("amq.direct", "nobody"), b"lost")
    assert caught.value.state == OutcomeState.RELEASED


def test_a_full_queue_rejects_in_words(connection: Connection, management: Management):
    """X066."""
    full = ClassicQueueSpecification("q", max_len=1, overflow_behaviour="reject-publish")
    management.declare_queue(full)
    put(connection, "/queues/q", b"fits")
    with pytest.raises(AmqpMessageRejectedException, match="queue 'q' exceeded maximum length"):
        put(connection, "/queues/q", b"does not")


def test_each_message_says_where_to(rabbit_node: RunningNode, connection: Connection, management: Management):
    """S199: the anonymous terminus."""
    for name in ("one", "two"):
        management.declare_queue(ClassicQueueSpecification(name))
    publisher = connection.publisher()
    for name in ("one", "two", "two"):
        publisher.publish(AddressHelper.message_to_address_helper(data(b"x"), f"/queues/{name}"))
    publisher.close()
    assert (rabbit_node.ready("one"), rabbit_node.ready("two")) == (1, 2)


# Consuming.


def test_messages_are_consumed_in_order(rabbit_node: RunningNode, connection: Connection):
    rabbit_node.declare("q")
    expected = [str(number).encode() for number in range(100)]
    put(connection, "/queues/q", *expected)
    assert taken(rabbit_node, "q", 100) == expected
    wait_until(lambda: (rabbit_node.ready("q"), rabbit_node.unsettled("q")) == (0, 0), "all are accepted")


@pytest.mark.parametrize(
    ("act", "ready", "dead"),
    [
        (lambda taking, event: taking.delivery_context.discard(event), 0, 1),
        (lambda taking, event: taking.delivery_context.requeue(event), 1, 0),
        (accept, 0, 0),
    ],
    ids=["discard", "requeue", "accept"],
)
def test_a_consumer_says_what_becomes_of_a_message(
    rabbit_node: RunningNode, connection: Connection, management: Management, act: Act, ready: int, dead: int
):
    management.declare_queue(ClassicQueueSpecification("dead"))
    management.declare_queue(
        QuorumQueueSpecification("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    )
    put(connection, "/queues/q", b"hello")
    assert taken(rabbit_node, "q", 1, act) == [b"hello"]
    wait_until(lambda: rabbit_node.unsettled("q") == 0, "the consumer is gone")
    assert (rabbit_node.ready("q"), rabbit_node.ready("dead")) == (ready, dead)


def test_annotations_of_an_outcome_are_kept(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    """X068."""
    management.declare_queue(ClassicQueueSpecification("dead"))
    management.declare_queue(
        QuorumQueueSpecification("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    )
    put(connection, "/queues/q", b"hello")

    def requeue(taking: Taking, event: Event) -> None:
        taking.delivery_context.requeue_with_annotations(event, {"x-opt-tried": "once"})

    def discard(taking: Taking, event: Event) -> None:
        taking.delivery_context.discard_with_annotations(event, {"x-opt-given-up": "yes"})

    taken(rabbit_node, "q", 1, requeue)
    ((_, annotations),) = with_annotations(rabbit_node, "q", 1, discard)
    assert annotations["x-opt-tried"] == "once"
    ((_, annotations),) = with_annotations(rabbit_node, "dead", 1)
    assert (annotations["x-opt-tried"], annotations["x-opt-given-up"]) == ("once", "yes")


def test_a_consumer_may_take_what_is_settled(rabbit_node: RunningNode, connection: Connection):
    rabbit_node.declare("q")
    put(connection, "/queues/q", b"1", b"2")
    options = ConsumerOptions(ConsumerSettleStrategy.PreSettled)
    assert taken(rabbit_node, "q", 2, lambda *_: None, consumer_options=options) == [b"1", b"2"]
    wait_until(lambda: (rabbit_node.ready("q"), rabbit_node.unsettled("q")) == (0, 0), "they are gone")


def test_a_stream_is_read_from_an_offset(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    management.declare_queue(StreamSpecification("s"))
    put(connection, "/queues/s", *(str(number).encode() for number in range(10)))
    for offset, first in ((OffsetSpecification.first, 0), (7, 7)):
        options = StreamConsumerOptions(offset_specification=offset)
        found = with_annotations(rabbit_node, "s", 10 - first, consumer_options=options)
        assert [int(body) for body, _ in found] == list(range(first, 10))
        assert [notes["x-stream-offset"] for _, notes in found] == list(range(first, 10))


def test_a_stream_is_read_by_filter_values(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    management.declare_queue(StreamSpecification("s"))
    publisher = connection.publisher("/queues/s")
    for number, value in enumerate(["invoices", "orders", None, "invoices"]):
        notes = None if value is None else {"x-stream-filter-value": value}
        publisher.publish(Message(str(number).encode(), annotations=notes, inferred=True))
    for filters, found in (
        (StreamFilterOptions(values=["invoices"]), [b"0", b"3"]),
        (StreamFilterOptions(values=["orders", "letters"], match_unfiltered=True), [b"1", b"2"]),
    ):
        options = StreamConsumerOptions(OffsetSpecification.first, filters)
        taken = with_annotations(rabbit_node, "s", 2, consumer_options=options)
        assert [body for body, _ in taken] == found


def test_a_stream_is_read_by_properties_and_by_sql(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    management.declare_queue(StreamSpecification("s"))
    publisher = connection.publisher("/queues/s")
    for number, (subject, region) in enumerate(
        [("order.new", "emea"), ("order.old", "apac"), ("letter", "emea")]
    ):
        properties = {"region": region}
        body = str(number).encode()
        publisher.publish(Message(body, subject=subject, application_properties=properties, inferred=True))
    for filters, found in (
        (StreamFilterOptions(message_properties=MessageProperties(subject="&p:order")), [b"0", b"1"]),
        (StreamFilterOptions(application_properties={"region": "emea"}), [b"0", b"2"]),
        (
            StreamFilterOptions(
                application_properties={"region": "emea"},
                message_properties=MessageProperties(subject="&s:.new"),
            ),
            [b"0"],
        ),
    ):
        options = StreamConsumerOptions(OffsetSpecification.first, filters)
        taken = with_annotations(rabbit_node, "s", len(found), consumer_options=options)
        assert [body for body, _ in taken] == found


def test_a_stream_is_read_by_sql_with_proton(
    rabbit_node: RunningNode, connection: Connection, management: Management
):
    """RabbitMQ's client asks for SQL from version 4.2 on only; what it would send is sent by hand."""
    management.declare_queue(StreamSpecification("s"))
    publisher = connection.publisher("/queues/s")
    for number in range(6):
        publisher.publish(
            Message(str(number).encode(), application_properties={"number": number}, inferred=True)
        )
    options = StreamConsumerOptions(
        OffsetSpecification.first, StreamFilterOptions(sql="number % 2 = 1 AND number > 2")
    )
    options.validate = lambda versions: None
    taken = with_annotations(rabbit_node, "s", 2, consumer_options=options)
    assert [body for body, _ in taken] == [b"3", b"5"]


def test_a_consumer_of_a_missing_queue_is_refused(connection: Connection):
    with pytest.raises(LinkDetached, match="no queue 'missing' in vhost '/'") as caught:
        connection.consumer("/queues/missing")
    assert caught.value.condition == "amqp:not-found"


def test_the_program_on_the_page_declares_a_queue(rabbit_node: RunningNode):
    page = (Path(__file__).parents[2] / "docs" / "amqp-1-0.md").read_text()
    (program,) = re.findall(r"^```python\n(from rabbitmq_.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(program.replace("localhost:5672", f"127.0.0.1:{rabbit_node.port}"), {})
    assert rabbit_node.queue_names() == ["letters"]


def test_an_unknown_virtual_host_is_an_error_and_not_a_reason_to_try_for_ever(
    rabbit_node: RunningNode,
) -> None:
    """S166: the client connects again inside of its own handler of a close, and never comes back."""
    environment = Environment(uri=f"amqp://guest:guest@127.0.0.1:{rabbit_node.port}/nowhere")
    with pytest.raises(ConnectionException):
        environment.connection().dial()


def publish_until_told(publisher: Publisher) -> None:
    """What is published before the link hears of its queue's end is released."""
    for _ in range(10_000):
        with contextlib.suppress(SendException):
            publisher.publish(data(b"second"))


@pytest.mark.parametrize(
    "specification", [ClassicQueueSpecification, QuorumQueueSpecification, StreamSpecification]
)
def test_s179_a_publisher_whose_queue_is_deleted_is_detached(
    rabbit_node: RunningNode,
    connection: Connection,
    management: Management,
    specification: type[ClassicQueueSpecification | QuorumQueueSpecification | StreamSpecification],
) -> None:
    management.declare_queue(specification(name="gone"))
    publisher = connection.publisher(AddressHelper.queue_address("gone"))
    publisher.publish(data(b"first"))
    host = rabbit_node.node.broker.virtual_hosts["/"]
    rabbit_node.call(lambda: host.delete_queue(host.queue("gone")))
    with pytest.raises(LinkDetached, match="resource-deleted"):
        publish_until_told(publisher)
