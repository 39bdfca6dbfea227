"""Eclipse paho, the MQTT client of Python that most others are built on, in versions 3.1.1 and 5."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, need_module, wait_until

need_module("paho.mqtt.client")

from tests.harness.paho import VERSIONS, Paho  # noqa: E402

pytestmark = pytest.mark.interop

SERVED = 'listeners = [{ address = "127.0.0.1:0", protocols = ["amqp091", "mqtt"] }]'


Connect = Callable[..., Paho]


@pytest.fixture
def served(node_with: Start) -> RunningNode:
    return node_with(SERVED)


@pytest.fixture(params=list(VERSIONS))
def connect(request: pytest.FixtureRequest, served: RunningNode) -> Iterator[Connect]:
    """A function that connects a client by its name."""
    clients: list[Paho] = []

    def connected(name: str, clean: bool = True, expiry: int = 0, **said: int) -> Paho:
        clients.append(Paho(served, name, request.param))
        return clients[-1].start(clean, expiry, **said)

    yield connected
    for client in clients:
        client.stop()


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.node.callspec.params["connect"]
    return found


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_message_has_the_lower_quality_of_both_sides(connect: Connect, published: int, subscribed: int):
    reader, writer = connect("reader"), connect("writer")
    assert reader.subscribe("a/+", subscribed) == [subscribed]
    writer.publish("a/b", b"hello", published)
    assert reader.take_all(1) == [("a/b", b"hello", min(published, subscribed))]


def test_many_messages_of_each_quality_come_in_order(connect: Connect):
    reader, writer = connect("reader"), connect("writer")
    for qos in (0, 1, 2):
        reader.subscribe(f"q{qos}", qos)
    for number in range(300):
        for qos in (0, 1, 2):
            writer.client.publish(f"q{qos}", str(number).encode(), qos)
    found = reader.take_all(900)
    for qos in (0, 1, 2):
        assert [payload for topic, payload, _ in found if topic == f"q{qos}"] == [
            b"%d" % n for n in range(300)
        ]


def test_a_large_message_arrives_whole(connect: Connect):
    reader, writer = connect("reader"), connect("writer")
    reader.subscribe("large", 1)
    payload = bytes(range(256)) * 20_000
    writer.publish("large", payload)
    assert reader.take().payload == payload


def test_a_retained_message_waits_for_subscribers(connect: Connect):
    writer = connect("writer")
    writer.publish("state/door", b"open", 1, retain=True)
    writer.publish("state/door", b"closed", 1, retain=True)
    reader = connect("reader")
    reader.subscribe("state/#")
    found = reader.take()
    assert (found.topic, found.payload, found.retain) == ("state/door", b"closed", True)
    writer.publish("state/door", b"open", 1, retain=True)
    found = reader.take()
    assert (found.payload, found.retain) == (b"open", False)
    writer.publish("state/door", b"", 1, retain=True)
    assert reader.take().payload == b""
    late = connect("late")
    late.subscribe("state/#")
    writer.publish("state/end", b"end")
    assert late.take_all(1) == [("state/end", b"end", 1)]


def test_a_session_keeps_what_came_meanwhile(connect: Connect):
    """Paho tells of a message with QoS 2 when it has been released, after others that came later."""
    reader, writer = connect("reader", clean=False, expiry=100), connect("writer")
    assert not reader.flags.session_present
    reader.subscribe("a", 2)
    reader.stop()
    for number in range(50):
        writer.publish("a", str(number).encode(), 1 + number % 2)
    again = connect("reader", clean=False, expiry=100)
    assert again.flags.session_present
    found = again.take_all(50)
    for qos in (1, 2):
        numbers = [int(payload) for _, payload, of in found if of == qos]
        assert numbers == list(range(qos - 1, 50, 2))


def test_a_session_is_taken_over(connect: Connect, version: str):
    first = connect("same")
    first.client.reconnect_delay_set(60, 60)
    second = connect("same")
    assert first.ended.wait(TIMEOUT_S)
    if version == "5":
        assert first.ended_because.value == 0x8E
    second.subscribe("a")
    second.publish("a", b"x")
    assert second.take().payload == b"x"


def test_a_will_is_published_if_a_client_is_lost(connect: Connect, served: RunningNode, version: str):
    reader = connect("reader")
    reader.subscribe("gone/#")
    lost = Paho(served, "lost", version)
    lost.client.will_set("gone/lost", b"bye", 1, False)
    lost.start()
    lost.lose()
    assert reader.take_all(1) == [("gone/lost", b"bye", 1)]
    good = Paho(served, "good", version)
    good.client.will_set("gone/good", b"bye", 1, False)
    good.start()
    good.stop()
    reader.publish("gone/end", b"end")
    assert reader.take_all(1) == [("gone/end", b"end", 1)]


def test_a_wrong_password_is_refused(served: RunningNode):
    for version, code in (("3.1.1", 134), ("5", 134)):
        client = Paho(served, "c", version, "wrong").start()
        assert client.reason.value == code
        client.stop()


def test_unsubscribing_ends_the_messages(connect: Connect):
    reader = connect("reader")
    reader.subscribe("a")
    reader.subscribe("b")
    done = threading.Event()
    reader.client.on_unsubscribe = lambda *_: done.set()
    reader.client.unsubscribe("a")
    assert done.wait(TIMEOUT_S)
    reader.publish("a", b"1")
    reader.publish("b", b"2")
    assert reader.take_all(1) == [("b", b"2", 1)]


# Version 5.


@pytest.fixture
def connect5(served: RunningNode) -> Iterator[Connect]:
    clients: list[Paho] = []

    def connected(name: str, clean: bool = True, expiry: int = 0, **said: int) -> Paho:
        clients.append(Paho(served, name, "5"))
        return clients[-1].start(clean, expiry, **said)

    yield connected
    for client in clients:
        client.stop()


def test_properties_arrive_as_they_were_sent(connect5: Connect):
    reader, writer = connect5("reader"), connect5("writer")
    reader.subscribe("a")
    writer.publish(
        "a",
        b"x",
        PayloadFormatIndicator=1,
        ContentType="text/plain",
        ResponseTopic="answers/1",
        CorrelationData=b"\x00\xff",
        MessageExpiryInterval=1000,
        UserProperty=[("a", "1"), ("a", "2"), ("b", "ü")],
    )
    found = reader.take().properties
    assert found.PayloadFormatIndicator == 1
    assert found.ContentType == "text/plain"
    assert found.ResponseTopic == "answers/1"
    assert found.CorrelationData == b"\x00\xff"
    assert 990 <= found.MessageExpiryInterval <= 1000
    assert found.UserProperty == [("a", "1"), ("a", "2"), ("b", "ü")]


def test_a_request_is_answered(connect5: Connect):
    asking, answering = connect5("asking"), connect5("answering")
    answering.subscribe("requests")
    asking.subscribe("answers/me")
    asking.publish("requests", b"2+2", ResponseTopic="answers/me", CorrelationData=b"7")
    request = answering.take()
    answering.publish(
        request.properties.ResponseTopic, b"4", CorrelationData=request.properties.CorrelationData
    )
    answer = asking.take()
    assert (answer.payload, answer.properties.CorrelationData) == (b"4", b"7")


def test_no_local_and_retain_as_published(connect5: Connect):
    client, other = connect5("client"), connect5("other")
    client.subscribe("a", 1, noLocal=True, retainAsPublished=True)
    client.publish("a", b"mine")
    other.publish("a", b"theirs", retain=True)
    found = client.take()
    assert (found.payload, found.retain) == (b"theirs", True)


def test_a_shared_subscription_shares(connect5: Connect):
    readers = [connect5(f"reader{number}") for number in range(2)]
    for reader in readers:
        reader.subscribe("$share/g/work/#")
    writer = connect5("writer")
    for number in range(100):
        writer.publish("work/x", str(number).encode())
    wait_until(lambda: sum(reader.heard.qsize() for reader in readers) == 100, "100 messages")
    assert all(reader.heard.qsize() for reader in readers)
    found = sorted(int(reader.heard.get().payload) for reader in readers for _ in range(reader.heard.qsize()))
    assert found == list(range(100))


def test_no_more_are_in_flight_than_the_client_allows(connect5: Connect):
    reader, writer = connect5("reader", ReceiveMaximum=3), connect5("writer")
    reader.client.manual_ack_set(True)
    reader.subscribe("a", 1)
    for number in range(10):
        writer.publish("a", str(number).encode())
    found = [reader.take() for _ in range(3)]
    assert reader.heard.empty()
    for message in found:
        reader.client.ack(message.mid, message.qos)
    assert [reader.take().payload for _ in range(3)] == [b"3", b"4", b"5"]


def test_topic_aliases_stand_for_topics(connect5: Connect):
    reader, writer = connect5("reader", TopicAliasMaximum=5), connect5("writer")
    reader.subscribe("long/topic/#")
    writer.publish("long/topic/1", b"a", TopicAlias=1)
    writer.publish("long/topic/1", b"b", TopicAlias=1)
    assert [reader.take().payload for _ in range(2)] == [b"a", b"b"]
