"""Streams: any interleaving of arrivals, readers, answers and retention, against a list."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.limits import QueueLimits
from tests.core.fakes import FakeConsumer, Only
from tests.core.queues.test_stream import offsets, stream
from tests.harness.bench import CoreBench


class Seen:
    """What a reader should have."""

    def __init__(self, consumer: FakeConsumer, at: int, credit: int) -> None:
        self.consumer = consumer
        self.at = at
        self.credit = credit
        self.got: list[int] = []

    def wants(self, size: int) -> bool:
        """Messages of even sizes consist of a's, the others of b's."""
        selector = self.consumer.selector
        return not isinstance(selector, Only) or (size % 2 == 0 and size > 0 and selector.firsts == b"a")


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=8)
bounds = st.builds(
    QueueLimits,
    max_bytes=st.sampled_from([None, None, 0, 5, 30]),
    max_age_ms=st.sampled_from([None, None, 0, 2_000, 5_000]),
)
some = st.integers(0, 7)


class StreamMachine(RuleBasedStateMachine):
    """A stream beside a list of (size, time) and the offset of the first that is left."""

    @initialize(limits=bounds)
    def begin(self, limits: QueueLimits) -> None:
        self.bench = CoreBench()
        self.queue = stream(self.bench)
        self.written: list[tuple[int, float]] = []
        self.first = 0
        self.readers: list[Seen] = []
        self.bound(limits)

    @rule(limits=bounds)
    def bound(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.queue.apply(limits)
        self.keep_size()
        self.keep_age()
        self.settle()

    @rule(sizes=sizes)
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.written.append((size, self.bench.clock.wall()))
            self.keep_size()
        self.bench.publish("s", *[b"ab"[size % 2 : size % 2 + 1] * size for size in sizes])
        self.settle()

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.bench.advance(seconds)
        self.keep_age()
        self.settle()

    @rule(
        start=st.one_of(st.sampled_from(["first", "last", "next"]), st.integers(0, 40)),
        credit=st.integers(0, 6),
        wants=st.sampled_from([None, None, b"a", b""]),
        browses=st.sampled_from([False, False, True]),
    )
    def join(self, start: str | int, credit: int, wants: bytes | None, browses: bool) -> None:
        consumer = FakeConsumer(
            self.queue,
            credit=credit,
            arguments={"x-stream-offset": start},
            selector=None if wants is None else Only(wants),
            browses=browses,
        )
        end = len(self.written)
        words = {"first": self.first, "last": max(self.first, end - 1), "next": end}
        at = words[start] if isinstance(start, str) else min(max(start, self.first), end)
        self.readers.append(Seen(consumer, at, credit))
        self.settle()

    @rule(which=some, credit=st.integers(1, 5))
    def grant(self, which: int, credit: int) -> None:
        for one in self.chosen(which):
            one.credit += credit
            one.consumer.grant(credit)
        self.settle()

    @rule(which=some, how=st.sampled_from(["accept", "release", "reject"]), count=st.integers(1, 3))
    def answer(self, which: int, how: str, count: int) -> None:
        for one in self.chosen(which):
            for delivery in one.consumer.held[-count:]:
                getattr(one.consumer, how)(delivery)
                one.credit += 1
        self.settle()

    @rule(which=some)
    def pause(self, which: int) -> None:
        for one in self.chosen(which):
            one.consumer.pause()
        self.settle()

    @rule(which=some)
    def resume(self, which: int) -> None:
        for one in self.chosen(which):
            one.consumer.resume()
        self.settle()

    @rule(which=some)
    def leave(self, which: int) -> None:
        for one in self.chosen(which):
            one.consumer.leave()
            for delivery in list(one.consumer.held):
                one.consumer.release(delivery)
            self.readers.remove(one)
        self.settle()

    def chosen(self, which: int) -> list[Seen]:
        return [self.readers[which % len(self.readers)]] if self.readers else []

    def keep_size(self) -> None:
        most = self.limits.max_bytes
        while most is not None and self.octets() > most and self.first < len(self.written) - 1:
            self.first += 1

    def keep_age(self) -> None:
        age_ms = self.limits.max_age_ms
        if age_ms is not None:
            latest = self.bench.clock.wall() - age_ms / 1000
            while self.first < len(self.written) and self.written[self.first][1] <= latest:
                self.first += 1

    def octets(self) -> int:
        return sum(size for size, _ in self.written[self.first :])

    def settle(self) -> None:
        """Both sides hand out what they can."""
        self.bench.settle()
        for one in self.readers:
            if one.consumer.paused:
                continue
            one.at = max(one.at, self.first)
            while one.credit and one.at < len(self.written):
                if one.wants(self.written[one.at][0]):
                    one.got.append(one.at)
                    one.credit -= 1
                one.at += 1

    @invariant()
    def every_reader_has_what_follows_its_offset(self) -> None:
        for one in self.readers:
            assert offsets(one.consumer) == one.got
            assert [d.message.size for d in one.consumer.got] == [self.written[at][0] for at in one.got]
            assert one.consumer.credit == one.credit

    @invariant()
    def the_log_is_the_list(self) -> None:
        left = range(self.first, len(self.written))
        assert [delivery.position for delivery in self.queue.waiting()] == list(left)
        assert (self.queue.ready, self.queue.ready_bytes) == (len(left), self.octets())
        assert (self.queue.log.first, self.queue.log.next) == (self.first, len(self.written))

    @invariant()
    def all_counts_are_exact(self) -> None:
        assert self.queue.published == len(self.written)
        assert self.queue.unsettled == sum(len(one.consumer.held) for one in self.readers)

    @invariant()
    def who_is_able_stands_in_one_line(self) -> None:
        lines = list(itertools.chain(self.queue.behind, self.queue.caught_up))
        assert sorted(map(id, lines)) == sorted(id(o.consumer) for o in self.readers if o.consumer.able)
        assert len(self.queue.cursors) == len(self.queue.consumers) == len(self.readers)


TestStream = StreamMachine.TestCase
TestStream.settings = settings(stateful_step_count=40)
