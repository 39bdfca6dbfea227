"""Leases in memory: what is set aside, for whom, and how it goes back."""

from __future__ import annotations

import pytest

from leveret.errors import AccessRefused, Failure, Locked, PreconditionFailed, TooMany
from leveret.features.leases import lease as lease_module
from leveret.features.leases.lease import LEASES_MAX, Fenced, Sizes, leases_of, opened
from leveret.features.leases.reservation import PORTION, TAKING_S
from leveret.limits import QueueLimits
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import DEAD, FakeConsumer, fetched, letters, morgue, reasons, waiting
from tests.features.leases.leased import Leased, settle_down
from tests.harness.bench import CoreBench
from tests.harness.call_count import calls


def counts(queue: Queue) -> tuple[int, int, int]:
    """Waiting, unsettled, accepted."""
    return queue.ready, queue.unsettled, queue.accepted


def filled(bench: CoreBench, *bodies: bytes, **said: object) -> Queue:
    queue = bench.queue(**said)  # type: ignore[arg-type]
    bench.publish("q", *(bodies or (b"a", b"b", b"c")))
    return queue


# Reserving and settling.


def test_what_is_reserved_leaves_the_queue_and_counts_as_unsettled() -> None:
    queue = filled(CoreBench())
    reader = Leased(queue).reserve(2)
    assert (reader.bodies(), reader.told) == ("a b", [None])
    assert (waiting(queue), *counts(queue)) == ("c", 1, 2, 0)
    assert (queue.ready_bytes, queue.delivered) == (1, 2)


def test_a_repeated_request_reserves_nothing_twice() -> None:
    reader = Leased(filled(CoreBench()))
    for _ in range(3):
        assert reader.reserve(2, begin=0).bodies() == "a b"
    assert reader.reserve(3, begin=0).bodies() == "a b c"
    assert reader.reserve(1, begin=0).state == (0, 3)


def test_to_reserve_from_an_offset_settles_what_is_below() -> None:
    queue = filled(CoreBench())
    assert Leased(queue).reserve(2).reserve(2, begin=1).bodies() == "b c"
    assert counts(queue) == (0, 2, 1)


def test_what_is_settled_is_accepted_once() -> None:
    queue = filled(CoreBench())
    reader = Leased(queue).reserve()
    for until in (2, 2, 1):
        assert reader.settle(until).bodies() == "c"
        assert counts(queue) == (0, 1, 2)


def test_more_than_a_portion_takes_turns(bench: CoreBench) -> None:
    queue = filled(bench, *[b"x"] * (2 * PORTION + 1))
    reader = Leased(queue)
    reader.lease.reserve(0, 3 * PORTION, 1 << 30, 0, reader.told.append)
    before = 0
    while not reader.told:
        bench.settle()
        assert reader.lease.log.next - before <= PORTION
        before = reader.lease.log.next
    assert reader.state == (0, 2 * PORTION + 1)
    assert not queue.consumers


@pytest.mark.parametrize(
    ("octets", "expected"), [(1, "aaaa"), (4, "aaaa"), (5, "aaaa bbbb"), (9, "aaaa bbbb cccc")]
)
def test_octets_bound_what_is_reserved_but_for_one_message(octets: int, expected: str) -> None:
    reader = Leased(filled(CoreBench(), b"aaaa", b"bbbb", b"cccc", b"dddd"))
    for _ in range(2):
        assert reader.reserve(octets=octets).bodies() == expected
    assert reader.lease.octets == len(expected.replace(" ", ""))


def test_octets_that_are_settled_make_room() -> None:
    reader = Leased(filled(CoreBench(), b"aaaa", b"bbbb", b"cccc")).reserve(octets=8)
    assert reader.reserve(begin=1, octets=8).bodies() == "bbbb cccc"


def test_other_consumers_have_their_share(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue)
    reader = Leased(queue)
    reader.reserve(wait_s=9.0)
    bench.publish("q", *letters(10))
    settle_down(bench.broker)
    assert (len(consumer.got), reader.state) == (5, (0, 5))


def test_places_in_the_queue_are_noted_and_who_was_delivered_before() -> None:
    queue = filled(CoreBench())
    queue.release(fetched(queue, settled=False))
    assert Leased(queue).reserve().places() == [(0, True), (1, False), (2, False)]


