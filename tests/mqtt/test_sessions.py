"""Sessions: kept, taken over, expired, and restored after the node was killed."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.broker.sessions import sessions_of
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.packets import (
    Ack,
    Connect,
    Disconnect,
    PingReq,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from leveret.protocols.mqtt.codec.properties import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from tests.harness.bench import ClientBench, StoredBench
from tests.mqtt.peer import Peer

KEPT = {"session_expiry_interval": 100}


def present(peer: Peer) -> bool:
    assert peer.connected is not None
    return peer.connected.session_present


def known(bench: ClientBench) -> list[str]:
    return [each.client_id for each in sessions_of(bench.host)]


def records(bench: StoredBench) -> list[str]:
    return [key for key, _ in bench.store.objects() if key.startswith('["protocol-record"')]


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    assert peer.subscribe("a", qos=1) == (1,)
    assert set(bench.host.queues) == {"mqtt-subscription-meqos1"}
    peer.drop()
    assert not bench.host.queues
    assert known(bench) == []
    assert not present(Peer(bench).connect("me", clean=False))


@pytest.mark.parametrize("version", [4, 5])
def test_a_kept_session_gets_what_was_published_meanwhile(version: int) -> None:
    bench = ClientBench()
    said = KEPT if version == 5 else {}
    peer = Peer(bench, version).connect("me", clean=False, **said)
    assert not present(peer)
    peer.subscribe("a/+", qos=1)
    peer.drop()
    Peer(bench).connect("other").publish("a/b", b"1", qos=1)
    again = Peer(bench, version).connect("me", clean=False, **said)
    assert present(again)
    assert again.payloads() == [b"1"]


def test_a_session_expires() -> None:
    bench = ClientBench()
    Peer(bench).connect("me", **KEPT).subscribe("a", qos=1)
    bench.peers[0].drop()  # type: ignore[attr-defined]
    bench.advance(99)
    assert known(bench) == ["me"]
    bench.advance(2)
    assert known(bench) == []
    assert not bench.host.queues


def test_the_expiry_is_bounded_and_the_client_is_told() -> None:
    bench = ClientBench("[protocols.mqtt]\nsession_expiry_max_s = 10")
    peer = Peer(bench).connect("me", **KEPT)
    assert peer.connected is not None
    assert peer.connected.properties.session_expiry_interval == 10


def test_clean_start_ends_the_session_before() -> None:
    bench = ClientBench()
    Peer(bench).connect("me", **KEPT).subscribe("a", qos=1)
    bench.peers[0].drop()  # type: ignore[attr-defined]
    peer = Peer(bench).connect("me", clean=True, **KEPT)
    assert not present(peer)
    assert not bench.host.queues


def test_disconnect_changes_the_expiry() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", **KEPT)
    peer.leave(session_expiry_interval=0)
    assert known(bench) == []
    peer = Peer(bench).connect("me")
    peer.send(Disconnect(0, Properties(session_expiry_interval=5)))
    assert peer.taken(Disconnect)[0].reason_code == r.PROTOCOL_ERROR


def test_a_session_is_taken_over_with_what_is_unacknowledged() -> None:
    bench = ClientBench()
    first = Peer(bench).connect("me", clean=False, **KEPT)
    first.subscribe("a", qos=2)
    other = Peer(bench).connect("other")
    other.publish("a", b"1", qos=1)
    other.publish("a", b"2", qos=2)
    sent = first.taken(Publish)
    assert [(each.payload, each.qos, each.dup) for each in sent] == [(b"1", 1, False), (b"2", 2, False)]
    second = Peer(bench).connect("me", clean=False, **KEPT)
    assert first.taken(Disconnect)[0].reason_code == r.SESSION_TAKEN_OVER
    assert first.front.closed
    again = second.taken(Publish)
    assert [(each.payload, each.packet_id, each.dup) for each in again] == [
        (b"1", sent[0].packet_id, True),
        (b"2", sent[1].packet_id, True),
    ]
    for each in again:
        second.acknowledge(each)
    first.drop()
    queue = bench.queue("mqtt-subscription-meqos1")
    assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 2)
    other.publish("a", b"3", qos=1)
    assert second.payloads() == [b"3"]


def test_another_user_does_not_get_a_session() -> None:
    bench = ClientBench()
    bench.user("eve")
    Peer(bench).connect("me", **KEPT)
    peer = Peer(bench).connect("me", user="eve", password=b"eve")
    assert peer.connected is not None
    assert peer.connected.reason_code == r.NOT_AUTHORIZED
    assert known(bench) == ["me"]


def test_pubrel_is_sent_again_on_the_next_connection() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=2)
    Peer(bench).connect("other").publish("a", b"1", qos=2)
    (sent,) = peer.taken(Publish)
    peer.send(Ack(PUBREC, sent.packet_id))
    peer.drop()
    again = Peer(bench).connect("me", clean=False, **KEPT)
    assert again.taken(Ack) == [Ack(PUBREL, sent.packet_id)]
    again.send(Ack(PUBCOMP, sent.packet_id))
    assert again.taken(Publish) == []


# The node is killed.


def test_a_session_outlives_the_node() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a/+", qos=1, identifier=7)
    Peer(bench).connect("other").publish("a/b", b"1", qos=1)
    assert len(records(bench)) == 1
    after = bench.again()
    assert known(after) == ["me"]
    again = Peer(after).connect("me", clean=False, **KEPT)
    assert present(again)
    (found,) = again.messages()
    assert (found.payload, found.properties.subscription_identifiers) == (b"1", (7,))


def test_a_session_expires_after_a_restart_too() -> None:
    bench = StoredBench()
    Peer(bench).connect("me", **KEPT).subscribe("a", qos=1)
    bench.peers[0].drop()  # type: ignore[attr-defined]
    bench.advance(60)
    after = bench.again()
    after.advance(101)
    assert known(after) == []
    after.settle()
    assert records(after) == []
    assert not after.host.queues


def test_nothing_of_a_session_without_expiry_is_in_the_store() -> None:
    bench = StoredBench()
    Peer(bench).connect("me").subscribe("a", qos=2)
    assert records(bench) == []
    assert not bench.again().host.queues


def test_what_a_killed_node_published_with_qos_2_is_not_published_again() -> None:
    bench = StoredBench()
    Peer(bench).connect("reader", **KEPT).subscribe("a", qos=1)
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.send(Publish("a", b"1", 2, False, False, 9))
    assert peer.taken(Ack) == [Ack(PUBREC, 9)]
    after = bench.again()
    again = Peer(after).connect("me", clean=False, **KEPT)
    again.send(Publish("a", b"1", 2, False, True, 9))
    assert again.taken(Ack) == [Ack(PUBREC, 9)]
    again.send(Ack(PUBREL, 9))
    assert again.taken(Ack) == [Ack(PUBCOMP, 9)]
    assert after.queue("mqtt-subscription-readerqos1").ready == 1
    again.send(Publish("a", b"2", 2, False, False, 9))
    assert again.taken(Ack) == [Ack(PUBREC, 9)]
    assert after.queue("mqtt-subscription-readerqos1").ready == 2


def test_what_a_killed_node_sent_with_qos_2_is_sent_again_with_its_identifier() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=2)
    other = Peer(bench).connect("other")
    for body in (b"1", b"2", b"3"):
        other.publish("a", body, qos=2)
    sent = {each.payload: each.packet_id for each in peer.taken(Publish)}
    peer.send(Ack(PUBREC, sent[b"1"]))
    assert peer.taken(Ack) == [Ack(PUBREL, sent[b"1"])]
    peer.send(Ack(PUBCOMP, sent[b"1"]))
    peer.send(Ack(PUBREC, sent[b"2"]))
    after = bench.again()
    again = Peer(after).connect("me", clean=False, **KEPT)
    heard = again.taken(Publish, Ack)
    assert [each for each in heard if isinstance(each, Ack)] == [Ack(PUBREL, sent[b"2"])]
    (third,) = [each for each in heard if isinstance(each, Publish)]
    assert (third.payload, third.packet_id, third.dup) == (b"3", sent[b"3"], True)
    again.acknowledge(third)
    again.send(Ack(PUBCOMP, sent[b"2"]))
    last = after.again()
    assert Peer(last).connect("me", clean=False, **KEPT).taken(Publish, Ack) == []
    assert last.queue("mqtt-subscription-meqos1").ready == 0


def test_what_a_killed_node_sent_with_qos_1_comes_again() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=1)
    Peer(bench).connect("other").publish("a", b"1", qos=1)
    assert len(peer.taken(Publish)) == 1
    again = Peer(bench.again()).connect("me", clean=False, **KEPT)
    (found,) = again.taken(Publish)
    assert (found.payload, found.dup) == (b"1", True)
    again.send(Ack(PUBACK, found.packet_id))


def test_the_session_of_a_deleted_user_ends() -> None:
    bench = StoredBench()
    bench.user("eve")
    Peer(bench).connect("me", user="eve", password=b"eve", **KEPT).subscribe("a", qos=1)
    bench.broker.access.delete_user("eve")
    bench.settle()
    assert known(bench) == []
    assert not bench.host.queues
    bench.settle()
    assert records(bench) == []


def test_a_queue_deleted_by_others_ends_the_session() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=1)
    bench.host.delete_queue(bench.queue("mqtt-subscription-meqos1"))
    bench.settle()
    assert peer.taken(Disconnect)[0].reason_code == r.ADMINISTRATIVE_ACTION
    assert not present(Peer(bench).connect("me", clean=False, **KEPT))


def test_no_more_than_the_receive_maximum_is_on_its_way_after_a_reconnection() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=1)
    other = Peer(bench).connect("other")
    for number in range(5):
        other.publish("a", b"%d" % number, qos=1)
    assert len(peer.taken(Publish)) == 5
    peer.drop()
    again = Peer(bench).connect("me", clean=False, receive_maximum=2, **KEPT)
    first = again.taken(Publish)
    assert [each.payload for each in first] == [b"0", b"1"]
    again.send(Ack(PUBACK, first[0].packet_id))
    assert [each.payload for each in again.taken(Publish)] == [b"2"]


@pytest.mark.parametrize(
    "damage",
    [
        {"user": 1},
        {"subscriptions": None},
        {"subscriptions": [{"filter": "a"}]},
        {"subscriptions": [7]},
        {"will": {"topic": "a"}},
        {"will": 7},
    ],
)
def test_a_damaged_session_is_forgotten_and_others_are_not(damage: dict[str, object]) -> None:
    bench = StoredBench()
    for name in ("bad", "good"):
        Peer(bench).connect(name, **KEPT).subscribe("a", qos=1)
    session = sessions_of(bench.host).find("bad")
    assert session is not None
    assert session.record is not None
    session.record.change({**session.record.table, **damage})
    after = bench.again()
    assert known(after) == ["good"]
    after.settle()
    assert len(records(after)) == 1


def test_an_unknown_note_is_damage() -> None:
    bench = StoredBench()
    Peer(bench).connect("bad", **KEPT)
    session = sessions_of(bench.host).find("bad")
    assert session is not None
    assert session.record is not None
    session.record.note("what", 1)
    assert known(bench.again()) == []


def test_a_purged_message_is_not_sent_again() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=2)
    Peer(bench).connect("other").publish("a", b"1", qos=2)
    assert len(peer.taken(Publish)) == 1
    peer.drop()
    bench.host.delete_queue(bench.queue("mqtt-subscription-meqos1"))
    bench.settle()
    after = bench.again()
    again = Peer(after).connect("me", clean=False, **KEPT)
    assert not present(again)
    assert again.taken(Publish) == []


def test_a_session_that_was_kept_may_end_with_its_next_connection() -> None:
    bench = ClientBench()
    first = Peer(bench).connect("me", session_expiry_interval=100)
    first.subscribe("a", qos=1)
    first.drop()
    Peer(bench).connect("writer").publish("a", b"1", qos=1)
    second = Peer(bench).connect("me", clean=False)
    assert second.payloads() == [b"1"]
    second.subscribe("b", qos=1)
    second.drop()
    assert not [name for name in bench.host.queues if name.startswith("mqtt-subscription-me")]
    third = Peer(bench).connect("me", clean=False)
    assert third.connected is not None
    assert not third.connected.session_present


def test_what_is_new_comes_after_what_is_sent_again() -> None:
    bench = ClientBench()
    first = Peer(bench).connect("me", session_expiry_interval=100)
    first.acknowledges = False
    first.subscribe("a", qos=2)
    writer = Peer(bench).connect("writer")
    for number in (1, 2):
        writer.publish("a", b"%d" % number, qos=number)
    assert len(first.messages()) == 2
    first.drop()
    writer.publish("a", b"new", qos=1)
    second = Peer(bench).connect("me", clean=False, session_expiry_interval=100)
    assert second.payloads() == [b"1", b"2", b"new"]


@pytest.mark.parametrize("ends", ["drop", "leave", "taken over"])
def test_a_kept_session_has_its_subscriptions_of_qos_0_again(ends: str) -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=0)
    peer.subscribe("b", qos=1)
    if ends != "taken over":
        getattr(peer, ends)()
        assert set(bench.host.queues) == {"mqtt-subscription-meqos1"}
    bench.advance(1)
    other = Peer(bench).connect("other")
    other.publish("a", b"lost")
    again = Peer(bench).connect("me", clean=False, **KEPT)
    assert present(again)
    other.publish("a", b"1")
    other.publish("b", b"2", qos=1)
    assert again.payloads() == [b"1", b"2"]


def test_a_queue_of_qos_0_that_is_deleted_ends_the_session() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me", clean=False, **KEPT)
    peer.subscribe("a", qos=0)
    bench.host.delete_queue(bench.queue("mqtt-subscription-meqos0"))
    bench.settle()
    assert peer.taken(Disconnect)[0].reason_code == r.ADMINISTRATIVE_ACTION
    assert known(bench) == []


def test_what_a_kept_session_promises_waits_for_the_disk() -> None:
    bench = StoredBench()
    peer = Peer(bench)
    bench.broker.tick()
    for packet, holds in (
        (Connect(5, "me", user_name="guest", password=b"guest", properties=Properties(**KEPT)), True),
        (Subscribe(1, (Subscription("a", 1),)), True),
        (Unsubscribe(2, ("a",)), True),
        (PingReq(), False),
    ):
        bench.journal.holds = False
        peer.front.receive(packet.encode(5), bench.broker.tick())
        assert bench.journal.holds is holds, packet
        bench.settle()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("count", [2, 1000])
def test_what_was_on_its_way_for_a_subscription_that_has_ended_is_forgotten(qos: int, count: int) -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader", clean=False, **KEPT)
    reader.subscribe("a", qos=qos)
    reader.acknowledges = False
    writer = Peer(bench).connect("writer")
    for number in range(count):
        writer.publish("a", b"%d" % number, qos=qos)
    assert len(reader.messages()) == count
    reader.unsubscribe("a")
    reader.drop()
    again = Peer(bench).connect("reader", clean=False, **KEPT)
    assert present(again)
    assert again.messages() == []
    again.subscribe("b", qos=qos)
    writer.publish("b", b"new", qos=qos)
    assert again.payloads() == [b"new"]
    session = sessions_of(bench.host).find("reader")
    assert session is not None
    assert len(session.flights) == 0
    assert session._window.credit == session.in_flight_max
