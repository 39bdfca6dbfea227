"""MQTT, PUBLISH: flags, retained messages, properties, and who gets what."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer
from tests.mqtt.test_m01_packets import both_versions, connected, refused, refused_in_both
from tests.mqtt.test_m02_connecting import kept


def pair(version: int, topic: str = "a", qos: int = 2, **options: object) -> tuple[Peer, Peer]:
    """A subscriber of this version, and a publisher of version 5."""
    bench = ClientBench()
    reader = connected(version, bench, "reader")
    reader.subscribe(topic, qos=qos, **options)
    return reader, Peer(bench).connect("writer")


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_m055_a_message_that_is_sent_again_is_marked(version: int, qos: int) -> None:
    bench = ClientBench()
    reader = kept(version, bench)
    reader.acknowledges = False
    reader.subscribe("a", qos=qos)
    connected(5, bench, "writer").publish("a", b"1", qos=qos)
    assert [each.dup for each in reader.messages()] == [False]
    reader.drop()
    again = kept(version, bench)
    assert [each.dup for each in again.messages()] == [True]


@both_versions
def test_m056_a_message_with_qos_0_is_no_duplicate(version: int) -> None:
    refused_in_both("38 03 0001 61", "38 04 0001 61 00", codes.MALFORMED_PACKET)
    reader, writer = pair(version)
    writer.publish("a", b"1")
    assert [(each.qos, each.dup) for each in reader.messages()] == [(0, False)]


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_m057_the_mark_of_a_publisher_is_not_passed_on(version: int, qos: int) -> None:
    reader, writer = pair(version)
    writer.send(p.Publish("a", b"1", qos, False, True, 7))
    if qos == 2:
        writer.send(p.Ack(of.PUBREL, 7))
    assert [(each.qos, each.dup) for each in reader.messages()] == [(qos, False)]


def test_m058_qos_3() -> None:
    refused_in_both("36 05 0001 61 0001", "36 06 0001 61 0001 00", codes.MALFORMED_PACKET)


@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_m059_the_last_retained_message_is_kept_with_its_quality(version: int, qos: int) -> None:
    bench = ClientBench()
    writer = connected(version, bench, "writer")
    writer.publish("a", b"1", qos=2, retain=True)
    writer.publish("a", b"2", qos=qos, retain=True)
    reader = connected(version, bench, "reader")
    reader.subscribe("a", qos=2)
    assert [(each.payload, each.qos, each.retain) for each in reader.messages()] == [(b"2", qos, True)]
    writer.drop()
    late = connected(version, bench, "late")
    late.subscribe("#")
    assert late.payloads() == [b"2"]


@both_versions
def test_m060_an_empty_retained_message_removes_and_is_not_kept(version: int) -> None:
    bench = ClientBench()
    writer, reader = connected(version, bench, "writer"), connected(version, bench, "reader")
    reader.subscribe("a")
    writer.publish("a", b"1", retain=True)
    writer.publish("a", b"", retain=True)
    assert [(each.payload, each.retain) for each in reader.messages()] == [(b"1", False), (b"", False)]
    late = connected(version, bench, "late")
    late.subscribe("a")
    assert late.messages() == []


@both_versions
def test_m061_other_messages_leave_the_retained_one_alone(version: int) -> None:
    bench = ClientBench()
    writer = connected(version, bench, "writer")
    writer.publish("b", b"1")
    writer.publish("a", b"1", retain=True)
    writer.publish("a", b"2")
    writer.publish("a", b"")
    reader = connected(version, bench, "reader")
    reader.subscribe("#")
    assert reader.payloads() == [b"1"]


def test_m062_retain_handling_says_when_retained_messages_are_sent() -> None:
    bench = ClientBench()
    connected(5, bench, "writer").publish("a", b"1", retain=True)
    for handling, counts in ((0, (1, 1)), (1, (1, 0)), (2, (0, 0))):
        reader = connected(5, bench, f"reader{handling}")
        found = []
        for _ in range(2):
            reader.subscribe("a", retain_handling=handling)
            found.append(len(reader.messages()))
        assert tuple(found) == counts
    old = connected(4, bench, "old")
    for _ in range(2):
        old.subscribe("+")
        assert old.payloads() == [b"1"]


def test_m063_the_retain_flag_of_what_is_passed_on() -> None:
    reader, writer = pair(5, retain_as_published=True)
    plain = connected(5, reader.bench, "plain")
    old = connected(4, reader.bench, "old")
    for each in (plain, old):
        each.subscribe("a")
    for retain in (True, False):
        writer.publish("a", b"1", retain=retain)
    assert [each.retain for each in reader.messages()] == [True, False]
    assert [each.retain for each in plain.messages()] == [False, False]
    assert [each.retain for each in old.messages()] == [False, False]
    new = connected(4, reader.bench, "new")
    new.subscribe("a")
    assert [each.retain for each in new.messages()] == [True]


def test_m064_a_topic_has_no_wildcards() -> None:
    for topic in ("23", "2b"):
        refused_in_both(f"30 03 0001 {topic}", f"30 04 0001 {topic} 00", codes.TOPIC_NAME_INVALID)
    refused_in_both("30 05 0003 612f23", "30 06 0003 612f23 00", codes.TOPIC_NAME_INVALID)


@both_versions
def test_m065_a_message_comes_with_its_topic_to_filters_that_match_it(version: int) -> None:
    reader, writer = pair(version, "a/+/c/#")
    for topic in ("a/b/c", "a/b/c/d/e", "a//c", "a/b", "a/b/d", "b/b/c", "a/b/b/c", "A/b/c"):
        writer.publish(topic)
    assert [each.topic for each in reader.messages()] == ["a/b/c", "a/b/c/d/e", "a//c"]


def test_m066_properties_are_passed_on_as_they_came() -> None:
    reader, writer = pair(5)
    said = {
        "payload_format_indicator": 1,
        "content_type": "text/plain",
        "response_topic": "answers/ü",
        "correlation_data": b"\0\xff\x80",
        "user_properties": (("b", "1"), ("a", "2"), ("b", ""), ("", "x")),
    }
    writer.publish("a", b"x", **said)
    assert [each.properties for each in reader.messages()] == [Properties(**said)]


def test_m067_messages_expire_and_tell_how_long_they_have() -> None:
    bench = ClientBench()
    reader, late = kept(5, bench), kept(5, bench, "late")
    for each in (reader, late):
        each.subscribe("a", qos=1)
        each.drop()
    writer = connected(5, bench, "writer")
    writer.publish("a", b"1", qos=1, message_expiry_interval=10)
    writer.publish("a", b"2", qos=1)
    bench.advance(4)
    found = [(each.payload, each.properties.message_expiry_interval) for each in kept(5, bench).messages()]
    assert found == [(b"1", 6), (b"2", None)]
    bench.advance(7)
    assert kept(5, bench, "late").payloads() == [b"2"]


def test_m068_topic_aliases_end_with_their_connection() -> None:
    bench = ClientBench()
    first = kept(5, bench)
    first.publish("a", b"", topic_alias=1)
    first.drop()
    again = kept(5, bench)
    again.send(p.Publish("", b"", properties=Properties(topic_alias=1)))
    again.read()
    assert again.disconnected is not None
    assert again.disconnected.reason_code in (codes.TOPIC_ALIAS_INVALID, codes.PROTOCOL_ERROR)


def test_m069_topic_aliases_from_1_to_the_maximum_are_taken() -> None:
    bench = ClientBench("[protocols.mqtt]\ntopic_alias_max = 3\n")
    reader, writer = connected(5, bench, "reader"), connected(5, bench, "writer")
    assert writer.connected is not None
    assert writer.connected.properties.topic_alias_maximum == 3
    reader.subscribe("#")
    for alias in (1, 2, 3):
        writer.publish(f"t{alias}", b"", topic_alias=alias)
    for alias in (3, 1, 2):
        writer.publish("", b"", topic_alias=alias)
    assert [each.topic for each in reader.messages()] == ["t1", "t2", "t3", "t3", "t1", "t2"]
    writer.publish("t", b"", topic_alias=4)
    writer.read()
    assert writer.disconnected is not None
    assert writer.disconnected.reason_code == codes.TOPIC_ALIAS_INVALID
    assert refused("30 07 0001 61 03 230000") == codes.TOPIC_ALIAS_INVALID


def test_m070_response_topics_and_content_types() -> None:
    assert refused("30 08 0001 61 04 08000123") == codes.PROTOCOL_ERROR
    assert refused("30 08 0001 61 04 0800012b") == codes.PROTOCOL_ERROR
    assert refused("30 08 0001 61 04 080001ff") == codes.MALFORMED_PACKET
    assert refused("30 08 0001 61 04 030001ff") == codes.MALFORMED_PACKET


@both_versions
def test_m071_a_message_is_answered_as_its_quality_says(version: int) -> None:
    peer = connected(version)
    for qos, answers in ((0, []), (1, [of.PUBACK]), (2, [of.PUBREC])):
        peer.send(p.Publish("a", b"", qos, packet_id=7 if qos else 0))
        assert [each.kind for each in peer.taken(p.Ack)] == answers


@both_versions
def test_m072_subscriptions_that_overlap(version: int) -> None:
    """One copy has the greatest quality; with identifiers, it has those of all that match."""
    reader, writer = pair(version, "a/#", 1, **({"identifier": 5} if version == 5 else {}))
    reader.subscribe("a/+", qos=2, **({"identifier": 7} if version == 5 else {}))
    reader.subscribe("+/b")
    writer.publish("a/b", b"", qos=2)
    found = reader.messages()
    assert max(each.qos for each in found) == 2
    if version == 5:
        said = [number for each in found for number in each.properties.subscription_identifiers]
        assert sorted(set(said)) == [5, 7]


def test_m073_a_client_sends_no_subscription_identifier_with_a_message() -> None:
    assert refused("30 06 0001 61 02 0b01") == codes.PROTOCOL_ERROR


def test_m074_no_more_messages_are_on_their_way_than_the_client_takes() -> None:
    """Messages of QoS 0 and other packets do not wait."""
    bench = ClientBench()
    reader, writer = Peer(bench).connect("reader", receive_maximum=2), connected(5, bench, "writer")
    reader.acknowledges = False
    reader.subscribe("a", qos=2)
    reader.subscribe("zero", qos=0)
    for number in range(5):
        writer.publish("a", b"%d" % number, qos=1)
    found = reader.messages()
    assert [each.payload for each in found] == [b"0", b"1"]
    writer.publish("zero", b"z")
    reader.send(p.PingReq())
    assert {type(each) for each in reader.taken()} == {p.Publish, p.PingResp}
    reader.acknowledge(found[0])
    assert reader.payloads() == [b"2"]


def test_m075_a_client_that_sends_more_than_the_receive_maximum() -> None:
    bench = ClientBench("[protocols.mqtt]\nreceive_maximum = 2\n")
    peer = connected(5, bench)
    assert peer.connected is not None
    assert peer.connected.properties.receive_maximum == 2
    for packet_id in (1, 2, 3):
        peer.send(p.Publish("a", b"", 2, packet_id=packet_id))
    peer.read()
    assert peer.disconnected is not None
    assert peer.disconnected.reason_code == codes.RECEIVE_MAXIMUM_EXCEEDED


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_m076_a_message_that_a_client_may_not_publish(version: int, qos: int) -> None:
    bench = ClientBench()
    bench.user("ann", write="^$")
    reader = connected(5, bench, "reader")
    reader.subscribe("#")
    peer = connected(version, bench, user="ann", password=b"ann")
    peer.send(p.Publish("a", b"x", qos, packet_id=7))
    answers = peer.taken(p.Ack)
    if version == 5:
        assert [each.reason_code for each in answers] == [codes.NOT_AUTHORIZED]
    else:
        assert peer.front.closed or [each.packet_id for each in answers] == [7]
    assert reader.messages() == []
