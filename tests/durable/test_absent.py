"""Unanswered messages that are on disk only: nothing is missing of them, and nobody sees a difference but in time."""

from __future__ import annotations

import pytest

from leveret.errors import NotAtHand, PreconditionFailed
from leveret.message import AbsentMessage
from leveret.queues import absent
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, letters, waiting
from tests.durable.paged import PagedBench

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def bench() -> PagedBench:
    return PagedBench()


@pytest.fixture
def queue(bench: PagedBench) -> WorkQueue:
    return bench.queue()


def taken(bench: PagedBench, queue: WorkQueue, count: int = 6) -> FakeConsumer:
    """A consumer that has so many messages, on disk only."""
    consumer = FakeConsumer(queue)
    bench.put(*letters(count))
    absent.put_away(queue, consumer.held)
    return consumer


def test_nothing_of_them_is_in_memory(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = taken(bench, queue)
    first, last = consumer.held[0].message, consumer.held[-1].message
    assert first is last
    assert (first.key, first.size, first.facts.durable) == ("q", 1, True)
    for name in ("body", "properties"):
        with pytest.raises(AttributeError):
            getattr(first, name)


def test_they_are_accepted_without_being_read(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = taken(bench, queue)
    queue.accept_run(consumer.held[:3])
    for delivery in consumer.held[3:]:
        queue.accept(delivery)
    bench.settle()
    assert not bench.disk.reads
    assert (queue.unsettled, queue.unsettled_bytes, bench.disk.journal.known.live) == (0, 0, 0)
    assert queue.absent is not None
    assert (queue.absent.messages, queue.absent.octets) == (0, 0)


def test_they_come_back_in_order_with_all_they_say(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = taken(bench, queue)
    consumer.pause()
    for delivery in list(consumer.held):
        consumer.release(delivery)
    consumer.leave()
    assert (queue.ready, queue.unsettled, queue.returning) == (0, 6, 6)
    bench.read_all()
    assert (queue.ready, queue.unsettled, queue.returning) == (6, 0, 0)
    assert waiting(queue) == "a b c d e f"
    assert all(each.redelivered and each.attempts == 1 for each in queue.waiting())


def test_nothing_overtakes_what_is_on_its_way_back(bench: PagedBench, queue: WorkQueue) -> None:
    first = taken(bench, queue, 4)
    first.pause()
    bench.put(*letters(6)[4:])
    second = FakeConsumer(queue, limit=0)
    absent.put_away(queue, first.held)
    for delivery in list(first.held):
        first.release(delivery)
    second.limit = 1 << 40
    second.wake()
    bench.settle()
    assert second.got == []
    with pytest.raises(NotAtHand):
        queue.take_one(settled=True)
    bench.read_all()
    assert second.bodies() == "a b c d e f"


def test_an_answer_to_one_in_memory_waits_for_those_before_it(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = FakeConsumer(queue)
    bench.put(*letters(4))
    consumer.pause()
    absent.put_away(queue, consumer.held[:1])
    for delivery in list(consumer.held):
        consumer.release(delivery)
    assert queue.returning == 4
    bench.read_all()
    assert waiting(queue) == "a b c d"


def test_rejected_ones_die_with_their_bodies(bench: PagedBench) -> None:
    dead = bench.queue("dead")
    queue = bench.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    consumer = taken(bench, queue)
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    bench.read_all()
    assert (waiting(dead), queue.unsettled) == ("a b c d e f", 0)


def test_messages_that_are_not_in_the_store_stay_in_memory(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = FakeConsumer(queue)
    bench.put(*letters(3), durable=False)
    absent.put_away(queue, consumer.held)
    assert not any(isinstance(each.message, AbsentMessage) for each in consumer.held)


@pytest.mark.parametrize(
    "arguments", [{"x_message_deduplication": True}, {"x_message_group_key": "k"}, {"x_last_value_key": "k"}]
)
def test_queues_that_look_at_messages_again_keep_them(
    bench: PagedBench, arguments: dict[str, object]
) -> None:
    queue = bench.queue(**arguments)  # type: ignore[arg-type]
    consumer = taken(bench, queue, 3)
    assert not any(isinstance(each.message, AbsentMessage) for each in consumer.held)


def test_a_queue_is_not_empty_while_messages_come_back(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = taken(bench, queue)
    for delivery in list(consumer.held):
        consumer.release(delivery)
    with pytest.raises(PreconditionFailed):
        bench.host.delete_queue(queue, if_empty=True)


@pytest.mark.parametrize("way", ["accept", "release", "reject"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_queue_that_is_deleted_takes_them_along(
    bench: PagedBench, queue: WorkQueue, way: str, is_late: bool
) -> None:
    consumer = taken(bench, queue)
    if not is_late:
        for delivery in list(consumer.held):
            getattr(consumer, way)(delivery)
    bench.host.delete_queue(queue)
    for delivery in list(consumer.held):
        getattr(consumer, way)(delivery)
    bench.read_all()
    assert (queue.unsettled, queue.unsettled_bytes, queue.returning, bench.disk.journal.known.live) == (
        0,
        0,
        0,
        0,
    )
    assert queue.absent is not None
    assert queue.absent.messages == 0


def test_those_on_their_way_back_count_as_delivered_when_the_node_ends(
    bench: PagedBench, queue: WorkQueue
) -> None:
    consumer = taken(bench, queue)
    numbers = [each.stored for each in consumer.held]
    for delivery in list(consumer.held):
        consumer.release(delivery)
    assert [number for number, _ in queue.marked()] == numbers


def test_some_are_read_at_once_for_those_who_need_them(bench: PagedBench, queue: WorkQueue) -> None:
    consumer = taken(bench, queue)
    queue.bring(consumer.held[:2])
    assert [each.message.body for each in consumer.held[:2]] == [b"a", b"b"]
    assert queue.absent is not None
    assert queue.absent.messages == 4


def test_what_cannot_be_read_is_counted_off_and_stays_in_the_store(
    bench: PagedBench, queue: WorkQueue
) -> None:
    consumer = taken(bench, queue)
    bench.disk.store.damaged.update(bench.disk.chunks())
    for delivery in list(consumer.held):
        consumer.release(delivery)
    bench.read_all()
    assert (queue.ready, queue.unsettled, queue.unreadable) == (0, 0, 6)
