"""Priorities in quorum queues: 32 strict levels, two that share, or none, and what came back first."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.config.compat import QuorumPriorities, compat
from leveret.config.config import parse
from leveret.durable.store import chunk
from leveret.message import LOWEST, Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING, project
from leveret.queues.work_queue import WorkQueue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Value
from tests.core.fakes import FakeConsumer
from tests.durable.site import Site
from tests.harness.bench import CoreBench

STRICT, TWO = QuorumPriorities.STRICT, QuorumPriorities.TWO_LEVELS


def quorum(priorities: QuorumPriorities = STRICT) -> WorkQueue:
    bench = CoreBench(compat=compat(quorum_priorities=priorities.value))
    queue = bench.host.declare_queue("q", durable=True, arguments={"x-queue-type": "quorum"})
    assert isinstance(queue, WorkQueue)
    return queue


def push(queue: WorkQueue, *priorities: int) -> None:
    """Push messages whose bodies are their priorities; 0 means that none was given."""
    for priority in priorities:
        facts = Facts(priority=priority)
        assert queue.push(Message(FakeEncoding(Properties()), "", "q", b"", b"%d" % priority, facts))


def taken(queue: WorkQueue, count: int = 1000) -> list[int]:
    found = []
    while len(found) < count and (delivery := queue.take_one(settled=True)) is not None:
        found.append(int(delivery.message.body))
    return found


def test_the_highest_level_comes_first_and_without_a_priority_it_is_four() -> None:
    queue = quorum()
    push(queue, 0, 3, 5, LOWEST, 4, 31, 1, 0, 200)
    assert taken(queue) == [31, 200, 5, 0, 4, 0, 3, 1, LOWEST]


def test_a_queue_without_priorities_has_one_lane() -> None:
    queue = quorum()
    push(queue, 0, 4, 0)
    assert len(queue.lanes) == 1
    assert taken(queue) == [0, 4, 0]


def test_in_two_levels_high_has_two_thirds() -> None:
    queue = quorum(TWO)
    push(queue, *[4, 0, 1, 2, 3], *[5, 6, 255, 9, 5, 5, 5])
    assert taken(queue) == [5, 6, 4, 255, 9, 0, 5, 5, 1, 5, 2, 3]


def test_what_is_high_and_came_first_goes_first_in_normals_turn() -> None:
    queue = quorum(TWO)
    push(queue, 5, 6, 7, 0)
    assert taken(queue) == [5, 6, 7, 0]


def test_without_priorities_in_a_profile_the_order_is_that_of_arrival() -> None:
    queue = quorum(QuorumPriorities.NONE)
    push(queue, 1, 9, 5)
    assert type(queue) is WorkQueue
    assert taken(queue) == [1, 9, 5]


@pytest.mark.parametrize("priorities", [STRICT, TWO])
def test_what_came_back_goes_before_everything_else(priorities: QuorumPriorities) -> None:
    queue = quorum(priorities)
    push(queue, 1, 2)
    back = [queue.take_one(settled=False), queue.take_one(settled=False)]
    push(queue, 9)
    for delivery in reversed(back):
        assert delivery is not None
        delivery.release()
    assert taken(queue) == [1, 2, 9]


def test_what_came_back_before_there_were_levels_goes_first_too() -> None:
    queue = quorum()
    push(queue, 0, 0)
    delivery = queue.take_one(settled=False)
    assert delivery is not None
    delivery.release()
    push(queue, 9)
    assert [(each.message.facts.priority, each.redelivered) for each in queue.waiting()] == [
        (0, True),
        (9, False),
        (0, False),
    ]


def test_consumers_are_served_by_level() -> None:
    queue = quorum()
    push(queue, 1, 9, 5)
    consumer = FakeConsumer(queue)
    queue.virtual_host.broker.settle()
    assert [each.message.body for each in consumer.got] == [b"9", b"5", b"1"]


@given(st.lists(st.one_of(st.integers(-1, 40), st.none())))
def test_strict_levels_are_a_stable_sort(steps: list[int | None]) -> None:
    """None: take one."""
    queue = quorum()
    waiting: list[int] = []
    for step in steps:
        if step is None:
            expected = max(waiting, key=queue.rank, default=None)
            assert taken(queue, 1) == ([] if expected is None else [expected])
            if expected is not None:
                waiting.remove(expected)
        else:
            push(queue, step)
            waiting.append(step)
    assert taken(queue) == sorted(waiting, key=queue.rank, reverse=True)
    assert queue.ready == queue.ready_bytes == 0


@given(st.lists(st.booleans()))
def test_two_levels_follow_the_rule_of_rabbitmq(highs: list[bool]) -> None:
    """Its counter goes round by three; normal has every third turn, unless what is high came first."""
    queue = quorum(TWO)
    lanes: dict[bool, deque[int]] = {False: deque(), True: deque()}
    for number, is_high in enumerate(highs):
        facts = Facts(priority=9 if is_high else 1)
        queue.push(Message(FakeEncoding(Properties()), "", "q", b"", b"%d" % number, facts))
        lanes[is_high].append(number)
    expected, turn = [], 0
    while lanes[True] or lanes[False]:
        is_high = bool(lanes[True])
        if lanes[True] and lanes[False] and turn == 2:
            is_high = lanes[True][0] < lanes[False][0]
        expected.append(lanes[is_high].popleft())
        turn = (turn + 1) % 3
    if any(highs):  # before the first one there is one lane, and nothing to count
        assert taken(queue) == expected


ORDERS = {"strict": [b"31", b"9", b"", b"3", b"0"], "two-levels": [b"9", b"31", b"", b"0", b"3"]}


@pytest.mark.parametrize("priorities", ORDERS)
def test_levels_survive_a_restart(priorities: str) -> None:
    site = Site(config=parse(f'compat.quorum_priorities = "{priorities}"'))
    site.host.declare_queue("q", durable=True, arguments={"x-queue-type": "quorum"})
    site.publish("", "q", b"")  # without a priority
    for priority in (0, 9, 31, 3):
        octets = Properties(durable=True, priority=priority)
        site.broker.publish(site.host.default_exchange, durable_message(octets))
    site.settle()
    queue = site.again().host.queue("q")
    found = []
    while (delivery := queue.take_one(settled=True)) is not None:
        found.append(delivery.message.body)
    assert found == ORDERS[priorities]


@pytest.mark.parametrize("how", ["quorum", "two levels", "classic", "ranked"])
def test_only_queues_that_tell_0_from_none_store_it(how: str) -> None:
    site = Site(config=parse('compat.quorum_priorities = "two-levels"') if how == "two levels" else None)
    kind: dict[str, Value] = {"x-queue-type": "classic" if how in ("classic", "ranked") else "quorum"}
    if how == "ranked":
        kind["x-max-priority"] = 9
    site.host.declare_queue("q", durable=True, arguments=kind)
    for priority in (None, 0, 9):
        octets = Properties(durable=True, priority=priority)
        site.broker.publish(site.host.default_exchange, durable_message(octets))
    site.settle()
    kept = [each for stored in site.store.chunks() for each in chunk.read(stored.entries or b"").priorities]
    assert kept == [0, LOWEST if how == "quorum" else 0, 9]


def durable_message(properties: Properties) -> Message:
    octets = ENCODING.write(properties)
    facts, _ = project(octets)
    return Message(ENCODING, "", "q", octets, b"%d" % (properties.priority or 0), facts)
