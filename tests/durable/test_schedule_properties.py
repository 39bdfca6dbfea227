"""Whatever happens to messages that wait for a time: each is ready when it is due, in order, and over any start.

The model is a list that is sorted anew each time it is looked at. Times of the store are whole milliseconds, so the
machine never looks at a moment that is so near to a deadline that this would matter."""

from __future__ import annotations

from itertools import pairwise

import attrs
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.message import Facts, Message
from leveret.queues.work_queue import WorkQueue
from leveret.values import Value
from tests.core.fakes import waiting
from tests.durable.paged import small_pages
from tests.durable.site import Site
from tests.harness.bench import ENCODING

MIN_S, MAX_S = 2.0, 5.0
NEAR_S = 0.004
some = st.integers(0, 1000)


@attrs.define(eq=False)
class Item:
    """One message that is not settled. Times are seconds since the machine began."""

    name: str
    position: int
    level: int
    due: float
    expires_at: float
    attempts: int = 0
    redelivered: bool = False
    waits: bool = False  # for its time


class Model:
    """A sorted list, more or less."""

    def __init__(self) -> None:
        self.now = 0.0
        self.items: list[Item] = []
        self.held: list[Item] = []
        self.dead: list[str] = []

    def expire(self) -> None:
        """Those that wait for a time expire at their time, the others at the heads of their levels."""
        woken = [each for each in self.items if each.waits and min(each.due, each.expires_at) <= self.now]
        gone = [each for each in woken if each.expires_at <= self.now]
        for each in woken:
            each.waits = False
        self.items = [each for each in self.items if each not in gone]
        for level in (0, 1):
            for each in [item for item in self.ready() if item.level == level]:
                if each.expires_at > self.now:
                    break
                gone.append(each)
        self.dead += [each.name for each in gone]
        self.items = [each for each in self.items if each not in gone]

    def ready(self) -> list[Item]:
        found = [each for each in self.items if not each.waits]
        return sorted(found, key=lambda item: (-item.level, item.position))

    def delayed(self) -> list[Item]:
        found = [each for each in self.items if each.waits]
        return sorted(found, key=lambda item: (min(item.due, item.expires_at), item.position))

    def deadlines(self) -> list[float]:
        return sorted({time for each in (*self.items, *self.held) for time in (each.due, each.expires_at)})

    def is_near_a_deadline(self) -> bool:
        return any(abs(time - self.now) < NEAR_S for time in self.deadlines())

    def next_deadline(self, end: float) -> float | None:
        """The next one before `end`. What happens at two that are very near to each other, nobody can tell."""
        ahead = [time for time in self.deadlines() if time > self.now]
        assume(all(later - time >= 3 * NEAR_S for time, later in pairwise(ahead)))
        return ahead[0] if ahead and ahead[0] < end else None


