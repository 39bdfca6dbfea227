"""What bounds a queue: lengths with their overflows, and time."""

from __future__ import annotations

import pytest

from broker_core.broker import Outcome
from broker_core.limits import Overflow, QueueLimits
from broker_core.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, World, fetched, letters, message, morgue, reasons, waiting


@pytest.fixture
def world() -> World:
    return World()


def limit(queue: Queue, limits: QueueLimits) -> None:
    """As a policy does."""
    queue.apply(limits)
    queue.virtual_host.broker.settle()


# Limits.


def test_s082_a_full_queue_drops_its_head(world: World) -> None:
    dead = morgue(world)
    queue = world.queue(x_max_length=2, **DEAD)
    assert world.publish("q", *letters(4)) == [Outcome.TAKEN] * 4
    assert waiting(queue) == "c d"
    assert reasons(dead) == ["a maxlen", "b maxlen"]


def test_of_priorities_the_lowest_is_dropped_first(world: World) -> None:
    queue = world.queue(x_max_priority=1, x_max_length=2)
    world.publish("q", b"a", b"b", priority=1)
    world.publish("q", b"c", priority=0)
    assert waiting(queue) == "a b"


def test_a_message_larger_than_the_queue_is_dropped_itself_after_all_others(world: World) -> None:
    queue = world.queue(x_max_length_bytes=3)
    world.publish("q", b"aa", b"b", b"cccc")
    assert (waiting(queue), queue.ready_bytes) == ("", 0)


def test_what_a_consumer_takes_at_once_was_never_too_much(world: World) -> None:
    consumer = FakeConsumer(world.queue(x_max_length=0))
    world.publish("q", *letters(3))
    assert consumer.bodies() == "a b c"


@pytest.mark.parametrize(
    ("overflow", "dead_letters"),
    [("reject-publish", []), ("reject-publish-dlx", ["b maxlen", "c maxlen"])],
)
def test_s082_a_full_queue_refuses(world: World, overflow: str, dead_letters: list[str]) -> None:
    dead = morgue(world)
    queue = world.queue(x_max_length=1, x_overflow=overflow, **DEAD)
    outcomes = world.publish("q", *letters(3))
    assert outcomes == [Outcome.TAKEN, Outcome.REFUSED, Outcome.REFUSED]
    assert (waiting(queue), queue.refused, queue.published) == ("a", 2, 1)
    assert reasons(dead) == dead_letters


def test_a_full_queue_gives_before_it_refuses(world: World) -> None:
    queue = world.queue(x_max_length=1, x_overflow="reject-publish")
    consumer = FakeConsumer(queue, credit=2)
    assert world.publish("q", *letters(4)) == [Outcome.TAKEN] * 3 + [Outcome.REFUSED]
    assert (consumer.bodies(), waiting(queue)) == ("a b", "c")


def test_what_comes_back_counts_against_the_limit_too(world: World) -> None:
    dead = morgue(world)
    queue = world.queue(x_max_length=2, **DEAD)
    consumer = FakeConsumer(queue, credit=3)
    world.publish("q", *letters(5))
    consumer.pause()
    for delivery in list(consumer.held):
        consumer.release(delivery)
    world.settle()
    assert waiting(queue) == "d e"
    assert reasons(dead) == ["a maxlen", "b maxlen", "c maxlen"]


def test_what_comes_back_to_a_queue_that_refuses_stays(world: World) -> None:
    queue = world.queue(x_max_length=1, x_overflow="reject-publish")
    consumer = FakeConsumer(queue, credit=1)
    world.publish("q", b"a", b"b")
    consumer.pause()
    consumer.release(consumer.held[0])
    assert world.publish("q", b"c") == [Outcome.REFUSED]
    assert waiting(queue) == "a b"


def test_s129_a_new_limit_holds_at_once_for_what_waits(world: World) -> None:
    queue = world.queue()
    world.publish("q", *letters(4))
    limit(queue, QueueLimits(max_length=3))
    assert waiting(queue) == "b c d"
    limit(queue, QueueLimits(max_bytes=1))
    assert waiting(queue) == "d"
    limit(queue, QueueLimits(max_length=0, overflow=Overflow.REJECT_PUBLISH))
    assert waiting(queue) == "d"  # whoever refuses drops nothing
    limit(queue, QueueLimits())
    world.publish("q", b"e")
    assert waiting(queue) == "d e"


def test_a_queue_over_its_limit_stands_once_in_the_list_of_touched_queues(world: World) -> None:
    queue = world.queue(x_max_length=1)
    FakeConsumer(queue, credit=1)
    for body in letters(20):
        world.broker.publish(world.host.default_exchange, message("q", body))
    assert world.broker.touched.count(queue) == 1
    world.settle()
    assert (world.broker.touched, queue.touched) == ([], False)


# Time.


def test_s080_a_message_expires_by_the_lower_of_its_own_and_the_queues_ttl(world: World) -> None:
    dead = morgue(world)
    queue = world.queue(x_message_ttl=2000, **DEAD)
    world.publish("q", b"a")
    world.publish("q", b"b", ttl_ms=5000)
    world.advance(1.999)
    assert waiting(queue) == "a b"
    world.advance(0.001)
    assert reasons(dead) == ["a expired", "b expired"]
    world.publish("q", b"c", ttl_ms=1000)
    world.advance(1)
    assert (queue.ready, queue.ready_bytes, queue.expiring) == (0, 0, 0)


