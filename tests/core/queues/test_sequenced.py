"""Queues that number what enters them, in a header: for messages of every protocol, and from start to start."""

from __future__ import annotations

import pytest

from leveret.errors import PreconditionFailed
from leveret.message import Encoding, Facts, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.queues.fair_share import FairQueue
from leveret.queues.last_value import LastValueQueue
from leveret.queues.message_groups import MessageGroupQueue
from leveret.queues.queue import Queue
from leveret.queues.sequenced import SequencedQueue
from leveret.queues.work_queue import WorkQueue
from leveret.values import Properties, Value
from tests.core.fakes import DEAD, FakeConsumer, fetched, morgue
from tests.durable.site import Site
from tests.harness.bench import CoreBench

NUMBER = "x-n"
ENCODINGS: list[Encoding] = [ENCODING010, ENCODING10, ENCODING091]


def numbered(bench: CoreBench, **said: Value) -> SequencedQueue:
    queue = bench.queue("q", x_sequence_header=NUMBER, **said)
    assert isinstance(queue, SequencedQueue)
    return queue


def made(
    body: bytes, encoding: Encoding = ENCODING010, headers: dict[str, Value] | None = None, priority: int = 0
) -> Message:
    properties = encoding.write(Properties(headers=headers, content_type="text/plain", message_id="m"))
    facts = Facts(True, priority, 5000, has_headers=bool(headers))
    return Message(encoding, "e", "key", properties, encoding.body(body), facts)


def put(queue: Queue, *bodies: bytes, **said: int) -> None:
    for each in bodies:
        queue.push(made(each, **said))
    queue.virtual_host.broker.settle()


def number_of(message: Message) -> Value:
    return message.headers.get(NUMBER)


def numbers(queue: Queue) -> dict[str, Value]:
    return {each.message.body.decode(): number_of(each.message) for each in queue.waiting()}


def test_what_enters_is_numbered_from_one_on(bench: CoreBench) -> None:
    queue = numbered(bench)
    put(queue, b"a", b"b")
    assert numbers(queue) == {"a": 1, "b": 2}
    fetched(queue, True)
    put(queue, b"c")
    assert numbers(queue) == {"b": 2, "c": 3}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda each: each.name)
def test_a_message_of_every_protocol_is_as_it_was_beside_its_number(bench: CoreBench, encoding: Encoding):
    queue, plain = numbered(bench), bench.queue("plain")
    before = made(b"a", encoding, {"x-kept": 5, NUMBER: "the publisher's"}, priority=3)
    for each in (queue, plain):
        each.push(before)
    after = fetched(queue, True).message
    read, said = encoding.read(after.properties), encoding.read(before.properties)
    assert (read.content_type, read.message_id) == (said.content_type, said.message_id)
    assert read.headers == {**(said.headers or {}), NUMBER: 1}
    assert (after.body, after.exchange, after.key, after.encoding) == (before.body, "e", "key", encoding)
    facts = after.facts
    assert (facts.durable, facts.priority, facts.ttl_ms, facts.has_headers) == (True, 3, 5000, True)
    assert fetched(plain, True).message is before


def test_what_comes_back_keeps_its_number(bench: CoreBench) -> None:
    queue = numbered(bench)
    put(queue, b"a", b"b")
    queue.release(fetched(queue, False))
    assert numbers(queue) == {"a": 1, "b": 2}


def test_a_ring_shows_what_is_missing(bench: CoreBench) -> None:
    queue = numbered(bench, x_max_length=2)
    put(queue, *[b"%d" % number for number in range(1, 6)])
    assert numbers(queue) == {"4": 4, "5": 5}


def test_what_is_refused_has_no_number(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = numbered(bench, x_max_length=1, x_overflow="reject-publish-dlx", **DEAD)
    put(queue, b"a", b"b")
    assert [number_of(each.message) for each in dead.waiting()] == [None]
    assert queue.refused == 1
    fetched(queue, True)
    put(queue, b"c")
    assert numbers(queue) == {"c": 2}


def test_who_gets_it_at_once_gets_the_number(bench: CoreBench) -> None:
    queue = numbered(bench)
    consumer = FakeConsumer(queue)
    put(queue, b"a", b"b")
    assert [number_of(each.message) for each in consumer.got] == [1, 2]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, WorkQueue),
        ({"x_last_value_key": "k"}, LastValueQueue),
        ({"x_message_group_key": "k"}, MessageGroupQueue),
        ({"x_max_priority": 1, "x_fair_share": 1}, FairQueue),
    ],
    ids=["plain", "last values", "groups", "shares"],
)
def test_every_kind_can_number(bench: CoreBench, said: dict[str, Value], kind: type[WorkQueue]) -> None:
    queue = numbered(bench, **said)
    assert isinstance(queue, kind)
    for body, key in ((b"a", "1"), (b"b", "2"), (b"c", "1")):
        queue.push(made(body, headers={"k": key}))
    expected = {"a": 1, "b": 2, "c": 3}
    if kind is LastValueQueue:
        del expected["a"]
    assert numbers(queue) == expected


@pytest.mark.parametrize("name", ["", "n" * 256, 5], ids=["none", "long", "no text"])
def test_a_header_needs_a_name(bench: CoreBench, name: Value) -> None:
    with pytest.raises(PreconditionFailed, match="x-sequence-header"):
        bench.queue("q", x_sequence_header=name)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_durable_queue_counts_on_after_a_start(clean: bool, left: int) -> None:
    site = Site()
    queue = site.queue(x_sequence_header=NUMBER)
    put(queue, b"a", b"b", b"c")
    for _ in range(3 - left):
        fetched(queue, True)
    site.settle()
    after = site.again(clean=clean).host.queue("q")
    put(after, b"d")
    assert numbers(after) == {**dict(zip("abc"[3 - left :], range(4 - left, 4), strict=True)), "d": 4}


def test_numbers_are_said_once_for_a_batch() -> None:
    site = Site()
    queue = site.queue(x_sequence_header=NUMBER, x_max_length=2)
    put(queue, b"a")
    said: list[object] = []
    keep = site.catalogue.keep
    site.catalogue.keep = lambda queue: (said.append(queue.notes), keep(queue))[1]  # type: ignore[method-assign]
    put(queue, b"b", b"c", b"d")
    queue.release(fetched(queue, False))
    site.settle()
    assert said == [{"numbered": 4}]


def test_nothing_is_noted_where_nothing_outlives_the_node(bench: CoreBench) -> None:
    queue = numbered(bench)
    put(queue, b"a")
    assert queue.notes == {}
