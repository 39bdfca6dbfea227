"""What profile `spec` serves of AMQP 0-9-1 beyond RabbitMQ: prefetch in bytes, recover to the consumer, two priorities,
names, bindings to the default exchange, and persistent messages that overflow does not drop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import ClientChannel, Content, Peer, channel_of, opened
from tests.harness.bench import ClientBench

SPEC = '[compat]\nprofile = "spec"'
PERSISTENT = BasicProperties(delivery_mode=2)


@pytest.fixture
def channel() -> ClientChannel:
    channel = opened(SPEC)
    channel.declare("q")
    return channel


def sized(channel: ClientChannel, size: int, count: int = 0, of_channel: bool = False) -> None:
    channel.does(m.BasicQos(size, count, of_channel))


def bodies(contents: list[Content]) -> list[bytes]:
    return [content.body for content in contents]


def fill(channel: ClientChannel, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        channel.publish("", "q", bytes((48 + number,)) * size)


def sizes(contents: list[Content]) -> list[int]:
    return [len(content.body) for content in contents]


# Prefetch in bytes.


def test_s101_messages_are_sent_in_advance_as_far_as_they_fit(channel: ClientChannel) -> None:
    fill(channel, 40, 50, 20, 10)
    sized(channel, 100)
    channel.consume("q")
    assert sizes(channel.deliveries()) == [40, 50]
    channel.ack(1)
    assert sizes(channel.deliveries()) == [20, 10]


def test_s101_a_message_beyond_the_prefetch_is_sent_alone(channel: ClientChannel) -> None:
    fill(channel, 500, 500, 1)
    sized(channel, 100)
    channel.consume("q")
    for tag, size in ((1, 500), (2, 500), (3, 1)):
        assert sizes(channel.deliveries()) == [size]
        channel.ack(tag)


def test_s101_the_prefetch_in_messages_holds_as_well(channel: ClientChannel) -> None:
    fill(channel, 1, 1, 1)
    sized(channel, 100, count=2)
    channel.consume("q")
    assert sizes(channel.deliveries()) == [1, 1]


def test_s101_consumers_of_a_channel_share_a_global_one_and_other_channels_have_their_own(
    channel: ClientChannel,
) -> None:
    sized(channel, 100, of_channel=True)
    channel.consume("q", "a")
    channel.consume("q", "b")
    fill(channel, 60, 60, 60)
    assert sizes(channel.deliveries()) == [60]
    other = channel.peer.channel(2)
    other.consume("q", "c")
    assert sizes(other.deliveries()) == [60, 60]


def test_s101_it_is_ignored_for_those_who_do_not_acknowledge(channel: ClientChannel) -> None:
    fill(channel, 60, 60, 60)
    sized(channel, 10)
    channel.consume("q", no_ack=True)
    assert sizes(channel.deliveries()) == [60, 60, 60]


def test_s101_what_is_out_already_counts_for_a_new_global_one(channel: ClientChannel) -> None:
    fill(channel, 60, 60, 60)
    channel.prefetch(1)
    channel.consume("q", "a")
    assert sizes(channel.deliveries()) == [60]
    sized(channel, 100, of_channel=True)
    channel.consume("q", "b")
    assert channel.deliveries() == []
    channel.reject(1)
    assert sizes(channel.deliveries()) == [60]


@given(
    st.lists(st.integers(0, 120), max_size=12),
    st.integers(1, 200),
    st.lists(st.tuples(st.sampled_from(["ack", "nack", "recover", "drop"]), st.integers(0, 5)), max_size=12),
)
def test_s101_no_more_bytes_are_out_than_asked_for_but_for_a_single_message(
    messages: list[int], size: int, answers: list[tuple[str, int]]
) -> None:
    channel = opened(SPEC)
    channel.declare("q")
    sized(channel, size)
    channel.consume("q")
    fill(channel, *messages)
    out: dict[int, int] = {}
    for kind, which in [*answers, *(("ack", 0),) * len(messages)]:
        for content in channel.deliveries():
            out[content.method.delivery_tag] = len(content.body)
        assert len(out) <= 1 or sum(out.values()) <= size
        if not out:
            continue
        tag = sorted(out)[which % len(out)]
        if kind == "recover":
            channel.does(m.BasicRecover(False))
            out.clear()
            continue
        del out[tag]
        if kind == "ack":
            channel.ack(tag)
        else:
            channel.nack(tag, requeue=kind == "nack")
    queue = channel.peer.bench.queue("q")
    assert queue.unsettled == len(out) + len(channel.deliveries())
    assert channel.peer.front.channels[1].octets == sum(max(1, size) for size in out.values())


@pytest.mark.parametrize(
    "toml", ["", '[compat]\nprofile = "rabbitmq-3.13"', '[compat]\nprofile = "rabbitmq-4"']
)
def test_s101_other_profiles_refuse_it(toml: str) -> None:
    peer = opened(toml).peer
    assert peer.closed_with(1, m.BasicQos(1000)) == "540 NOT_IMPLEMENTED - prefetch_size!=0 (1000)"


# Recover.


def test_s111_without_requeue_messages_are_sent_again_to_the_consumers_that_had_them(
    channel: ClientChannel,
) -> None:
    for tag in ("a", "b"):
        channel.consume("q", tag)
    fill(channel, 1, 2, 3, 4)
    first = channel.deliveries()
    assert [content.method.consumer_tag for content in first] == ["a", "b", "a", "b"]
    channel.ack(2)
    channel.send(m.BasicRecover(False))
    *again, answer = channel.all()
    assert answer == m.BasicRecoverOk()
    found = [(c.method.consumer_tag, c.body, c.method.delivery_tag, c.method.redelivered) for c in again]
    assert found == [("a", b"0", 5, True), ("a", b"222", 6, True), ("b", b"3333", 7, True)]
    assert channel.refused(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_s111_recovered_messages_are_acknowledged_by_their_new_tags(channel: ClientChannel) -> None:
    fill(channel, 1, 2)
    channel.consume("q")
    channel.deliveries()
    channel.send(m.BasicRecoverAsync(False))
    assert [content.method.delivery_tag for content in channel.deliveries()] == [3, 4]
    channel.ack(4, multiple=True)
    queue = channel.peer.bench.queue("q")
    assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 2)
    (facts,) = channel.peer.front.channel_facts()
    assert (facts.unsettled, facts.accepted) == (0, 2)


def test_s111_what_was_fetched_or_whose_consumer_has_gone_is_requeued(channel: ClientChannel) -> None:
    fill(channel, 1, 2)
    assert channel.get("q", no_ack=False) is not None
    channel.consume("q", "t")
    assert sizes(channel.deliveries()) == [2]
    channel.does(m.BasicCancel("t"))
    channel.does(m.BasicRecover(False))
    assert channel.bodies("q") == [b"0", b"11"]


def test_s111_messages_are_sent_again_as_far_as_the_client_reads() -> None:
    bench = ClientBench(SPEC + "\n[limits]\noutbox_size_max = 4096\nmessage_size_max = 4096")
    channel = channel_of(bench)
    channel.declare("q")
    channel.consume("q", "t")
    for _ in range(4):
        channel.publish("", "q", bytes(1000))
    assert len(channel.deliveries()) == 4
    for _ in range(20):
        channel.peer.send(1, m.BasicRecoverAsync(False))
    assert channel.peer.outbox.size < 10_000, "what is on its way stays within the limit of the outbox"
    seen: list[Content] = []
    while found := channel.deliveries():
        seen += found
        channel.peer.front.drained()
    channel.ack(seen[-1].method.delivery_tag, multiple=True)
    assert bench.queue("q").unsettled == 0


def test_s111_a_channel_that_closes_requeues_what_it_had_to_send_again() -> None:
    bench = ClientBench(SPEC + "\n[limits]\noutbox_size_max = 4096\nmessage_size_max = 4096")
    channel = channel_of(bench)
    channel.declare("q")
    channel.consume("q", "t")
    for _ in range(4):
        channel.publish("", "q", bytes(1000))
    channel.deliveries()
    for _ in range(5):
        channel.peer.send(1, m.BasicRecoverAsync(False))
    channel.peer.drop()
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled) == (4, 0)


# Priorities.


def test_s114_a_plain_queue_has_two_levels_of_priority(channel: ClientChannel) -> None:
    for priority in (0, 5, 4, 9, 1, 255, 6):
        channel.publish("", "q", b"%d" % priority, BasicProperties(priority=priority))
    channel.publish("", "q", b"none")
    assert channel.bodies("q") == [b"5", b"9", b"255", b"6", b"0", b"4", b"1", b"none"]


def test_s114_levels_that_a_queue_asks_for_are_its_own(channel: ClientChannel) -> None:
    channel.declare("p", arguments={"x-max-priority": 3})
    for priority in (1, 3, 2, 9):
        channel.publish("", "p", b"%d" % priority, BasicProperties(priority=priority))
    assert channel.bodies("p") == [b"3", b"9", b"2", b"1"]


def test_s114_other_profiles_have_one_level() -> None:
    channel = opened()
    channel.declare("q")
    for priority in (0, 9):
        channel.publish("", "q", b"%d" % priority, BasicProperties(priority=priority))
    assert channel.bodies("q") == [b"0", b"9"]


# Names.


@pytest.mark.parametrize("name", ["a b", "ä", "a/b", "#", "a" * 128])
def test_s042_names_have_the_specifications_characters(channel: ClientChannel, name: str) -> None:
    for kind, method in (("exchange", m.ExchangeDeclare(name)), ("queue", m.QueueDeclare(name))):
        text = channel.refused(method)
        assert text.startswith(f"406 PRECONDITION_FAILED - the name of {kind} '{name[:127]}' is not one of ")


def test_s042_others_are_taken(channel: ClientChannel) -> None:
    for name in ("a" * 127, "Az09-_.:"):
        channel.exchange(name)
        channel.declare(name)
    assert channel.declare("").queue.startswith("amq.gen-")
    assert opened().declare("a b/ä").queue == "a b/ä"


# The default exchange.


def test_s036_a_queue_is_bound_to_the_default_exchange_with_further_keys(channel: ClientChannel) -> None:
    channel.declare("other")
    channel.bind("q", "", "k")
    channel.bind("other", "", "k")
    channel.bind("q", "", "q")
    for key in ("k", "q", "other"):
        channel.publish("", key, key.encode())
    assert (channel.bodies("q"), channel.bodies("other")) == ([b"k", b"q"], [b"k", b"other"])
    channel.does(m.QueueUnbind("q", "", "k"))
    channel.send(m.QueueDelete("other"))
    channel.next()
    channel.publish("", "k", b"gone", mandatory=True)
    content = channel.next()
    assert isinstance(content, Content)
    assert content.method.reply_code == 312


def test_s036_other_ways_to_the_default_exchange_stay_closed(channel: ClientChannel) -> None:
    channel.exchange("x")
    for method in (m.ExchangeBind("x", "", "k"), m.ExchangeBind("", "x", "k"), m.ExchangeDelete("")):
        assert (
            channel.refused(method) == "403 ACCESS_REFUSED - operation not permitted on the default exchange"
        )


def test_s036_permissions_are_checked_as_for_any_exchange(channel: ClientChannel) -> None:
    channel.peer.bench.broker.access.set_permissions("guest", "/", ".*", ".*", "^q$")
    assert channel.refused(m.QueueBind("q", "", "k")) == (
        "403 ACCESS_REFUSED - read access to exchange 'amq.default' in vhost '/' refused for user 'guest'"
    )


# Overflow.


def kept(
    channel: ClientChannel, most: int, *messages: tuple[bytes, bool], **arguments: object
) -> list[bytes]:
    channel.declare("short", arguments={"x-max-length": most, **arguments})
    for body, persistent in messages:
        channel.publish("", "short", body, PERSISTENT if persistent else BasicProperties())
    return channel.bodies("short")


def test_s082_persistent_messages_are_not_dropped(channel: ClientChannel) -> None:
    messages = [(b"%d" % number, True) for number in range(5)]
    assert kept(channel, 2, *messages) == [b"0", b"1", b"2", b"3", b"4"]


def test_s082_others_are_dropped_from_the_head_as_ever(channel: ClientChannel) -> None:
    messages = [(b"a", False), (b"b", False), (b"C", True), (b"d", False), (b"e", False)]
    assert kept(channel, 2, *messages) == [b"C", b"d"]


def test_s082_a_message_that_finds_persistent_ones_only_is_dropped_and_dead_lettered(
    channel: ClientChannel,
) -> None:
    channel.declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    assert kept(channel, 1, (b"A", True), (b"b", False), (b"C", True), **arguments) == [b"A", b"C"]
    content = channel.get("dead")
    assert content is not None
    assert (content.body, content.properties.headers["x-first-death-reason"]) == (b"b", "maxlen")


def test_s082_what_is_dropped_is_confirmed_and_what_a_queue_refuses_is_not(channel: ClientChannel) -> None:
    kept(channel, 1)
    channel.confirms()
    for body, properties in ((b"A", PERSISTENT), (b"b", BasicProperties())):
        channel.publish("", "short", body, properties)
    assert channel.all() == [m.BasicAck(1, False), m.BasicAck(2, False)]
    channel.declare("strict", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.publish("", "strict", b"x", PERSISTENT)
    assert isinstance(channel.all()[-1], m.BasicNack)


def test_s082_other_profiles_drop_them() -> None:
    assert kept(opened(), 1, (b"A", True), (b"B", True)) == [b"B"]


# Server properties.


def test_s005_the_server_tells_its_host_and_its_copyright() -> None:
    properties = Peer(ClientBench(SPEC)).start().server_properties
    assert properties["host"] == "127.0.0.1"
    assert str(properties["copyright"]).startswith("Copyright (c) ")
    assert "host" not in Peer().start().server_properties
