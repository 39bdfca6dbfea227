"""Pages come whenever the disk pleases, and some of them damaged: what is given stays in order, and is counted right.

Here nobody waits for the disk: a message is published, taken, dropped, answered while pages are on their way. What
each consumer must be given at any moment is not predicted (that is `test_paging_properties.py`); what it is given is
compared with what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.limits import Overflow, QueueLimits
from leveret.message import Facts, Message
from leveret.queues.contract import QueueTerms
from leveret.queues.searched_lane import SearchedLane
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, Only
from tests.core.queues.queue_model import LETTERS, body, number
from tests.durable.paged import Disk, in_memory, pages_of, small_pages
from tests.harness.bench import ENCODING, CoreBench

some = st.integers(0, 11)


class LatePages(RuleBasedStateMachine):
    @initialize(
        max_priority=st.sampled_from([None, 2]),
        max_length=st.sampled_from([None, None, 12, 25]),
        buried=st.booleans(),
    )
    def begin(self, max_priority: int | None, max_length: int | None, buried: bool) -> None:
        self.restore = small_pages()
        self.bench = CoreBench()
        self.morgue = self.bench.queue("dead")
        self.disk = Disk(self.bench.broker)
        limits = QueueLimits(
            max_priority=max_priority,
            max_length=max_length,
            overflow=Overflow.DROP_HEAD,
            dead_letter_exchange="" if buried else None,
            dead_letter_key="dead",
        )
        self.queue = WorkQueue(self.bench.host, "q", limits, QueueTerms(durable=True))
        self.queue.journal, self.queue.number = self.disk.journal, 1
        self.bench.host.queues["q"] = self.queue
        self.consumers: list[FakeConsumer] = []
        self.log: list[tuple[FakeConsumer, Delivery]] = []
        self.arrived: list[int] = []  # for each in the log, how many messages there were when it was given
        self.messages = 0
        self.gone: set[int] = set()  # accepted or purged
        self.is_known = True  # which messages were purged
        self.late: set[int] = set()  # may have come back after others that were behind them
        self.fetched: list[Delivery] = []

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        try:
            self.everything_comes_in_the_end()
        finally:
            self.restore()

    # What is done to it.

    @rule(
        count=st.integers(1, 20),
        priority=st.integers(0, 3),
        ttl_ms=st.sampled_from([None, None, 1000, 3000]),
        transient=st.sampled_from([1, 2, 5, 100]),
        keep=st.sampled_from([0, 0, 1, 4]),
        pages=st.integers(0, 7),
    )
    def publish(
        self, count: int, priority: int, ttl_ms: int | None, transient: int, keep: int, pages: int
    ) -> None:
        for _ in range(count):
            facts = Facts(self.messages % transient > 0, priority, ttl_ms)
            octets = body(self.messages, self.messages % 5)
            self.queue.push(Message(ENCODING, "", "", b"", octets, facts))
            self.messages += 1
            self.had_arrived()
        self.settle()
        self.page_out(keep, pages)

    @rule(keep=st.sampled_from([0, 0, 1, 4]), times=st.integers(1, 6))
    def page_out(self, keep: int, times: int) -> None:
        for _ in range(times):
            self.queue.page_out(keep)
            self.settle()  # what was not durable is written before it can go

    @precondition(lambda self: self.disk.reads)
    @rule(which=some)
    def read(self, which: int) -> None:
        self.disk.read(which)
        self.settle()

    @precondition(lambda self: self.disk.chunks())
    @rule(which=some)
    def damage(self, which: int) -> None:
        chunks = self.disk.chunks()
        self.disk.store.damaged.add(chunks[which % len(chunks)])

    @precondition(lambda self: self.disk.store.damaged)
    @rule(is_mended=st.booleans())
    def read_again(self, is_mended: bool) -> None:
        """What could not be read is read again, in vain or not. It comes back to its place, late."""
        if is_mended:
            self.disk.store.damaged.clear()
        self.late |= set(range(self.messages)) - {number(each) for each in self.content()}
        assert self.queue.reread() == self.queue.unreadable
        self.settle()

    @rule()
    def fetch(self) -> None:
        waited = self.queue.ready
        delivery = self.queue.take_one(settled=False)
        if delivery is None:
            assert self.queue.ready == 0, f"{waited} waited, and it was said that there are none"
        else:
            assert delivery.expires_at >= self.bench.broker.now
            assert not any(comes_before(each, delivery) for each in self.content())
            self.fetched.append(delivery)
        self.settle()

    @precondition(lambda self: self.fetched)
    @rule(how=st.sampled_from(["accept", "release", "reject"]))
    def answer_fetched(self, how: str) -> None:
        self.answer(self.fetched.pop(0), how)

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(which=some, how=st.sampled_from(["accept", "accept", "release", "reject"]))
    def answer_held(self, which: int, how: str) -> None:
        held = [(each, delivery) for each in self.consumers for delivery in each.held]
        consumer, delivery = held[which % len(held)]
        consumer._answered(delivery)
        self.answer(delivery, how)

    def answer(self, delivery: Delivery, how: str) -> None:
        if how == "accept" or (how == "reject" and self.queue.limits.dead_letter_exchange is None):
            self.gone.add(number(delivery))
        getattr(self.queue, how)(delivery)
        self.settle()

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(
        credit=st.integers(1, 4),
        wants=st.sampled_from([None, None, b"a", b"ab"]),
        browses=st.sampled_from([False, False, True]),
    )
    def consume(self, credit: int, wants: bytes | None, browses: bool) -> None:
        selector = None if wants is None else Only(wants)
        self.consumers.append(
            FakeConsumer(self.queue, credit=credit, selector=selector, browses=browses, log=self.log)
        )
        self.settle()

    @precondition(lambda self: self.consumers)
    @rule(which=some)
    def leave(self, which: int) -> None:
        consumer = self.consumers.pop(which % len(self.consumers))
        consumer.leave()
        for delivery in list(consumer.held):
            self.queue.release(consumer._answered(delivery))
        self.settle()

    @precondition(lambda self: self.consumers)
    @rule(which=some, credit=st.integers(1, 6))
    def grant(self, which: int, credit: int) -> None:
        self.consumers[which % len(self.consumers)].grant(credit)
        self.settle()

    @rule()
    def purge(self) -> None:
        ready = self.queue.ready
        content = {number(each) for each in self.content()}
        damaged = ready - len(content)
        unreadable = self.queue.unreadable
        assert self.queue.purge() == ready + unreadable
        assert damaged >= 0
        assert self.queue.unreadable == 0
        self.is_known = self.is_known and not (damaged or unreadable)
        self.gone |= content
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.bench.broker.tick()
        self.settle()

    # What is seen.

    def content(self) -> list[Delivery]:
        """What waits, as far as it can be read."""
        return list(self.queue.waiting())

    def had_arrived(self) -> None:
        """Whatever was given since the last time was given when this many had been published."""
        self.arrived += [self.messages] * (len(self.log) - len(self.arrived))

    def settle(self) -> None:
        self.bench.settle()
        while self.disk.said:
            self.disk.hear()
            self.bench.settle()
        left, now = self.content(), self.bench.broker.now
        self.had_arrived()
        log, self.log[:] = list(self.log), []
        arrived, self.arrived = self.arrived, []
        for nth, (consumer, delivery) in enumerate(log):
            assert delivery.expires_at >= now, "what has expired is not given"
            later = [
                each for other, each in log[nth + 1 :] if other is consumer and number(each) < arrived[nth]
            ]
            assert not any(comes_before(each, delivery) for each in later if number(each) not in self.late)
            for each in left:
                if number(each) >= arrived[nth] or each.expires_at < now or number(each) in self.late:
                    continue
                if comes_before(each, delivery) and wants(consumer, each):
                    raise AssertionError(f"{number(each)} waits, and {number(delivery)} was given")
        for consumer in self.consumers:
            if consumer.browses:
                seen = [number(delivery) for delivery in consumer.got]
                assert len(seen) == len(set(seen)), "what is browsed is seen once"

    def everything_comes_in_the_end(self) -> None:
        for _ in range(10_000):
            if not (self.disk.reads or any(each.searching for each in self.consumers)):
                break
            if self.disk.reads:
                self.disk.read(0)
            self.bench.clock.advance(0.5)
            self.bench.broker.tick()
            self.settle()
        self.counts_are_exact()
        left, now = self.content(), self.bench.broker.now
        for consumer in self.consumers:
            if consumer.credit > 0:
                assert not any(wants(consumer, each) and each.expires_at >= now for each in left)

    # What always holds.

    @invariant()
    def counts_are_exact(self) -> None:
        queue, pages, here = self.queue, pages_of(self.queue), in_memory(self.queue)
        assert queue.ready == len(here) + sum(map(len, pages))
        assert queue.ready_bytes == octets(here) + sum(page.octets for page in pages)
        journal = self.disk.journal
        assert (journal.unreadable.count > 0) == bool(self.bench.broker.alarms.warnings)
        if journal.unreadable.count:
            assert journal.unreadable.count == queue.unreadable
        expiring = sum(each.expires_at != NEVER for each in here) + sum(page.expiring for page in pages)
        assert queue.expiring == expiring
        for each in queue.lanes:
            if isinstance(each, SearchedLane):
                assert each.filled == sum(part.filled for part in each.parts())

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        held = [each for consumer in self.consumers for each in consumer.held]
        dead = [number(each) for each in self.morgue.waiting()]
        there = [number(each) for each in (*self.content(), *held, *self.fetched)]
        counted = Counter([*there, *dead, *self.gone])
        assert all(count == 1 for count in counted.values())
        is_whole = self.is_known and not (self.disk.store.damaged or self.queue.unreadable)
        if is_whole and self.queue.limits.dead_letter_exchange is not None:
            assert counted.keys() == set(range(self.messages))


def comes_before(one: Delivery, other: Delivery) -> bool:
    """Whether one has to be given before the other, if somebody wants both."""
    top = len(one.queue.lanes) - 1 if isinstance(one.queue, WorkQueue) else 0
    first, second = (min(each.message.facts.priority, top) for each in (one, other))
    return (-first, one.position) < (-second, other.position)


def wants(consumer: FakeConsumer, delivery: Delivery) -> bool:
    if consumer.browses and number(delivery) in {number(each) for each in consumer.got}:
        return False
    selector = consumer.selector
    letter = LETTERS[number(delivery) % len(LETTERS)]
    return not isinstance(selector, Only) or letter in selector.firsts


def octets(deliveries: Iterable[Delivery]) -> int:
    return sum(each.message.size for each in deliveries)


TestLatePages = LatePages.TestCase
TestLatePages.settings = settings(stateful_step_count=60)
