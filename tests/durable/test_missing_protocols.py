"""Messages of a protocol whose package was removed: told once at the start, not delivered, and there again with it."""

from __future__ import annotations

import logging

import pytest

from leveret.durable.missing_protocols import MissingProtocols
from leveret.durable.store import chunk
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties
from tests.core.fakes import FakeConsumer
from tests.durable.site import Site
from tests.harness.bench import ENCODING

SOURCE = "the package leveret-line"


class LineEncoding(FakeEncoding):
    """The encoding of a protocol that comes from a package."""

    name = "line"


LINE = LineEncoding(Properties())


def started(store: MemoryStore | None = None, *, with_line: bool) -> Site:
    """A start of a node, with that protocol or without it."""
    chunk.parsed.clear()  # a process that has read such messages knows their encoding
    site = Site(store)
    encodings = {name: make for name, make in site.broker.encodings.items() if name != "line"}
    site.journal._encodings = {**encodings, "line": lambda: LINE} if with_line else encodings
    installed = {"line": SOURCE} if with_line else {}
    MissingProtocols(site.broker, site.journal, site.catalogue.protocols, installed).count()
    site.settle()
    return site


def put(site: Site, queue: str, *bodies: bytes, encoding: FakeEncoding = LINE) -> None:
    for body in bodies:
        exchange = site.host.default_exchange
        site.broker.publish(exchange, Message(encoding, "", queue, b"", body, Facts(durable=True)))
    site.settle()


@pytest.fixture
def store() -> MemoryStore:
    """What a node with the protocol has left: five of its messages, two in a stream, and one of another protocol."""
    site = started(with_line=True)
    site.host.declare_queue("q", durable=True)
    site.host.declare_queue("other", durable=True)
    site.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    put(site, "q", b"a", b"b")
    put(site, "q", b"c", encoding=ENCODING)
    put(site, "other", b"d")
    put(site, "s", b"e", b"f")
    return site.store.reopened()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_start_tells_once_what_is_missing_how_much_waits_for_it_and_where_it_came_from(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    started(store, with_line=False)
    assert told(caplog) == [
        "the protocol 'line' is not installed, of which the store has 5 messages: 2 in queue 'q' in vhost '/', 1 in"
        " queue 'other' in vhost '/', 2 in queue 's' in vhost '/'; not delivered until it is there again, which came"
        " from the package leveret-line"
    ]


def test_consumers_get_the_others_and_the_log_tells_nothing_more(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    site = started(store, with_line=False)
    caplog.clear()
    consumer = FakeConsumer(site.host.queues["q"])
    site.settle()
    assert [delivery.message.body for delivery in consumer.got] == [b"c"]
    assert site.host.queues["q"].unreadable == 2
    put(site, "s", b"g", encoding=ENCODING)
    reader = FakeConsumer(site.host.queues["s"], credit=9, arguments={"x-stream-offset": "first"})
    for _ in range(3):
        site.settle()
    assert [delivery.message.body for delivery in reader.got] == [b"g"]
    assert told(caplog) == []


def test_a_consumer_that_comes_before_all_are_counted_is_not_told_apart(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    chunk.parsed.clear()
    site = Site(store)
    site.journal._encodings = {n: make for n, make in site.broker.encodings.items() if n != "line"}
    missing = MissingProtocols(site.broker, site.journal, site.catalogue.protocols, {})
    site.journal.tell_missing_later()
    FakeConsumer(site.host.queues["q"])
    site.settle()
    assert told(caplog) == []
    missing.count()
    assert [line.partition(",")[0] for line in told(caplog)] == ["the protocol 'line' is not installed"]


def test_the_log_tells_a_queue_once_where_the_start_did_not_know(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a store of a version that did not note its protocols."""
    site = started(store, with_line=False)
    site.journal.missing_told.clear()
    caplog.clear()
    FakeConsumer(site.host.queues["q"])
    site.settle()
    site.host.queues["q"].reread()
    site.settle()
    assert told(caplog) == [
        "queue 'q' in vhost '/' has messages of the protocol 'line', which is not installed: they are not delivered,"
        " and stay in the store"
    ]


def test_they_come_back_with_the_protocol(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    without = started(store, with_line=False)
    FakeConsumer(without.host.queues["other"])
    without.settle()
    caplog.clear()
    site = started(without.store.reopened(), with_line=True)
    consumer = FakeConsumer(site.host.queues["q"])
    site.settle()
    assert [delivery.message.body for delivery in consumer.got] == [b"a", b"b", b"c"]
    assert site.host.queues["other"].ready == 1
    stream = site.host.queues["s"]
    assert stream.ready == 2
    assert told(caplog) == []


def test_a_protocol_of_which_nothing_waits_is_forgotten(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    site = started(store, with_line=True)
    for name in ("q", "other", "s"):
        site.host.delete_queue(site.host.queues[name])
    site.settle()
    without = started(site.store.reopened(), with_line=False)
    assert told(caplog) == []
    assert '["protocol","line"]' not in dict(without.store.reopened().objects())


def test_what_was_settled_before_it_was_counted_is_not_told(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    site = started(store, with_line=True)
    for name in ("other", "s"):
        site.host.delete_queue(site.host.queues[name])
    consumer = FakeConsumer(site.host.queues["q"])
    site.settle()
    consumer.accept(consumer.got[0])
    site.settle()
    started(site.store.reopened(), with_line=False)
    (line,) = told(caplog)
    assert "the store has 1 message: 1 in queue 'q' in vhost '/';" in line


@pytest.mark.parametrize("ended", ["purged", "deleted"])
def test_they_go_with_what_is_purged_and_with_their_queue(
    store: MemoryStore, ended: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = started(store, with_line=False)
    queue = site.host.queues["q"]
    FakeConsumer(queue).leave()
    site.settle()
    if ended == "purged":
        queue.purge()
    else:
        site.host.delete_queue(queue)
    site.settle()
    caplog.clear()
    started(site.store.reopened(), with_line=False)
    (line,) = told(caplog)
    assert "queue 'q'" not in line
    assert "1 in queue 'other'" in line
