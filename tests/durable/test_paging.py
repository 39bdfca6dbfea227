"""The budget: who loses memory when there is too much, how much of it, and what that costs those who have little."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from leveret.alarms import MIB, MemoryMonitor
from leveret.config.config import parse
from leveret.durable import paging
from leveret.durable.paging import (
    ASKING_S,
    INTERVAL_S,
    LOOK_QUEUES,
    LOOK_REST,
    LOOK_S,
    UNUSED,
    WAITING,
    Paging,
    memory_of,
)
from leveret.message import AbsentMessage
from leveret.queues import consumer_bounds
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from leveret.server.node import assembly
from tests.core.fakes import FakeConsumer, letters, waiting
from tests.durable.paged import PagedBench, in_memory, pages_of
from tests.harness.call_count import calls

BASE = 10 * MIB
PLENTY = 1 << 40


pytestmark = pytest.mark.usefixtures("small")


class Budgeted(PagedBench):
    """A bench with a budget for so many messages of one octet, in a process that has as much memory as a test says."""

    def __init__(self, messages: int | None = None) -> None:
        super().__init__()
        self.resident = BASE
        self.given_back = 0
        budget = None if messages is None else messages * (WAITING + 1)
        self.paging = Paging(self.broker, budget, lambda: self.resident, self.give_back)
        self.broker.paging = self.paging

    def give_back(self) -> None:
        self.given_back += 1

    def grow(self, octets: int = PLENTY) -> None:
        """The process has grown since the start, and the next check is due."""
        self.resident = BASE + octets
        self.pass_time()

    def pass_time(self, seconds: float = 1.0) -> None:
        self.clock.advance(seconds)
        self.broker.tick()
        self.settle()

    def settle_down(self) -> None:
        """Until there is nothing left to do soon."""
        while (at := self.broker.timers.next_at()) is not None and at < self.broker.now + 1:
            self.pass_time(0.001)

    def asked(self, action: Callable[[], None]) -> int:
        """How many queues are asked what they have, while something is done."""
        return calls(action)["memory_of"]


@pytest.fixture
def bench() -> Budgeted:
    return Budgeted(1)


@pytest.fixture
def queue(bench: Budgeted) -> WorkQueue:
    return bench.queue()


def here(queue: WorkQueue) -> str:
    return b" ".join(each.message.body for each in in_memory(queue)).decode()


def test_nobody_is_asked_as_long_as_the_process_has_not_grown_by_the_budget() -> None:
    bench = Budgeted(4)
    for n in range(20):
        bench.queue(f"q{n}")
        bench.put(b"a", key=f"q{n}")
    assert bench.asked(bench.pass_time) == 0
    assert bench.asked(lambda: bench.grow(4 * (WAITING + 1))) == 0
    assert bench.asked(lambda: bench.grow(4 * (WAITING + 1) + 1)) > 0


def test_beyond_the_budget_what_is_delivered_last_goes_until_some_of_it_is_free() -> None:
    bench = Budgeted(16)
    queue = bench.queue()
    bench.put(*letters(20))
    assert pages_of(queue) == []
    bench.grow()
    assert memory_of(queue) <= 14 * (WAITING + 1)
    assert len(in_memory(queue)) == 20 - 2 * 3
    assert waiting(queue) == " ".join("abcdefghijklmnopqrst")


def test_within_the_budget_nothing_goes_however_large_the_process_is() -> None:
    bench = Budgeted(20)
    queue = bench.queue()
    bench.put(*letters(20))
    bench.grow()
    assert pages_of(queue) == []


def test_without_a_budget_nothing_goes() -> None:
    bench = Budgeted(None)
    queue = bench.queue()
    bench.put(*letters(20))
    assert bench.asked(bench.grow) == 0
    assert pages_of(queue) == []


def test_the_largest_queue_loses_first_and_small_ones_lose_nothing() -> None:
    bench = Budgeted(12)
    small, large = bench.queue("small"), bench.queue("large")
    bench.put(*letters(4), key="small")
    bench.put(*letters(16), key="large")
    bench.grow()
    assert (here(small), len(in_memory(large))) == ("a b c d", 4)


def test_large_bodies_count_by_their_size_and_properties() -> None:
    bench = Budgeted(100)
    small, large = bench.queue("small"), bench.queue("large")
    bench.put(*letters(4), key="small")
    bench.put(b"a" * 100_000, key="large")
    assert memory_of(small) == 4 * (WAITING + 1)
    assert memory_of(large) == WAITING + 100_000
    large.lanes[0].arrivals[0].message.properties = b"p" * 5000
    assert memory_of(large) == WAITING + 105_000
    bench.grow()
    assert (here(small), here(large)) == ("a b c d", "")


def test_a_head_stays_for_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "HEAD", 4)
    bench = Budgeted(1)
    queue = bench.queue()
    slow = FakeConsumer(queue, credit=1)
    bench.put(*letters(20))
    bench.grow()
    bench.settle_down()
    assert here(queue) == "b c d e"
    slow.accept_all()
    bench.settle()
    assert slow.bodies() == "a b"


def test_of_large_messages_fewer_stay_at_the_head(bench: Budgeted, queue: WorkQueue) -> None:
    FakeConsumer(queue, credit=1)
    bench.put(*(b"%d" % n * 70_000 for n in range(9)))
    bench.grow()
    assert [delivery.message.body[:1] for delivery in in_memory(queue)] == [b"1", b"2", b"3"]


def test_when_something_expires_is_known_without_reading_it(bench: Budgeted, queue: WorkQueue) -> None:
    bench.put(*letters(5), ttl_ms=10_000)
    bench.grow()
    bench.pass_time(8)
    assert (here(queue), bench.disk.reads) == ("", False)
    assert bench.broker.timers.next_at() == 10.0
    bench.pass_time(1)
    assert bench.disk.reads
    bench.read_all()
    assert queue.ready == 0


def test_what_cannot_go_yet_goes_although_nothing_else_happens(bench: Budgeted, queue: WorkQueue) -> None:
    bench.put(*letters(6), durable=False)
    bench.grow()
    assert bench.broker.timers.next_at() == bench.broker.now + INTERVAL_S
    bench.settle_down()
    assert in_memory(queue) == []


def test_what_is_much_goes_in_portions_and_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PORTION", 4 * (3 + paging.ATTEMPT))
    bench = Budgeted(1)
    queue = bench.queue()
    bench.put(*letters(26))
    bench.grow()
    assert len(in_memory(queue)) == 26 - 4 * 3
    bench.settle_down()
    assert in_memory(queue) == []


def test_many_small_queues_lose_what_they_have_as_soon_as_a_large_one(bench: Budgeted) -> None:
    for n in range(200):
        bench.queue(f"q{n}")
        bench.put(b"a", b"b", key=f"q{n}")
    bench.grow()
    assert all(pages_of(queue) for queue in bench.host.queues.values() if isinstance(queue, WorkQueue))


def test_messages_that_were_not_stored_are_written_and_then_go(bench: Budgeted, queue: WorkQueue) -> None:
    bench.put(*letters(6), durable=False)
    bench.grow()
    assert len(in_memory(queue)) == 6
    bench.pass_time()
    assert (in_memory(queue), waiting(queue)) == ([], "a b c d e f")


def test_queues_that_are_not_durable_have_pages_too_and_keep_nothing_else_in_the_store(bench: Budgeted):
    queue = bench.queue()
    queue.number, queue.journal = 0, None
    bench.put(*letters(6))
    assert bench.disk.journal.known.live == 0
    bench.grow()
    bench.pass_time()
    assert (in_memory(queue), bench.disk.journal.known.live) == ([], 6)
    bench.put(b"g")
    assert bench.disk.journal.known.live == 6
    consumer = FakeConsumer(queue)
    bench.read_all()
    consumer.accept_all()
    bench.settle()
    assert (consumer.bodies(), bench.disk.journal.known.live) == ("a b c d e f g", 0)


def test_what_comes_back_from_a_consumer_stays_in_memory(bench: Budgeted, queue: WorkQueue) -> None:
    consumer = FakeConsumer(queue, credit=2)
    bench.put(*letters(8))
    consumer.pause()
    for delivery in list(consumer.held):
        consumer.release(delivery)
    consumer.leave()
    bench.grow()
    assert here(queue) == "a b"


# What it costs.


def test_ten_thousand_small_queues_are_asked_rarely() -> None:
    bench = Budgeted(100)
    for n in range(10_000):
        bench.queue(f"q{n}")
    for each in bench.host.queues.values():
        each.ready, each.ready_bytes = 1, -WAITING  # there is nothing to do about them
    assert bench.asked(bench.grow) == 10_000
    assert bench.paging.due_at >= bench.broker.now + 10_000 * ASKING_S
    assert bench.asked(lambda: bench.pass_time(10_000 * ASKING_S / 2)) == 0


def test_a_batch_costs_one_comparison_between_checks(bench: Budgeted) -> None:
    bench.queue()
    bench.put(*letters(3))
    bench.grow(0)
    bench.pass_time(INTERVAL_S / 4)
    assert not [name for name in calls(bench.broker.settle) if name.startswith("Paging")]


# Memory that nobody needs.


def test_memory_that_nobody_needs_is_given_back_a_little_later() -> None:
    bench = Budgeted(1000)
    bench.queue()
    bench.put(*letters(3))
    bench.grow(UNUSED)
    bench.pass_time(LOOK_S)
    assert bench.given_back == 0
    bench.grow(UNUSED + 5 * WAITING)
    assert bench.given_back == 0
    bench.pass_time(LOOK_S)
    assert bench.given_back == 1


def test_memory_that_waiting_messages_need_is_not_asked_for() -> None:
    bench = Budgeted(1_000_000)
    queue = bench.queue()
    bench.put(b"a")
    queue.ready_bytes = UNUSED
    bench.grow(2 * UNUSED)
    bench.pass_time(LOOK_S)
    assert bench.given_back == 0


def test_an_idle_node_is_not_woken_for_its_memory() -> None:
    bench = Budgeted(1000)
    bench.queue()
    bench.grow(UNUSED // 2)
    assert bench.broker.timers.next_at() is None


# The setting.


@pytest.mark.parametrize(
    ("memory", "octets"),
    [
        ({"watermark": "100MiB"}, 40 * MIB),
        ({"watermark": "100MiB", "messages_max": 0.25}, 25 * MIB),
        ({"watermark": "100MiB", "messages_max": "8MiB"}, 8 * MIB),
        ({"watermark": "100MiB", "messages_max": 0}, None),
        ({"watermark": 0}, None),
        ({"watermark": 0, "messages_max": "8MiB"}, 8 * MIB),
    ],
)
def test_the_budget_is_a_fraction_of_the_watermark_or_octets(
    memory: dict[str, int | float | str], octets: int | None
) -> None:
    bench = PagedBench()
    config = parse({"memory": memory})
    bench.broker.alarms.monitors = (MemoryMonitor(config.memory_watermark),)
    assembly.page(bench.broker, config)
    assert bench.broker.paging is not None
    assert bench.broker.paging.budget == octets
    assert bench.broker.paging.unanswered_max == (25 * MIB if memory["watermark"] else None)
    assembly._reload_monitors(bench.broker, parse({"memory": {"messages_max": "1MiB"}}))
    assert bench.broker.paging.budget == MIB


def test_many_queues_are_measured_in_portions_and_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Budgeted(None)
    for number in range(10 * LOOK_QUEUES):
        bench.queue(f"q{number}")
    steps, measured = list[float](), paging.memory_in

    def slow(queues: Iterable[Queue]) -> Iterator[tuple[int, WorkQueue]]:
        steps.append(bench.broker.now)
        bench.clock.advance(0.01)
        return measured(queues)

    monkeypatch.setattr(paging, "memory_in", slow)
    bench.grow(2 * UNUSED)
    bench.pass_time(LOOK_S)
    assert len(steps) == 1, "others have their turn"
    bench.host.delete_queue(bench.host.declare_queue("comes and goes meanwhile"))
    for _ in range(30):
        bench.pass_time(0.001)
    assert (len(steps), bench.given_back) == (10, 1)
    bench.grow(2 * UNUSED)
    bench.pass_time(LOOK_S)
    assert len(steps) == 10, "it would cost as much again"
    bench.pass_time(LOOK_REST * 10 * 0.01)
    for _ in range(30):
        bench.pass_time(0.001)
    assert (len(steps), bench.given_back) == (20, 2)


def test_all_queues_are_in_some_portion_although_others_come_and_go() -> None:
    bench = Budgeted(None)
    names = [f"q{number}" for number in range(2 * LOOK_QUEUES + 50)]
    for name in names:
        bench.queue(name)
    portions = paging.portions_of(bench.host.queues)
    seen = next(portions)
    bench.host.delete_queue(bench.host.queues[names[-1]])
    bench.host.declare_queue("comes")
    for portion in portions:
        seen += portion
    assert [queue.name for queue in seen] == [*names[:-1], "comes"]


# Above the watermark.


def test_as_much_goes_as_the_process_is_above_its_watermark(bench: Budgeted, queue: WorkQueue) -> None:
    bench.paging.budget = None
    bench.put(*letters(9))
    bench.paging.relieve(4 * (WAITING + 1))
    bench.settle_down()
    assert len(in_memory(queue)) == 3  # pages have three messages


def test_an_alarm_asks_for_relief_until_it_ends() -> None:
    used, asked = [100 * MIB], list[int]()
    monitor = MemoryMonitor("80MiB", lambda: used[0], give_back=lambda: None)
    monitor.relief = asked.append
    assert (monitor.low(), asked) == (True, [20 * MIB])
    used[0] = 80 * MIB
    assert (monitor.low(), asked) == (False, [20 * MIB])


def test_the_node_itself_is_part_of_what_the_watermark_allows(bench: Budgeted, queue: WorkQueue) -> None:
    bench.paging.budget, bench.paging.watermark = 20 * MIB, 16 * MIB  # of which the node takes ten
    queue.ready_bytes = 5 * MIB
    bench.put(*letters(6))
    bench.grow()
    assert len(in_memory(queue)) < 6


def test_a_watermark_with_room_for_all_changes_nothing(bench: Budgeted, queue: WorkQueue) -> None:
    bench.paging.budget, bench.paging.watermark = 20 * MIB, 100 * MIB
    queue.ready_bytes = 5 * MIB
    bench.put(*letters(6))
    bench.grow()
    assert len(in_memory(queue)) == 6


def test_unused_memory_is_a_smaller_matter_where_there_is_little(bench: Budgeted) -> None:
    bench = Budgeted(1000)
    bench.paging.watermark = 32 * MIB
    bench.queue()
    bench.grow(3 * MIB)
    bench.pass_time(LOOK_S)
    assert bench.given_back == 1


# What consumers have.


def test_consumers_with_too_much_unanswered_are_held_back(bench: Budgeted, queue: WorkQueue) -> None:
    bench.paging.budget, bench.paging.unanswered_max = None, 4 * (WAITING + 1)
    consumer = FakeConsumer(queue)
    bench.put(*letters(6))
    bench.grow()
    bench.put(*letters(3))
    assert len(consumer.got) == 6
    late = FakeConsumer(queue, limit=0)
    bench.paging.came(late)
    assert late.bounds
    consumer.accept_all()
    bench.settle()
    assert len(consumer.got) > 6


def test_nothing_is_measured_as_long_as_there_is_memory_enough(bench: Budgeted, queue: WorkQueue) -> None:
    bench.paging.budget = bench.paging.unanswered_max = MIB
    consumer = FakeConsumer(queue)
    bench.put(*letters(6))
    counted = calls(lambda: bench.grow(MIB))
    assert not {"look", "memory_of"} & {*counted}
    assert consumer.bounds == []


def test_what_consumers_have_goes_to_the_disk_before_they_are_held_back(
    bench: Budgeted, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_bounds, "PILE", 1)
    bench.paging.budget, bench.paging.unanswered_max = None, 5 * (WAITING + 1)
    consumer = FakeConsumer(queue)
    bench.put(*letters(6))
    bench.grow()
    assert all(isinstance(each.message, AbsentMessage) for each in consumer.held)
    assert consumer.bounds == []
    consumer.accept_all()
    bench.settle()
    assert bench.disk.journal.known.live == 0
