"""One port, one queue, two protocols: what pika publishes, proton receives, and back; and listeners for one alone."""

from __future__ import annotations

import datetime
import decimal
import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import proton
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection as ProtonConnection

from tests.interop.conftest import RunningNode, Start, running_nodes, wait_until
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

MIB: Final = 1 << 20
ONE: Final = uuid.UUID("2b4f2f3a-0d0c-4c0f-9d56-1c3c7f0c8f11")


@pytest.fixture
def channel(node: RunningNode) -> Iterator[BlockingChannel]:
    """0-9-1."""
    connection = BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def connection(node: RunningNode) -> Iterator[ProtonConnection]:
    """1.0."""
    connection = connect(node)
    yield connection
    connection.close()


def received(connection: ProtonConnection, queue: str = "q") -> Message:
    """The next message over 1.0, accepted."""
    receiver = connection.create_receiver(f"/queues/{queue}")
    message = receiver.receive()
    receiver.accept()
    receiver.close()
    return message


# From 0-9-1 to 1.0.


def published(channel: BlockingChannel, connection: ProtonConnection, **properties: object) -> Message:
    """A message with these properties, as 1.0 shows it."""
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"hello", pika.BasicProperties(**properties))  # type: ignore[arg-type]
    return received(connection)


def test_a_body_is_one_section_of_data(channel: BlockingChannel, connection: ProtonConnection):
    message = published(channel, connection)
    assert (message.body, message.inferred) == (b"hello", True)
    assert message.annotations == {"x-exchange": "", "x-routing-key": "q"}


@pytest.mark.parametrize(
    ("properties", "field", "value"),
    [
        ({"delivery_mode": 2}, "durable", True),
        ({"delivery_mode": 1}, "durable", False),
        ({"priority": 7}, "priority", 7),
        ({"content_type": "text/plain"}, "content_type", "text/plain"),
        ({"content_encoding": "gzip"}, "content_encoding", "gzip"),
        ({"message_id": "one"}, "id", "one"),
        ({"message_id": f"urn:uuid:{ONE}"}, "id", ONE),
        ({"correlation_id": "two"}, "correlation_id", "two"),
        ({"correlation_id": f"urn:uuid:{ONE}"}, "correlation_id", ONE),
        ({"reply_to": "a/b"}, "reply_to", "/queues/a%2Fb"),
        ({"timestamp": 1_000_000_000}, "creation_time", 1_000_000_000.0),
        ({"user_id": "guest"}, "user_id", b"guest"),
        ({"app_id": "application"}, "group_id", "application"),
    ],
)
def test_properties_of_0_9_1_come_over_1_0(
    channel: BlockingChannel,
    connection: ProtonConnection,
    properties: dict[str, object],
    field: str,
    value: object,
):
    """S231."""
    assert getattr(published(channel, connection, **properties), field) == value


def test_what_else_0_9_1_says_is_annotated(channel: BlockingChannel, connection: ProtonConnection):
    """S231."""
    channel.queue_declare("copy")
    message = published(
        channel, connection, type="order", expiration="60000", headers={"CC": ["copy"], "x-note": "kept"}
    )
    assert message.annotations["x-basic-type"] == "order"
    assert message.annotations["x-note"] == "kept"
    assert list(message.annotations["x-cc"]) == ["copy"]
    assert 0 < message.ttl <= 60


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text ✋", "text ✋"),
        (b"\xff\xfe", b"\xff\xfe"),
        (True, True),
        (-7, -7),
        (1 << 40, 1 << 40),
        (None, None),
        (datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC), 1_000_000_000_000),
    ],
)
def test_headers_are_application_properties(
    channel: BlockingChannel, connection: ProtonConnection, value: object, shown: object
):
    """S231, X072."""
    message = published(channel, connection, headers={"name": value})
    assert dict(message.properties) == {"name": shown}


def test_tables_and_arrays_in_annotations_keep_their_shape(
    channel: BlockingChannel, connection: ProtonConnection
):
    """X073."""
    nested = {"list": [1, "two", [None]], "table": {"deep": True}}
    message = published(channel, connection, headers={"x-nested": nested})
    assert message.annotations["x-nested"] == nested


