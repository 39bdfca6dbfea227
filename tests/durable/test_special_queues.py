"""Queues for last values, groups and levels of priority, and those that wait before they go: from start to start."""

from __future__ import annotations

import pytest

from leveret.message import Facts, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING
from leveret.protocols.amqp010.codec import commands as c
from leveret.queues.fair_share import FairQueue
from leveret.queues.last_value import LastValueQueue
from leveret.queues.message_groups import MessageGroupQueue
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from leveret.server.definitions.importer import apply
from leveret.server.definitions.reader import read
from leveret.values import Table
from tests.core.fakes import FakeConsumer, fetched, waiting
from tests.durable.paged import PagedBench, paged_out
from tests.durable.site import Site
from tests.harness.bench import CoreBench

HEADER = "of"


def put(queue: Queue, *said: str, priority: int = 0) -> None:
    """`a1` says a in its header, and is on disk."""
    for each in said:
        header = c.MessageProperties(application_headers={HEADER: each[0]}).encode()
        facts = Facts(durable=True, priority=priority, has_headers=True)
        queue.push(Message(ENCODING, "", queue.name, header, each.encode(), facts))
    queue.virtual_host.broker.settle()


def back(site: Site, clean: bool) -> Queue:
    return site.again(clean=clean).host.queue("q")


@pytest.mark.parametrize("clean", [True, False])
def test_last_values_are_known_again_and_replaced(site: Site, clean: bool) -> None:
    queue = site.queue(x_last_value_key=HEADER, x_max_priority=1)
    put(queue, "a1", "b1", "a2", "c1")
    put(queue, "b2", priority=1)
    after = back(site, clean)
    assert isinstance(after, LastValueQueue)
    assert (waiting(after), after.ready, after.ready_bytes) == ("b2 a2 c1", 3, 6)
    put(after, "a3", "b3")
    assert (waiting(after), after.ready) == ("c1 a3 b3", 3)


def test_what_a_consumer_had_is_dropped_if_a_newer_one_waited(site: Site) -> None:
    queue = site.queue(x_last_value_key=HEADER)
    put(queue, "a1", "b1")
    held = fetched(queue, settled=False)
    put(queue, "a2")
    assert held.message.body == b"a1"
    after = back(site, clean=False)
    assert (waiting(after), after.ready, after.ready_bytes) == ("b1 a2", 2, 4)
    assert waiting(back(Site(site.store.reopened()), clean=False)) == "b1 a2"


def test_an_entry_of_a_queue_for_last_values_is_settled_once() -> None:
    """The chunks of this bench see to it."""
    bench = PagedBench()
    queue = bench.queue(x_last_value_key=HEADER)
    looks = FakeConsumer(queue, browses=True)
    for number in range(300):
        put(queue, f"{'abc'[number % 3]}{number}")
        bench.settle()
        if number % 7 == 0:
            queue.release(fetched(queue, settled=False))
        if number % 50 == 49:
            queue.purge()
            bench.settle()
    assert not queue.page_out(0)
    queue.purge()
    bench.settle()
    assert (bench.disk.chunks(), looks.ended) == ([], 0)


def test_what_has_come_back_counts_as_what_is_on_disk(site: Site) -> None:
    put(site.queue(), "a1", "b1", "c1")
    after = back(site, clean=True)
    assert isinstance(after, WorkQueue)
    books = after.books()
    assert (books.messages, books.octets) == (3, 6)
    fetched(after, settled=True)
    assert (books.messages, books.octets) == (0, 0)


@pytest.mark.parametrize(("clean", "again"), [(True, 1), (False, 3)])
@pytest.mark.parametrize("arguments", [{}, {"x_last_value_key": HEADER}])
def test_what_is_delivered_again_after_a_start_is_counted_as_such(
    site: Site, arguments: dict[str, str], clean: bool, again: int
) -> None:
    queue = site.queue(**arguments)
    put(queue, "a1", "b1", "c1")
    queue.release(fetched(queue, settled=False))
    after = back(site, clean)
    FakeConsumer(after, credit=3)
    after.virtual_host.broker.settle()
    assert (after.delivered, after.redelivered) == (3, again)


