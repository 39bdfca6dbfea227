"""Leases in memory: how what is reserved goes back, and how a lease ends."""

from __future__ import annotations

import pytest

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.errors import NotFound, PreconditionFailed
from leveret.features.leases.lease import Busy, Fenced, lease_of, leases_of
from leveret.message import Message
from leveret.queues.place import ATTEMPTS_MAX, POSITION_MAX, delivery_at, packed_place
from leveret.values import Table
from tests.core.fakes import DEAD, FakeConsumer, Only, fetched, morgue, reasons, waiting
from tests.features.leases.leased import Leased, settle_down
from tests.features.leases.test_lease import counts, filled
from tests.harness.bench import ENCODING, CoreBench

# Releasing.


def test_what_is_released_stands_where_it_stood_and_says_so(bench: CoreBench) -> None:
    queue = filled(bench)
    reader = Leased(queue).reserve(2)
    bench.publish("q", b"d")
    reader.settle(1).release()
    assert (reader.told, reader.state) == ([None, None], (2, 2))
    assert (waiting(queue), *counts(queue)) == ("b c d", 3, 0, 1)
    assert [delivery.redelivered for delivery in queue.waiting()] == [True, False, False]
    assert queue.ready_bytes == 3
    assert reader.reserve().places() == [(1, True), (2, False), (3, False)]


def test_consumers_get_what_is_released() -> None:
    queue = filled(CoreBench())
    reader = Leased(queue).reserve()
    consumer = FakeConsumer(queue)
    reader.release()
    assert consumer.bodies() == "a b c"
    consumer.accept_all()
    assert counts(queue) == (0, 0, 3)


def test_a_long_release_takes_turns(bench: CoreBench) -> None:
    queue = filled(bench, *[b"%d" % n for n in range(10_000)])
    reader = Leased(queue).reserve()
    reader.lease.release(reader.told.append)
    before, most = 0, 0
    while len(reader.told) < 2:
        bench.settle()
        most, before = max(most, queue.ready - before), queue.ready
    assert 0 < most <= 5_000
    assert waiting(queue) == " ".join(map(str, range(10_000)))


def test_the_time_to_live_of_what_is_released_begins_anew(bench: CoreBench) -> None:
    queue = bench.queue(x_message_ttl=5000, **DEAD)
    dead = morgue(bench)
    bench.publish("q", b"b", ttl_ms=1000)
    bench.publish("q", b"a")
    reader = Leased(queue).reserve()
    bench.advance(60)
    reader.release()
    bench.advance(1.5)
    assert (waiting(queue), reasons(dead)) == ("a", ["b expired"])
    bench.advance(4)
    assert (queue.ready, reasons(dead)) == (0, ["b expired", "a expired"])


def test_what_is_released_into_a_full_queue_gives_way_as_what_comes_back_does(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=2, **DEAD)
    dead = morgue(bench)
    bench.publish("q", b"a", b"b")
    reader = Leased(queue).reserve()
    bench.publish("q", b"c", b"d")
    reader.release()
    assert (waiting(queue), reasons(dead)) == ("c d", ["a maxlen", "b maxlen"])
    assert counts(queue)[:2] == (2, 0)


