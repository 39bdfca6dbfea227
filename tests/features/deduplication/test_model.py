"""Ids, sizes, times and restarts by chance, against lists that are as plain as they are slow."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication import id_log
from leveret.features.deduplication.digest_table import ABSENT, DigestTable
from leveret.features.deduplication.recent_ids import RecentIds
from tests.durable.site import Site
from tests.features.deduplication.published import identified
from tests.features.deduplication.test_exchange import SWITCH

IDS = st.integers(0, 40)
PACE = settings(max_examples=25, stateful_step_count=25, deadline=None)
SLOWLY = settings(max_examples=8, stateful_step_count=20, deadline=None)  # each begins with a broker


def digest(n: int) -> bytes:
    return n.to_bytes(7, "little") * 2 + n.to_bytes(2, "little")


class Table(RuleBasedStateMachine):
    """The compact table is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = DigestTable()
        self.plain: dict[bytes, int] = {}

    @rule(ns=st.lists(st.integers(0, 400), max_size=60), number=st.integers(0, 1 << 61))
    def put(self, ns: list[int], number: int) -> None:
        for n in ns:
            self.table.put(digest(n), number + n)
            self.plain[digest(n)] = number + n

    @rule(n=st.integers(0, 400), shift=st.integers(0, 1))
    def remove(self, n: int, shift: int) -> None:
        number = self.plain.get(digest(n), ABSENT)
        wanted = number + shift if number != ABSENT else 7
        assert self.table.remove(digest(n), wanted) == (number == wanted)
        if number == wanted:
            del self.plain[digest(n)]

    @invariant()
    def same(self) -> None:
        assert self.table.count == len(self.plain)
        assert all(self.table.number_of(digest(n)) == self.plain.get(digest(n), ABSENT) for n in range(401))
        octets = b"".join(map(self.table.bucket, range(self.table.buckets)))
        assert len(octets) == 24 * len(self.plain)


class Recent(RuleBasedStateMachine):
    """The last ids are a list of slots: the id, its end."""

    @initialize(size=st.integers(1, 12))
    def begin(self, size: int) -> None:
        self.now = 1000
        self.ids = RecentIds(size)
        self.slots: list[tuple[bytes, int]] = []

    def knows(self, wanted: bytes) -> bool:
        ends = [end for each, end in self.slots if each == wanted]
        return bool(ends) and (ends[-1] == 0 or ends[-1] > self.now)

    @rule(n=IDS, ttl=st.sampled_from([0, 0, 5, 50]))
    def take(self, n: int, ttl: int) -> None:
        assert self.ids.has(digest(n), self.now) == self.knows(digest(n))
        if not self.knows(digest(n)):
            end = self.now + ttl if ttl else 0
            self.ids.add(digest(n), end, self.now, True)
            self.slots.append((digest(n), end))
            self.slots = self.slots[-self.ids.size :]

    @rule(ms=st.integers(1, 30))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def clear(self) -> None:
        self.ids.clear()
        self.slots.clear()

    @invariant()
    def same(self) -> None:
        assert self.ids.next - self.ids.first <= self.ids.size
        for n in range(41):
            # Dropping an expired slot early never shows; an id whose newer slot is there is known by that one.
            assert self.ids.has(digest(n), self.now) == self.knows(digest(n))


class Restarted(RuleBasedStateMachine):
    """An exchange knows what it knew before, however the node ended and whatever was swept."""

    @initialize(
        size=st.integers(1, 30),
        ttl_ms=st.sampled_from([None, 20_000]),
        durable=st.sampled_from([True, True, False]),
    )
    def begin(self, size: int, ttl_ms: int | None, durable: bool) -> None:
        self.site = Site()
        self.ttl_ms, self.size, self.durable = ttl_ms, size, durable
        arguments = {**SWITCH, "x-cache-size": size, **({} if ttl_ms is None else {"x-cache-ttl": ttl_ms})}
        exchange = self.site.host.declare_exchange("x", "fanout", durable=True, arguments=arguments)
        self.site.host.bind(exchange, self.site.queue(), "")
        self.slots: list[tuple[int, float]] = []  # id, when
        self.before = id_log.SLACK_OCTETS, id_log.SWEPT_LEAST
        id_log.SLACK_OCTETS, id_log.SWEPT_LEAST = 256, 2

    def teardown(self) -> None:
        id_log.SLACK_OCTETS, id_log.SWEPT_LEAST = getattr(self, "before", (64 << 10, 256))

    @property
    def exchange(self) -> Exchange:
        return self.site.host.exchange("x")

    def knows(self, n: int) -> bool:
        times = [at for each, at in self.slots if each == n]
        now = self.site.clock.wall()
        return bool(times) and (self.ttl_ms is None or int(times[-1] * 1000) + self.ttl_ms > int(now * 1000))

    @rule(ns=st.lists(IDS, min_size=1, max_size=6))
    def take(self, ns: list[int]) -> None:
        for n in ns:
            before, known = self.exchange.repeated, self.knows(n)
            self.site.broker.publish(self.exchange, identified(n, exchange="x", durable=self.durable))
            assert self.exchange.repeated - before == known
            if not known:
                self.slots = [*self.slots, (n, self.site.clock.wall())][-self.size :]
        self.site.settle()
        self.site.queue().purge()

    @rule(seconds=st.sampled_from([1, 7, 30]))
    def wait(self, seconds: int) -> None:
        self.site.advance(seconds)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.site = self.site.again(clean=clean)
        if not self.durable:
            self.slots.clear()

    @rule()
    def forget(self) -> None:
        assert self.exchange.deduplication is not None
        self.exchange.deduplication.clear()
        self.site.settle()
        self.slots.clear()


TestTable, TestRecent, TestRestarted = Table.TestCase, Recent.TestCase, Restarted.TestCase
TestTable.settings = TestRecent.settings = PACE
TestRestarted.settings = SLOWLY