class ScheduleMachine(RuleBasedStateMachine):
    """A durable queue whose messages come back later, with a store, over starts."""

    @initialize(type_=st.sampled_from(["all", "failed", "returned"]), priorities=st.booleans())
    def begin(self, type_: str, priorities: bool) -> None:
        self.restore = small_pages()
        self.type = type_
        self.site = Site()
        said: dict[str, Value] = {
            "x_delayed_retry_type": type_,
            "x_delayed_retry_min": int(MIN_S * 1000),
            "x_delayed_retry_max": int(MAX_S * 1000),
            "x_dead_letter_exchange": "",
            "x_dead_letter_routing_key": "dead",
        }
        self.site.queue(**said, **({"x_max_priority": 1} if priorities else {}))
        self.site.queue("dead")
        self.levels = 2 if priorities else 1
        self.model = Model()
        self.deliveries: dict[str, Delivery] = {}
        self.messages = 0

    def teardown(self) -> None:
        if hasattr(self, "restore"):
            self.restore()

    @property
    def queue(self) -> WorkQueue:
        queue = self.site.host.queue("q")
        assert isinstance(queue, WorkQueue)
        return queue

    # Messages.

    @rule(
        count=st.integers(1, 4),
        priority=st.integers(0, 1),
        ttl_s=st.sampled_from([None, None, 1.05, 3.05, 9.05]),
        later_s=st.sampled_from([0, 0, -1, 2, 5]),
    )
    def publish(self, count: int, priority: int, ttl_s: float | None, later_s: int) -> None:
        for _ in range(count):
            name = f"m{self.messages}"
            due_ms = int((self.site.clock.wall() + later_s) * 1000) if later_s else 0
            ttl_ms = None if ttl_s is None else int(ttl_s * 1000)
            facts = Facts(durable=True, priority=priority, ttl_ms=ttl_ms, due_ms=due_ms)
            position = self.queue.position  # that begins anew when a queue was empty at a start
            self.site.broker.publish(
                self.site.host.default_exchange, Message(ENCODING, "", "q", b"", name.encode(), facts)
            )
            ends = NEVER if ttl_s is None else self.model.now + ttl_s
            level = min(priority, self.levels - 1)
            due = self.model.now + later_s
            self.model.items.append(Item(name, position, level, due, ends, waits=later_s > 0))
            self.messages += 1
        self.settle()

    @precondition(lambda self: self.model.ready())
    @rule()
    def fetch(self) -> None:
        delivery = self.queue.take_one(settled=False)
        item = self.model.ready()[0]
        assert delivery is not None
        assert (delivery.message.body.decode(), delivery.attempts) == (item.name, item.attempts)
        assert delivery.redelivered == item.redelivered
        self.model.items.remove(item)
        self.model.held.append(item)
        self.deliveries[item.name] = delivery
        self.settle()

    def answered(self, which: int) -> tuple[Item, Delivery]:
        item = self.model.held.pop(which % len(self.model.held))
        return item, self.deliveries.pop(item.name)

    @precondition(lambda self: self.model.held)
    @rule(which=some)
    def accept(self, which: int) -> None:
        self.queue.accept(self.answered(which)[1])
        self.settle()

    @precondition(lambda self: self.model.held)
    @rule(which=some, failed=st.booleans(), later_s=st.sampled_from([None, None, None, 4]))
    def give_back(self, which: int, failed: bool, later_s: int | None) -> None:
        self.release(*self.answered(which), failed, later_s)
        self.settle()

    def release(self, item: Item, delivery: Delivery, failed: bool, later_s: int | None = None) -> None:
        now = self.model.now
        item.attempts += failed
        item.redelivered = True
        item.due = now
        if later_s is not None:
            item.due = now + later_s
            self.queue.release(delivery, failed, until=self.site.clock.now() + later_s)
        else:
            if self.type in ("all", "failed" if failed else "returned"):
                item.due = now + min(MIN_S * max(item.attempts, 1), MAX_S)
            self.queue.release(delivery, failed)
        item.waits = item.due > now
        self.model.items.append(item)

    @precondition(lambda self: self.model.delayed())
    @rule(which=some, hasten=st.booleans())
    def cancel(self, which: int, hasten: bool) -> None:
        delayed = self.model.delayed()
        item = delayed[which % len(delayed)]
        schedule = self.queue.scheduled()
        if hasten:
            assert schedule.hasten([item.position]) == 1
            item.due = self.model.now
        else:
            assert schedule.drop([item.position]) == 1
            self.model.items.remove(item)
        self.advance(0.0)

    @precondition(lambda self: self.model.items)
    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.model.items.clear()
        self.settle()

    # Time, memory and starts.

    @rule(seconds=st.sampled_from([0.3, 0.7, 1.1, 2.9, 6.3]))
    def advance(self, seconds: float) -> None:
        """Let time pass, from one deadline to the next: each finds the queue as the one before has left it."""
        end = self.model.now + seconds
        while (deadline := self.model.next_deadline(end)) is not None:
            self.move(deadline + 1.5 * NEAR_S - self.model.now)
        self.move(max(end - self.model.now, 0.0))

    def move(self, seconds: float) -> None:
        self.model.now += seconds
        self.site.advance(seconds)
        self.settle()

    @rule(keep=st.integers(0, 2))
    def page_out(self, keep: int) -> None:
        while self.queue.page_out(keep):
            pass
        self.settle()

    @rule(clean=st.booleans(), away_s=st.sampled_from([0.0, 1.7, 4.3]))
    def start_again(self, clean: bool, away_s: float) -> None:
        if clean:  # consumers go before the node does
            for item in sorted(self.model.held, key=lambda item: item.position):
                self.release(item, self.deliveries.pop(item.name), failed=True)
        else:
            for item in self.model.held:
                self.model.items.append(item)
        self.model.held.clear()
        self.deliveries.clear()
        self.settle()
        self.site = self.site.again(away_s=away_s, clean=clean)
        self.model.now += away_s
        for item in self.model.items:
            item.waits = item.waits and item.due > self.model.now
        if not clean:
            for item in self.model.items:
                item.redelivered = True
        self.advance(0.0)

    def settle(self) -> None:
        while self.model.is_near_a_deadline():
            self.model.now += 2 * NEAR_S
            self.site.advance(2 * NEAR_S)
        for _ in range(3):  # what was asked for is read, and joins
            self.site.advance(0)
        self.model.expire()

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        if not hasattr(self, "site"):
            return
        queue, model = self.queue, self.model
        assert waiting(queue).split() == [each.name for each in model.ready()]
        schedule = queue.scheduled()
        expected = {each.position: min(each.due, each.expires_at) for each in model.delayed()}
        shown = [each.position for each in schedule.first(1000)]
        assert sorted(shown) == sorted(expected)
        assert all(expected[one] < expected[other] + NEAR_S for one, other in pairwise(shown))
        assert (queue.ready, queue.delayed) == (len(model.ready()), len(model.delayed()))
        assert queue.later.octets == sum(len(each.name) for each in model.delayed())
        assert queue.ready_bytes == sum(len(each.name) for each in model.ready())
        assert 0 <= schedule.away <= queue.delayed
        assert sorted(waiting(self.site.host.queue("dead")).split()) == sorted(model.dead)


TestSchedule = ScheduleMachine.TestCase