def test_what_is_released_into_a_queue_that_refuses_waits_there(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
    bench.publish("q", b"a")
    reader = Leased(queue).reserve()
    bench.publish("q", b"b")
    reader.release()
    assert waiting(queue) == "a b"


def test_the_notes_of_the_dead_survive_a_lease(bench: CoreBench) -> None:
    queue = bench.queue(**DEAD)
    dead = morgue(bench)
    bench.publish("q", b"a", ttl_ms=0)
    bench.advance(1)
    assert queue.ready == 0
    Leased(dead).reserve().release()
    assert reasons(dead) == ["a expired"]
    (delivery,) = dead.waiting()
    assert delivery.message.notes is not None
    assert delivery.message.notes.offset is None


def test_a_release_does_not_count_as_a_failed_delivery(bench: CoreBench) -> None:
    arguments: Table = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    queue = bench.host.declare_queue("q", durable=True, arguments=arguments)
    bench.publish("q", b"a")
    for _ in range(3):
        Leased(queue).reserve().release()
    assert waiting(queue) == "a"


def test_failed_deliveries_count_on_after_a_lease(bench: CoreBench) -> None:
    queue = bench.queue(x_delivery_limit=2, **DEAD)
    dead = morgue(bench)
    bench.publish("q", b"a", b"b")
    for _ in range(2):
        fetched(queue, settled=False).release()
    bench.settle()
    Leased(queue).reserve().release()
    assert [(each.attempts, each.position, each.redelivered) for each in queue.waiting()] == [
        (2, 0, True),
        (0, 1, True),
    ]
    fetched(queue, settled=False).release()
    bench.settle()
    assert (waiting(queue), reasons(dead)) == ("b", ["a delivery_limit"])


def test_a_place_is_one_number_however_often_deliveries_failed(bench: CoreBench) -> None:
    queue = bench.queue()
    for position, redelivered, attempts in ((0, False, 0), (7, True, 3), (POSITION_MAX, True, 1 << 20)):
        delivery = Delivery(Message(ENCODING, "", "q", b"", b""), queue, position, NEVER)
        delivery.redelivered, delivery.attempts = redelivered, attempts
        place = packed_place(delivery)
        assert place < 1 << 63
        found = delivery_at(place, delivery.message, queue)
        assert (found.position, found.redelivered) == (position, redelivered)
        assert found.attempts == min(attempts, ATTEMPTS_MAX)


def test_nothing_is_reserved_or_settled_while_all_is_released(bench: CoreBench) -> None:
    queue = filled(bench)
    reader = Leased(queue).reserve()
    reader.lease.release(reader.told.append)
    for refused in (reader.reserve, reader.release, lambda: reader.settle(2)):
        with pytest.raises(Busy):
            refused()
    settle_down(bench.broker)
    assert (reader.told, waiting(queue)) == ([None, None], "a b c")
    assert reader.reserve().bodies() == "a b c"


def test_the_bytes_of_reserved_messages_are_unsettled_until_they_are_settled_or_back(
    bench: CoreBench,
) -> None:
    """Those of a part of a lease are an estimate; in the end nothing of it is left."""
    queue = filled(bench, b"x", b"y" * 1000, b"z" * 9)
    reader = Leased(queue).reserve()
    assert (queue.ready_bytes, queue.unsettled_bytes) == (0, 1010)
    reader.settle(1)
    assert 0 < queue.unsettled_bytes < 1010
    reader.release()
    assert (queue.ready_bytes, queue.unsettled_bytes) == (1009, 0)
    reader.reserve().settle(reader.lease.log.next)
    assert (queue.ready, queue.unsettled, queue.unsettled_bytes) == (0, 0, 0)


def test_a_release_ends_a_reservation() -> None:
    reader = Leased(filled(CoreBench())).reserve(2)
    reader.reserve(5, begin=2, wait_s=9.0)
    assert reader.bodies() == "c"
    reader = Leased(CoreBench().queue()).reserve(wait_s=9.0).release()
    assert [type(each) for each in reader.told] == [Busy, type(None)]


def test_opening_it_ends_a_release_and_keeps_the_rest(bench: CoreBench) -> None:
    queue = filled(bench, *[b"x"] * 10_000)
    reader = Leased(queue).reserve()
    reader.lease.release(reader.told.append)
    while not queue.ready:
        bench.settle()
    new = Leased(queue)
    assert [type(each) for each in reader.told] == [type(None), Fenced]
    assert queue.ready > 0
    assert queue.ready + new.state[1] - new.state[0] == queue.ready + queue.unsettled == 10_000
    assert new.reserve().state[1] - new.state[0] == 10_000


def test_what_is_released_is_given_to_those_who_had_come_past_what_was_there_before() -> None:
    """Each of those who search has a heap of what came back: an old delivery in it is not the new one."""
    queue = filled(CoreBench(), b"a")
    consumer = FakeConsumer(queue, selector=Only(b"a"), credit=0)
    queue.release(fetched(queue, settled=False))
    Leased(queue).reserve().release()
    (standing,) = queue.waiting()
    consumer.grant(1)
    settle_down(queue.virtual_host.broker)
    assert consumer.held == [standing]


# The end.


def test_a_lease_that_is_given_up_leaves_nothing() -> None:
    queue = filled(CoreBench())
    reader = Leased(queue).reserve(2).release(for_good=True)
    assert (reader.told, waiting(queue)) == ([None, None], "a b c")
    assert reader.lease.ended
    with pytest.raises(NotFound, match="no lease 'r' of queue 'q' in vhost '/'"):
        lease_of(queue.virtual_host, "q", "r")


def test_a_lease_goes_with_its_queue_and_who_waits_is_told(bench: CoreBench) -> None:
    queue = filled(bench)
    one, other = Leased(queue, "one").reserve(), Leased(queue, "other").reserve(wait_s=9.0)
    one.lease.release(one.told.append)
    seen: list[str] = []
    one.lease.look_out(lambda: seen.append("one"))
    bench.host.delete_queue(queue)
    settle_down(bench.broker)
    assert [str(each) for each in (one.told[-1], other.told[-1])] == ["no queue 'q' in vhost '/'"] * 2
    assert (leases_of(bench.host), seen, one.lease.ended, other.lease.ended) == ({}, ["one"], True, True)


def test_leases_go_with_their_virtual_host(bench: CoreBench) -> None:
    reader = Leased(filled(bench)).reserve(5, wait_s=9.0)
    waits = Leased(bench.queue("other")).reserve(wait_s=9.0)
    bench.broker.delete_virtual_host("/")
    settle_down(bench.broker)
    assert (reader.lease.ended, waits.lease.ended, leases_of(bench.host)) == (True, True, {})
    assert [type(each) for each in waits.told] == [NotFound]


def test_a_queue_whose_messages_are_reserved_is_in_use(bench: CoreBench) -> None:
    queue = filled(bench, x_expires=1000)
    reader = Leased(queue).reserve()
    bench.advance(5)
    with pytest.raises(PreconditionFailed, match="in use"):
        bench.host.delete_queue(queue, if_unused=True)
    reader.settle(3)
    bench.advance(0.9)
    assert not queue.deleted
    bench.advance(2)
    assert queue.deleted


def test_who_looks_out_is_told_once_of_more(bench: CoreBench) -> None:
    reader = Leased(bench.queue())
    seen: list[str] = []
    for name in ("one", "other"):
        reader.lease.look_out(lambda name=name: seen.append(name))  # type: ignore[misc]
    other = reader.lease._lookouts
    reader.lease.look_away(next(iter(other)))
    for body in (b"a", b"b"):
        bench.publish("q", body)
        reader.reserve()
    assert seen == ["other"]
