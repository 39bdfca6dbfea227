"""MQTT and what is there besides: permissions, policies, alarms, limits, and the other protocols."""

from __future__ import annotations

import pytest

from leveret.alarms import Monitor
from leveret.clock import PAUSE_S
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.mqtt.broker.consumer import PORTION
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.packets import Disconnect, Publish, Will
from leveret.queues.queue import Queue
from leveret.security.users import TopicPermissions
from tests.amqp010.peer import session_of as amqp010_session
from tests.amqp091.peer import channel_of
from tests.amqp10.peer import session_of as amqp10_session
from tests.harness.bench import ClientBench, StoredBench
from tests.mqtt.peer import Peer

KEPT = {"session_expiry_interval": 100}


class Low(Monitor):
    """A monitor that a test switches."""

    reason = "low on memory"
    is_low = False

    def low(self) -> bool:
        return self.is_low

    def describe(self) -> str:
        return ""


# Permissions.


def test_publishing_needs_the_permission_to_write() -> None:
    bench = ClientBench()
    bench.user("eve", write="^mqtt-.*")
    peer = Peer(bench).connect(user="eve", password=b"eve")
    for qos in (1, 2):
        answer = peer.publish("a", b"x", qos=qos)
        assert answer is not None
        assert answer.reason_code == r.NOT_AUTHORIZED
    peer.publish("a", b"x")
    assert peer.taken(Disconnect)[0].reason_code == r.NOT_AUTHORIZED
    old = Peer(bench, 4).connect(user="eve", password=b"eve")
    assert old.publish("a", b"x", qos=1) is None
    assert old.front.closed


@pytest.mark.parametrize(
    ("configure", "write", "read", "code"),
    [
        ("mqtt-", "mqtt-", "mqtt-|amq", 1),
        ("none", "mqtt-", "mqtt-|amq", r.NOT_AUTHORIZED),
        ("mqtt-", "none", "mqtt-|amq", r.NOT_AUTHORIZED),
        ("mqtt-", "mqtt-", "mqtt-", r.NOT_AUTHORIZED),
        ("mqtt-", "mqtt-", "amq", r.NOT_AUTHORIZED),
    ],
)
def test_subscribing_needs_what_its_queue_needs(configure: str, write: str, read: str, code: int) -> None:
    bench = ClientBench()
    bench.user("eve", f"^({configure})", f"^({write})", f"^({read})")
    peer = Peer(bench).connect(user="eve", password=b"eve")
    assert peer.subscribe("a", qos=1) == (code,)
    assert len(bench.host.queues) == (code == 1)


def test_topic_permissions_know_the_client_id() -> None:
    bench = ClientBench()
    bench.user("eve")
    rights = TopicPermissions(r"^devices\.{client_id}\.", r"^devices\.{client_id}\.")
    bench.broker.access.set_topic_permissions("eve", "/", "amq.topic", rights.write, rights.read)
    peer = Peer(bench).connect("d1", user="eve", password=b"eve")
    assert peer.subscribe("devices/d1/#", "devices/d2/#", qos=1) == (1, r.NOT_AUTHORIZED)
    codes = []
    for topic in ("devices/d1/x", "devices/d2/x"):
        answer = peer.publish(topic, b"x", qos=1)
        assert answer is not None
        codes.append(answer.reason_code)
    assert codes == [0, r.NOT_AUTHORIZED]


def test_a_permission_that_is_taken_away_holds_at_once_for_publishing_and_at_the_next_connection() -> None:
    bench = ClientBench()
    bench.user("eve")
    peer = Peer(bench).connect(user="eve", password=b"eve", clean=False, **KEPT)
    peer.subscribe("a", qos=1)
    bench.broker.access.set_permissions("eve", "/", "", "", "")
    answer = peer.publish("a", b"x", qos=1)
    assert answer is not None
    assert answer.reason_code == r.NOT_AUTHORIZED
    peer.drop()
    again = Peer(bench).connect(user="eve", password=b"eve", clean=False, **KEPT)
    assert again.front.closed
    assert again.taken(Disconnect)[0].reason_code == r.NOT_AUTHORIZED


