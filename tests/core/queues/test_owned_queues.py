"""Queues that sessions own, that wait before they go, that leave something behind, and that destroy themselves."""

from __future__ import annotations

import pytest

from leveret.client import Client
from leveret.errors import AccessRefused, Locked, NotFound, PreconditionFailed
from leveret.limits import Overflow
from leveret.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, fetched, letters, morgue, reasons, waiting
from tests.harness.bench import CoreBench


def client(bench: CoreBench, name: str = "guest") -> Client:
    user = bench.broker.access.add_user(name)
    bench.broker.access.set_permissions(name, "/", ".*", ".*", ".*")
    found = Client(bench.broker, user, name)
    found.enter("/")
    return found


def is_there(queue: Queue) -> bool:
    return queue.virtual_host.queues.get(queue.name) is queue


# Parts of a client.


def test_a_part_has_queues_of_its_own_and_its_end_is_not_the_clients(bench: CoreBench) -> None:
    whole = client(bench)
    part, other = whole.part(), whole.part()
    mine = part.declare_queue("mine", exclusive=True)
    ours = whole.declare_queue("ours", exclusive=True)
    for stranger in (whole, other):
        with pytest.raises(Locked):
            stranger.own_queue("mine")
    part.leave()
    assert (is_there(mine), is_there(ours)) == (False, True)
    assert (bench.host.connections, [*bench.broker.clients]) == (1, [whole])
    whole.leave()
    part.leave()
    assert (is_there(ours), bench.host.connections) == (False, 0)


def test_a_part_may_outlive_its_client(bench: CoreBench) -> None:
    whole = client(bench)
    part = whole.part()
    queue = part.declare_queue("mine", exclusive=True)
    whole.leave()
    assert is_there(queue)
    assert part.purge("mine") == 0


def test_an_owned_queue_is_for_all_again_afterwards(bench: CoreBench) -> None:
    one, two = client(bench, "one"), client(bench, "two")
    queue = bench.queue("q")
    one.own(queue)
    one.own(queue)
    for verb in (lambda: two.own(queue), lambda: two.own_queue("q"), lambda: two.declare_queue("q")):
        with pytest.raises(Locked):
            verb()
    one.leave()
    assert (queue.owner, is_there(queue)) == (None, True)
    two.own(queue)
    assert queue.owner is two


def test_what_others_consume_from_cannot_be_owned(bench: CoreBench) -> None:
    queue = bench.queue("q")
    FakeConsumer(queue)
    with pytest.raises(Locked, match="has consumers"):
        client(bench).own(queue)
    assert queue.owner is None


def test_an_owned_auto_delete_queue_goes_after_its_owner_and_not_before(bench: CoreBench) -> None:
    mine = client(bench)
    queue = bench.host.declare_queue("q", auto_delete=True)
    mine.own(queue)
    FakeConsumer(queue).leave()
    assert is_there(queue)
    mine.leave()
    assert not is_there(queue)


def test_an_owned_queue_that_is_deleted_is_nobodys(bench: CoreBench) -> None:
    mine = client(bench)
    mine.own(bench.queue("q"))
    mine.delete_queue("q")
    assert mine.exclusive_queues == {}
    mine.leave()


def test_a_queue_may_be_known_of_by_who_may_not_use_it(bench: CoreBench) -> None:
    one, two = client(bench, "one"), client(bench, "two")
    queue = one.declare_queue("q", exclusive=True)
    assert two.known_queue("q") is queue
    assert (two.known_queue("nowhere"), two.known_exchange("nowhere")) == (None, None)
    assert two.known_exchange("amq.direct") is bench.host.exchange("amq.direct")
    bench.broker.access.set_permissions("two", "/", "^$", "^$", "^$")
    for ask in (two.known_queue, two.known_exchange):
        with pytest.raises(AccessRefused):
            ask("q")


# A delay.


