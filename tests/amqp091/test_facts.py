"""What operators are told of 0-9-1: connections, channels and consumers, from what the machines know."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from leveret.clock import LOOKS, Clock, Turn
from leveret.observability.connection_stats import ChannelFacts, ConsumerFacts
from leveret.observability.history import PAUSE_S, TURN_S, History
from leveret.protocols.amqp091.codec import methods as m
from tests.amqp091.peer import ClientChannel, Peer, channel_of


class Hurried(Clock):
    """A clock that goes on by more than a turn and a pause whenever it is looked at."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return self.looks * 3 * TURN_S

    def wall(self) -> float:
        return self.now()


class Wired:
    """A connection as a node tells of it."""

    octets_received = octets_sent = 0

    def __init__(self, front: object) -> None:
        self.front = front


def told(channel: ClientChannel) -> ChannelFacts:
    (facts,) = [each for each in channel.peer.front.channel_facts() if each.number == channel.number]
    return facts


@pytest.fixture
def channel() -> ClientChannel:
    channel = channel_of()
    channel.call(m.QueueDeclare("q"))
    return channel


def publish(channel: ClientChannel, count: int, key: str = "q") -> None:
    for _ in range(count):
        channel.publish("", key, b"hello")


def test_a_connection_is_told_once_its_virtual_host_is_open_and_until_it_ends() -> None:
    peer = Peer()
    peer.start()
    assert peer.front.facts() is None
    peer = Peer().open(heartbeat=7, frame_max=50_000)
    facts = peer.front.facts()
    assert facts is not None
    assert (facts.protocol, facts.user, facts.virtual_host) == ("AMQP 0-9-1", "guest", "/")
    assert (facts.mechanism, facts.heartbeat_s, facts.frame_max) == ("PLAIN", 7, 50_000)
    assert (facts.channels, facts.client_properties["product"]) == (0, "test")
    peer.channel(1)
    assert peer.front.facts().channels == 1
    peer.send(0, m.ConnectionClose(200, "", 0, 0))
    assert peer.front.facts() is None


def test_samples_are_taken_of_channels_with_messages_and_others_have_turns_between_channels() -> None:
    channel = channel_of()
    peer, bench = channel.peer, channel.peer.bench
    for number in range(2, 42):
        peer.channel(number)
    channel.call(m.QueueDeclare("q"))
    publish(channel, 3)
    there = Wired(peer.front)
    bench.broker.operations = SimpleNamespace(connections=lambda: [there])
    history = History(bench.broker)
    turns = history._look_at_connections(1, Turn(Hurried(), TURN_S, PAUSE_S))
    next(turns)
    peer.channel(42)  # it has a sample in the next round
    assert sum(1 for _ in turns) == 41 // LOOKS - 1
    assert history.series((there, 1)) is not None
    assert len(history) == 1


def test_publishes_and_confirms_are_counted_over_the_channels_life(channel: ClientChannel) -> None:
    publish(channel, 2)
    channel.call(m.ConfirmSelect())
    publish(channel, 3)
    facts = told(channel)
    assert (facts.published, facts.confirmed, facts.unconfirmed, facts.confirming) == (5, 3, 0, True)
    assert channel.peer.bench.broker.confirmed == 3


def test_what_is_refused_is_not_confirmed(channel: ClientChannel) -> None:
    channel.call(m.QueueDeclare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}))
    channel.call(m.ConfirmSelect())
    publish(channel, 3, "full")
    facts = told(channel)
    assert (facts.published, facts.confirmed, facts.unconfirmed) == (3, 1, 0)
    assert channel.peer.bench.broker.confirmed == 1


def test_what_nobody_takes_is_returned(channel: ClientChannel) -> None:
    channel.publish("", "nobody", b"hello", mandatory=True)
    publish(channel, 1, "nobody")
    assert told(channel).returned == 1
    assert channel.peer.bench.broker.returned == 1


def test_deliveries_are_told_apart(channel: ClientChannel) -> None:
    publish(channel, 10)
    channel.call(m.BasicQos(0, 4, False))
    channel.call(m.BasicConsume("q", "answers"))
    channel.call(m.BasicCancel("answers"))
    channel.call(m.BasicGet("q", no_ack=True))
    channel.call(m.BasicGet("q", no_ack=False))
    channel.call(m.BasicConsume("q", "does not", no_ack=True))
    facts = told(channel)
    assert (facts.delivered, facts.delivered_settled) == (8, 4)
    assert (facts.fetched, facts.fetched_settled) == (2, 1)
    assert (facts.unsettled, facts.accepted, facts.consumers, facts.prefetch) == (5, 0, 1, 4)


def test_only_what_is_accepted_counts_as_that(channel: ClientChannel) -> None:
    publish(channel, 6)
    channel.call(m.BasicConsume("q", "tag"))
    channel.ack(1)
    channel.send(m.BasicNack(2, False, False))
    channel.send(m.BasicReject(3, False))
    channel.send(m.BasicAck(5, True))
    facts = told(channel)
    assert (facts.accepted, facts.unsettled) == (3, 1)
    channel.call(m.BasicRecover(True))  # it comes again
    assert (told(channel).accepted, told(channel).unsettled, told(channel).delivered) == (3, 1, 7)


def test_a_transaction_holds_publishes_and_answers(channel: ClientChannel) -> None:
    publish(channel, 2)
    channel.call(m.BasicConsume("q", "tag"))
    channel.call(m.TxSelect())
    publish(channel, 3)
    channel.send(m.BasicAck(1, False))
    facts = told(channel)
    assert (facts.transactional, facts.uncommitted, facts.uncommitted_outcomes) == (True, 3, 1)
    assert (facts.accepted, facts.unsettled) == (0, 1)
    channel.call(m.TxCommit())
    facts = told(channel)
    assert (facts.uncommitted, facts.uncommitted_outcomes, facts.accepted) == (0, 0, 1)


def test_a_consumer_tells_where_it_is(channel: ClientChannel) -> None:
    channel.call(m.BasicQos(0, 4, False))
    channel.call(m.BasicConsume("q", "tag"))
    (consumer,) = channel.peer.bench.queue("q").consumers
    assert consumer.facts() == ConsumerFacts(
        tag="tag", connection="127.0.0.1:40000 -> 127.0.0.1:5672", channel=1, prefetch=4
    )