def test_the_virtual_host_is_in_the_user_name_or_a_setting() -> None:
    bench = ClientBench('[protocols.mqtt]\nvirtual_host = "things"\n[[virtual_hosts]]\nname = "/"')
    for name in ("things", "other"):
        bench.broker.add_virtual_host(name)
        bench.broker.access.set_permissions("guest", name, ".*", ".*", ".*")
    peers = [
        Peer(bench).connect(f"{at}", user=user) for at, user in enumerate(("guest", "other:guest", "/:guest"))
    ]
    assert [each.front.client.host.name for each in peers] == ["things", "other", "/"]
    unknown = Peer(bench).connect(user="nowhere:guest")
    assert unknown.connected is not None
    assert unknown.connected.reason_code == r.NOT_AUTHORIZED


@pytest.mark.parametrize("topic_filter", ["a", "$share/g/a"])
def test_a_queue_that_is_another_s_is_neither_taken_nor_deleted(topic_filter: str) -> None:
    bench = ClientBench()
    bench.user("eve", configure="^$")
    name = "mqtt-shared-g:a" if topic_filter != "a" else "mqtt-subscription-meqos1"
    bench.host.declare_queue(name, durable=True)
    peer = Peer(bench).connect(user="eve", password=b"eve", **KEPT)
    assert peer.subscribe(topic_filter, qos=1) == (r.NOT_AUTHORIZED,)
    assert name in bench.host.queues
    boss = Peer(bench).connect("boss", **KEPT)
    bench.host.delete_queue(bench.queue(name))
    bench.host.declare_queue("mqtt-subscription-bossqos1")
    assert boss.subscribe("a", qos=1) == (r.UNSPECIFIED_ERROR,)  # it is not durable
    assert "mqtt-subscription-bossqos1" in bench.host.queues


# Limits, alarms and policies.


def test_a_connection_beyond_the_limit_is_refused() -> None:
    bench = ClientBench("[limits]\nconnections_max = 1")
    Peer(bench).connect("one")
    peer = Peer(bench).connect("two")
    assert peer.connected is not None
    assert peer.connected.reason_code == r.QUOTA_EXCEEDED


def test_a_publisher_waits_for_an_alarm_and_a_subscriber_does_not() -> None:
    monitor = Low()
    bench = ClientBench(monitors=(monitor,))
    reader = Peer(bench).connect("reader")
    reader.subscribe("a", qos=1)
    peer = Peer(bench).connect("me", keep_alive=10)
    monitor.is_low = True
    bench.watch()
    peer.publish("a", b"1", qos=1)
    assert peer.front.blocked
    peer.send(Publish("a", b"2", 1, False, False, 9))
    assert reader.payloads() == [b"1"]
    bench.advance(60)
    assert not peer.front.closed
    monitor.is_low = False
    bench.watch()
    assert reader.payloads() == [b"2"]


def test_policies_hold_for_the_queues_of_subscriptions() -> None:
    bench = ClientBench()
    bench.host.declare_queue("dead")
    dead = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    bench.policy("^mqtt-subscription-", {"max-length": 2, "message-ttl": 5000, **dead})
    reader = Peer(bench).connect("reader", **KEPT)
    reader.subscribe("a", qos=1)
    reader.drop()
    peer = Peer(bench).connect("me")
    for number in range(3):
        peer.publish("a", b"%d" % number, qos=1)
    assert bench.queue("mqtt-subscription-readerqos1").ready == 2
    assert bench.queue("dead").ready == 1
    bench.advance(6)
    assert bench.queue("dead").ready == 3


def test_an_expired_message_on_its_way_is_the_clients() -> None:
    bench = ClientBench()
    bench.policy("^mqtt-subscription-", {"message-ttl": 1000})
    reader = Peer(bench).connect("reader", clean=False, **KEPT)
    reader.subscribe("a", qos=1)
    Peer(bench).connect("me").publish("a", b"1", qos=1)
    assert len(reader.taken(Publish)) == 1
    bench.advance(5)
    again = Peer(bench).connect("reader", clean=False, **KEPT)
    assert [each.dup for each in again.messages()] == [True]


def test_an_operator_ends_a_connection() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect(will=Will("gone", b""))
    peer.front.shut_down("enough")
    assert peer.taken(Disconnect)[0].reason_code == r.ADMINISTRATIVE_ACTION