def test_priorities_come_first(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=5)
    bench.publish("q", b"low", b"too")
    bench.publish("q", b"high", priority=3)
    reader = Leased(queue).reserve(2)
    assert reader.bodies() == "high low"
    reader.release()
    assert waiting(queue) == "high low too"


def test_what_is_reserved_does_not_expire_and_what_has_expired_is_not_reserved(bench: CoreBench) -> None:
    queue = bench.queue(**DEAD)
    dead = morgue(bench)
    bench.publish("q", b"a", b"b", ttl_ms=1000)
    reader = Leased(queue).reserve(1)
    bench.advance(2)
    assert (reader.reserve().bodies(), reasons(dead)) == ("a", ["b expired"])


def test_a_purge_leaves_what_is_reserved() -> None:
    queue = filled(CoreBench())
    reader = Leased(queue).reserve(1)
    assert queue.purge() == 2
    assert (reader.bodies(), *counts(queue)) == ("a", 0, 1, 0)
    assert waiting_after_release(reader, queue) == "a"


def test_a_purge_while_messages_are_taken_ends_it_with_what_there_is(bench: CoreBench) -> None:
    queue = filled(bench, *[b"x"] * (PORTION + 5))
    reader = Leased(queue)
    reader.lease.reserve(0, 2 * PORTION, 1 << 30, 0, reader.told.append)
    bench.settle()
    queue.purge()
    settle_down(bench.broker)
    assert (reader.told, reader.state) == ([None], (0, PORTION))


def waiting_after_release(reader: Leased, queue: Queue) -> str:
    reader.release()
    return waiting(queue)


def test_an_active_consumer_keeps_others_from_reserving(bench: CoreBench) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a", b"b")
    reader = Leased(queue)
    assert reader.reserve().bodies() == ""
    first.leave()
    assert reader.reserve().bodies() == "b"


def test_an_exclusive_consumer_keeps_others_from_reserving() -> None:
    queue = filled(CoreBench())
    FakeConsumer(queue, exclusive=True, credit=0)
    reader = Leased(queue)
    with pytest.raises(AccessRefused, match="exclusive use"):
        reader.reserve()
    assert (reader.lease.work, reader.told) == (None, [])


def test_messages_that_arrive_and_arrive_do_not_keep_it_for_ever(bench: CoreBench, queue: Queue) -> None:
    reader = Leased(queue)
    bench.publish("q", *[b"x"] * (PORTION * 2))
    reader.lease.reserve(0, 1 << 40, 1 << 40, 0, reader.told.append)
    turns = 0
    while not reader.told and turns < 30:
        turns += 1
        bench.publish("q", *[b"x"] * 3 * PORTION)
        bench.advance(TAKING_S / 10)
    assert reader.told == [None]
    assert 5 <= turns <= 15
    assert queue.ready >= PORTION


# Waiting.


def test_it_waits_for_the_first_message_and_takes_what_comes_with_it(bench: CoreBench) -> None:
    reader = Leased(bench.queue()).reserve(wait_s=10.0)
    bench.advance(9.9)
    assert reader.told == []
    bench.publish("q", b"a", b"b")
    settle_down(bench.broker)
    assert (reader.told, reader.bodies()) == ([None], "a b")
    bench.advance(10)
    assert reader.told == [None]


def test_it_waits_no_longer_than_it_was_told_to(bench: CoreBench, queue: Queue) -> None:
    reader = Leased(queue).reserve(wait_s=10.0)
    bench.advance(10.0)
    assert (reader.told, reader.state, len(queue.consumers)) == ([None], (0, 0), 0)


def test_it_does_not_wait_for_more_where_something_is_reserved() -> None:
    queue = filled(CoreBench(), b"a")
    assert Leased(queue).reserve().reserve(2, begin=0, wait_s=10.0).told == [None, None]


def test_who_has_gone_keeps_what_was_reserved_and_takes_no_more(bench: CoreBench, queue: Queue) -> None:
    reader = Leased(queue).reserve(wait_s=10.0)
    reader.drop()
    bench.publish("q", b"a")
    bench.advance(20)
    assert (reader.told, waiting(queue), len(queue.consumers)) == ([], "a", 0)
    assert reader.reserve().bodies() == "a"


def test_a_second_request_takes_the_place_of_the_first(bench: CoreBench, queue: Queue) -> None:
    reader = Leased(queue).reserve(wait_s=10.0).reserve(1, wait_s=10.0)
    assert (reader.told, len(queue.consumers)) == ([None], 1)
    bench.publish("q", b"a", b"b")
    settle_down(bench.broker)
    assert (reader.told, reader.bodies(), waiting(queue)) == ([None, None], "a", "b")


