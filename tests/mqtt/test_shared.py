"""Shared subscriptions: each message goes to one session of the group."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec.packets import Publish
from tests.harness.bench import ClientBench, StoredBench
from tests.mqtt.peer import Peer

FILTER = "$share/group/a/#"


def test_each_message_goes_to_one_of_them() -> None:
    bench = ClientBench()
    readers = [Peer(bench).connect(f"reader{number}") for number in range(3)]
    for reader in readers:
        assert reader.subscribe(FILTER, qos=1) == (1,)
    peer = Peer(bench).connect("me")
    for number in range(9):
        peer.publish(f"a/{number}", b"%d" % number, qos=1)
    found = [reader.payloads() for reader in readers]
    assert sorted(payload for each in found for payload in each) == [b"%d" % number for number in range(9)]
    assert all(found)


def test_what_one_leaves_unacknowledged_goes_to_another() -> None:
    bench = ClientBench()
    first = Peer(bench).connect("first", session_expiry_interval=100)
    first.subscribe(FILTER, qos=1)
    Peer(bench).connect("me").publish("a", b"1", qos=1)
    assert len(first.taken(Publish)) == 1
    second = Peer(bench).connect("second")
    second.subscribe(FILTER, qos=1)
    first.drop()
    (found,) = second.messages()
    assert (found.payload, found.dup) == (b"1", False)


def test_a_message_of_qos_2_comes_to_its_end_with_a_session_that_has_left_the_group() -> None:
    bench = ClientBench()
    first, second = Peer(bench).connect("first", session_expiry_interval=100), Peer(bench).connect("second")
    first.subscribe(FILTER, qos=2)
    first.acknowledges = False
    Peer(bench).connect("me").publish("a", b"1", qos=2)
    (sent,) = first.messages()
    second.subscribe(FILTER, qos=2)
    first.unsubscribe(FILTER)
    first.drop()
    again = Peer(bench).connect("first", clean=False)
    again.acknowledges = False
    (found,) = again.messages()
    assert (found.payload, found.packet_id, found.qos, found.dup) == (b"1", sent.packet_id, 2, True)
    assert second.messages() == []
    assert bench.queue("mqtt-shared-group:a/#").unsettled == 1
    again.acknowledge(found)
    assert bench.queue("mqtt-shared-group:a/#").unsettled == 0


def test_a_message_of_qos_2_comes_to_its_end_after_a_restart_with_a_session_that_has_left() -> None:
    bench = StoredBench()
    first = Peer(bench).connect("first", session_expiry_interval=100)
    second = Peer(bench).connect("second", session_expiry_interval=100)
    first.subscribe(FILTER, qos=2)
    first.acknowledges = False
    Peer(bench).connect("me").publish("a", b"1", qos=2)
    (sent,) = first.messages()
    second.subscribe(FILTER, qos=2)
    first.unsubscribe(FILTER)
    after = bench.again()
    other = Peer(after).connect("second", clean=False, session_expiry_interval=100)
    again = Peer(after).connect("first", clean=False, session_expiry_interval=100)
    again.acknowledges = False
    (found,) = again.messages()
    assert (found.payload, found.packet_id, found.qos, found.dup) == (b"1", sent.packet_id, 2, True)
    again.acknowledge(found)
    assert other.messages() == []
    assert after.queue("mqtt-shared-group:a/#").unsettled == 0


def test_a_message_of_qos_1_of_a_session_that_has_left_the_group_goes_to_another() -> None:
    bench = ClientBench()
    first, second = Peer(bench).connect("first", session_expiry_interval=100), Peer(bench).connect("second")
    first.subscribe(FILTER, qos=1)
    first.acknowledges = False
    Peer(bench).connect("me").publish("a", b"1", qos=1)
    assert len(first.messages()) == 1
    second.subscribe(FILTER, qos=1)
    first.unsubscribe(FILTER)
    first.drop()
    assert second.payloads() == [b"1"]
    assert Peer(bench).connect("first", clean=False).messages() == []


def test_the_queue_is_deleted_with_the_last_of_them() -> None:
    bench = ClientBench()
    first, second = Peer(bench).connect("first"), Peer(bench).connect("second")
    first.subscribe(FILTER)
    second.subscribe(FILTER)
    assert list(bench.host.queues) == ["mqtt-shared-group:a/#"]
    assert first.unsubscribe(FILTER) == (0,)
    assert list(bench.host.queues) == ["mqtt-shared-group:a/#"]
    second.drop()
    assert not bench.host.queues


def test_they_get_no_retained_messages() -> None:
    bench = ClientBench()
    Peer(bench).connect("me").publish("a", b"1", retain=True)
    reader = Peer(bench).connect("reader")
    reader.subscribe(FILTER)
    assert reader.messages() == []


def test_groups_and_plain_subscriptions_do_not_affect_each_other() -> None:
    bench = ClientBench()
    readers = [Peer(bench).connect(name) for name in ("x", "y", "z")]
    for reader, topic_filter in zip(readers, ("$share/x/a", "$share/y/a", "a"), strict=True):
        reader.subscribe(topic_filter, qos=1, identifier=3)
    Peer(bench).connect("me").publish("a", b"1", qos=1)
    for reader in readers:
        (found,) = reader.messages()
        assert found.properties.subscription_identifiers == (3,)


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_the_group_outlives_the_node_if_one_of_its_sessions_does(expiry_s: int) -> None:
    bench = StoredBench()
    Peer(bench).connect("reader", session_expiry_interval=expiry_s).subscribe(FILTER, qos=1)
    Peer(bench).connect("me").publish("a", b"1", qos=1)
    after = bench.again()
    assert list(after.host.queues) == (["mqtt-shared-group:a/#"] if expiry_s else [])
    if expiry_s:
        again = Peer(after).connect("reader", clean=False, session_expiry_interval=expiry_s)
        assert again.payloads() == [b"1"]