def test_the_virtual_host_is_deleted() -> None:
    bench = StoredBench()
    bench.broker.add_virtual_host("things")
    bench.broker.access.set_permissions("guest", "things", ".*", ".*", ".*")
    peer = Peer(bench).connect(user="things:guest", will=Will("gone", b""), **KEPT)
    peer.subscribe("a", qos=1)
    peer.publish("a", b"1", retain=True)
    bench.broker.delete_virtual_host("things")
    bench.settle()
    assert peer.taken(Disconnect)[0].reason_code == r.ADMINISTRATIVE_ACTION
    peer.drop()
    bench.settle()
    assert [key for key, _ in bench.store.objects() if "protocol-record" in key] == []


def test_a_publisher_to_many_subscribers_gives_others_a_turn() -> None:
    bench = ClientBench()
    readers = [Peer(bench, 4).connect(f"r{number}") for number in range(100)]
    for reader in readers:
        reader.subscribe("a")
    peer = Peer(bench, 4).connect("me")
    peer.front.receive(Publish("a", b"x").encode(4) * 100, bench.broker.tick())
    assert peer.front.halted
    assert bench.broker.work <= 2200
    bench.settle()
    while peer.front.halted:
        peer.send_bytes(b"")
    assert [len(reader.messages()) for reader in readers] == [100] * 100


def test_a_slow_client_of_qos_0_loses_the_oldest_messages() -> None:
    bench = ClientBench("[protocols.mqtt]\nwaiting_max = 10\n[limits]\noutbox_size_max = 4096")
    reader = Peer(bench, 4).connect("reader")
    reader.subscribe("a")
    peer = Peer(bench, 4).connect("me")
    for number in range(100):
        peer.publish("a", b"%03d" % number + b"x" * 1000)
    assert bench.queue("mqtt-subscription-readerqos0").ready == 10
    found = [int(each[:3]) for each in reader.payloads()]
    assert found == [*range(len(found) - 10), *range(90, 100)]


def test_what_has_waited_for_a_slow_client_comes_in_portions() -> None:
    bench, reader, queue = bench_with_waiting(2500)
    reader.outbox.limit = 10 << 20
    reader.front.drained()
    bench.settle()
    assert queue.ready == 2500 - PORTION
    Peer(bench, 4).connect("another").publish("t/last", b"2500")  # others are served meanwhile
    assert queue.ready == 2501 - PORTION
    bench.advance(PAUSE_S)
    assert queue.ready == 2501 - 2 * PORTION
    bench.advance(PAUSE_S)
    assert queue.ready == 0
    assert [int(each) for each in reader.payloads()] == [*range(2501)]
    assert bench.broker.timers.next_at() is None
    bench.peers[-1].publish("t/next", b"2501")
    assert reader.payloads() == [b"2501"]


def test_a_slow_client_without_room_for_a_portion_is_asked_no_more_until_it_has_read() -> None:
    bench, reader, queue = bench_with_waiting(2500)
    reader.outbox.limit = 4096
    reader.front.drained()
    bench.settle()
    left = queue.ready
    assert 2500 - PORTION < left < 2500
    bench.advance(PAUSE_S)
    assert (queue.ready, bench.broker.timers.next_at()) == (left, None)
    found = []
    while came := reader.payloads():
        found += came
        bench.advance(PAUSE_S)
    assert [int(each) for each in found] == [*range(2500)]


def test_a_client_that_leaves_between_two_portions_leaves_nothing_behind() -> None:
    bench, reader, queue = bench_with_waiting(2500)
    reader.outbox.limit = 10 << 20
    reader.front.drained()
    bench.settle()
    assert queue.ready == 2500 - PORTION
    reader.drop()
    for _ in range(3):
        bench.advance(PAUSE_S)
    assert (queue.deleted, bench.broker.timers.next_at()) == (True, None)
    again = Peer(bench, 4).connect("reader")
    again.subscribe("t/+")
    bench.peers[-2].publish("t/1", b"x")
    assert again.payloads() == [b"x"]


def bench_with_waiting(messages: int) -> tuple[ClientBench, Peer, Queue]:
    """Return a bench, a client that reads nothing, and its queue with so many messages of QoS 0 of as many topics."""
    bench = ClientBench("[protocols.mqtt]\nwaiting_max = 5000")
    reader = Peer(bench, 4).connect("reader")
    reader.subscribe("t/+")
    reader.outbox.limit = 0
    peer = Peer(bench, 4).connect("me")
    for number in range(messages):
        peer.publish(f"t/{number}", b"%d" % number)
    queue = bench.queue("mqtt-subscription-readerqos0")
    assert queue.ready == messages
    return bench, reader, queue


