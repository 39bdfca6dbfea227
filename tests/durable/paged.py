"""Queues with a disk that says what it has to say when a test wants to hear it, and with small pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pytest

from leveret.broker import Broker
from leveret.delivery import Delivery
from leveret.durability import Page
from leveret.durable.chunk_state import ChunkState
from leveret.durable.chunks import Chunks
from leveret.durable.journal import Journal
from leveret.durable.store.contract import Reader
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.queues import backlog, lane, search, searched_lane
from leveret.queues.searched_lane import SearchedLane
from leveret.queues.work_queue import WorkQueue
from leveret.values import Value
from tests.core.queues import test_queue_properties
from tests.harness.bench import ENCODING, CoreBench

T = TypeVar("T")

SMALL: dict[tuple[object, str], float] = {
    (backlog, "PAGE_MESSAGES"): 3,
    (backlog, "JOINED_MAX"): 1,
    (searched_lane, "PAGE_MESSAGES"): 3,
    (lane, "AHEAD_MIN"): 2,
    (search, "PAUSE_S"): 0.5,  # the store keeps whole milliseconds
    (test_queue_properties, "PAUSE_S"): 0.5,
}


def small_pages() -> Callable[[], None]:
    """From now on a page has three messages, and pauses are long. Returns what ends that."""
    before = {key: getattr(*key) for key in SMALL}
    for (module, name), value in SMALL.items():
        setattr(module, name, value)

    def restore() -> None:
        for (module, name), value in before.items():
            setattr(module, name, value)

    return restore


@pytest.fixture
def small() -> Iterator[None]:
    """Pages are small until the test has ended."""
    restore = small_pages()
    yield
    restore()


class StrictChunks(Chunks):
    """Chunks whose entries are settled once."""

    def settle_ranges(self, ranges: Iterable[range]) -> list[ChunkState]:
        listed = [number for each in ranges for number in each]
        assert len(set(listed)) == len(listed), "an entry is settled once"
        before = self.live
        changed = super().settle_ranges(ranges)
        assert self.live == before - len(listed), "what is settled was there"
        return changed

    def settle(self, numbers: Iterable[int]) -> list[ChunkState]:
        listed = list(numbers)
        assert len(set(listed)) == len(listed), "an entry is settled once"
        before = self.live
        changed = super().settle(listed)
        assert self.live == before - len(listed), "what is settled was there"
        return changed


class LateStore(MemoryStore):
    """What was read arrives when `late` is called, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], None]] = []

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        self._soon, soon = self.late.append, self._soon
        super().read_soon(job, then)
        self._soon = soon


class Disk:
    """A journal on a store in memory; what that has to say is said when somebody wants to hear it."""

    def __init__(self, broker: Broker) -> None:
        self.said: list[Callable[[], None]] = []
        self.store = LateStore()
        self.journal = Journal(self.store, broker, {ENCODING.name: lambda: ENCODING})
        self.journal.known = StrictChunks()
        self.journal.start(self.said.append)

    def chunks(self) -> list[int]:
        """Those that are there."""
        return [kept.first for kept in self.store.chunks()]

    def hear(self) -> None:
        """What has become durable is told."""
        while self.said:
            self.said.pop(0)()

    def read(self, which: int) -> None:
        """One of the pages that were asked for arrives."""
        self.store.late.pop(which % len(self.store.late))()

    @property
    def reads(self) -> bool:
        return bool(self.store.late)


def pages_of(queue: WorkQueue) -> list[Page]:
    """Everything of a queue that is on disk only."""
    found: list[Page] = []
    for each in queue.lanes:
        if isinstance(each, SearchedLane):
            found += [part.page for part in each.parts() if part.page is not None]
        elif each.pages is not None:
            found += each.pages.on_disk
    return found


def in_memory(queue: WorkQueue) -> list[Delivery]:
    """Everything that waits in a queue and is in memory."""
    found: list[Delivery] = []
    for each in queue.lanes:
        if isinstance(each, SearchedLane):
            found += [delivery for part in each.parts() for delivery in part.deliveries()]
            found += each._returned(each.front.returned)
            found += each.fresh
        else:
            found += [*each.returned, *each.fresh, *(each.arrivals if each.pages is not None else ())]
    return found


class PagedBench(CoreBench):
    """A bench whose queues are in the store. Every verb settles, and what is committed is durable at once."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk(self.broker)

    def queue(self, name: str = "q", **said: Value) -> WorkQueue:
        queue = super().queue(name, **said)
        assert isinstance(queue, WorkQueue)
        queue.number, queue.journal = self.disk.journal.next_queue, self.disk.journal
        self.disk.journal.next_queue += 1
        return queue

    def put(self, *bodies: bytes, key: str = "q", durable: bool = True, **facts: int) -> None:
        """Publish these, with other facts of theirs."""
        for each in bodies:
            made = Message(ENCODING, "", key, b"", each, Facts(durable=durable, **facts))
            self.broker.publish(self.host.default_exchange, made)
        self.settle()

    def settle(self) -> None:
        self.broker.settle()
        while self.disk.said:
            self.disk.hear()
            self.broker.settle()

    def read(self, which: int = 0) -> None:
        """One of the pages that were asked for arrives."""
        self.disk.read(which)
        self.settle()

    def read_all(self) -> None:
        """Everything that is asked for arrives, and what is asked for then."""
        self.settle()
        while self.disk.reads:
            self.read()


def paged_out(queue: WorkQueue, keep: int = 0) -> int:
    """Have everything that can go on disk only. Returns how many pages there are."""
    while queue.page_out(keep):
        pass
    return len(pages_of(queue))
