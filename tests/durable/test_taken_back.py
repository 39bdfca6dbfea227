"""Messages that a client had before a restart are taken off their queue again, wherever they are on disk."""

from __future__ import annotations

import pytest

from leveret.queues.work_queue import WorkQueue
from tests.durable.paged import in_memory, pages_of
from tests.durable.site import Site

COUNT = 10
SIZE = 300 << 10  # three or four of them are a page


def body(number: int) -> bytes:
    return b"%d " % number + bytes(SIZE)


def restarted(**arguments: object) -> tuple[Site, WorkQueue]:
    """A site whose queue q has messages 0 to 9 on disk, at the positions 0 to 9."""
    site = Site()
    site.queue(**arguments)
    site.publish("", "q", *map(body, range(COUNT)))
    after = site.again()
    queue = after.host.queues["q"]
    assert isinstance(queue, WorkQueue)
    return after, queue


def numbers(deliveries: list[object]) -> list[int]:
    return [int(each.message.body.split()[0]) for each in deliveries]


@pytest.mark.parametrize("wanted", [[0], [9], [2, 3, 4], [0, 5, 9], [*range(COUNT)], [7, 12]])
def test_only_what_is_wanted_is_taken_and_the_rest_stays_on_disk_in_order(wanted: list[int]) -> None:
    site, queue = restarted()
    assert len(pages_of(queue)) > 2
    taken = queue.take_stored(wanted)
    there = [number for number in wanted if number < COUNT]
    left = [number for number in range(COUNT) if number not in there]
    assert numbers(taken) == there
    assert not in_memory(queue)
    assert (queue.ready, queue.unsettled) == (len(left), len(there))
    assert queue.ready_bytes == sum(len(body(number)) for number in left)
    assert queue.backlog.messages == len(left)
    assert queue.backlog.octets == queue.ready_bytes
    for each in taken:
        each.release()
    found = [queue.take_one(settled=True) for _ in range(COUNT)]
    assert numbers(found) == [*range(COUNT)]
    assert (queue.ready, queue.ready_bytes, queue.backlog.messages) == (0, 0, 0)
    site.settle()


def test_a_queue_that_is_in_memory_from_the_start_on_gives_them_back_too() -> None:
    _, queue = restarted(x_last_value_key="k")
    assert numbers(queue.take_stored([3, 9])) == [9]  # the others were replaced
    assert (queue.ready, queue.unsettled) == (0, 1)


def test_what_has_expired_meanwhile_is_still_its_clients() -> None:
    site, queue = restarted(x_message_ttl=1000)
    site.clock.advance(2)
    site.broker.tick()
    assert numbers(queue.take_stored([0, 5])) == [0, 5]
    assert (queue.ready, queue.unsettled) == (COUNT - 2, 2)