# The other protocols.


def test_a_message_of_0_9_1_becomes_one_of_mqtt() -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader")
    reader.subscribe("a/b", qos=2)
    properties = BasicProperties(
        content_type="text/plain",
        headers={"n": 1, "s": "x", "l": ["y", "z"], "t": {"deep": 1}},
        delivery_mode=2,
        correlation_id="7",
        reply_to="answers",
        expiration="60000",
    )
    channel_of(bench).publish("amq.topic", "a.b", b"x", properties)
    (found,) = reader.messages()
    assert (found.topic, found.payload, found.qos) == ("a/b", b"x", 1)
    said = found.properties
    assert (said.content_type, said.correlation_data, said.message_expiry_interval) == (
        "text/plain",
        b"7",
        60,
    )
    assert said.user_properties == (
        ("n", "1"),
        ("s", "x"),
        ("l", "y"),
        ("l", "z"),
        ("x-opt-reply-to", "answers"),
    )


def test_a_transient_message_of_0_9_1_has_qos_0() -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader")
    reader.subscribe("a", qos=2)
    channel_of(bench).publish("amq.topic", "a", b"x")
    assert [each.qos for each in reader.messages()] == [0]


def test_keys_that_are_no_topics_go_to_the_dead_letters() -> None:
    bench = ClientBench()
    bench.host.declare_queue("dead")
    bench.policy("^mqtt-", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    reader = Peer(bench).connect("reader")
    reader.subscribe("#", qos=1)
    channel = channel_of(bench)
    for key in ("a.#", "", "x+", "good"):
        channel.publish("amq.topic", key, b"x", BasicProperties(delivery_mode=2))
    assert [each.topic for each in reader.messages()] == ["good"]
    assert bench.queue("dead").ready == 3


def test_a_queue_can_be_bound_by_others() -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader")
    reader.subscribe("a", qos=2)
    bench.host.bind(bench.host.exchange("amq.direct"), bench.queue("mqtt-subscription-readerqos1"), "b.c")
    channel_of(bench).publish("amq.direct", "b.c", b"x", BasicProperties(delivery_mode=2))
    (found,) = reader.messages()
    assert (found.topic, found.payload, found.qos) == ("b/c", b"x", 1)


def test_facts_for_operators() -> None:
    bench = ClientBench()
    peer = Peer(bench, 4).connect("d1")
    peer.subscribe("a", qos=1)
    peer.publish("a", b"x", qos=1)
    facts = peer.front.facts()
    assert facts is not None
    assert (facts.protocol, facts.user, facts.container_id) == ("MQTT 3.1.1", "guest", "d1")
    assert facts.client_properties["client_id"] == "d1"
    peer.taken(Publish)
    (channel,) = peer.front.channel_facts()
    assert (channel.published, channel.confirmed, channel.delivered, channel.unsettled) == (1, 1, 1, 1)
    assert [tag for tag, _ in peer.front.unsettled(1)] == [1]
    (consumer,) = bench.queue("mqtt-subscription-d1qos1").consumers
    assert consumer.facts().tag == "d1"


def test_amqp_1_0_and_0_10_see_what_mqtt_publishes() -> None:
    bench = ClientBench()
    for queue in ("q1", "q2"):
        bench.host.bind(bench.host.exchange("amq.topic"), bench.host.declare_queue(queue), "a.*")
    said = {"user_properties": (("unit", "C"),), "content_type": "text/plain", "correlation_data": b"7"}
    Peer(bench).connect("me").publish("a/b", b"21", qos=1, response_topic="c/d", **said)
    receiver = amqp10_session(bench).receiver("/queues/q1", credit=1)
    found = receiver.get()
    assert found.body == b"21"
    assert found.header.durable
    assert found.properties.content_type == "text/plain"
    assert found.properties.reply_to == "/exchanges/amq.topic/c.d"
    assert found.application_properties == {"unit": "C"}
    message = amqp010_session(bench).subscribe("q2").get()
    assert message.body == b"21"
    assert message.properties.application_headers == {"unit": "C"}