def test_a_death_over_0_9_1_is_told_over_1_0(
    node: RunningNode, channel: BlockingChannel, connection: ProtonConnection
):
    """S230."""
    channel.queue_declare("q")
    channel.queue_declare(
        "short",
        arguments={"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
    )
    channel.basic_publish("", "short", b"late")
    message = received(connection)
    (death,) = message.annotations["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["count"]) == ("short", "expired", 1)
    assert list(death["routing-keys"]) == ["short"]


# From 1.0 to 0-9-1.


def sent(channel: BlockingChannel, connection: ProtonConnection, message: Message) -> tuple[object, bytes]:
    """The properties and the body that 0-9-1 shows of a message."""
    channel.queue_declare("q")
    sender = connection.create_sender("/queues/q")
    assert sender.send(message).remote_state == Delivery.ACCEPTED
    sender.close()
    _, properties, body = channel.basic_get("q", auto_ack=True)
    return properties, body


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"durable": True}, "delivery_mode", 2),
        ({"priority": 7}, "priority", 7),
        ({"content_type": "text/plain"}, "content_type", "text/plain"),
        ({"content_encoding": "gzip"}, "content_encoding", "gzip"),
        ({"id": "one"}, "message_id", "one"),
        ({"id": ONE}, "message_id", f"urn:uuid:{ONE}"),
        ({"id": proton.ulong(7)}, "message_id", "7"),
        ({"correlation_id": "two"}, "correlation_id", "two"),
        ({"correlation_id": ONE}, "correlation_id", f"urn:uuid:{ONE}"),
        ({"reply_to": "/queues/a%2Fb"}, "reply_to", "a/b"),
        ({"creation_time": 1_000_000_000}, "timestamp", 1_000_000_000),
        ({"user_id": b"guest"}, "user_id", "guest"),
        ({"group_id": "group"}, "app_id", "group"),
        ({"ttl": 60}, "expiration", "60000"),
        ({"annotations": {symbol("x-basic-type"): "order"}}, "type", "order"),
    ],
)
def test_properties_of_1_0_come_over_0_9_1(
    channel: BlockingChannel,
    connection: ProtonConnection,
    fields: dict[str, object],
    name: str,
    value: object,
):
    """S232."""
    properties, body = sent(channel, connection, Message(body=b"hello", inferred=True, **fields))
    assert body == b"hello"
    assert getattr(properties, name) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text ✋", "text ✋"),
        (b"\xff", b"\xff"),
        (True, True),
        (None, None),
        (proton.byte(-3), -3),
        (proton.ubyte(200), 200),
        (proton.short(-300), -300),
        (proton.ushort(65535), 65535),
        (proton.int32(-70_000), -70_000),
        (proton.uint(70_000), 70_000),
        (1 << 40, 1 << 40),
        (proton.timestamp(1_000_000_000_000), datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.UTC)),
        (symbol("symbol"), "symbol"),
        (ONE, f"urn:uuid:{ONE}"),
    ],
)
def test_application_properties_are_headers(
    channel: BlockingChannel, connection: ProtonConnection, value: object, shown: object
):
    """S232, X073."""
    properties, _ = sent(channel, connection, Message(body=b"", inferred=True, properties={"name": value}))
    found = properties.headers["name"]
    if isinstance(found, datetime.datetime) and found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    assert found == shown


def test_a_body_that_is_a_value_stays_encoded(channel: BlockingChannel, connection: ProtonConnection):
    """S232: 0-9-1 hears from the type what the octets are."""
    properties, body = sent(channel, connection, Message(body={"a": [1, None]}))
    assert properties.type == "amqp-1.0"
    message = Message()
    message.decode(body)
    assert message.body == {"a": [1, None]}


# There and back.


def test_0_9_1_survives_the_way_over_1_0(channel: BlockingChannel, connection: ProtonConnection):
    """What comes in over 0-9-1, is passed on as it is over 1.0 and read over 0-9-1 has lost nothing but its widths."""
    channel.queue_declare("again")
    said = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"text": "a", "number": 7, "flag": False, "none": None, "x-note": "b"},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="q",
        message_id="m",
        timestamp=1_000_000_000,
        type="order",
        app_id="application",
    )
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"\x00\xffbody", said)
    message = received(connection)
    message.annotations = {
        symbol(name): value
        for name, value in message.annotations.items()
        if name not in ("x-exchange", "x-routing-key")
    }
    connection.create_sender("/queues/again").send(message)
    _, properties, body = channel.basic_get("again", auto_ack=True)
    assert body == b"\x00\xffbody"
    assert vars(properties) == vars(said)


def test_a_decimal_is_left_out(channel: BlockingChannel, connection: ProtonConnection):
    """S232: neither can say the other's."""
    message = published(channel, connection, headers={"price": decimal.Decimal("3.14"), "name": "x"})
    assert "name" in message.properties
    properties, _ = sent(
        channel,
        connection,
        Message(body=b"", inferred=True, properties={"price": proton.decimal64(7), "name": "x"}),
    )
    assert properties.headers == {"name": "x"}