# Whose it is.


def test_who_opens_it_shuts_out_who_had_it() -> None:
    queue = filled(CoreBench())
    old = Leased(queue).reserve(1)
    new = Leased(queue)
    assert (new.lease, new.fence) == (old.lease, old.fence + 1)
    new.lease.require(new.fence)
    with pytest.raises(Fenced, match="somebody else has opened lease 'r' of queue 'q'"):
        new.lease.require(old.fence)
    assert new.bodies() == "a"


def test_opening_it_ends_what_is_under_way(bench: CoreBench, queue: Queue) -> None:
    reader = Leased(queue).reserve(wait_s=10.0)
    Leased(queue)
    bench.publish("q", b"a")
    assert [type(each) for each in reader.told] == [Fenced]
    assert (waiting(queue), len(queue.consumers)) == ("a", 0)


def test_leases_of_other_readers_are_others() -> None:
    queue = filled(CoreBench())
    one, other = Leased(queue, "one").reserve(1), Leased(queue, "other").reserve(1)
    assert (one.bodies(), other.bodies()) == ("a", "b")
    assert one.lease.incarnation != other.lease.incarnation


def test_a_lease_that_is_made_again_is_another_one() -> None:
    queue = filled(CoreBench())
    old = Leased(queue).release(for_good=True)
    new = Leased(queue)
    assert (new.lease.incarnation, new.fence) != (old.lease.incarnation, old.fence)
    with pytest.raises(Fenced):
        new.lease.require(old.fence)


def test_what_cannot_be_leased_is_refused(bench: CoreBench) -> None:
    owner = object()
    refused: dict[Queue, type[Failure]] = {
        bench.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"}): PreconditionFailed,
        bench.host.declare_queue("a", auto_delete=True): PreconditionFailed,
    }
    locked = bench.queue("l")
    locked.owner = owner  # type: ignore[assignment]
    refused[locked] = Locked
    for queue, kind in refused.items():
        with pytest.raises(kind):
            opened(queue, "r")
    for reader in ("", "r" * 256, "ä" * 128):
        with pytest.raises(PreconditionFailed, match="1 to 255 octets"):
            opened(bench.queue(), reader)
    assert not leases_of(bench.host)


def test_there_are_no_more_leases_than_there_may_be() -> None:
    queue = CoreBench().queue()
    for n in range(LEASES_MAX):
        opened(queue, str(n))
    with pytest.raises(TooMany, match="1000 leases"):
        opened(queue, "one more")
    opened(queue, "0")


# What it costs.


def test_a_message_costs_the_same_however_many_are_reserved() -> None:
    def reserving(count: int) -> float:
        bench = CoreBench()
        reader = Leased(filled(bench, *[b"x"] * count))
        return sum(calls(lambda: reader.reserve()).values()) / count

    few, many = reserving(1_000), reserving(20_000)
    assert many <= few * 1.1
    assert many < 20


def test_a_settled_message_costs_the_same_however_many_are_reserved() -> None:
    def settling(count: int) -> float:
        reader = Leased(filled(CoreBench(), *[b"x"] * count)).reserve()
        return sum(calls(lambda: [reader.settle(n) for n in range(100, 1_000, 100)]).values())  # type: ignore[arg-type,return-value]

    assert settling(20_000) <= settling(1_000) * 1.1


def test_octets_are_counted_in_pieces() -> None:
    sizes = Sizes()
    for n in range(10):
        sizes.add(n, n + 1, 10)
    assert sizes.total == 100
    sizes.drop_until(4)
    assert sizes.total == 60
    sizes.add(10, 10 + lease_module.PIECE, 7)
    sizes.drop_until(10)
    assert sizes.total == 7
    sizes.drop_until(1 << 40)
    assert sizes.total == 0


def test_limits_that_change_meanwhile_are_obeyed(bench: CoreBench) -> None:
    queue = filled(bench, *[b"x"] * (PORTION + 5))
    assert isinstance(queue, WorkQueue)
    reader = Leased(queue)
    reader.lease.reserve(0, 2 * PORTION, 1 << 30, 0, reader.told.append)
    bench.settle()
    queue.apply(QueueLimits(max_length=2))
    settle_down(bench.broker)
    assert (reader.state, queue.ready) == ((0, PORTION + 2), 0)
