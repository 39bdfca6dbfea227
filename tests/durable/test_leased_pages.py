"""Leases of queues whose messages are on disk only, in part: what is read for them, and what goes back there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.durable.store.memory import MemoryStore
from leveret.queues import lane
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, waiting
from tests.durable.paged import pages_of
from tests.durable.site import Site
from tests.durable.test_leases import BODIES, WORDS, bodies_of, has_all, killed
from tests.features.leases.leased import Leased, settle_down
from tests.harness.plain import plain_only


@pytest.mark.usefixtures("small")
def test_pages_are_read_for_a_reservation(site: Site, queue: Queue) -> None:
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", *[b"%d" % n for n in range(100)])
    while queue.page_out(0):
        pass
    assert len(pages_of(queue)) > 30
    reader = Leased(queue).reserve(90)
    assert reader.bodies() == " ".join(map(str, range(90)))
    assert reader.told == [None]
    assert has_all(killed(site), [str(n) for n in range(100)])


@pytest.mark.usefixtures("small")
def test_pages_are_read_for_a_reservation_while_somebody_browses(site: Site, queue: Queue) -> None:
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", *[b"%d" % n for n in range(40)])
    browser = FakeConsumer(queue, browses=True, credit=5)
    while queue.page_out(0):
        pass
    assert len(pages_of(queue)) > 5
    reader = Leased(queue).reserve(30)
    assert (reader.bodies(), reader.told) == (" ".join(map(str, range(30))), [None])
    reader.release()
    browser.grant(100)
    settle_down(site.broker)
    assert waiting(queue) == " ".join(map(str, range(40)))


class LateReadings(MemoryStore):
    """What was read arrives when a test wants it to."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], None]] = []

    def read_soon(self, job, then) -> None:  # type: ignore[no-untyped-def]
        found: list[object] = []
        super().read_soon(job, found.append)
        self.late += [lambda each=each: then(each) for each in found]  # type: ignore[misc]


def test_a_reservation_waits_for_pages_that_are_being_read(site: Site) -> None:
    site.publish("", site.queue().name, *BODIES)
    site.settle()
    store = LateReadings()
    store.content = site.store.reopened().content
    after = Site(store)
    reader = Leased(after.host.queues["q"]).reserve()
    for _ in range(5):
        settle_down(after.broker)
    assert reader.told == []
    while store.late:
        store.late.pop(0)()
        settle_down(after.broker)
    assert (reader.told, bodies_of(reader.lease)) == ([None], " ".join(WORDS))


def test_a_release_waits_for_its_reading_and_gives_way_to_who_opens_the_lease() -> None:
    site = Site(LateReadings())
    assert isinstance(site.store, LateReadings)
    queue = site.queue()
    site.publish("", "q", *BODIES)
    reader = Leased(queue).reserve()
    reader.release()
    assert len(site.store.late) == 1
    assert (queue.ready, len(reader.told)) == (0, 1)
    Leased(queue)
    site.store.late.pop()()
    settle_down(site.broker)
    assert (queue.ready, bodies_of(reader.lease)) == (0, " ".join(WORDS))


@plain_only
@pytest.mark.usefixtures("small")
def test_much_that_comes_back_can_go_on_disk_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "RETURNED_MAX", 3)
    site = Site()
    queue = site.queue()
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", *[b"%d" % n for n in range(40)])
    Leased(queue).reserve(30).release()
    (only,) = queue.lanes
    assert len(only.returned) == 30
    while queue.page_out(2):
        pass
    assert only.returned == []
    assert queue.books().messages >= 35
    assert waiting(queue) == " ".join(map(str, range(40)))
    Leased(queue).reserve(10).release()
    site.publish("", "q", b"40")
    while queue.page_out(0):
        pass
    consumer = FakeConsumer(queue)
    settle_down(site.broker)
    assert consumer.bodies() == " ".join(map(str, range(41)))


@plain_only
def test_what_comes_back_between_others_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "RETURNED_MAX", 3)
    site = Site()
    queue = site.queue()
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", *[b"%d" % n for n in range(20)])
    one, other = Leased(queue, "one"), Leased(queue, "other")
    for _ in range(5):
        one.reserve(one.lease.messages + 1)
        other.reserve(other.lease.messages + 1)
    one.release()
    while queue.page_out(0):
        pass
    other.release()
    site.publish("", "q", b"20")
    while queue.page_out(0):
        pass
    (only,) = queue.lanes
    assert len(only.returned) == 5, "they belong between pages"
    assert waiting(queue) == " ".join(map(str, range(21)))
    consumer = FakeConsumer(queue)
    settle_down(site.broker)
    assert consumer.bodies() == " ".join(map(str, range(21)))


def test_what_is_reserved_is_on_disk_and_not_in_memory(site: Site) -> None:
    site.publish("", site.queue().name, *BODIES)
    reader = Leased(site.host.queues["q"]).reserve()
    assert site.journal.cache.octets == 0
    assert reader.bodies() == " ".join(WORDS)