def test_groups_are_kept_together_again(site: Site) -> None:
    queue = site.queue(x_message_group_key=HEADER)
    put(queue, "a1", "a2", "b1")
    fetched(queue, settled=False)
    after = back(site, clean=False)
    assert isinstance(after, MessageGroupQueue)
    one, two = FakeConsumer(after, credit=1), FakeConsumer(after, credit=1)
    after.virtual_host.broker.settle()
    assert sorted([one.bodies(), two.bodies()]) == ["a1", "b1"]
    assert waiting(after) == "a2"


def test_levels_of_priority_come_back_as_they_were(site: Site) -> None:
    queue = site.queue(x_max_priority=1, x_priority_base=4)
    for priority in (0, 9, 4, 5, 2):
        put(queue, f"x{priority}", priority=priority)
    assert waiting(queue) == "x9 x5 x0 x4 x2"
    assert waiting(back(site, clean=True)) == "x9 x5 x0 x4 x2"


def test_levels_share_after_a_start(site: Site) -> None:
    queue = site.queue(x_max_priority=1, x_fair_share=[1, 2])
    for priority in (1, 1, 1, 1, 0, 0):
        put(queue, f"x{priority}", priority=priority)
    after = back(site, clean=True)
    assert isinstance(after, FairQueue)
    assert waiting(after) == "x1 x1 x0 x1 x1 x0"
    assert [fetched(after, True).message.body for _ in range(4)] == [b"x1", b"x1", b"x0", b"x1"]


def test_a_delayed_queue_waits_again_after_a_start(site: Site) -> None:
    """Its consumers went with the node; they may come back first."""
    arguments: Table = {"x-auto-delete-delay": 5000}
    site.host.declare_queue("q", durable=True, auto_delete=True, arguments=arguments)
    site.host.declare_queue("r", durable=True, auto_delete=True, arguments=arguments)
    after = site.again(away_s=100)
    consumer = FakeConsumer(after.host.queue("r"))
    after.advance(4)
    assert {*after.host.queues} == {"q", "r"}
    after.advance(2)
    assert {*after.host.queues} == {"r"}
    assert consumer.attached
    assert {*after.again().host.queues} == {"r"}


def test_what_a_deleted_queue_leaves_is_in_its_alternate_after_a_start(site: Site) -> None:
    rest = site.queue("rest")
    site.host.bind(site.host.exchange("amq.fanout"), rest, "")
    queue = site.queue("q", x_alternate_exchange="amq.fanout")
    put(queue, "a1", "b1")
    site.host.delete_queue(queue)
    after = site.again()
    assert ([*after.host.queues], waiting(after.host.queue("rest"))) == (["rest"], "a1 b1")


@pytest.mark.usefixtures("small")
def test_a_paged_group_is_served_from_the_disk() -> None:
    bench = PagedBench()
    bench.disk.journal._encodings = {ENCODING.name: lambda: ENCODING}
    queue = bench.queue(x_message_group_key=HEADER)
    put(queue, *(f"{'ab'[number % 2]}{number}" for number in range(20)))
    bench.settle()
    assert paged_out(queue) == 7
    first = fetched(queue, settled=False)
    assert first.message.body == b"a0"
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert consumer.bodies() == " ".join(f"b{number}" for number in range(1, 20, 2))
    queue.accept(first)
    bench.read_all()
    assert consumer.bodies().endswith(" ".join(f"a{number}" for number in range(2, 20, 2)))
    assert (queue.ready, queue.unsettled) == (0, 19)


@pytest.mark.usefixtures("small")
def test_levels_on_disk_share() -> None:
    """Whose turn it is, is waited for, though others are in memory; who fetches does not wait."""
    bench = PagedBench()
    queue = bench.queue(x_max_priority=1, x_fair_share=2)
    bench.put(*[b"high"] * 8, priority=1)
    bench.put(*[b"low"] * 6)
    assert paged_out(queue) == 5
    assert [fetched(queue, True).message.body for _ in range(3)] == [b"high", b"high", b"low"]
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert consumer.bodies() == "low high high low low high high low low high high"
    assert queue.ready == 0


def test_definitions_make_such_queues_too() -> None:
    bench = CoreBench()
    definitions = read(
        '{"queues": [{"name": "v", "vhost": "/", "arguments": {"x-last-value-key": "of"}},'
        ' {"name": "g", "vhost": "/", "arguments": {"x-message-group-key": "of", "qpid.alert_count": 5}}]}'
    )
    assert apply(definitions, bench.broker) == []
    assert isinstance(bench.host.queue("v"), LastValueQueue)
    assert isinstance(bench.host.queue("g"), MessageGroupQueue)