def test_s080_a_ttl_of_0_reaches_only_who_can_take_it_at_once(world: World) -> None:
    dead = morgue(world)
    queue = world.queue(x_message_ttl=0, **DEAD)
    world.publish("q", b"a")
    consumer = FakeConsumer(queue, credit=1)
    world.publish("q", b"b", b"c")
    assert consumer.bodies() == "b"
    assert reasons(dead) == ["a expired", "c expired"]


def test_messages_expire_at_the_head_of_their_priority_only(world: World) -> None:
    queue = world.queue(x_max_priority=1)
    world.publish("q", b"a")
    world.publish("q", b"b", ttl_ms=1000)
    world.publish("q", b"c", ttl_ms=1000, priority=1)
    world.advance(5)
    assert waiting(queue) == "a b"
    consumer = FakeConsumer(queue)
    world.settle()
    assert consumer.bodies() == "a"  # and nobody gets what has expired
    assert queue.ready == 0


def test_what_comes_back_too_late_expires(world: World) -> None:
    dead = morgue(world)
    queue = world.queue(**DEAD)
    consumer = FakeConsumer(queue)
    world.publish("q", b"a", ttl_ms=1000)
    world.advance(2)
    assert queue.unsettled == 1  # who has it may take his time
    consumer.release(consumer.held[0])
    world.settle()
    assert reasons(dead) == ["a expired"]


def test_what_comes_back_in_time_expires_in_its_turn(world: World) -> None:
    queue = world.queue()
    consumer = FakeConsumer(queue)
    world.publish("q", b"a", ttl_ms=1000)
    consumer.leave()
    consumer.release(consumer.held[0])
    world.advance(0.5)
    assert queue.ready == 1
    world.advance(0.5)
    assert queue.ready == 0


def test_what_has_expired_is_not_handed_out_before_the_timers_have_seen_it(world: World) -> None:
    queue = world.queue()
    consumer = FakeConsumer(queue, credit=1)
    world.publish("q", b"a")
    world.publish("q", b"b", ttl_ms=1000)
    world.clock.advance(1.25)
    world.broker.tick()
    consumer.accept(consumer.held[0])
    world.settle()
    assert (consumer.bodies(), queue.ready) == ("a", 0)


def test_a_fetch_passes_over_what_has_expired(world: World) -> None:
    queue = world.queue()
    world.publish("q", b"a", ttl_ms=1000)
    world.publish("q", b"b")
    world.clock.advance(2)
    world.broker.tick()
    assert fetched(queue, settled=True).message.body == b"b"
    assert queue.take_one(settled=True) is None


def test_a_head_that_goes_makes_room_for_the_next_ones_deadline(world: World) -> None:
    queue = world.queue(x_max_length=1)
    world.publish("q", b"a")
    world.publish("q", b"b", ttl_ms=1000)  # drops a, and is the head now
    world.advance(1)
    assert queue.ready == 0


def test_expiry_costs_nothing_when_nothing_expires(world: World) -> None:
    queue = world.queue()
    FakeConsumer(queue, credit=1)
    world.publish("q", *letters(3))
    assert world.broker.timers.next_at() is None


def test_s081_a_queue_that_nobody_uses_goes_and_its_messages_do_not_die(world: World) -> None:
    dead = morgue(world)
    world.queue(x_expires=1000, **DEAD)
    world.publish("q", b"a")
    world.advance(0.999)
    assert "q" in world.host.queues
    world.advance(0.001)
    assert "q" not in world.host.queues
    assert dead.ready == 0
    assert world.broker.timers.next_at() is None


def test_s081_consumers_fetches_and_declarations_are_uses(world: World) -> None:
    queue = world.queue(x_expires=1000)
    world.advance(0.75)
    world.queue(x_expires=1000)
    world.advance(0.75)
    queue.take_one(settled=True)
    world.advance(0.75)
    consumer = FakeConsumer(queue)
    world.advance(10)
    consumer.leave()
    world.advance(0.75)
    assert "q" in world.host.queues
    world.publish("q", b"a")  # not a use
    world.advance(0.25)
    assert "q" not in world.host.queues


def test_s081_the_term_begins_anew_when_the_last_consumer_leaves(world: World) -> None:
    consumer = FakeConsumer(world.queue(x_expires=1000))
    world.advance(0.75)
    consumer.leave()
    world.advance(0.75)
    assert "q" in world.host.queues
    world.advance(0.25)
    assert "q" not in world.host.queues


def test_a_policy_can_end_and_begin_the_watch_for_disuse(world: World) -> None:
    queue = world.queue(x_expires=1000)
    limit(queue, QueueLimits())
    world.advance(5)
    assert "q" in world.host.queues
    limit(queue, QueueLimits(expires_ms=6000))
    world.advance(5.75)
    assert "q" in world.host.queues  # the term begins with the policy, however long nobody has used it before
    world.advance(0.25)
    assert "q" not in world.host.queues
