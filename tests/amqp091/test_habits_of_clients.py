"""What real clients rely on beyond the methods themselves; each was found by one of the tests in tests/interop."""

from __future__ import annotations

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import CAPABILITIES, Peer
from tests.harness.bench import ClientBench

ALARM = "low on memory"


def kombu(bench: ClientBench) -> Peer:
    """A connection that says it is kombu's."""
    peer = Peer(bench)
    peer.start()
    properties = {"product": "py-amqp", "capabilities": dict(CAPABILITIES)}
    peer.send(0, m.ConnectionStartOk(properties, "PLAIN", b"\0guest\0guest", "en_US"))
    peer.tune()
    peer.send(0, m.ConnectionOpen("/"))
    assert isinstance(peer.all(0)[-1], m.ConnectionOpenOk)
    return peer


def test_a_celery_worker_raises_the_prefetch_of_its_running_consumer():
    """kombu takes qos at the specification's word: it holds for the channel, and at once (S102 is for the others)."""
    assert deliveries_after_raising_the_prefetch(kombu(ClientBench())) == 1


def test_other_clients_set_the_prefetch_of_later_consumers():
    assert deliveries_after_raising_the_prefetch(Peer().open()) == 0


def test_kombu_means_later_consumers_where_it_believes_to_talk_to_rabbitmq_3():
    bench = ClientBench('compat.product = "rabbitmq-3.13"')
    assert deliveries_after_raising_the_prefetch(kombu(bench)) == 0
    assert deliveries_after_raising_the_prefetch(kombu(ClientBench('compat.product = "rabbitmq-4"'))) == 1


def deliveries_after_raising_the_prefetch(peer: Peer) -> int:
    """From two to three, with a consumer that has two already and more waiting."""
    channel = peer.channel()
    channel.declare("q")
    for _ in range(5):
        channel.publish("", "q")
    channel.call(m.BasicQos(0, 2, False))
    channel.consume("q")
    assert len(channel.deliveries()) == 2
    channel.send(m.BasicQos(0, 3, False))
    assert isinstance(channel.next(), m.BasicQosOk)
    return len(channel.deliveries())


def test_a_blocked_publisher_is_not_given_up_for_heartbeats_that_nobody_reads():
    """X045."""
    bench = ClientBench()
    peer = Peer(bench).open(heartbeat=10)
    channel = peer.channel()
    bench.broker.alarms.set(ALARM)
    channel.publish("", "q")
    assert peer.front.blocked
    bench.advance(100)
    assert not peer.front.closed
    bench.broker.alarms.clear(ALARM)
    assert not peer.front.blocked
    for seconds in (10, 10, 9):
        bench.advance(seconds)
        assert not peer.front.closed
    bench.advance(1)
    assert peer.front.closed


def test_a_publisher_that_fails_during_an_alarm_is_read_to_its_end():
    """Its close-ok would otherwise lie in the socket until the alarm ends."""
    bench = ClientBench()
    peer = Peer(bench).open()
    peer.channel()
    bench.broker.alarms.set(ALARM)
    frames: list[bytes] = []
    wire.append_content(frames, 1, m.BasicPublish("", "q").encode(), BasicProperties().encode(), b"x", 0)
    peer.send_bytes(b"".join(frames) + wire.method_frame(1, m.BasicQos(1, 0, False).encode()))
    assert not peer.front.blocked
    assert isinstance(peer.next(0), m.ConnectionClose)


def test_shutting_down_frees_a_blocked_connection_to_say_goodbye():
    bench = ClientBench()
    peer = Peer(bench).open()
    channel = peer.channel()
    bench.broker.alarms.set(ALARM)
    channel.publish("", "q")
    assert peer.front.blocked
    peer.front.shut_down("maintenance")
    assert not peer.front.blocked
    peer.send(0, m.ConnectionCloseOk())
    assert peer.front.closed


def test_a_method_on_a_channel_that_ends_at_that_moment_is_dropped():
    """The time for an acknowledgement runs out in the settle before the method."""
    bench = ClientBench('[compat]\nconsumer_timeout_response = "close-channel"')
    peer = Peer(bench).open()
    channel = peer.channel()
    channel.declare("q")
    channel.publish("", "q")
    channel.consume("q", arguments={"x-consumer-timeout": 60_000})
    assert len(channel.deliveries()) == 1
    bench.clock.advance(61)
    channel.send(m.QueuePurge("q"))
    (close,) = channel.all()
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == m.PRECONDITION_FAILED
    assert bench.queue("q").ready == 1
