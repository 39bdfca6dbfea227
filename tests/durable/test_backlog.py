"""What of a queue is on disk only: it comes back in time and in order, once, and counts as what waits does.

Pages have three messages here. Whatever else may happen, in any order: test_paging_properties.py, test_late_pages.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.durability import Page
from leveret.durable import recovery
from leveret.durable.entry_reader import UNREADABLE
from leveret.durable.journal import Journal
from leveret.durable.store.contract import DamagedError
from leveret.durable.store.memory import ContentReader
from leveret.errors import PreconditionFailed
from leveret.limits import QueueLimits
from leveret.message import Facts, Message
from leveret.queues import backlog
from leveret.queues.lane import Lane
from leveret.queues.searched_lane import SearchedLane
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import DEAD, FakeConsumer, Only, fetched, letters, reasons, waiting
from tests.durable.paged import PagedBench, in_memory, paged_out, pages_of
from tests.harness.bench import ENCODING, CoreBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def bench() -> PagedBench:
    return PagedBench()


@pytest.fixture
def queue(bench: PagedBench) -> WorkQueue:
    return bench.queue()


def filled(bench: PagedBench, count: int = 10, keep: int = 0, **said: int | str) -> WorkQueue:
    """A queue with so many messages, all but the first few of them on disk."""
    queue = bench.queue(**said)
    bench.put(*letters(count))
    paged_out(queue, keep)
    return queue


def counts(queue: WorkQueue) -> tuple[int, int, int]:
    return queue.ready, queue.ready_bytes, queue.expiring


def by_the_books(queue: WorkQueue) -> int:
    """How many messages are said to be on disk only."""
    assert queue.backlog is not None
    return queue.backlog.messages


# Out and back.


def test_what_is_on_disk_waits_like_everything_else(bench: PagedBench, queue: WorkQueue) -> None:
    bench.put(*letters(10), ttl_ms=60_000)
    assert paged_out(queue) == 4
    assert in_memory(queue) == []
    assert (counts(queue), waiting(queue)) == ((10, 10, 10), "a b c d e f g h i j")
    assert pages_of(queue) == pages_of(queue)  # to look changes nothing


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_setting_the_clock_changes_no_expiry_of_what_is_on_disk(
    bench: PagedBench, queue: WorkQueue, seconds: float
) -> None:
    bench.put(*letters(3), ttl_ms=60_000)
    assert paged_out(queue) == 1
    bench.clock.jump(seconds)
    bench.advance(50)
    bench.put(b"d", ttl_ms=60_000)
    paged_out(queue)
    assert in_memory(queue) == []
    assert [round(each.expires_at, 1) for each in queue.waiting()] == [60, 60, 60, 110]
    bench.advance(11)
    assert fetched(queue, True).message.body == b"d"


def test_a_consumer_gets_it_in_order_with_what_arrived_since(bench: PagedBench) -> None:
    queue = filled(bench, 8, keep=1)
    bench.put(b"i", b"j")
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == "a"
    bench.read_all()
    assert consumer.bodies() == "a b c d e f g h i j"
    assert (queue.ready, queue.unsettled, pages_of(queue)) == (0, 10, [])


@plain_only
def test_the_next_page_is_asked_for_before_the_head_has_run_out(bench: PagedBench) -> None:
    consumer = FakeConsumer(filled(bench, 9, keep=3), credit=1)
    bench.settle()
    assert (consumer.bodies(), bench.disk.reads) == ("a", False)  # two are left
    consumer.grant(1)
    bench.settle()
    assert (consumer.bodies(), len(bench.disk.store.late)) == ("a b", 1)
    bench.read()
    consumer.grant(2)
    bench.settle()
    assert (consumer.bodies(), bench.disk.reads) == ("a b c d", False)


def test_who_had_to_wait_for_a_page_is_read_ahead_for_by_a_whole_one(bench: PagedBench) -> None:
    consumer = FakeConsumer(filled(bench, 12), credit=1)
    bench.settle()
    bench.read()
    assert (consumer.bodies(), len(bench.disk.store.late)) == (
        "a",
        1,
    )  # with two left, and more than two wanted


def test_no_page_is_read_twice_however_often_the_queue_is_served(bench: PagedBench) -> None:
    FakeConsumer(filled(bench))
    for _ in range(5):
        bench.put(b"z")
    assert len(bench.disk.store.late) == 1


def test_a_higher_priority_that_has_to_be_read_comes_before_a_lower_one_in_memory(bench: PagedBench) -> None:
    queue = bench.queue(x_max_priority=1)
    bench.put(*letters(4), priority=1)
    paged_out(queue)
    bench.put(b"low")
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == ""
    bench.read_all()
    assert consumer.bodies() == "a b c d low"


def test_what_came_back_keeps_its_place_before_between_and_after_pages(bench: PagedBench, queue: WorkQueue):
    bench.put(*letters(9))
    early, late = FakeConsumer(queue, selector=Only(b"ae")), FakeConsumer(queue, selector=Only(b"i"))
    bench.settle()
    taken = [*early.held, *late.held]
    early.leave()
    late.leave()
    paged_out(queue)
    for delivery in taken:
        queue.release(delivery)
    assert waiting(queue) == "a b c d e f g h i"
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == "a"  # the others may come after what is on disk
    bench.read_all()
    assert consumer.bodies() == "a b c d e f g h i"


def test_a_page_whose_head_is_given_is_read_before_what_came_back_from_behind_it(bench: PagedBench) -> None:
    queue = bench.queue()
    bench.put(*letters(6))
    picky = FakeConsumer(queue, selector=Only(b"f"))
    bench.settle()
    picky.leave()
    paged_out(queue)
    queue.release(picky.held[0])
    assert [fetched(queue, settled=True).message.body for _ in range(6)] == letters(6)


def test_flags_and_attempts_go_to_the_disk_and_back(bench: PagedBench) -> None:
    queue = bench.queue(x_delivery_limit=5)
    bench.put(*letters(6))
    picky = FakeConsumer(queue, selector=Only(b"acdef"))
    bench.settle()
    picky.pause()
    for delivery in list(picky.held):
        picky.release(delivery, failed=delivery.message.body in b"ae")
    picky.leave()
    lane = queue.lanes[0]
    expected = [
        (b"a", True, 1),
        (b"b", False, 0),
        (b"c", True, 0),
        (b"d", True, 0),
        (b"e", True, 1),
        (b"f", True, 0),
    ]
    for _ in range(2):  # the second time they are flagged by the pages that they come from
        everything = sorted([*lane.fresh, *lane.returned])
        lane.returned.clear()
        lane.fresh.clear()
        lane.fresh.extend(everything)
        assert paged_out(queue) == 2
        assert [page.redelivered for page in pages_of(queue)] == [False, True]
        assert [(each.message.body, each.redelivered, each.attempts) for each in queue.waiting()] == expected
        assert sorted(attempts for _, attempts in queue.marked()) == [0, 0, 0, 1, 1]
        lane.load()
        lane.load()


def test_joined_pages_keep_what_each_says_of_its_messages() -> None:
    old = Page(range(1, 3), 0, 1, 20, expiring=2, redelivered=True, marks={2: 4})
    new = Page(range(3, 6), 2, 5, 30, marks={5: 0})
    for first, second, marks in (
        (old, new, {1: 0, 2: 4, 5: 0}),
        (new, Page(range(6, 8), 6, 7, 20, redelivered=True), {5: 0, 6: 0, 7: 0}),
    ):
        joined = backlog.join(first, second)
        assert [*joined.numbers] == [*first.numbers, *second.numbers]
        assert (joined.position, joined.last, joined.octets) == (first.position, second.last, 50)
        assert (joined.expiring, joined.redelivered, joined.marks) == (first.expiring, False, marks)
    both = backlog.join(old, Page(range(3, 4), 2, 2, 10, redelivered=True, marks={3: 1}))
    assert (both.redelivered, both.marks) == (True, {2: 4, 3: 1})


def test_a_queue_that_is_emptied_costs_what_others_do(bench: PagedBench) -> None:
    def cost(paged: bool) -> object:
        bench = PagedBench()
        queue = bench.queue()
        bench.put(*letters(6))
        if paged:
            paged_out(queue)
        FakeConsumer(queue)
        bench.read_all()
        return calls(lambda: bench.put(*letters(20), durable=False))

    assert cost(paged=True) == cost(paged=False)


def test_to_publish_into_a_queue_with_pages_costs_no_more(bench: PagedBench) -> None:
    def cost(paged: bool) -> object:
        bench = PagedBench()
        queue = bench.queue()
        bench.put(*letters(6))
        if paged:
            paged_out(queue)
        made = [Message(ENCODING, "", "q", b"", body, Facts(durable=True)) for body in letters(20)]
        return calls(lambda: [queue.push(each) for each in made])

    assert cost(paged=True) == cost(paged=False)


# Those who cannot wait.


def test_a_fetch_finds_what_is_on_disk_at_once(bench: PagedBench) -> None:
    queue = filled(bench, 7)
    assert [fetched(queue, settled=True).message.body for _ in range(7)] == letters(7)
    assert queue.take_one(settled=True) is None
    bench.settle()
    assert bench.disk.journal.known.live == 0


def test_a_fetch_does_not_wait_for_a_page_that_is_being_read_and_that_comes_to_nothing(bench: PagedBench):
    queue = filled(bench, 5)
    slow = FakeConsumer(queue, credit=1)
    bench.settle()
    assert bench.disk.reads
    assert fetched(queue, settled=False).message.body == b"a"
    bench.read_all()
    assert (slow.bodies(), waiting(queue), counts(queue)) == ("b", "c d e", (3, 3, 0))


def test_s082_too_many_on_disk_are_dropped_oldest_first(bench: PagedBench) -> None:
    bench.host.declare_queue("dead")
    queue = filled(bench, 8, x_max_length=8, **DEAD)
    bench.put(b"i", b"j")
    assert (waiting(queue), counts(queue)) == ("c d e f g h i j", (8, 8, 0))
    assert reasons(bench.host.queues["dead"]) == ["a maxlen", "b maxlen"]


@plain_only
def test_a_limit_on_a_long_backlog_drops_it_unread_where_nobody_buries_the_dead(bench: PagedBench) -> None:
    queue = filled(bench, 12)
    read = bench.disk.journal.fetch
    counted = calls(lambda: queue.apply(QueueLimits(max_length=2)))
    assert counted[read.__qualname__] == 1  # the page of which something stays
    assert (waiting(queue), counts(queue)) == ("k l", (2, 2, 0))
    bench.settle()
    assert bench.disk.journal.known.live == 2


@plain_only
def test_a_limit_that_buries_a_long_backlog_leaves_others_their_turn(
    bench: PagedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.queues.discarded_messages.PORTION", 4)
    dead = bench.host.declare_queue("dead")
    queue = filled(bench, 12)
    queue.apply(QueueLimits(max_length=1, dead_letter_exchange="", dead_letter_key="dead"))
    assert queue.ready == 8
    bench.settle()
    assert queue.ready == 4
    bench.advance(0.001)
    assert queue.ready == 1
    assert waiting(dead) == "a b c d e f g h i j k"


def test_s080_what_expires_on_disk_dies_when_its_page_has_come(bench: PagedBench) -> None:
    dead = bench.host.declare_queue("dead")
    queue = bench.queue(**DEAD)
    bench.put(*letters(4), ttl_ms=1000)
    bench.put(b"e", b"f")
    paged_out(queue)
    bench.read_all()
    bench.advance(2)
    bench.read_all()
    assert (waiting(dead), waiting(queue), queue.expiring) == ("a b c d", "e f", 0)


def test_a_page_that_does_not_say_when_it_expires_is_read_to_find_out(bench: PagedBench) -> None:
    dead = bench.host.declare_queue("dead")
    queue = bench.queue(**DEAD)
    bench.put(*letters(2), ttl_ms=1000)
    paged_out(queue)
    (page,) = pages_of(queue)
    page.due = Page(page.numbers, 0, 1, 2, expiring=2).due
    queue.touch()
    bench.settle()
    assert bench.disk.reads
    bench.read_all()
    bench.advance(2)
    assert (waiting(dead), queue.ready) == ("a b", 0)


def test_s080_what_expires_is_known_after_a_start_without_reading_it(bench: PagedBench, queue: WorkQueue):
    bench.put(b"a", ttl_ms=1000)
    bench.put(b"b", ttl_ms=500)
    bench.put(b"c")
    again = CoreBench()
    dead = again.host.declare_queue("dead")
    limits = {f"x-dead-letter-{name}": value for name, value in (("exchange", ""), ("routing-key", "dead"))}
    found = again.host.declare_queue("q", arguments=limits)
    assert isinstance(found, WorkQueue)
    later: list[Callable[[], None]] = []
    journal = Journal(bench.disk.store.reopened(), again.broker, {ENCODING.name: lambda: ENCODING})
    found.number, found.journal = queue.number, journal
    recovery.messages(again.broker, journal)
    journal.start(later.append)
    again.settle()
    assert counts(found) == (3, 3, 2)
    assert ([page.due for page in pages_of(found)], later) == ([1.0], [])
    again.advance(1)
    while later:
        later.pop(0)()
        again.settle()
    assert (waiting(dead), waiting(found), counts(found)) == ("a b", "c", (1, 1, 0))


def test_a_page_of_which_nothing_expires_is_not_read_for_that(bench: PagedBench) -> None:
    queue = filled(bench, 3)
    bench.put(b"d", ttl_ms=1000)
    assert not bench.disk.reads
    bench.advance(2)
    assert counts(queue) == (4, 4, 1)  # it dies when it comes to the head


def test_s086_while_a_page_is_read_nothing_reaches_a_consumer_at_once(bench: PagedBench) -> None:
    queue = filled(bench, 3)
    consumer = FakeConsumer(queue)
    message = Message(ENCODING, "", "q", b"", b"z")
    assert not queue.can_deliver_now(message)
    assert queue.seeks_for(consumer)
    bench.read_all()
    assert queue.can_deliver_now(message)
    assert not queue.seeks_for(consumer)


# The end of pages.


def test_s074_a_purge_settles_what_is_on_disk_and_on_its_way(bench: PagedBench) -> None:
    queue = filled(bench, 8)
    bench.put(b"i")
    consumer = FakeConsumer(queue)
    bench.settle()
    assert bench.disk.reads
    assert queue.purge() == 9
    bench.settle()
    assert (counts(queue), bench.disk.journal.known.live) == ((0, 0, 0), 0)
    bench.read_all()
    assert (consumer.got, counts(queue)) == ([], (0, 0, 0))
    bench.put(b"j")
    assert consumer.bodies() == "j"


def test_a_queue_is_deleted_with_what_is_on_disk_and_on_its_way(bench: PagedBench) -> None:
    queue = filled(bench, 8)
    FakeConsumer(queue)
    bench.settle()
    assert bench.host.delete_queue(queue) == 8
    bench.read_all()
    assert (queue.ready, bench.disk.journal.known.live) == (0, 0)


def test_what_is_on_disk_is_buried_with_its_queue(bench: PagedBench) -> None:
    dead = bench.host.declare_queue("dead")
    queue = filled(bench, 7, keep=2, **DEAD)
    queue.bury_all()
    bench.settle()
    assert (waiting(dead), queue.ready, bench.disk.journal.known.live) == ("a b c d e f g", 0, 0)


def test_messages_that_cannot_be_read_are_counted_off_and_the_others_are_given(bench: PagedBench) -> None:
    queue = bench.queue()
    bench.put(*letters(3), ttl_ms=60_000)
    bench.put(*letters(5))
    paged_out(queue)
    bench.disk.store.damaged.add(bench.disk.chunks()[0])
    assert counts(queue) == (8, 8, 3)
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert (consumer.bodies(), counts(queue)) == ("a b c d e", (0, 0, 0))


def unread(bench: PagedBench) -> WorkQueue:
    """A queue with three messages that cannot be read, and one that was given to a consumer that has left."""
    queue = bench.queue()
    bench.put(*letters(3))
    bench.put(b"d")
    paged_out(queue)
    bench.disk.store.damaged.add(bench.disk.chunks()[0])
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert consumer.bodies() == "d"
    consumer.leave()
    assert (queue.ready, queue.unreadable, bench.broker.alarms.warnings) == (0, 3, {UNREADABLE: None})
    return queue


def test_what_could_not_be_read_is_given_once_it_can_be_read_again(bench: PagedBench) -> None:
    queue = unread(bench)
    assert queue.reread() == 3
    bench.read_all()
    assert (queue.ready, queue.unreadable) == (0, 3), "it is damaged still"
    bench.disk.store.damaged.clear()
    assert queue.reread() == 3
    bench.read_all()
    assert (queue.ready, queue.unreadable, bench.broker.alarms.warnings) == (3, 0, {})
    consumer = FakeConsumer(queue)
    bench.settle()
    assert (consumer.bodies(), queue.reread()) == ("a b c", 0)


def test_what_could_not_be_read_goes_with_what_is_purged_also_while_it_is_read_again(
    bench: PagedBench,
) -> None:
    queue = unread(bench)
    bench.disk.store.damaged.clear()
    queue.reread()
    assert queue.purge() == 3
    bench.settle()
    bench.read_all()
    assert (queue.ready, queue.unreadable, bench.broker.alarms.warnings) == (0, 0, {})
    assert [bench.disk.journal.known.needs(number) for number in range(1, 4)] == [False] * 3


def test_a_queue_with_messages_that_cannot_be_read_is_not_empty_and_its_deletion_ends_the_alarm(
    bench: PagedBench,
) -> None:
    queue = unread(bench)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.host.delete_queue(queue, if_empty=True)
    bench.host.delete_queue(queue)
    bench.settle()
    assert (bench.broker.alarms.warnings, bench.disk.journal.unreadable.count) == ({}, 0)


def test_queues_read_again_by_themselves_when_the_store_answers_again(bench: PagedBench) -> None:
    queue = unread(bench)
    bench.disk.store.damaged.clear()
    bench.disk.journal._on_stalled("the database is away")
    assert not bench.disk.reads
    bench.disk.journal._on_stalled(None)
    bench.read_all()
    assert (queue.ready, queue.unreadable) == (3, 0)


def test_a_page_of_an_older_moment_is_read_again_before_it_counts_as_damaged(
    bench: PagedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(bench, 4)
    find, tries = ContentReader.find, []

    def older(reader: ContentReader, number: int) -> tuple[int, bytes]:
        tries.append(number)
        if len(tries) == 1:
            raise DamagedError("chunk 1 is cut off")
        return find(reader, number)

    monkeypatch.setattr(ContentReader, "find", older)
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert (consumer.bodies(), queue.unreadable) == ("a b c d", 0)


@pytest.mark.parametrize("settled", [False, True])
def test_what_was_settled_before_it_was_read_is_not_told_of_as_damage(
    bench: PagedBench, queue: WorkQueue, caplog: pytest.LogCaptureFixture, settled: bool
) -> None:
    bench.put(*letters(3))
    paged_out(queue)
    bench.disk.store.damaged.add(bench.disk.chunks()[0])  # as if its chunk had gone before the read
    FakeConsumer(queue)
    bench.settle()
    assert bench.disk.reads
    if settled:
        queue.purge()
        bench.settle()
    bench.read_all()
    assert ("3 messages of queue 'q' in vhost '/' cannot be read" in caplog.text) is not settled


def test_a_searched_queue_of_which_nothing_can_be_read_is_empty(bench: PagedBench) -> None:
    queue = filled(bench, 4)
    bench.disk.store.damaged.update(bench.disk.chunks())
    FakeConsumer(queue, browses=True)
    bench.read_all()
    assert (counts(queue), bool(queue.lanes[0])) == ((0, 0, 0), False)


def test_a_fetch_passes_over_a_page_of_which_nothing_can_be_read(bench: PagedBench, queue: WorkQueue) -> None:
    bench.put(*letters(3))
    bench.put(b"d")
    paged_out(queue)
    bench.disk.store.damaged.add(bench.disk.chunks()[0])
    assert fetched(queue, settled=False).message.body == b"d"
    assert queue.ready == 0


# What may go.


def test_only_what_is_written_may_go(bench: PagedBench, queue: WorkQueue) -> None:
    bench.put(*letters(3))
    queue.push(Message(ENCODING, "", "q", b"", b"d", Facts(durable=True)))
    bench.broker.settle()  # committed, and the disk has not said so yet
    assert paged_out(queue) == 1
    assert [delivery.message.body for delivery in in_memory(queue)] == [b"d"]
    bench.settle()
    assert (paged_out(queue), in_memory(queue)) == (2, [])


def test_what_is_not_to_outlive_the_node_is_written_before_it_goes_and_found_by_no_later_start(
    bench: PagedBench, queue: WorkQueue
) -> None:
    bench.put(b"a", b"b", durable=False)
    bench.put(b"c")
    assert paged_out(queue) == 0
    bench.settle()
    assert paged_out(queue) == 1
    assert (waiting(queue), in_memory(queue)) == ("a b c", [])
    again = CoreBench()
    found = again.host.declare_queue("q")
    journal = Journal(bench.disk.store.reopened(), again.broker, {ENCODING.name: lambda: ENCODING})
    found.number, found.journal = queue.number, journal
    recovery.messages(again.broker, journal)
    assert waiting(found) == "c"


def test_what_was_paged_out_only_is_not_kept_because_it_is_revised(bench: PagedBench, queue: WorkQueue):
    bench.put(b"a", durable=False)
    paged_out(queue)
    bench.settle()
    assert paged_out(queue) == 1
    delivery = fetched(queue, settled=False)
    queue.revise(delivery, Message(ENCODING, "", "q", b"more", b"a", delivery.message.facts))
    queue.release(delivery)
    bench.settle()
    assert (waiting(queue), bench.disk.journal.known.live) == ("a", 0)


def test_small_pages_that_follow_each_other_become_one(bench: PagedBench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backlog, "JOINED_MAX", 256)
    monkeypatch.setattr(backlog, "PAGE_MESSAGES", 4)
    queue = bench.queue()
    for body in letters(9):
        bench.put(body)
        queue.page_out(0)
    assert [len(page) for page in pages_of(queue)] == [4, 4, 1]
    assert waiting(queue) == "a b c d e f g h i"


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ([7], range(7, 8)),
        ([3, 4, 5], range(3, 6)),
        ([4, 10, 7], range(4, 11, 3)),
        ([1, 2, 4], [1, 2, 4]),
        ([1, 3, 4, 7], [1, 3, 4, 7]),
    ],
)
def test_numbers_are_kept_in_the_least_room(numbers: list[int], kept: object) -> None:
    found = backlog.in_order(numbers)
    assert (found if isinstance(found, range) else [*found]) == kept


def test_the_head_gives_its_end_back_when_there_is_nothing_else(bench: PagedBench) -> None:
    queue = filled(bench, 9, keep=6)
    consumer = FakeConsumer(queue, credit=1)
    bench.settle()
    assert len(in_memory(queue)) == 5
    while queue.page_out(2):
        pass
    assert [len(page) for page in pages_of(queue)] == [3, 3]
    assert [delivery.message.body for delivery in in_memory(queue)] == [b"b", b"c"]
    consumer.grant(20)
    bench.read_all()
    assert consumer.bodies() == "a b c d e f g h i"


def test_the_end_of_the_head_goes_before_a_page_that_is_being_read(bench: PagedBench) -> None:
    queue = filled(bench, 9, keep=3)
    consumer = FakeConsumer(queue, credit=2)
    bench.settle()
    assert bench.disk.reads  # d e f
    while queue.page_out(0):
        pass
    bench.read_all()
    consumer.grant(20)
    bench.read_all()
    assert consumer.bodies() == "a b c d e f g h i"


# Searching.


def test_who_browses_a_long_backlog_has_a_page_of_it_in_memory_besides_the_head(bench: PagedBench) -> None:
    queue = filled(bench, 26)
    browser = FakeConsumer(queue, browses=True)
    bench.settle()
    most = 0
    while bench.disk.reads:
        assert browser.searching
        bench.read()
        most = max(most, len(in_memory(queue)))
    assert browser.bodies() == " ".join("abcdefghijklmnopqrstuvwxyz")
    assert most <= 6
    assert (queue.ready, browser.searching) == (26, False)


def test_a_selector_takes_what_it_wants_out_of_pages_and_the_rest_stays_on_disk(bench: PagedBench) -> None:
    queue = filled(bench, 12)
    picky = FakeConsumer(queue, selector=Only(b"bgk"))
    bench.read_all()
    assert picky.bodies() == "b g k"
    assert len(in_memory(queue)) <= 5
    picky.accept_all()
    bench.settle()
    assert (waiting(queue), queue.ready, bench.disk.journal.known.live) == ("a c d e f h i j l", 9, 9)


def test_a_consumer_that_must_not_have_a_message_again_takes_the_others_from_pages(
    bench: PagedBench,
) -> None:
    queue = filled(bench, 12)
    picky = FakeConsumer(queue, credit=2)
    bench.read_all()
    for delivery in [*picky.held]:
        picky.send_elsewhere(delivery)
    paged_out(queue)
    picky.grant(1)
    bench.read_all()
    assert picky.bodies() == "a b c d e"
    other = FakeConsumer(queue, credit=3)
    bench.read_all()
    assert other.bodies() == "a b f"
    picky.leave()
    bench.read_all()
    assert isinstance(queue.lanes[0], Lane)
    assert not isinstance(queue.lanes[0], SearchedLane)


def test_a_message_is_tested_once_although_its_page_is_read_again_for_others(bench: PagedBench) -> None:
    queue = filled(bench, 9)
    wants = Only(b"x")
    FakeConsumer(queue, selector=wants)
    bench.read_all()
    plain = FakeConsumer(queue, credit=4)
    bench.read_all()
    assert plain.bodies() == "a b c d"
    bench.put(b"j")
    bench.read_all()
    assert max(wants.looks.values()) == 1
    assert wants.looks.total() == 10


def test_who_browses_does_not_see_again_what_was_taken_from_a_page_and_came_back(bench: PagedBench) -> None:
    queue = filled(bench, 6)
    browser = FakeConsumer(queue, browses=True, credit=4)
    bench.read_all()
    assert browser.bodies() == "a b c d"
    taker = FakeConsumer(queue, credit=6)
    bench.read_all()
    assert taker.bodies() == "a b c d e f"
    taker.pause()
    for delivery in list(taker.held):
        taker.release(delivery)
    browser.grant(10)
    bench.settle()
    assert browser.bodies() == "a b c d e f"


def test_when_the_search_ends_pages_are_where_they_were(bench: PagedBench) -> None:
    queue = filled(bench, 10, keep=2)
    browser = FakeConsumer(queue, browses=True, credit=4)
    bench.read_all()
    bench.put(b"k")
    assert isinstance(queue.lanes[0], SearchedLane)
    browser.leave()
    lane = queue.lanes[0]
    assert type(lane) is Lane
    assert [delivery.message.body for delivery in lane.fresh] == [b"a", b"b"]
    assert (waiting(queue), counts(queue)) == ("a b c d e f g h i j k", (11, 11, 0))
    consumer = FakeConsumer(queue)
    bench.read_all()
    assert consumer.bodies() == "a b c d e f g h i j k"


def test_a_search_that_begins_while_a_page_is_read_asks_for_it_again(bench: PagedBench) -> None:
    queue = filled(bench, 6)
    plain = FakeConsumer(queue, credit=2)
    bench.settle()
    picky = FakeConsumer(queue, selector=Only(b"d"))
    bench.read_all()
    assert (plain.bodies(), picky.bodies()) == ("a b", "d")
    assert by_the_books(queue) == sum(map(len, pages_of(queue)))


def test_a_search_that_ends_while_a_page_is_read_leaves_it_to_those_who_stay(bench: PagedBench) -> None:
    queue = filled(bench, 9)
    plain = FakeConsumer(queue, credit=0)
    browser = FakeConsumer(queue, browses=True)
    bench.settle()
    assert bench.disk.reads
    browser.leave()
    plain.grant(4)
    bench.read_all()
    assert plain.bodies() == "a b c d"
    assert by_the_books(queue) == sum(map(len, pages_of(queue)))


def test_no_more_than_two_pages_of_a_queue_are_read_at_a_time(bench: PagedBench) -> None:
    queue = filled(bench, 12)
    browsers = []
    for credit in (1, 4, 7, 10):  # each in another page
        browsers.append(FakeConsumer(queue, browses=True, credit=credit))
        bench.read_all()
    while queue.page_out(0):
        pass
    for browser in browsers:
        browser.grant(20)
    bench.settle()
    assert len(bench.disk.store.late) == 2
    bench.read_all()
    assert {browser.bodies() for browser in browsers} == {"a b c d e f g h i j k l"}
