"""Streams over AMQP 0-9-1: consumed by offset, acknowledged for credit, never emptied."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .peer import ClientChannel
from .test_habits_of_clients import kombu

STREAM: FieldTable = {"x-queue-type": "stream"}
FROM_FIRST: FieldTable = {"x-stream-offset": "first"}


def stream(*bodies: bytes, bench: ClientBench | None = None, prefetch: int = 100) -> ClientChannel:
    """A channel with a prefetch, and the stream `s` with these messages."""
    channel = channel_of(bench)
    channel.declare("s", durable=True, arguments=STREAM)
    for body in bodies:
        channel.publish("", "s", body)
    if prefetch:
        channel.prefetch(prefetch)
    return channel


def read(channel: ClientChannel, start: FieldValue = "first", tag: str = "") -> list[bytes]:
    channel.consume("s", tag, arguments={"x-stream-offset": start})
    return [content.body for content in channel.deliveries()]


def ended_with(channel: ClientChannel, method: wire.Method) -> str:
    """Send something that is not implemented, which ends the connection: the reply."""
    return channel.peer.closed_with(channel.number, method)


# What a stream refuses.


def test_x018_a_stream_is_not_purged() -> None:
    channel = stream(b"a")
    text = ended_with(channel, m.QueuePurge("s"))
    assert text == "540 NOT_IMPLEMENTED - queue.purge not supported by stream queues queue 's' in vhost '/'"
    assert channel.peer.bench.queue("s").ready == 1


def test_x026_a_stream_is_not_fetched_from() -> None:
    channel = stream(b"a")
    text = ended_with(channel, m.BasicGet("s"))
    assert text == "540 NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's' in vhost '/'"


def test_x026_a_reader_needs_a_prefetch() -> None:
    channel = stream(b"a", prefetch=0)
    text = channel.refused(m.BasicConsume("s"))
    assert text == (
        "406 PRECONDITION_FAILED - consumer prefetch count is not set for stream queue 's' in vhost '/'"
    )
    assert channel.declare("s", passive=True).consumer_count == 0


@pytest.mark.parametrize("prefetch", [0, 10])
def test_x026_a_reader_acknowledges(prefetch: int) -> None:
    channel = stream(b"a", prefetch=prefetch)
    text = ended_with(channel, m.BasicConsume("s", no_ack=True))
    assert text == (
        "540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue 's' in vhost '/'"
    )


@pytest.mark.parametrize("type_", ["stream", "quorum"])
def test_x027_streams_and_quorum_queues_do_not_share_a_prefetch(type_: str) -> None:
    channel = channel_of()
    channel.declare("s", durable=True, arguments={"x-queue-type": type_})
    channel.declare("q")
    channel.prefetch(10)
    channel.prefetch(10, of_channel=True)
    channel.consume("q")
    text = ended_with(channel, m.BasicConsume("s"))
    assert text == "540 NOT_IMPLEMENTED - queue 's' in vhost '/' does not support global qos"


@pytest.mark.parametrize("type_", ["stream", "quorum"])
def test_x027_kombu_does_not_say_global_and_is_served(type_: str) -> None:
    """Its prefetch is the channel's all the same (docs/decisions/0009-the-prefetch-of-kombu.md)."""
    channel = kombu(ClientBench()).channel()
    channel.declare("s", durable=True, arguments={"x-queue-type": type_})
    channel.prefetch(1)
    channel.consume("s")
    for body in (b"a", b"b"):
        channel.publish("", "s", body)
    assert [content.body for content in channel.deliveries()] == [b"a"]
    channel.ack(1)
    assert [content.body for content in channel.deliveries()] == [b"b"]


def test_x027_a_prefetch_that_is_not_shared_is_fine() -> None:
    channel = stream(b"a")
    channel.prefetch(10, of_channel=True)
    channel.prefetch(0, of_channel=True)
    assert read(channel) == [b"a"]


def test_an_offset_that_is_none_is_refused_in_clear_words() -> None:
    text = stream(b"a").refused(m.BasicConsume("s", arguments={"x-stream-offset": "tomorrow"}))
    assert text == (
        "406 PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 's' in vhost '/': 'tomorrow' is not "
        "first, last, next, an offset, a timestamp or an age such as 7D (units Y M D h m s)"
    )


# Reading.


def test_messages_are_counted_and_stay() -> None:
    channel = stream(b"a", b"b")
    assert read(channel) == [b"a", b"b"]
    channel.ack(0, multiple=True)
    answer = channel.declare("s", passive=True)
    assert (answer.message_count, answer.consumer_count) == (2, 1)
    assert read(channel, tag="again") == [b"a", b"b"]


def test_without_an_offset_a_reader_gets_what_comes_next() -> None:
    channel = stream(b"a")
    channel.consume("s")
    channel.publish("", "s", b"b")
    assert [content.body for content in channel.deliveries()] == [b"b"]


