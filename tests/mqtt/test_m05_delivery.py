"""MQTT, the delivery of messages with QoS 1 and 2, on one connection and across several (sections 4.3 to 4.6)."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer
from tests.mqtt.test_m01_packets import both_versions, connected
from tests.mqtt.test_m02_connecting import kept
from tests.mqtt.test_m03_publishing import pair


def unacknowledged(version: int, qos: int) -> tuple[ClientBench, Peer, p.Publish]:
    """A client whose session is kept, with one message that it has not acknowledged."""
    bench = ClientBench()
    reader = kept(version, bench)
    reader.acknowledges = False
    reader.subscribe("a", qos=qos)
    connected(5, bench, "writer").publish("a", b"1", qos=qos)
    (found,) = reader.messages()
    return bench, reader, found


def again(version: int, bench: ClientBench) -> Peer:
    peer = kept(version, bench)
    peer.acknowledges = False
    return peer


@both_versions
def test_m093_a_message_with_qos_1_is_unacknowledged_until_its_puback(version: int) -> None:
    bench, reader, found = unacknowledged(version, 1)
    assert (found.qos, found.dup) == (1, False)
    assert bench.queue("mqtt-subscription-meqos1").unsettled == 1
    reader.send(p.Ack(of.PUBACK, found.packet_id))
    assert bench.queue("mqtt-subscription-meqos1").unsettled == 0
    reader.drop()
    assert again(version, bench).messages() == []


@both_versions
@pytest.mark.parametrize("dup", [False, True])
def test_m094_after_a_puback_its_identifier_is_of_a_new_message(version: int, dup: bool) -> None:
    bench = ClientBench()
    reader, writer = connected(5, bench, "reader"), connected(version, bench, "writer")
    reader.subscribe("a")
    for payload, is_dup in ((b"1", False), (b"2", dup)):
        writer.send(p.Publish("a", payload, 1, False, is_dup, 7))
    assert len(writer.taken(p.Ack)) == 2
    assert reader.payloads() == [b"1", b"2"]


@both_versions
def test_m095_a_message_with_qos_2_is_released_and_completed(version: int) -> None:
    """It is sent again until it is received, and its release until it is completed; never the message after that."""
    bench, reader, found = unacknowledged(version, 2)
    assert (found.qos, found.dup) == (2, False)
    reader.drop()
    second = again(version, bench)
    assert [(each.packet_id, each.dup) for each in second.messages()] == [(found.packet_id, True)]
    second.send(p.Ack(of.PUBREC, found.packet_id))
    assert second.taken(p.Ack) == [p.Ack(of.PUBREL, found.packet_id)]
    second.drop()
    third = again(version, bench)
    assert third.taken(p.Ack, p.Publish) == [p.Ack(of.PUBREL, found.packet_id)]
    third.send(p.Ack(of.PUBCOMP, found.packet_id))
    third.drop()
    assert again(version, bench).taken(p.Ack, p.Publish) == []


@both_versions
def test_m096_a_message_with_qos_2_is_taken_once_until_it_is_released(version: int) -> None:
    bench = ClientBench()
    reader = connected(5, bench, "reader")
    reader.subscribe("a")
    writer = kept(version, bench, "writer")
    writer.send(p.Publish("a", b"1", 2, False, False, 7))
    writer.send(p.Publish("a", b"1", 2, False, True, 7))
    assert writer.taken(p.Ack) == [p.Ack(of.PUBREC, 7)] * 2
    writer.drop()
    writer = kept(version, bench, "writer")
    writer.send(p.Publish("a", b"1", 2, False, True, 7))
    writer.send(p.Ack(of.PUBREL, 7))
    assert writer.taken(p.Ack) == [p.Ack(of.PUBREC, 7), p.Ack(of.PUBCOMP, 7)]
    assert reader.payloads() == [b"1"]
    writer.send(p.Publish("a", b"2", 2, False, False, 7))
    assert reader.payloads() == [b"2"]


def test_m097_a_refused_message_is_over() -> None:
    """Refused by the server, its identifier is free; refused by the client, it is not sent again."""
    bench = ClientBench()
    bench.user("ann", write="^$")
    peer = connected(5, bench, user="ann", password=b"ann")
    for _ in range(2):
        peer.send(p.Publish("a", b"", 2, packet_id=7))
        assert [each.reason_code for each in peer.taken(p.Ack)] == [codes.NOT_AUTHORIZED]
    for qos, kind in ((1, of.PUBACK), (2, of.PUBREC)):
        bench, reader, found = unacknowledged(5, qos)
        reader.send(p.Ack(kind, found.packet_id, codes.UNSPECIFIED_ERROR))
        assert reader.taken(p.Ack) == []
        reader.drop()
        assert again(5, bench).taken(p.Ack, p.Publish) == []


def test_m098_a_message_that_has_been_sent_does_not_expire() -> None:
    bench = ClientBench()
    reader = kept(5, bench)
    reader.acknowledges = False
    reader.subscribe("a", qos=2)
    connected(5, bench, "writer").publish("a", b"1", qos=2, message_expiry_interval=5)
    (found,) = reader.messages()
    bench.advance(10)
    reader.send(p.Ack(of.PUBREC, found.packet_id))
    assert reader.taken(p.Ack) == [p.Ack(of.PUBREL, found.packet_id)]
    reader.send(p.Ack(of.PUBCOMP, found.packet_id))
    assert not reader.front.closed


@both_versions
def test_m099_what_is_unacknowledged_comes_again_in_order_with_its_identifiers(version: int) -> None:
    bench = ClientBench()
    reader = kept(version, bench)
    reader.acknowledges = False
    reader.subscribe("a", qos=2)
    writer = connected(5, bench, "writer")
    for number in range(6):
        writer.publish("a", b"%d" % number, qos=1 + number % 2)
    first = reader.messages()
    reader.acknowledge(first[2])
    reader.drop()
    writer.publish("a", b"new", qos=1)
    found = again(version, bench).messages()
    expected = [(each.payload, each.packet_id, True) for each in first if each is not first[2]]
    assert [(each.payload, each.packet_id, each.dup) for each in found[:-1]] == expected
    assert (found[-1].payload, found[-1].dup) == (b"new", False)


@both_versions
def test_m100_a_message_is_added_to_every_session_that_subscribes_to_it(version: int) -> None:
    bench = ClientBench()
    names = ("one", "two", "three")
    for name in names:
        peer = kept(version, bench, name)
        peer.subscribe("a/#" if name != "three" else "b", qos=1)
        if name != "one":
            peer.drop()
    connected(5, bench, "writer").publish("a/b", b"1", qos=1)
    found = {name: kept(version, bench, name).payloads() for name in names}
    assert found == {"one": [b"1"], "two": [b"1"], "three": []}


@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_m101_messages_come_in_the_order_in_which_a_client_published_them(version: int, qos: int) -> None:
    reader, writer = pair(version, "a/#", qos)
    for number in range(50):
        writer.publish(f"a/{number % 2}", b"%d" % number, qos=qos)
    found = reader.messages()
    for topic in ("a/0", "a/1"):
        numbers = [int(each.payload) for each in found if each.topic == topic]
        assert numbers == list(range(int(topic[-1]), 50, 2))
