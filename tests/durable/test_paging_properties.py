"""A queue that is on disk in parts behaves as any other: what `tests/core` does to queues is done to one that is paged.

Whenever it is looked at, all that was asked for has been read; what was asked for ahead of time may come much later.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from leveret.delivery import Delivery
from leveret.limits import Overflow
from leveret.message import AbsentMessage, Facts, Message
from leveret.queues import absent
from leveret.queues.queue import MAXLEN
from tests.core.queues.queue_model import LACKING, number
from tests.core.queues.test_queue_properties import CONSUMERS_MAX, LETTERS, OVERFLOWS, QueueMachine
from tests.durable.paged import Disk, in_memory, pages_of, small_pages
from tests.harness.bench import ENCODING

few = st.integers(1, 3)  # credit that leaves something to wait
# Nothing expires at the moment at which it is given: who comes first then depends on how quick the disk is.
ttls = st.sampled_from([None, None, None, 250, 750, 3250])
roomy: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    message_ttl_ms=st.sampled_from([None, None, 2250]),
    max_length=st.sampled_from([None, None, None, 3, 12]),
    max_bytes=st.sampled_from([None, None, None, None, 100]),
    overflow=st.sampled_from(OVERFLOWS),
    delivery_limit=st.sampled_from([None, None, 0, 2]),
    dead_letter_exchange=st.sampled_from(["", None]),
    dead_letter_key=st.just("dead"),
)


class PagedQueueMachine(QueueMachine):
    """The same queue, with pages of three messages."""

    @initialize(
        bounds=roomy,
        max_priority=st.sampled_from([None, 1, 3]),
        single_active=st.sampled_from([False, False, True]),
        windows=st.tuples(few, few),
        batch=st.integers(1, 4),
        patience=st.sampled_from([1, 3, 1000]),
        seed=st.integers(0, 1000),
    )
    def begin(self, seed: int, **said: Any) -> None:
        self.random = Random(seed)  # in which order the disk says things
        self.restore = small_pages()
        super().begin(**said)

    def renew(self, bounds: dict[str, object]) -> None:
        super().renew(bounds)
        if not hasattr(self, "disk"):
            self.disk = Disk(self.bench.broker)
        self.on_disk: dict[int, int] = {}  # which message a number of the store means
        self.queue.journal = self.disk.journal
        self.queue.number = self.disk.journal.next_queue
        self.disk.journal.next_queue += 1

    def message(self, octets: bytes, priority: int, ttl_ms: int | None) -> Message:
        return Message(ENCODING, "", "", b"", octets, Facts(self.messages % 3 > 0, priority, ttl_ms))

    @rule(size=st.integers(0, 20), priority=st.integers(0, 4), ttl_ms=ttls, again=st.integers(1, 4))
    def publish(self, size: int, priority: int, ttl_ms: int | None, again: int) -> None:
        super().publish(size, priority, ttl_ms, again)

    @precondition(lambda self: len(self.model.attached()) < CONSUMERS_MAX)
    @rule(
        settled=st.booleans(),
        credit=few,
        window=st.sampled_from([None, None, 0, 1]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        exclusive=st.sampled_from([False] * 9 + [True]),
        limit=st.sampled_from([1 << 40, 1 << 40, 1, 150]),
        wants=st.sampled_from([None, None, None, b"a", b"ab", b""]),
        browses=st.sampled_from([False, False, True]),
    )
    def consume(self, **said: Any) -> None:
        super().consume(**said)

    @rule(bounds=roomy)
    def change_policy(self, bounds: dict[str, object]) -> None:
        """What is over a new limit is dropped when it has been read, and is by the time the next one comes."""
        super().change_policy(bounds)
        self.settle()

    @precondition(lambda self: self.messages > self.first + 40)
    @rule(bounds=roomy)
    def delete_and_declare_again(self, bounds: dict[str, object]) -> None:
        super().delete_and_declare_again(bounds)

    def publish_one(self, size: int, priority: int, ttl_ms: int | None) -> None:
        """A queue with limits counts what waits for a page: whether it is full is asked when all have been served."""
        if self.queue.watched:
            self.queue.dispatch()
            self.replay()
        super().publish_one(size, priority, ttl_ms)

    @rule(letter=st.sampled_from(LETTERS))
    def ask_whether_it_could_deliver(self, letter: int) -> None:
        """As long as a page is being read, the queue says no."""
        self.queue.dispatch()
        self.replay()
        while self.queue.backlog is not None and self.queue.backlog.waits:
            self.drop_meanwhile()
            self.disk.read(self.random.randrange(6))
            self.queue.dispatch()
            self.replay()
        super().ask_whether_it_could_deliver(letter)

    # What the disk does.

    @rule(keep=st.sampled_from([0, 0, 1, 2]), times=st.integers(1, 4))
    def page_out(self, keep: int, times: int) -> None:
        for _ in range(times):
            self.note_numbers()
            self.queue.page_out(keep)
        self.step()

    @rule(
        count=st.integers(8, 20),
        priorities=st.lists(st.integers(0, 4), min_size=1, max_size=3),
        ttl_ms=ttls,
        keep=st.sampled_from([0, 0, 1, 2]),
        times=st.integers(1, 8),
    )
    def fill(self, count: int, priorities: list[int], ttl_ms: int | None, keep: int, times: int) -> None:
        """Many messages, that are written before some of them are put on disk."""
        for nth in range(count):
            self.publish_one(nth % 3, priorities[nth % len(priorities)], ttl_ms)
        self.settle()
        self.page_out(keep, times)
        self.settle()  # what was not durable is written
        self.page_out(keep, times)

    @rule()
    def hear(self) -> None:
        self.note_numbers()
        self.disk.hear()
        self.step()

    @precondition(lambda self: self.disk.reads)
    @rule(which=st.integers(0, 5))
    def read(self, which: int) -> None:
        self.disk.read(which)
        self.step()

    def settle_everything(self) -> None:
        super().settle_everything()
        while self.disk.said or self.disk.reads:
            self.note_numbers()
            self.disk.hear()
            if self.disk.reads:
                self.drop_meanwhile()
                self.disk.read(self.random.randrange(6))
            super().settle_everything()

    def replay(self) -> None:
        """Who waits for a page gets it before anybody looks at what he has."""
        while self.queue.backlog is not None and self.queue.backlog.waits and self.wanting():
            self.drop_meanwhile()
            self.disk.read(self.random.randrange(6))
            self.queue.dispatch()
        super().replay()

    def drop_meanwhile(self) -> None:
        """A queue over its limit drops what it has at hand, although somebody waits for the page before it (S082)."""
        self.model.serve(self.log)
        self.log.clear()
        if self.model.limits.overflow is not Overflow.DROP_HEAD:
            return
        self.note_numbers()
        left = {number(each) for each in in_memory(self.queue)}
        left |= {self.on_disk[stored] for page in pages_of(self.queue) for stored in page.numbers}
        while self.model.over():
            lowest = self.model.lowest()
            if lowest.number in left or lowest.expires_at <= self.model.now:
                return
            self.model.leave_waiting(lowest, MAXLEN)

    def note_numbers(self) -> None:
        self.on_disk.update((each.stored, number(each)) for each in in_memory(self.queue))

    def wanting(self) -> bool:
        """Whether somebody would take more than was given to him, or the queue has not come to an end by itself."""
        consumers = [taker.consumer for taker in self.model.attached()]
        return any(self.queue.seeks_for(each) for each in consumers) or bool(self.queue.expiring)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "restore"):
                self.restore()

    # What always holds.

    @invariant()
    def what_is_away_is_counted(self) -> None:
        pages, books = pages_of(self.queue), self.queue.backlog
        if books is None:
            assert pages == []
        else:
            assert books.messages == sum(map(len, pages))
            assert books.octets == sum(page.octets for page in pages)

    @invariant()
    def the_store_has_what_the_queue_has(self) -> None:
        journal = self.disk.journal
        if journal.dirty or self.disk.said:
            return
        held = [delivery for taker in self.model.takers for delivery in taker.consumer.held]
        here = [each.stored for each in (*in_memory(self.queue), *held, *self.fetched) if each.stored]
        away = [number for page in pages_of(self.queue) for number in page.numbers]
        assert len(here) + len(away) == len({*here, *away}) == journal.known.live


class AbsentQueueMachine(PagedQueueMachine):
    """The same queue, which has messages on disk only that consumers have and have not answered."""

    def unanswered(self) -> list[Delivery]:
        held = [each for taker in self.model.takers for each in taker.consumer.held]
        return [each for each in (*held, *self.fetched) if each.queue is self.queue]

    @precondition(lambda self: self.unanswered())
    @rule(seed=st.integers(0, 1000))
    def put_away(self, seed: int) -> None:
        chosen = [each for each in self.unanswered() if Random(seed ^ number(each)).random() < 0.7]
        LACKING.update({each: number(each) for each in chosen})
        absent.put_away(self.queue, chosen)
        self.step()

    def step(self) -> None:
        """What is given back is there before anybody looks."""
        while self.queue.returning:
            self.note_numbers()
            self.disk.hear()
            self.disk.read(self.random.randrange(6))
        super().step()

    def teardown(self) -> None:
        super().teardown()
        LACKING.clear()

    @invariant()
    def what_is_lacking_is_counted(self) -> None:
        lacking = [each for each in self.unanswered() if isinstance(each.message, AbsentMessage)]
        books = self.queue.absent
        counted = (0, 0) if books is None else (books.messages, books.octets)
        assert counted == (len(lacking), sum([each.message.size for each in lacking]))


TestPagedQueue = PagedQueueMachine.TestCase
TestAbsentQueue = AbsentQueueMachine.TestCase
TestAbsentQueue.settings = settings(stateful_step_count=60)
TestPagedQueue.settings = settings(stateful_step_count=60)


def test_what_comes_back_is_dropped_while_a_page_is_read() -> None:
    """A queue that is full with what is on disk drops what comes back, also if a consumer is about to take another."""
    machine = PagedQueueMachine()
    machine.begin(
        bounds={
            "message_ttl_ms": None,
            "max_length": 3,
            "max_bytes": None,
            "overflow": Overflow.DROP_HEAD,
            "delivery_limit": None,
            "dead_letter_exchange": "",
            "dead_letter_key": "dead",
        },
        max_priority=1,
        single_active=False,
        windows=(1, 1),
        batch=1,
        patience=1,
        seed=0,
    )
    try:
        machine.fill(count=8, keep=0, priorities=[0], times=1, ttl_ms=None)
        machine.consume(
            browses=False,
            credit=1,
            exclusive=False,
            limit=1 << 40,
            priority=0,
            settled=False,
            wants=None,
            window=None,
        )
        machine.fill(count=8, keep=0, priorities=[1], times=1, ttl_ms=None)
        machine.release(failed=False, which=0)
        assert machine.found_dead()[5, MAXLEN] == 1
        assert [each.number for each in machine.model.order()] == [14, 15]
    finally:
        machine.teardown()