@pytest.mark.parametrize(
    ("start", "bodies"),
    [
        ("first", [b"a", b"b", b"c"]),
        ("last", [b"c"]),
        ("next", []),
        (1, [b"b", b"c"]),
        (99, []),
        (wire.Timestamp(1_000_000_060), [b"b", b"c"]),
        (1_000_000_060, []),  # a number is an offset
        ("90s", [b"b", b"c"]),
        ("2h", [b"a", b"b", b"c"]),
    ],
)
def test_a_reader_begins_where_it_asks(start: FieldValue, bodies: list[bytes]) -> None:
    bench = ClientBench()
    channel = stream(bench=bench)
    for body in (b"a", b"b", b"c"):
        channel.publish("", "s", body)
        bench.advance(60)
    bench.clock.advance(-60)
    bench.settle()
    assert read(channel, start) == bodies


def test_a_delivery_shows_its_offset_among_the_publishers_headers() -> None:
    channel = stream()
    given = BasicProperties(content_type="text/plain", headers={"a": 1, "x-stream-offset": 7}, message_id="m")
    channel.publish("", "s", b"a")
    channel.publish("", "s", b"b", given)
    for tag in ("one", "two"):
        channel.consume("s", tag, arguments=FROM_FIRST)
        bare, full = (content.properties for content in channel.deliveries())
        assert bare == BasicProperties(headers={"x-stream-offset": 0})
        assert full == BasicProperties(
            content_type="text/plain", headers={"x-stream-offset": 1, "a": 1}, message_id="m"
        )


def test_the_offset_is_a_number_of_64_bits() -> None:
    channel = stream(b"a")
    channel.consume("s", arguments=FROM_FIRST)
    (content,) = channel.deliveries()
    assert b"\x0fx-stream-offsetl\0\0\0\0\0\0\0\0" in content.raw_properties


def test_the_same_message_in_a_queue_shows_no_offset() -> None:
    channel = stream()
    channel.declare("q")
    for queue in ("s", "q"):
        channel.bind(queue, "amq.fanout")
    channel.publish("amq.fanout", "", b"a")
    content = channel.get("q")
    assert content is not None
    assert content.properties == BasicProperties()


def test_an_ack_gives_credit_and_a_reject_does_no_more() -> None:
    channel = stream(b"a", b"b", b"c", b"d", prefetch=1)
    assert read(channel) == [b"a"]
    channel.ack(1)
    channel.nack(2, requeue=True)
    channel.reject(3)
    contents = channel.deliveries()
    assert [content.body for content in contents] == [b"b", b"c", b"d"]
    assert not any(content.method.redelivered for content in contents)


def test_what_was_not_acknowledged_is_read_again_by_offset_and_not_by_itself() -> None:
    bench = ClientBench()
    first = stream(b"a", b"b", bench=bench)
    assert read(first) == [b"a", b"b"]
    first.peer.drop()
    queue = bench.queue("s")
    assert (queue.ready, queue.unsettled, len(queue.consumers)) == (2, 0, 0)
    second = stream(bench=bench)
    second.consume("s", arguments={"x-stream-offset": 1})
    assert [(c.body, c.method.redelivered) for c in second.deliveries()] == [(b"b", False)]


def test_recover_asks_a_stream_for_nothing() -> None:
    channel = stream(b"a")
    read(channel)
    channel.does(m.BasicRecover(True))
    assert (channel.deliveries(), channel.peer.bench.queue("s").unsettled) == ([], 0)


def test_answers_in_a_transaction_count_at_its_commit() -> None:
    channel = stream(b"a", b"b", prefetch=1)
    channel.does(m.TxSelect())
    read(channel)
    channel.ack(1)
    assert channel.deliveries() == []
    channel.does(m.TxCommit())
    assert [content.body for content in channel.deliveries()] == [b"b"]


def test_a_cancelled_reader_gets_nothing_more_and_may_still_acknowledge() -> None:
    channel = stream(b"a")
    read(channel, tag="t")
    channel.does(m.BasicCancel("t"))
    channel.publish("", "s", b"b")
    channel.ack(1)
    assert channel.deliveries() == []


def test_readers_of_a_deleted_stream_are_told() -> None:
    bench = ClientBench()
    channel, other = stream(b"a", b"b", bench=bench), channel_of(bench)
    read(channel, tag="t")
    answer = other.does(m.QueueDelete("s"))
    assert answer == m.QueueDeleteOk(2)
    assert channel.next() == m.BasicCancel("t", True)
    channel.ack(2, multiple=True)
    assert channel.all() == []


def test_a_paused_channel_gets_the_rest_when_it_goes_on() -> None:
    channel = stream()
    channel.consume("s")
    channel.does(m.ChannelFlow(False))
    channel.publish("", "s", b"a")
    assert channel.deliveries() == []
    channel.send(m.ChannelFlow(True))
    assert channel.next() == m.ChannelFlowOk(True)
    assert [content.body for content in channel.deliveries()] == [b"a"]