def test_a_delayed_queue_goes_some_time_after_its_last_consumer(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("q", auto_delete=True, arguments={"x-auto-delete-delay": 2000})
    bench.advance(10)
    one, two = FakeConsumer(queue), FakeConsumer(queue)
    one.leave()
    bench.advance(10)
    two.leave()
    bench.advance(1)
    three = FakeConsumer(queue)
    bench.advance(10)
    assert is_there(queue)
    three.leave()
    bench.advance(1.9)
    assert is_there(queue)
    bench.advance(0.2)
    assert not is_there(queue)
    assert bench.broker.timers.next_at() is None


def test_a_delay_is_nothing_to_queues_that_stay(bench: CoreBench) -> None:
    queue = bench.queue("q", x_auto_delete_delay=1000)
    FakeConsumer(queue).leave()
    bench.advance(5)
    assert is_there(queue)


def test_an_exclusive_queue_outlives_its_owner_for_the_delay_and_has_another(bench: CoreBench) -> None:
    one, two = client(bench, "one"), client(bench, "two")
    queue = one.declare_queue("q", exclusive=True, arguments={"x-auto-delete-delay": 2000})
    FakeConsumer(queue).leave()
    bench.advance(10)
    one.leave()
    bench.advance(1)
    assert (is_there(queue), queue.owner) == (True, None)
    two.own(queue)
    bench.advance(10)
    FakeConsumer(queue).leave()
    bench.advance(10)
    assert is_there(queue)
    two.leave()
    bench.advance(2)
    assert not is_there(queue)


def test_a_deleted_queue_leaves_no_timer_behind(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("q", auto_delete=True, arguments={"x-auto-delete-delay": 2000})
    FakeConsumer(queue).leave()
    bench.host.delete_queue(queue)
    assert bench.broker.timers.next_at() is None


# What is left.


def left_to(bench: CoreBench, **said: str | int) -> tuple[Queue, Queue]:
    """A queue with an alternate exchange, and where that leads."""
    rest = bench.queue("rest")
    bench.host.declare_exchange("others", "fanout")
    bench.host.bind(bench.host.exchange("others"), rest, "")
    return bench.queue("q", x_alternate_exchange="others", **said), rest


def test_what_is_rejected_or_waits_when_a_queue_is_deleted_goes_to_its_alternate(bench: CoreBench) -> None:
    queue, rest = left_to(bench, x_max_priority=1)
    bench.publish("q", *letters(3))
    bench.publish("q", b"d", priority=1)
    queue.reject(fetched(queue, settled=False))
    bench.settle()
    assert waiting(rest) == "d"
    assert bench.host.delete_queue(queue) == 3
    bench.settle()
    assert waiting(rest) == "d a b c"
    assert all(each.message.notes is None for each in rest.waiting())
    assert [(each.message.exchange, each.message.key) for each in rest.waiting()] == [("", "q")] * 4


def test_what_expires_or_is_too_much_does_not(bench: CoreBench) -> None:
    queue, rest = left_to(bench, x_message_ttl=1000, x_max_length=2)
    bench.publish("q", *letters(3))
    bench.advance(2)
    assert (queue.ready, rest.ready) == (0, 0)


def test_what_is_purged_is_gone(bench: CoreBench) -> None:
    queue, rest = left_to(bench)
    bench.publish("q", b"a")
    queue.purge()
    bench.settle()
    assert rest.ready == 0


def test_a_dead_letter_exchange_has_what_is_rejected_the_alternate_what_is_left(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue, rest = left_to(bench, **DEAD)
    bench.publish("q", b"a", b"b")
    queue.reject(fetched(queue, settled=False))
    bench.settle()
    bench.host.delete_queue(queue)
    bench.settle()
    assert (reasons(dead), waiting(rest)) == (["a rejected"], "b")


def test_an_alternate_that_is_missing_has_nothing(bench: CoreBench) -> None:
    queue = bench.queue("q", x_alternate_exchange="nowhere")
    bench.publish("q", b"a", b"b")
    queue.reject(fetched(queue, settled=False))
    bench.host.delete_queue(queue)
    bench.settle()


def test_an_alternate_needs_the_permissions_of_a_dead_letter_exchange(bench: CoreBench) -> None:
    mine = client(bench)
    bench.broker.access.set_permissions("guest", "/", ".*", "^q$", ".*")
    with pytest.raises(AccessRefused, match=r"exchange 'amq\.fanout'"):
        mine.declare_queue("q", arguments={"x-alternate-exchange": "amq.fanout"})


# Too much.


def test_a_queue_destroys_itself_when_it_is_too_full(bench: CoreBench) -> None:
    queue = bench.queue("q", x_max_length=2, x_overflow="self-destruct")
    consumer = FakeConsumer(queue, credit=0)
    outcomes = bench.publish("q", *letters(4))
    assert [each.value for each in outcomes] == ["taken"] * 4
    assert not is_there(queue)
    assert (consumer.ended, queue.refused) == (1, 0)
    with pytest.raises(NotFound):
        bench.host.queue("q")
    assert bench.broker.timers.next_at() is None


def test_what_a_consumer_takes_at_once_destroys_nothing(bench: CoreBench) -> None:
    queue = bench.queue("q", x_max_length=1, x_overflow="self-destruct")
    consumer = FakeConsumer(queue)
    bench.publish("q", *letters(4))
    assert (consumer.bodies(), is_there(queue)) == ("a b c d", True)
    assert queue.limits.overflow is Overflow.SELF_DESTRUCT
    assert queue.has_room(100, 100)


# Priorities.


def test_priorities_up_to_the_base_are_one(bench: CoreBench) -> None:
    queue = bench.queue("q", x_max_priority=3, x_priority_base=3)
    for priority in (0, 9, 3, 4, 5, 2, 6):
        bench.publish("q", str(priority).encode(), priority=priority)
    assert waiting(queue) == "9 6 5 4 0 3 2"


def test_last_values_and_groups_do_not_go_together(bench: CoreBench) -> None:
    with pytest.raises(PreconditionFailed, match="but not both"):
        bench.queue("q", x_last_value_key="a", x_message_group_key="b")