@pytest.mark.parametrize("size", [0, 100_000, 3 * MIB])
def test_bodies_of_any_size_change_protocols(
    channel: BlockingChannel, connection: ProtonConnection, size: int
):
    body = bytes(range(256)) * (size // 256)
    channel.queue_declare("q")
    channel.basic_publish("", "q", body)
    assert bytes(received(connection).body) == body
    assert sent(channel, connection, data(body))[1] == body


# Side by side.


def test_both_compete_for_one_queue(
    node: RunningNode, channel: BlockingChannel, connection: ProtonConnection
):
    channel.queue_declare("q")
    receiver = connection.create_receiver("/queues/q", credit=5)
    channel.basic_qos(prefetch_count=5)
    got: list[bytes] = []

    def on_message(_channel: object, method: object, _properties: object, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_consume("q", on_message)
    for number in range(10):
        channel.basic_publish("", "q", str(number).encode())
    for _ in range(5):
        message = receiver.receive()
        got.append(bytes(message.body))
        receiver.accept()
    receiver.close()
    while len(got) < 10:
        channel.connection.process_data_events(time_limit=1)
    assert sorted(map(int, got)) == list(range(10))
    wait_until(lambda: (node.ready("q"), node.unsettled("q")) == (0, 0), "all are settled")


def test_an_exclusive_queue_is_locked_to_the_other_protocol(
    channel: BlockingChannel, connection: ProtonConnection
):
    """S181."""
    channel.queue_declare("mine", exclusive=True)
    with pytest.raises(proton.utils.LinkDetached) as caught:
        connection.create_receiver("/queues/mine")
    assert caught.value.condition == "amqp:resource-locked"


def test_a_request_over_0_9_1_is_answered_over_1_0(channel: BlockingChannel, connection: ProtonConnection):
    channel.queue_declare("questions")
    answers = channel.queue_declare("", exclusive=True).method.queue
    asked = pika.BasicProperties(reply_to=answers, correlation_id="one")
    channel.basic_publish("", "questions", b"hello", asked)
    question = received(connection, "questions")
    sender = connection.create_sender(None)
    answer = Message(address=question.reply_to, correlation_id=question.correlation_id, body=b"HELLO")
    answer.inferred = True
    assert sender.send(answer).remote_state == Delivery.ACCEPTED
    _, properties, body = channel.basic_get(answers, auto_ack=True)
    assert (properties.correlation_id, body) == ("one", b"HELLO")


# Listeners.


def first_answer(node: RunningNode, header: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as peer:
        peer.sendall(header)
        return peer.recv(8)


HEADER_091: Final = b"AMQP\x00\x00\x09\x01"
HEADER_10: Final = b"AMQP\x00\x01\x00\x00"
HEADER_SASL: Final = b"AMQP\x03\x01\x00\x00"


def test_a_listener_may_serve_one_protocol_only():
    for protocol, served, refused in (
        ("amqp10", HEADER_SASL, HEADER_091),
        ("amqp091", HEADER_091, HEADER_SASL),
    ):
        toml = f"[[listeners]]\naddress = '127.0.0.1:0'\nprotocols = ['{protocol}']"
        with running_nodes() as start:
            node = start(toml)
            assert first_answer(node, served)[:4] == (
                b"AMQP" if protocol == "amqp10" else b"\x01\x00\x00\x00"
            )
            assert first_answer(node, refused) == served


@pytest.mark.parametrize("disabled", ["amqp091", "amqp10"])
def test_a_protocol_may_be_disabled(node_with: Start, disabled: str):
    node = node_with(f"protocols.{disabled}.enabled = false")
    header, other = (HEADER_091, HEADER_SASL) if disabled == "amqp091" else (HEADER_SASL, HEADER_091)
    assert first_answer(node, header) == other


def test_a_bare_header_is_anonymous_or_is_told_to_log_in(node_with: Start):
    """S002: where ANONYMOUS is not offered, 1.0 without SASL is answered with the header that asks for it."""
    assert first_answer(node_with(""), HEADER_10) == HEADER_10
    assert first_answer(node_with('security.anonymous_user = ""'), HEADER_10) == HEADER_SASL


# Pages.

ROOT: Final = Path(__file__).parents[2]


def programs(page: str, node: RunningNode) -> list[str]:
    """The Python programs on a page, for this node."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [program.replace("localhost:5672", f"127.0.0.1:{node.port}") for program in found]


@pytest.mark.parametrize(
    ("page", "which", "printed"),
    [
        ("README.md", slice(1, 3), ["Hello, hare!", "Hello again, hare!"]),
        ("docs/amqp-1-0.md", slice(1), ["Dear hare,"]),
    ],
)
def test_the_programs_on_the_pages_work(
    node: RunningNode, capsys: pytest.CaptureFixture[str], page: str, which: slice, printed: list[str]
):
    for program in programs(page, node)[which]:
        exec(program, {})
    assert capsys.readouterr().out.splitlines() == printed
