"""Leases: any interleaving of arrivals, consumers, reading, paging and starts, against two lists."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.features.leases import release as releasing
from leveret.features.leases import reservation
from leveret.features.leases.lease import leases_of
from leveret.message import Facts, Message
from leveret.queues import lane
from leveret.queues.work_queue import WorkQueue
from leveret.values import Value
from tests.durable.paged import small_pages
from tests.durable.site import Site
from tests.features.leases.leased import Leased, settle_down
from tests.harness.bench import ENCODING

SMALL = {(reservation, "PORTION"): 3, (releasing, "PORTION"): 2, (releasing, "READ_OCTETS"): 1}


@attrs.define
class Row:
    """A message, as it should be."""

    body: bytes
    priority: int
    position: int
    durable: bool
    redelivered: bool = False

    @property
    def order(self) -> tuple[int, int]:
        return -self.priority, self.position


some = st.integers(1, 7)


class LeaseMachine(RuleBasedStateMachine):
    """A queue beside a list of what waits, and a lease beside a list of what is reserved."""

    def __init__(self) -> None:
        super().__init__()
        self._restore = small_pages()
        self._before = {key: getattr(*key) for key in SMALL}
        self._returned_max = lane.RETURNED_MAX
        for (module, name), value in SMALL.items():
            setattr(module, name, value)
        lane.RETURNED_MAX = 2  # type: ignore[misc]

    def teardown(self) -> None:
        for (module, name), value in self._before.items():
            setattr(module, name, value)
        lane.RETURNED_MAX = self._returned_max  # type: ignore[misc]
        self._restore()

    @initialize(ranked=st.booleans(), quorum=st.booleans())
    def begin(self, ranked: bool, quorum: bool) -> None:
        said: dict[str, Value] = {"x_max_priority": 2} if ranked else {}
        if quorum and not ranked:
            said["x_queue_type"] = "quorum"
        self.ranked, self.quorum = ranked, quorum and not ranked
        self.waiting: list[Row] = []
        self.leased: list[Row] = []
        self.first = self.accepted = self.published = 0
        self.site = Site()
        self.site.queue(**said)
        self.open()

    @property
    def queue(self) -> WorkQueue:
        queue = self.site.host.queues["q"]
        assert isinstance(queue, WorkQueue)
        return queue

    @rule()
    def open(self) -> None:
        self.reader = Leased(self.queue)

    @rule(count=some, priority=st.integers(0, 2), durable=st.sampled_from([True, True, True, False]))
    def publish(self, count: int, priority: int, durable: bool) -> None:
        for _ in range(count):
            body = b"%d" % self.published
            self.published += 1
            row = Row(body, priority if self.ranked else 0, self.queue.position, durable)
            assert all(row.position > each.position for each in [*self.waiting, *self.leased])
            self.waiting.append(row)
            said = 0 if self.quorum else priority  # one of those has levels of its own accord
            message = Message(ENCODING, "", "q", b"", body, Facts(durable=durable, priority=said))
            self.site.broker.publish(self.site.host.exchange(""), message)
        self.waiting.sort(key=lambda row: row.order)
        settle_down(self.site.broker)

    @rule(count=some)
    def consume(self, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            delivery = self.queue.take_one(settled=True)
            assert delivery is not None
            assert delivery.message.body == self.waiting.pop(0).body
            self.accepted += 1
        settle_down(self.site.broker)

    @precondition(lambda self: self.waiting)
    @rule()
    def return_one(self) -> None:
        delivery = self.queue.take_one(settled=False)
        assert delivery is not None
        self.queue.release(delivery, failed=False)
        self.waiting[0].redelivered = True
        settle_down(self.site.broker)

    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.waiting.clear()
        settle_down(self.site.broker)

    @rule(keep=st.integers(0, 3))
    def page_out(self, keep: int) -> None:
        while self.queue.page_out(keep):
            pass
        settle_down(self.site.broker)

    # The lease.

    @rule(settled=st.integers(0, 4), messages=st.integers(1, 20))
    def reserve(self, settled: int, messages: int) -> None:
        begin = min(self.first + settled, self.first + len(self.leased))
        self.settle_model(begin)
        self.take_model(messages - len(self.leased))
        self.reader.reserve(messages, begin=begin)
        assert self.reader.told.pop() is None

    @rule(settled=st.integers(0, 4))
    def settle(self, settled: int) -> None:
        until = min(self.first + settled, self.first + len(self.leased))
        self.settle_model(until)
        self.reader.settle(until)

    @rule(for_good=st.booleans())
    def release(self, for_good: bool) -> None:
        self.first += len(self.leased)
        self.give_back_model(len(self.leased))
        self.reader.release(for_good)
        assert self.reader.told.pop() is None
        if for_good:
            self.first = 0
            self.open()

    def settle_model(self, until: int) -> None:
        del self.leased[: until - self.first]
        self.accepted += until - self.first
        self.first = until

    def take_model(self, count: int) -> None:
        for _ in range(min(max(0, count), len(self.waiting))):
            self.leased.append(self.waiting.pop(0))

    def give_back_model(self, count: int) -> None:
        for row in self.leased[:count]:
            row.redelivered = True
            self.waiting.append(row)
        del self.leased[:count]
        self.waiting.sort(key=lambda row: row.order)

    # Starts.

    @rule(clean=st.booleans())
    def start_again(self, clean: bool) -> None:
        self.site = self.site.again(clean=clean)
        self.take_up(clean)

    @rule(turns=st.integers(0, 9), messages=some, clean=st.booleans())
    def start_again_while_reserving(self, turns: int, messages: int, clean: bool) -> None:
        self.reader.lease.reserve(
            self.first, len(self.leased) + messages, 1 << 30, 0, self.reader.told.append
        )
        self.end_after(turns, clean)
        took = leases_of(self.site.host)["q", "r"].messages - len(self.leased)
        assert 0 <= took <= messages
        self.take_model(took)
        self.take_up(clean)

    @rule(turns=st.integers(0, 9), clean=st.booleans(), for_good=st.booleans())
    def start_again_while_releasing(self, turns: int, clean: bool, for_good: bool) -> None:
        self.reader.lease.release(self.reader.told.append, for_good)
        self.end_after(turns, clean)
        lease = leases_of(self.site.host).get(("q", "r"))
        assert lease is not None or for_good
        released = len(self.leased) if lease is None else lease.first - self.first
        self.first = 0 if lease is None else lease.first
        self.give_back_model(released)
        self.take_up(clean)

    def end_after(self, turns: int, clean: bool) -> None:
        for _ in range(turns):
            self.site.settle()
        self.site = self.site.again(clean=clean)

    def take_up(self, clean: bool) -> None:
        """What outlives a node, as it is then."""
        self.accepted = 0
        self.waiting = [row for row in self.waiting if row.durable]
        for row in self.waiting:
            row.redelivered |= not clean
        self.open()

    # What must be so.

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        found = [(each.message.body, each.redelivered) for each in self.queue.waiting()]
        assert found == [(row.body, row.redelivered) for row in self.waiting]
        assert self.reader.rows() == [
            (offset, row.body, row.position * 2 + row.redelivered)
            for offset, row in enumerate(self.leased, self.first)
        ]
        assert (self.queue.ready, self.queue.unsettled) == (len(self.waiting), len(self.leased))
        assert self.queue.ready_bytes == sum(len(row.body) for row in self.waiting)
        assert self.queue.accepted == self.accepted


LeaseMachine.TestCase.settings = settings(stateful_step_count=30)
TestLeases = LeaseMachine.TestCase
