"""What version 5 adds: aliases, receive maximum, packet sizes, reason codes, identifiers, options, expiry."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.packets import Ack, Connect, Disconnect, Publish
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer


def pair(bench: ClientBench, topic_filter: str = "#", qos: int = 2, **said: object) -> tuple[Peer, Peer]:
    """A publisher, and a client that subscribes."""
    reader = Peer(bench).connect("reader", **said)
    reader.subscribe(topic_filter, qos=qos)
    return Peer(bench).connect("me"), reader


def test_a_client_without_an_id_is_given_one() -> None:
    peer = Peer().connect("")
    assert peer.connected is not None
    assert (peer.connected.properties.assigned_client_identifier or "").startswith("auto-")
    first, second = Peer(version=4).connect("", clean=True), Peer(version=4).connect("", clean=False)
    assert first.connected is not None
    assert second.connected is not None
    assert (first.connected.reason_code, second.connected.reason_code) == (0, r.CLIENT_IDENTIFIER_NOT_VALID)


def test_topic_aliases_of_the_client() -> None:
    bench = ClientBench()
    peer, reader = pair(bench)
    peer.publish("a/b", b"1", topic_alias=1)
    peer.publish("", b"2", topic_alias=1)
    peer.publish("c", b"3", topic_alias=1)
    peer.publish("", b"4", qos=1, topic_alias=1)
    assert [(each.topic, each.payload) for each in reader.messages()] == [
        ("a/b", b"1"),
        ("a/b", b"2"),
        ("c", b"3"),
        ("c", b"4"),
    ]


@pytest.mark.parametrize(("alias", "code"), [(65, r.TOPIC_ALIAS_INVALID), (64, r.PROTOCOL_ERROR)])
def test_wrong_topic_aliases(alias: int, code: int) -> None:
    peer = Peer().connect()
    peer.publish("", b"1", topic_alias=alias)
    assert peer.taken(Disconnect)[0].reason_code == code
    assert peer.front.closed


def test_topic_aliases_of_the_server() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, topic_alias_maximum=1)
    for topic in ("a", "a", "b", "a"):
        peer.publish(topic, b"x", content_type="t" * 130 if topic == "b" else "t")
    found = reader.messages()
    assert [each.topic for each in found] == ["a", "a", "b", "a"]
    assert [each.properties.topic_alias for each in found] == [1, 1, None, 1]
    assert [each.properties.content_type for each in found] == ["t", "t", "t" * 130, "t"]


def test_the_receive_maximum_of_the_client() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, receive_maximum=2)
    for number in range(4):
        peer.publish("a", b"%d" % number, qos=1)
    peer.publish("b", b"x")
    sent = reader.taken(Publish)
    assert [each.payload for each in sent] == [b"0", b"1"]
    for expected in (b"2", b"3", b"x"):
        reader.send(Ack(PUBACK, sent.pop(0).packet_id))
        sent += reader.taken(Publish)
        assert sent[-1].payload == expected


def test_the_receive_maximum_of_the_server() -> None:
    bench = ClientBench("[protocols.mqtt]\nreceive_maximum = 2")
    peer = Peer(bench).connect()
    for number in (1, 2):
        peer.send(Publish("a", b"x", 2, False, False, number))
    peer.send(Ack(PUBREL, 1))
    assert peer.taken(Ack)[-1] == Ack(PUBCOMP, 1)
    peer.send(Publish("a", b"x", 1, False, False, 3))
    peer.send(Publish("a", b"x", 1, False, False, 4))
    assert not peer.front.closed
    peer.send(Publish("a", b"x", 2, False, False, 5))
    peer.send(Publish("a", b"x", 2, False, False, 6))
    assert peer.taken(Disconnect)[0].reason_code == r.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_that_is_larger_than_the_client_takes_is_dead() -> None:
    bench = ClientBench()
    bench.host.declare_queue("dead")
    bench.policy("^mqtt-", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    peer, reader = pair(bench, maximum_packet_size=100)
    for qos in (0, 1, 2):
        peer.publish("a", b"x" * 101, qos=qos)
    peer.publish("a", b"y", qos=1)
    assert reader.payloads() == [b"y"]
    assert bench.queue("dead").ready == 3
    assert bench.queue("mqtt-subscription-readerqos1").unsettled == 0


def test_a_packet_that_is_larger_than_the_server_takes() -> None:
    bench = ClientBench("[protocols.mqtt]\npacket_size_max = 1024")
    peer = Peer(bench).connect()
    assert peer.connected is not None
    assert peer.connected.properties.maximum_packet_size == 1024
    peer.publish("a", b"x" * 1024)
    assert peer.taken(Disconnect)[0].reason_code == r.PACKET_TOO_LARGE


def test_nothing_large_is_taken_before_the_login() -> None:
    peer = Peer()
    peer.send_bytes(b"\x10\xff\xff\xff\x7f" + b"x" * 100)
    assert peer.front.closed


def test_reasons_of_acknowledgements() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect()
    for qos in (1, 2):
        peer.send(Publish("nowhere", b"x", qos, False, False, qos))
    assert [each.reason_code for each in peer.taken(Ack)] == [r.NO_MATCHING_SUBSCRIBERS] * 2
    peer.send(Ack(PUBREL, 77))
    peer.send(Ack(PUBREC, 78))
    assert [(each.kind, each.reason_code) for each in peer.taken(Ack)] == [
        (PUBCOMP, r.PACKET_IDENTIFIER_NOT_FOUND),
        (PUBREL, r.PACKET_IDENTIFIER_NOT_FOUND),
    ]
    assert peer.unsubscribe("a") == (r.NO_SUBSCRIPTION_EXISTED,)


def test_a_full_queue_refuses() -> None:
    bench = ClientBench()
    bench.policy("^mqtt-", {"max-length": 1, "overflow": "reject-publish"})
    _, reader = pair(bench, session_expiry_interval=100)
    reader.drop()
    peer = Peer(bench).connect("me")
    codes = []
    for qos in (1, 1, 2):
        answer = peer.publish("a", b"x", qos=qos)
        assert answer is not None
        codes.append(answer.reason_code)
    assert codes == [0, r.QUOTA_EXCEEDED, r.QUOTA_EXCEEDED]
    peer.publish("a", b"x")
    assert not peer.front.closed
    old = Peer(bench, 4).connect("old")
    assert old.publish("a", b"x", qos=1) is None
    assert old.front.closed


def test_a_client_refuses_a_message() -> None:
    bench = ClientBench()
    bench.host.declare_queue("dead")
    bench.policy("^mqtt-", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    peer, reader = pair(bench)
    peer.publish("a", b"1", qos=1)
    peer.publish("a", b"2", qos=2)
    first, second = reader.taken(Publish)
    reader.send(Ack(PUBACK, first.packet_id, r.IMPLEMENTATION_SPECIFIC_ERROR))
    reader.send(Ack(PUBREC, second.packet_id, r.QUOTA_EXCEEDED))
    assert reader.taken(Ack) == []
    assert bench.queue("dead").ready == 2


def test_subscription_identifiers_of_all_that_match() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, "a/#", qos=1)
    reader.subscribe("a/+", qos=1, identifier=1)
    reader.subscribe("+/b", qos=2, identifier=200_000)
    reader.subscribe("c", qos=2, identifier=3)
    peer.publish("a/b", b"x", qos=2)
    (found,) = reader.messages()
    assert found.qos == 2
    assert sorted(found.properties.subscription_identifiers) == [1, 200_000]


def test_no_local() -> None:
    bench = ClientBench()
    peer, other = Peer(bench).connect("me"), Peer(bench).connect("other")
    peer.subscribe("a", qos=1, no_local=True)
    for qos in (0, 1, 2):
        peer.publish("a", b"mine", qos=qos)
    other.publish("a", b"yours", qos=1)
    assert peer.payloads() == [b"yours"]
    assert bench.queue("mqtt-subscription-meqos1").unsettled == 0


def test_properties_go_through() -> None:
    bench = ClientBench()
    peer, reader = pair(bench)
    said = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="answers/me",
        correlation_data=b"\xff\0",
        user_properties=(("a", "1"), ("b", "2"), ("a", "3")),
    )
    peer.send(Publish("a", b"x", 1, False, False, 1, said))
    (found,) = reader.messages()
    assert found.properties == said


def test_messages_expire() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, session_expiry_interval=100)
    reader.drop()
    peer.publish("a", b"1", qos=1, message_expiry_interval=5)
    peer.publish("a", b"2", qos=1, message_expiry_interval=50)
    bench.advance(10)
    again = Peer(bench).connect("reader", clean=False, session_expiry_interval=100)
    (found,) = again.messages()
    assert (found.payload, found.properties.message_expiry_interval) == (b"2", 40)


def test_the_keep_alive_of_the_server() -> None:
    bench = ClientBench("[protocols.mqtt]\nkeep_alive_max_s = 20")
    peer = Peer(bench).connect(keep_alive=0)
    assert peer.connected is not None
    assert peer.connected.properties.server_keep_alive == 20
    bench.advance(29)
    assert not peer.front.closed
    bench.advance(2)
    assert peer.taken(Disconnect)[0].reason_code == r.KEEP_ALIVE_TIMEOUT


def test_one_that_does_not_log_in_is_dropped() -> None:
    bench = ClientBench()
    peer = Peer(bench)
    bench.advance(11)
    assert peer.front.closed


@pytest.mark.parametrize("version", [4, 5])
def test_a_wrong_password(version: int) -> None:
    peer = Peer(version=version).connect(password=b"wrong")
    assert peer.connected is not None
    assert peer.connected.reason_code == r.BAD_USER_NAME_OR_PASSWORD
    assert peer.front.closed


def test_an_unknown_version() -> None:
    peer = Peer(version=4)
    peer.send_bytes(b"\x10\x0c\0\4MQTT\6\2\0\0\0\0")
    peer.read()
    assert peer.connected is not None
    assert peer.connected.reason_code == r.UNSUPPORTED_PROTOCOL_VERSION


def test_subscriptions_are_limited() -> None:
    bench = ClientBench("[protocols.mqtt]\nsubscriptions_max = 2")
    peer = Peer(bench).connect()
    assert peer.subscribe("a", "b", qos=1) == (1, 1)
    assert peer.subscribe("c", "a", qos=1) == (r.QUOTA_EXCEEDED, 1)
    assert peer.subscribe("x" * 256, qos=1) == (r.TOPIC_FILTER_INVALID,)
    assert peer.subscribe(*["a"] * 5, qos=1) == (1, 1, *[r.QUOTA_EXCEEDED] * 3)


def test_another_qos_moves_a_subscription() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, "a", qos=0)
    reader.subscribe("a", qos=1)
    peer.publish("a", b"x", qos=1)
    assert [each.qos for each in reader.messages()] == [1]
    reader.subscribe("a", qos=0)
    peer.publish("a", b"y", qos=1)
    assert [each.qos for each in reader.messages()] == [0]
    assert set(bench.host.queues) == {"mqtt-subscription-readerqos0"}


def test_stars_of_a_filter_are_characters() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, "a/*")
    for topic in ("a/b", "a/*", "a.b", "a.*"):
        peer.publish(topic, topic.encode(), qos=1)
    assert reader.payloads() == [b"a/*"]
    assert bench.queue("mqtt-subscription-readerqos1").unsettled == 0


def test_two_filters_with_one_binding() -> None:
    bench = ClientBench()
    peer, reader = pair(bench, "a/*")
    reader.subscribe("a/+", qos=2)
    reader.unsubscribe("a/+")
    peer.publish("a/*", b"x", qos=1)
    assert reader.payloads() == [b"x"]


def test_a_bridge_of_version_3_1_1_has_the_options_of_version_5_for_bridges() -> None:
    """It says what it is by the highest bit of the protocol level: nothing of its own comes back to it."""
    bench = ClientBench()
    bridge, other = Peer(bench, version=4), Peer(bench).connect("other")
    bridge.send(Connect(4, "bridge", user_name="guest", password=b"guest", is_bridge=True))
    bridge.taken()
    bridge.subscribe("a", qos=1)
    bridge.publish("a", b"mine", qos=1)
    other.publish("a", b"yours", qos=1, retain=True)
    assert [(each.payload, each.retain) for each in bridge.messages()] == [(b"yours", True)]
