"""Leases on disk: wherever a node is killed, a message is in its queue or in the lease, never in both or neither."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from leveret.durable.segment_log import SegmentLog
from leveret.features.leases.lease import SETTLED, Lease, leases_of
from leveret.features.leases.release import UnreadableRows
from leveret.features.leases.reservation import PORTION
from leveret.message import Facts, Message
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer, fetched, waiting
from tests.durable.site import Site, held_site, land_all
from tests.features.leases.leased import PLENTY, Leased, settle_down
from tests.harness.bench import ENCODING
from tests.harness.call_count import calls


def steps(site: Site) -> Iterator[None]:
    """One turn, or one landing, after the other, until there is nothing left to do."""
    while True:
        site.settle()
        yield
        if site.store.flying is not None:
            site.store.land()
            yield
        elif (at := site.broker.timers.next_at()) is None or at > site.broker.now:
            return


def killed(site: Site) -> tuple[str, str]:
    """What the next start would find, if the node were killed now: in the queue, and in the lease."""
    after = Site(site.store.reopened())
    queue = after.host.queues["q"]
    lease = leases_of(after.host).get(("q", "r"))
    return waiting(queue), "" if lease is None else bodies_of(lease)


def bodies_of(lease: Lease) -> str:
    found = [message.body for offset, message in lease.log.look() if offset >= lease.first]
    return b" ".join(found).decode()


def lease_of(site: Site) -> Lease:
    return leases_of(site.host)["q", "r"]


def has_all(parts: tuple[str, str], expected: list[str]) -> bool:
    return sorted([*parts[0].split(), *parts[1].split()]) == sorted(expected)


BODIES = [b"%d" % n for n in range(7)]
WORDS = [body.decode() for body in BODIES]


# Wherever it is killed.


def test_a_reservation_moves_messages_at_once_or_not_at_all() -> None:
    site = held_site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    land_all(site)
    reader = Leased(queue)
    land_all(site)
    reader.lease.reserve(0, 5, PLENTY, 0, reader.told.append)
    found = []
    for _ in steps(site):
        found.append(killed(site))
        assert has_all(found[-1], WORDS)
        assert not reader.told or found[-1][1] == "0 1 2 3 4", "it is on disk before anybody is told"
    assert reader.told == [None]
    assert (found[0], found[-1]) == (("0 1 2 3 4 5 6", ""), ("5 6", "0 1 2 3 4"))


def test_what_arrives_and_is_reserved_in_one_commit_is_in_the_lease_alone() -> None:
    site = held_site()
    queue = site.queue()
    land_all(site)
    reader = Leased(queue)  # its commit is in flight: what follows waits for the next
    reader.lease.reserve(0, 5, PLENTY, 9.0, reader.told.append)
    site.publish("", "q", *BODIES)
    assert (queue.ready, reader.lease.messages) == (2, 5)
    assert killed(site) == ("", "")
    for _ in steps(site):
        assert killed(site) in (("", ""), ("5 6", "0 1 2 3 4"))
    assert killed(site) == ("5 6", "0 1 2 3 4")
    assert reader.told == [None]


@pytest.mark.parametrize("wait_s", [0, 9.0])
def test_a_reservation_is_answered_when_all_that_it_has_taken_is_on_disk(wait_s: float) -> None:
    """What comes while an earlier commit is in flight is in a later one, which the reader has to wait for."""
    site = held_site()
    queue = site.queue()
    land_all(site)
    reader = Leased(queue)  # its commit is in flight
    reader.reserve(7, begin=0, wait_s=wait_s)
    site.publish("", "q", *BODIES)
    assert (queue.ready, reader.lease.messages, reader.told) == (0, 7, [])
    site.store.land()
    if wait_s:
        site.clock.advance(wait_s)
        site.broker.tick()
    site.settle()
    assert (reader.told, reader.state) == ([], (0, 0))
    land_all(site)
    assert (reader.told, reader.state) == ([None], (0, 7))


def test_what_is_in_flight_and_is_reserved_meanwhile_is_in_the_lease_alone() -> None:
    site = held_site()
    reader = Leased(site.queue())
    land_all(site)
    site.publish("", "q", *BODIES)
    assert site.store.flying is not None
    reader.lease.reserve(0, 5, PLENTY, 0, reader.told.append)
    for _ in steps(site):
        assert killed(site) in (("", ""), (" ".join(WORDS), ""), ("5 6", "0 1 2 3 4"))
    assert killed(site) == ("5 6", "0 1 2 3 4")


def test_a_release_moves_messages_back_at_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.features.leases.release.READ_OCTETS", 1)  # and a block
    site = held_site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue)
    for until in (2, 4, 6):
        reader.reserve(until, begin=0)
        land_all(site)
    reader.settle(1)
    land_all(site)
    reader.lease.release(reader.told.append, for_good=True)
    found = []
    for _ in steps(site):
        found.append(killed(site))
        assert has_all(found[-1], WORDS[1:])
    assert [lease for _, lease in dict.fromkeys(found)] == ["1 2 3 4 5", "2 3 4 5", "4 5", ""]
    assert reader.told == [None] * 4, "three reservations, one release"
    assert "lease" not in site.again().kinds()


def test_what_is_settled_does_not_come_back_once_that_is_on_disk() -> None:
    site = held_site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue).reserve()
    land_all(site)
    reader.settle(3)
    assert killed(site) == ("", " ".join(WORDS))
    site.store.land()
    assert killed(site) == ("", "3 4 5 6")


def test_who_repeats_a_request_is_not_told_before_what_it_did_is_on_disk() -> None:
    site = held_site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue)
    land_all(site)
    for repeat in (
        lambda: reader.lease.reserve(0, 7, PLENTY, 0, reader.told.append),
        lambda: reader.lease.reserve(3, 4, PLENTY, 0, reader.told.append),
        lambda: reader.lease.release(reader.told.append),
    ):
        repeat()
        settle_down(site.broker)
        assert site.store.flying is not None
        reader.lease.stop(None)  # nobody waits for that one any more
        reader.told.clear()
        repeat()
        settle_down(site.broker)
        assert reader.told == []
        land_all(site)
        assert reader.told == [None]
    assert waiting(queue) == "3 4 5 6"


def test_a_queue_that_is_deleted_takes_its_leases_with_it(site: Site, queue: Queue) -> None:
    site.publish("", "q", *BODIES)
    Leased(queue).reserve(5)
    site.host.delete_queue(queue)
    after = site.again()
    assert leases_of(after.host) == {}
    assert "lease" not in after.kinds()
    assert (after.store.content.segments, after.store.content.producers) == ({}, {})


# From one start to the next.


@pytest.mark.parametrize("clean", [True, False])
def test_a_lease_goes_on_after_a_start(clean: bool, site: Site, queue: Queue) -> None:
    site.publish("", "q", *BODIES)
    reader = Leased(queue).reserve(5).settle(2)
    after = site.again(clean=clean)
    lease, queue = lease_of(after), after.host.queues["q"]
    assert (lease.fence, lease.incarnation) == (reader.fence, reader.lease.incarnation)
    assert (lease.first, lease.log.next, lease.octets) == (2, 5, 3)
    assert (bodies_of(lease), waiting(queue), queue.ready, queue.unsettled) == ("2 3 4", "5 6", 2, 3)
    assert lease.log.sequences[SETTLED] == 2
    again = Leased(queue)
    assert again.lease is lease
    assert (again.fence, again.reserve(begin=3).bodies()) == (reader.fence + 1, "3 4 5 6")
    assert [place for place, _ in again.places()] == [3, 4, 5, 6]
    assert (queue.unsettled, queue.accepted) == (4, 1)


def test_a_fence_is_on_disk_before_who_opens_the_lease_is_told(site: Site, queue: Queue) -> None:
    site.journal.holds = False
    first = Leased(queue).fence
    assert site.journal.holds
    assert lease_of(site.again()).fence == first


@pytest.mark.parametrize("starts", [0, 1, 2])
def test_a_lease_tells_when_messages_came_into_their_queue(starts: int, site: Site, queue: Queue) -> None:
    begun = site.clock.wall()
    site.publish("", "q", b"a", b"b")
    site.clock.advance(60)
    site.publish("", "q", b"c")
    for _ in range(starts):
        site = site.again()
    site.clock.advance(3600)
    reader = Leased(site.host.queues["q"]).reserve()
    wanted = [int(each * 1000) for each in (begun, begun, begun + 60)]
    assert reader.arrivals() == wanted
    assert Leased(site.again().host.queues["q"]).arrivals() == wanted  # they are in the lease


def test_what_is_in_memory_only_counts_as_arrived_when_it_is_leased(site: Site) -> None:
    queue = site.host.declare_queue("m", durable=False)
    site.publish("", "m", b"a")
    site.clock.advance(60)
    assert Leased(queue).reserve().arrivals() == [int(site.clock.wall() * 1000)]


def test_what_arrives_after_a_start_stands_behind_what_is_leased(site: Site) -> None:
    site.publish("", site.queue().name, b"a", b"b")
    Leased(site.host.queues["q"]).reserve()
    after = site.again()
    after.publish("", "q", b"c")
    queue = after.host.queues["q"]
    Leased(queue).release()
    assert waiting(queue) == "a b c"


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_released_counts_as_delivered_before_after_a_start(clean: bool, site: Site) -> None:
    queue = site.queue(x_max_priority=3)
    site.publish("", "q", b"a", b"b")
    Leased(queue).reserve(1).release()
    consumer = FakeConsumer(site.again(clean=clean).host.queues["q"])
    settle_down(consumer.queue.virtual_host.broker)
    assert consumer.bodies() == "a b"
    assert [delivery.redelivered for delivery in consumer.got] == [True, not clean]


def test_failed_deliveries_count_on_after_a_lease_and_starts(site: Site) -> None:
    queue = site.queue(x_delivery_limit=5)
    site.publish("", "q", b"a")
    for _ in range(3):
        fetched(queue, settled=False).release()
    Leased(queue).reserve()
    after = site.again()
    queue = after.host.queues["q"]
    Leased(queue).release()
    assert [delivery.attempts for delivery in queue.waiting()] == [3]
    queue = after.again().host.queues["q"]
    assert fetched(queue, settled=False).attempts == 3


def test_priorities_are_as_they_were_when_a_message_comes_back(site: Site) -> None:
    site.queue(x_max_priority=5)
    for body, priority in ((b"low", 1), (b"high", 4)):
        facts = Facts(durable=True, priority=priority)
        site.broker.publish(site.host.exchange(""), Message(ENCODING, "", "q", b"", body, facts))
    Leased(site.host.queues["q"]).reserve()
    after = site.again()
    queue = after.host.queues["q"]
    Leased(queue).release()
    assert waiting(queue) == "high low"
    assert waiting(after.again().host.queues["q"]) == "high low"


def test_messages_that_are_not_durable_outlive_the_node_in_a_lease_and_not_behind_it(site: Site) -> None:
    queue = site.queue()
    site.broker.publish(site.host.exchange(""), Message(ENCODING, "", "q", b"", b"transient"))
    Leased(queue).reserve()
    after = site.again()
    queue = after.host.queues["q"]
    assert bodies_of(lease_of(after)) == "transient"
    Leased(queue).release()
    assert waiting(queue) == "transient"
    assert waiting(after.again().host.queues["q"]) == ""


def test_what_a_queue_that_is_not_durable_has_leased_lies_on_disk_until_the_node_ends(site: Site) -> None:
    queue = site.host.declare_queue("t")
    site.publish("", "t", *BODIES)
    reader = Leased(queue).reserve(5)
    assert isinstance(reader.lease.log, SegmentLog)
    assert site.store.content.segments
    reader.settle(1).release()
    assert waiting(queue) == "1 2 3 4 5 6"
    Leased(queue).reserve()
    after = site.again()
    assert (leases_of(after.host), after.store.content.segments) == ({}, {})


def test_a_lease_without_its_queue_is_passed_over_and_said_so(caplog: pytest.LogCaptureFixture, site: Site):
    Leased(site.queue()).reserve()
    key = next(key for key in site.objects if '"queue"' in key)
    site.settle()
    del site.store.content.objects[key]
    after = site.again()
    assert leases_of(after.host) == {}
    assert "its queue is not there" in caplog.text
    assert "lease" in after.kinds()


def test_what_is_new_when_all_else_has_gone_was_not_delivered_before(site: Site) -> None:
    """Numbers of entries are not given again, though nothing of the old ones is left."""
    site.queue()
    site.publish("", "q", b"old")
    after = site.again()
    Leased(after.host.queues["q"]).reserve()
    last = after.again(clean=True)
    last.publish("", "q", b"new")
    (delivery,) = last.again(clean=True).host.queues["q"].waiting()
    assert (delivery.message.body, delivery.redelivered) == (b"new", False)


# What cannot be read.


def test_what_is_damaged_is_passed_over_when_a_lease_is_released(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue)
    for until in (3, 5, 7):
        reader.reserve(until, begin=0)
    (segment,) = site.store.content.segments.values()
    segment.octets[segment.span.octets // 2] ^= 255
    reader.release()
    assert (waiting(queue), queue.ready, queue.unsettled) == ("0 1 2 5 6", 5, 0)
    assert "messages 3 to 4 of lease 'r' of queue 'q' in vhost '/' cannot be read" in caplog.text
    assert reader.told[-1] is None
    assert queue.accepted == 0


def test_what_needs_a_protocol_that_is_not_installed_stays_in_the_lease(site: Site, queue: Queue) -> None:
    site.publish("", "q", *BODIES)
    reader = Leased(queue).reserve()
    installed, site.journal._encodings = site.journal._encodings, {}
    reader.release()
    site.journal._encodings = installed
    assert isinstance(reader.told[-1], UnreadableRows)
    assert (queue.ready, bodies_of(reader.lease)) == (0, " ".join(WORDS))
    assert reader.lease.work is None


def test_offsets_of_a_log_that_was_lost_are_those_of_another_lease(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue).reserve().settle(5)
    site.settle()
    site.store.content.segments.clear()
    with caplog.at_level(logging.ERROR):
        after = site.again()
    lease = lease_of(after)
    assert (lease.first, lease.log.next, after.host.queues["q"].unsettled) == (0, 0, 0)
    assert lease.incarnation != reader.lease.incarnation
    assert "lease 'r' of queue 'q' in vhost '/' has lost messages" in caplog.text
    assert lease_of(after.again()).incarnation == lease.incarnation


# Neighbours.


def test_leases_of_a_queue_and_its_other_consumers_share_nothing_twice(site: Site, queue: Queue) -> None:
    one, other = Leased(queue, "one"), Leased(queue, "other")
    consumer = FakeConsumer(queue, credit=3)
    site.publish("", "q", *[b"%d" % n for n in range(20)])
    one.reserve(4)
    other.reserve(5)
    parts = [consumer.bodies(), one.bodies(), other.bodies(), waiting(queue)]
    assert sorted(" ".join(parts).split(), key=int) == [str(n) for n in range(20)]
    assert [len(part.split()) for part in parts] == [3, 4, 5, 8]


def test_a_long_reservation_is_many_commits(site: Site, queue: Queue) -> None:
    site.publish("", "q", *[b"x"] * (3 * PORTION))
    before = site.store.stats().commits
    assert Leased(queue).reserve().lease.messages == 3 * PORTION
    assert site.store.stats().commits - before >= 3


# What it costs.


def test_a_message_costs_the_same_however_many_are_reserved_or_released() -> None:
    def calls_for(count: int) -> tuple[float, float]:
        site = Site()
        queue = site.queue()
        site.publish("", "q", *[b"x"] * count)
        reader = Leased(queue)
        taken, given = calls(lambda: reader.reserve()), calls(lambda: reader.release())
        assert (queue.ready, len(reader.told)) == (count, 2)
        return sum(taken.values()) / count, sum(given.values()) / count

    for few, many in zip(calls_for(6_000), calls_for(20_000), strict=True):
        assert many <= few * 1.2
        assert many < 40
