"""A stream's log in a store: any interleaving of arrivals, commits, readers, retention and starts, against a list."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.durable.segment_log import SEGMENT_OCTETS_MIN, SegmentLog
from leveret.durable.store.block import header, pack
from leveret.durable.store.contract import Append, Packed
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.values import Value
from tests.core.fakes import FakeConsumer
from tests.durable.test_holders import Site
from tests.harness.bench import ENCODING

NEVER = float("inf")


class Reader:
    """What one should have."""

    def __init__(self, consumer: FakeConsumer, at: int, credit: int) -> None:
        self.consumer = consumer
        self.at = at
        self.credit = credit
        self.got: list[int] = []


sizes = st.lists(st.sampled_from([1, 9, 500, 30_000, 90_000]), min_size=1, max_size=6)
budgets = st.sampled_from([0, 70_000, 1 << 30])
bounds = st.sampled_from([None, None, 0, 100_000, 400_000])
ages = st.sampled_from([None, None, "0s", "3s", "60s"])


class LogMachine(RuleBasedStateMachine):
    """A stream beside a list: the octets of each body, and when the commit was closed that it is in."""

    @initialize(budget=budgets, bytes_max=bounds, age=ages)
    def begin(self, budget: int, bytes_max: int | None, age: str | None) -> None:
        limits: dict[str, Value] = {"x_max_length_bytes": bytes_max, "x_max_age": age}
        said = {name: value for name, value in limits.items() if value is not None}
        self.bytes_max, self.budget = bytes_max, budget
        self.written: list[int] = []
        self.closed_at: list[float] = []
        self.flying_to: int | None = None  # what is in flight ends there
        self.committed = 0
        self.readers: list[Reader] = []
        self.use(Site(MemoryStore(held=True), **said).start())

    def use(self, site: Site) -> None:
        self.site = site
        site.journal.cache.budget = self.budget
        site.land()

    @property
    def log(self) -> SegmentLog:
        log = self.site.stream.log
        assert isinstance(log, SegmentLog)
        return log

    @rule(sizes=sizes)
    def publish(self, sizes: list[int]) -> None:
        begin = len(self.written)
        self.written += sizes
        if self.site.store.flying is None:  # else that may be a commit of retention's
            self.close()
        self.site.publish(*[body(begin + n, size) for n, size in enumerate(sizes)])
        self.serve()

    @rule(before=sizes | st.just([]), sizes=sizes, after=sizes | st.just([]))
    def publish_a_block(self, before: list[int], sizes: list[int], after: list[int]) -> None:
        """Between single messages, in one commit."""
        begin = len(self.written)
        bodies = [body(begin + n, size) for n, size in enumerate([*before, *sizes, *after])]
        high = len(before) + len(sizes)
        packed = packed_of(bodies[len(before) : high])
        if not self.log.takes(packed):
            return
        self.written += [len(each) for each in bodies]
        if self.site.store.flying is None:
            self.close()
        for each in bodies[: len(before)]:
            self.site.stream.push(message(each))
        self.site.stream.push_block(packed)
        self.site.publish(*bodies[high:])
        self.serve()

    def close(self) -> None:
        """Nothing is in flight: all there is goes now."""
        if self.committed < len(self.written):
            self.flying_to = len(self.written)
            self.closed_at += [self.site.clock.wall()] * (self.flying_to - len(self.closed_at))

    @rule()
    def land(self) -> None:
        if self.site.store.flying is not None:
            self.site.store.land()
            if self.flying_to is not None:
                self.committed, self.flying_to = self.flying_to, None
            self.close()
        self.site.broker.settle()
        self.serve()

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.site.advance(seconds)
        self.serve()

    @rule(at=st.integers(0, 30), credit=st.integers(1, 9))
    def join(self, at: int, credit: int) -> None:
        if self.budget < 1 << 30 and self.readers:
            return  # where readings take no time, two readers would push each other out of a small cache for ever
        consumer = FakeConsumer(self.site.stream, credit=credit, arguments={"x-stream-offset": at})
        self.readers.append(Reader(consumer, min(max(at, self.log.first), len(self.written)), credit))
        self.site.broker.settle()
        self.serve()

    @rule(which=st.integers(0, 5), credit=st.integers(1, 20))
    def grant(self, which: int, credit: int) -> None:
        if self.readers:
            reader = self.readers[which % len(self.readers)]
            reader.credit += credit
            reader.consumer.grant(credit)
            self.site.broker.settle()
        self.serve()

    @rule(clean=st.booleans(), away_s=st.integers(0, 5))
    def start_again(self, clean: bool, away_s: int) -> None:
        if clean:
            self.flying_to = None
            self.committed = len(self.written)
            self.closed_at += [self.site.clock.wall()] * (self.committed - len(self.closed_at))
        del self.written[self.committed :], self.closed_at[self.committed :]
        self.flying_to = None
        self.readers.clear()
        self.use(self.site.again(crash=not clean, away_s=away_s, held=True))

    @rule(seconds=st.integers(-20, 3))
    def ask_for_a_time(self, seconds: int) -> None:
        wall = self.site.clock.wall() + seconds
        times = self.closed_at + [NEVER] * (len(self.written) - len(self.closed_at))
        found: list[int] = []
        self.log.offset_since(wall, found.append)
        assert found == [bisect_left(times, wall, self.log.first)]

    @rule(at=st.integers(0, 30), octets=st.sampled_from([0, 40_000, 1 << 20]))
    def read_in_bulk(self, at: int, octets: int) -> None:
        at = min(max(at, self.log.first), self.committed)
        found: list[bytes] = []
        while at < self.committed:
            self.log.raw(at, self.committed, octets, lambda blocks: found.append(octets_in(blocks)))
            first, next_ = ends_of(found[-1])
            assert first <= at < next_
            at = next_
        self.log.raw(at, self.committed + 1, octets, lambda blocks: found.append(octets_in(blocks)))
        assert found[-1] == b""

    def serve(self) -> None:
        for each in self.readers:
            each.at = max(each.at, self.log.first)
            while each.credit and each.at < self.committed:
                each.got.append(each.at)
                each.credit -= 1
                each.at += 1

    @invariant()
    def readers_have_what_is_committed(self) -> None:
        for each in self.readers:
            assert [delivery.position for delivery in each.consumer.got] == each.got
            assert [d.message.body for d in each.consumer.got] == [body(n, self.written[n]) for n in each.got]
            assert [d.message.notes and d.message.notes.offset for d in each.consumer.got] == each.got

    @invariant()
    def offsets_are_exact(self) -> None:
        log = self.log
        assert (log.committed, log.next) == (self.committed, len(self.written))
        left = self.written[log.first :]
        assert (log.messages, log.octets) == (len(left), sum(left))
        assert (self.site.stream.ready, self.site.stream.ready_bytes) == (len(left), sum(left))

    @invariant()
    def no_more_than_a_segment_is_left_over(self) -> None:
        if self.bytes_max is not None and self.committed == len(self.written):
            left = self.written[self.log.first :]
            newest = self.site.stream.ready_bytes - self.bytes_max
            assert newest <= 0 or sum(left) <= SEGMENT_OCTETS_MIN + max(left)

    @invariant()
    def the_cache_keeps_to_its_budget(self) -> None:
        cache = self.site.journal.cache
        runs = list(cache._runs)
        assert cache.octets == sum(run.octets for run in runs)
        assert cache.octets <= cache.budget or len(runs) == 1


def body(number: int, size: int) -> bytes:
    return str(number).encode().ljust(size, b".")[:size]


def message(body: bytes) -> Message:
    return Message(ENCODING, "", "s", b"", body, Facts(durable=True))


def packed_of(bodies: list[bytes]) -> Packed:
    return Packed(
        pack(Append(0, 0, 77, 0, [message(each) for each in bodies])), len(bodies), sum(map(len, bodies))
    )


def octets_in(found: bytes | Exception) -> bytes:
    assert isinstance(found, bytes)
    return found


def ends_of(blocks: bytes) -> tuple[int, int]:
    """The first offset that is in some blocks, and the one behind the last."""
    at, offsets = 0, []
    while at < len(blocks):
        found = header(blocks, at)
        offsets += [found.first, found.next]
        at += found.octets
    assert offsets[1:-1:2] == offsets[2::2]
    return offsets[0], offsets[-1]


TestLog = LogMachine.TestCase
TestLog.settings = settings(stateful_step_count=40)
