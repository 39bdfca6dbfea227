"""Bounds on the bytes that consumers have without answering, which the node sets for clients without a prefetch."""

from __future__ import annotations

from leveret.protocols.amqp091.codec import methods as m
from leveret.queues.consumer_bounds import UNANSWERED, ConsumerBounds
from leveret.server.node.assembly import _node_limits
from tests.amqp091.peer import ClientChannel, channel_of
from tests.harness.bench import ClientBench

EACH = '[limits]\nunacknowledged_max = "1KiB"\n'
ALL = '[limits]\nunacknowledged_per_connection_max = "1KiB"\n'
SIZE = 400  # of messages: two fit


def filled(toml: str, messages: int = 10) -> ClientChannel:
    bench = ClientBench(toml)
    bench.broker.node_limits = _node_limits(bench.config)
    channel = channel_of(bench)
    channel.declare("q")
    for _ in range(messages):
        channel.publish("", "q", bytes(SIZE))
    return channel


def test_a_consumer_without_a_prefetch_gets_all_there_is_by_default() -> None:
    channel = filled("")
    channel.consume("q")
    assert len(channel.deliveries()) == 10


def test_a_consumer_gets_no_more_than_the_bytes_it_may_have_unanswered() -> None:
    channel = filled(EACH)
    channel.consume("q", "a")
    assert len(channel.deliveries()) == 2
    channel.consume("q", "b")
    assert len(channel.deliveries()) == 2
    channel.ack(1)
    assert len(channel.deliveries()) == 1
    channel.ack(5, multiple=True)
    assert len(channel.deliveries()) == 4


def test_a_prefetch_in_messages_holds_as_well() -> None:
    channel = filled(EACH)
    channel.prefetch(1)
    channel.consume("q")
    assert len(channel.deliveries()) == 1
    channel.prefetch(100)
    channel.consume("q")
    assert len(channel.deliveries()) == 2


def test_a_client_cannot_ask_for_more_bytes_than_the_node_allows() -> None:
    channel = filled(f'{EACH}[compat]\nprofile = "spec"')
    channel.does(m.BasicQos(100_000, 0, False))
    channel.consume("q")
    assert len(channel.deliveries()) == 2


def test_who_needs_no_answers_gets_all() -> None:
    channel = filled(EACH)
    channel.consume("q", no_ack=True)
    assert len(channel.deliveries()) == 10


def test_consumers_of_a_connection_share_its_bound_over_channels() -> None:
    channel = filled(ALL)
    other = channel.peer.channel(2)
    channel.consume("q")
    assert len(channel.deliveries()) == 2
    other.consume("q")
    assert other.deliveries() == []
    channel.ack(2, multiple=True)
    assert len(channel.deliveries()) + len(other.deliveries()) == 2


def test_the_end_of_a_channel_makes_room_for_consumers_of_others() -> None:
    channel = filled(ALL)
    other = channel.peer.channel(2)
    channel.consume("q")
    other.consume("q")
    assert (len(channel.deliveries()), len(other.deliveries())) == (2, 0)
    channel.peer.call(1, m.ChannelClose(200, "", 0, 0))
    assert len(other.deliveries()) == 2


def test_memory_that_is_short_holds_back_the_consumers_that_have_most_of_it() -> None:
    channel = filled("", 12)
    channel.prefetch(2)
    channel.consume("q", "few")
    channel.prefetch(0)
    channel.consume("q", "many")
    assert len(channel.deliveries()) == 12
    bounds, host = ConsumerBounds(), channel.peer.bench.host
    bounds.look([host.queues["q"]], 6 * (UNANSWERED + SIZE), 0.0)
    for _ in range(4):
        channel.publish("", "q", bytes(SIZE))
    assert channel.deliveries() == []
    channel.ack(7, multiple=True)  # "few" has none then, and "many" still five
    assert {each.method.consumer_tag for each in channel.deliveries()} == {"few"}
    channel.ack(9, multiple=True)
    assert [each.method.consumer_tag for each in channel.deliveries()] == ["many"]