def test_a_reader_far_behind_gets_no_more_at_once_than_its_outbox_holds() -> None:
    bench = ClientBench("[limits]\noutbox_size_max = 65536\n")
    channel = stream(*[bytes(10_000)] * 50, bench=bench, prefetch=1000)
    channel.send(m.BasicConsume("s", "t", arguments=FROM_FIRST))
    assert 0 < channel.peer.outbox.size < 90_000
    assert len([what for what in channel.all() if not isinstance(what, m.BasicConsumeOk)]) == 50


# Declaring and retention.


def test_retention_by_argument() -> None:
    channel = channel_of()
    channel.declare("s", durable=True, arguments={**STREAM, "x-max-length-bytes": 4, "x-max-age": "1h"})
    for body in (b"aa", b"bb", b"cc"):
        channel.publish("", "s", body)
    assert channel.declare("s", passive=True).message_count == 2
    channel.peer.bench.advance(3600)
    assert channel.declare("s", passive=True).message_count == 0


@pytest.mark.parametrize(
    "refused",
    [
        {"x-max-priority": 5},
        {"x-message-ttl": 1000},
        {"x-expires": 1000},
        {"x-dead-letter-exchange": ""},
        {"x-single-active-consumer": True},
    ],
)
def test_x021_arguments_that_a_stream_does_not_obey_are_refused(refused: FieldTable) -> None:
    channel = channel_of()
    text = channel.refused(m.QueueDeclare("s", durable=True, arguments={**STREAM, **refused}))
    (name,) = refused
    assert text == (
        f"406 PRECONDITION_FAILED - invalid arg '{name}' for queue 's' in vhost '/' "
        "of queue type rabbit_stream_queue"
    )


# Filters.


def filtered(*values: FieldValue, prefetch: int = 100) -> ClientChannel:
    """The stream `s` with messages of these filter values; None has headers, but no value."""
    channel = stream(prefetch=prefetch)
    for number, value in enumerate(values):
        headers: FieldTable = {"n": number} if value is None else {"x-stream-filter-value": value}
        channel.publish("", "s", b"%d" % number, BasicProperties(headers=headers))
    channel.publish("", "s", b"plain")
    return channel


def chosen(channel: ClientChannel, **asked: FieldValue) -> str:
    arguments: FieldTable = {"x-stream-offset": "first"}
    arguments |= {f"x-stream-{name.replace('_', '-')}": value for name, value in asked.items()}
    channel.consume("s", arguments=arguments)
    return b" ".join(content.body for content in channel.deliveries()).decode()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"filter": "emea"}, "0 2"),
        ({"filter": ["emea", "apac", "none"]}, "0 1 2"),
        ({"filter": b"emea"}, "0 2"),
        ({"filter": "nothing"}, ""),
        ({"filter": "emea", "match_unfiltered": True}, "0 2 3 4 5 plain"),
        ({"filter": "emea", "match_unfiltered": False}, "0 2"),
        ({"match_unfiltered": True}, "0 1 2 3 4 5 plain"),
    ],
)
def test_a_reader_chooses_messages_by_their_filter_values(asked: dict[str, FieldValue], found: str) -> None:
    """A value that is no text, or an empty one, is none."""
    assert chosen(filtered("emea", "apac", "emea", None, "", 7), **asked) == found


def test_messages_that_are_passed_over_take_no_prefetch() -> None:
    channel = filtered("a", "b", "a", "b", "b", prefetch=2)
    assert chosen(channel, filter="b") == "1 3"
    channel.ack(2, multiple=True)
    assert [content.body for content in channel.deliveries()] == [b"4"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"filter": 7}, "'x-stream-filter' for queue 's' in vhost '/': unacceptable type"),
        ({"filter": ["a", 7]}, "'x-stream-filter' for queue 's' in vhost '/': unacceptable type"),
        ({"filter": []}, "it lists 1 to 128 values, not 0"),
        ({"filter": ["a"] * 129}, "it lists 1 to 128 values, not 129"),
        ({"filter": ""}, "a value has 1 to 1024 bytes"),
        ({"filter": "a" * 1025}, "a value has 1 to 1024 bytes"),
        ({"filter": "a", "match_unfiltered": "yes"}, "'x-stream-match-unfiltered'"),
    ],
)
def test_a_filter_that_is_none_is_refused(asked: dict[str, FieldValue], why: str) -> None:
    channel = stream(b"a")
    arguments: FieldTable = {f"x-stream-{name.replace('_', '-')}": value for name, value in asked.items()}
    text = channel.refused(m.BasicConsume("s", arguments=arguments))
    assert text.startswith("406 PRECONDITION_FAILED - invalid arg")
    assert why in text


@pytest.mark.parametrize("size", [15, 256, "16", True])
def test_the_size_of_a_filter_is_checked(size: FieldValue) -> None:
    arguments: FieldTable = {**STREAM, "x-stream-filter-size-bytes": size}
    text = channel_of(None).refused(m.QueueDeclare("s", durable=True, arguments=arguments))
    assert text.startswith("406 PRECONDITION_FAILED - invalid arg 'x-stream-filter-size-bytes'")
