"""Whatever happens to a queue, in whatever order: each message is in one place, and everybody gets his due.

The machine does to the queue what clients, operators and time can do, several things in a batch, and compares
with `queue_model.py` after each."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Delivery
from leveret.errors import AccessRefused
from leveret.limits import Overflow, QueueLimits
from leveret.message import Message
from leveret.queues import search
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import REJECTED
from leveret.queues.searched_lane import GAPS, SearchedLane
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, Only, SharedWindow
from tests.core.queues.queue_model import ACCEPTED, LETTERS, PURGED, REFUSED, Item, Model, Taker, body, number
from tests.harness.bench import CoreBench, message

CONSUMERS_MAX = 6
TESTS = search.TESTS
some = st.integers(0, 11)  # one of those there are, counted round
credits = st.sampled_from([1, 2, 3, 5, UNLIMITED])
ttls = st.sampled_from([None, None, None, 0, 500, 1000, 3000])
OVERFLOWS = [each for each in Overflow if each is not Overflow.SELF_DESTRUCT]  # the queue has to last
REFUSING = (Overflow.REJECT_PUBLISH, Overflow.REJECT_PUBLISH_DLX)
bounds: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    message_ttl_ms=st.sampled_from([None, None, 0, 2000]),
    max_length=st.sampled_from([None, None, 0, 1, 3, 6]),
    max_bytes=st.sampled_from([None, None, None, 0, 10, 60]),
    overflow=st.sampled_from(OVERFLOWS),
    delivery_limit=st.sampled_from([None, None, 0, 2]),
    dead_letter_exchange=st.sampled_from(["", "", None]),
    dead_letter_key=st.just("dead"),
)


class QueueMachine(RuleBasedStateMachine):
    """A queue called `q`, the queue `dead` for its dead, and up to six consumers."""

    @initialize(
        bounds=bounds,
        max_priority=st.sampled_from([None, 1, 3]),
        single_active=st.sampled_from([False, False, True]),
        windows=st.tuples(credits, credits),
        batch=st.integers(1, 4),
        patience=st.sampled_from([1, 3, 1000]),
    )
    def begin(
        self,
        bounds: dict[str, object],
        max_priority: int | None,
        single_active: bool,
        windows: tuple[int, int],
        batch: int,
        patience: int,
    ) -> None:
        search.TESTS = patience
        self.bench = CoreBench()
        self.morgue = self.bench.queue("dead")
        self.fixed = {"max_priority": max_priority, "single_active": single_active}
        self.granted = windows
        self.batch = batch  # rules from one settle to the next
        self.steps = 0
        self.messages = 0
        self.buried: Counter[tuple[int, str]] = Counter()  # by the models of queues that were deleted
        self.log: list[tuple[FakeConsumer, Delivery]] = []
        self.renew(bounds)

    def renew(self, bounds: dict[str, object]) -> None:
        """A new queue, and a model of it."""
        limits = QueueLimits(**{**bounds, **self.fixed})  # type: ignore[arg-type]
        self.queue = WorkQueue(self.bench.host, "q", limits)
        self.bench.host.queues["q"] = self.queue
        self.model = Model(limits)
        self.model.now = self.bench.broker.now
        self.windows = [SharedWindow(credit) for credit in self.granted]
        self.model.windows = dict(zip(self.windows, self.granted, strict=True))
        self.fetched: list[Delivery] = []
        self.first = self.messages  # number of the first message for this queue

    # Messages.

    @rule(size=st.integers(0, 20), priority=st.integers(0, 4), ttl_ms=ttls, again=st.integers(1, 4))
    def publish(self, size: int, priority: int, ttl_ms: int | None, again: int) -> None:
        for _ in range(again):
            self.publish_one(size, priority, ttl_ms)
        self.step()

    def publish_one(self, size: int, priority: int, ttl_ms: int | None) -> None:
        model = self.model
        octets = body(self.messages, size)
        arrives = (self.messages, len(octets), priority, ttl_ms)
        self.messages += 1
        refuses = model.limits.overflow in REFUSING and model.over(1, len(octets))
        taken = self.queue.push(self.message(octets, priority, ttl_ms))
        if refuses:
            self.replay()
        assert taken is not (refuses and model.over(1, len(octets)))
        if not taken:
            self.refused(*arrives)
            return
        model.arrive(*arrives)
        if model.over():
            self.replay()

    def message(self, octets: bytes, priority: int, ttl_ms: int | None) -> Message:
        return message(body=octets, priority=priority, ttl_ms=ttl_ms)

    def refused(self, number: int, size: int, priority: int, ttl_ms: int | None) -> None:
        self.model.ends[number] = REFUSED
        if (
            self.model.limits.overflow is Overflow.REJECT_PUBLISH_DLX
            and self.model.limits.dead_letter_exchange is not None
        ):
            self.model.dead[number, "maxlen"] += 1

    @rule(settled=st.booleans())
    def fetch(self, settled: bool) -> None:
        delivery = self.queue.take_one(settled)
        item = self.model.take_next()
        assert (None if delivery is None else number(delivery)) == (None if item is None else item.number)
        if delivery is not None and item is not None:
            assert (delivery.attempts, delivery.redelivered) == (item.attempts, item.redelivered)
            if settled:
                self.model.end(item, ACCEPTED)
            else:
                self.fetched.append(delivery)
                self.model.fetched[item.number] = item
        self.step()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.model.waiting)
        for item in list(self.model.waiting):
            self.model.leave_waiting(item, PURGED)
        self.step()

    @rule(letter=st.sampled_from(LETTERS))
    def ask_whether_it_could_deliver(self, letter: int) -> None:
        answer = self.queue.can_deliver_now(message(body=b"%c" % letter))
        self.replay()
        asked = Item(LETTERS.index(letter) - len(LETTERS), 0, 0, NEVER, 0)
        model = self.model
        assert answer is any(model.able(taker) and taker.wants(asked) for taker in model.competing())
        self.step()

    # Answers.

    def somebody_has_messages(self) -> bool:
        return any(taker.held for taker in self.model.takers)

    def held(self, which: int) -> tuple[Taker, Delivery]:
        all_held = [(taker, each) for taker in self.model.takers for each in taker.consumer.held]
        return all_held[which % len(all_held)]

    @precondition(somebody_has_messages)
    @rule(which=some)
    def accept(self, which: int) -> None:
        taker, delivery = self.held(which)
        taker.consumer.accept(delivery)
        self.model.end(taker.held.pop(number(delivery)), ACCEPTED)
        self.step()

    @precondition(somebody_has_messages)
    @rule(which=some, failed=st.booleans())
    def release(self, which: int, failed: bool) -> None:
        taker, delivery = self.held(which)
        taker.consumer.release(delivery, failed)
        self.model.came_back(taker.held.pop(number(delivery)), failed)
        self.step()

    @precondition(somebody_has_messages)
    @rule(which=some)
    def reject(self, which: int) -> None:
        taker, delivery = self.held(which)
        taker.consumer.reject(delivery)
        self.model.end(taker.held.pop(number(delivery)), REJECTED)
        self.step()

    @precondition(somebody_has_messages)
    @rule(which=some)
    def send_elsewhere(self, which: int) -> None:
        """What is undeliverable at one consumer goes to the others only."""
        taker, delivery = self.held(which)
        if taker.attached:
            taker.consumer.send_elsewhere(delivery)
            taker.avoided.add(number(delivery))
        else:
            taker.consumer.release(delivery, failed=False)
        self.model.came_back(taker.held.pop(number(delivery)), failed=False)
        self.step()

    @precondition(somebody_has_messages)
    @rule(which=some)
    def time_out(self, which: int) -> None:
        """All that a consumer has is late, and it may not be the single active one any more."""
        taker, _ = self.held(which)
        self.queue.timed_out(taker.consumer)
        self.model.timed_out(taker)
        for delivery in [*taker.consumer.held]:
            taker.consumer.release(delivery)
            self.model.came_back(taker.held.pop(number(delivery)), failed=True)
        self.step()

    @precondition(lambda self: self.fetched)
    @rule(how=st.sampled_from(["accept", "release", "reject"]))
    def answer_fetched(self, how: str) -> None:
        delivery = self.fetched.pop(0)
        item = self.model.fetched.pop(number(delivery))
        if how == "accept":
            self.queue.accept(delivery)
            self.model.end(item, ACCEPTED)
        elif how == "release":
            self.queue.release(delivery)
            self.model.came_back(item, failed=True)
        else:
            self.queue.reject(delivery)
            self.model.end(item, REJECTED)
        self.step()

    # Consumers.

    def somebody_consumes(self) -> bool:
        return bool(self.model.attached())

    def consumer(self, which: int) -> Taker:
        attached = self.model.attached()
        return attached[which % len(attached)]

    @precondition(lambda self: len(self.model.attached()) < CONSUMERS_MAX)
    @rule(
        settled=st.booleans(),
        credit=credits,
        window=st.sampled_from([None, None, 0, 1]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        exclusive=st.sampled_from([False] * 9 + [True]),
        limit=st.sampled_from([1 << 40, 1 << 40, 1, 150]),
        wants=st.sampled_from([None, None, None, b"a", b"ab", b""]),
        browses=st.sampled_from([False, False, False, True]),
    )
    def consume(
        self,
        settled: bool,
        credit: int,
        window: int | None,
        priority: int,
        exclusive: bool,
        limit: int,
        wants: bytes | None,
        browses: bool,
    ) -> None:
        competing = self.model.competing()
        shared = SharedWindow() if window is None else self.windows[window]
        selector = None if wants is None else Only(wants)
        said = (self.queue, settled, credit, shared, priority, exclusive, limit, self.log, {})
        said = (*said, selector, browses)
        if competing and not browses and (exclusive or competing[0].consumer.exclusive):
            with pytest.raises(AccessRefused):
                FakeConsumer(*said)
        else:
            self.model.windows.setdefault(shared, UNLIMITED)
            self.model.joined(FakeConsumer(*said), credit)
        self.step()

    @precondition(somebody_consumes)
    @rule(which=some)
    def leave(self, which: int) -> None:
        taker = self.consumer(which)
        self.queue.remove_consumer(taker.consumer)
        self.model.left(taker)
        self.step()

    @precondition(somebody_consumes)
    @rule(which=some, credit=st.integers(1, 3))
    def grant(self, which: int, credit: int) -> None:
        taker = self.consumer(which)
        taker.granted += credit
        taker.consumer.grant(credit)
        self.step()

    @precondition(somebody_consumes)
    @rule(which=some)
    def pause_or_resume(self, which: int) -> None:
        consumer = self.consumer(which).consumer
        if consumer.paused:
            consumer.resume()
        else:
            consumer.pause()
        self.step()

    @precondition(somebody_consumes)
    @rule(which=some)
    def drain(self, which: int) -> None:
        taker = self.consumer(which)
        taker.filled = 0
        taker.consumer.drain()
        self.step()

    # Operators and time.

    @rule(bounds=bounds)
    def change_policy(self, bounds: dict[str, object]) -> None:
        self.settle()  # the dead go where the policy of their time says
        limits = QueueLimits(**{**bounds, **self.fixed})  # type: ignore[arg-type]
        self.queue.apply(limits)
        self.model.limits = limits
        if limits.overflow is Overflow.DROP_HEAD:
            self.model.drop()
        self.step()

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.model.now = self.bench.broker.tick()
        self.step()

    @precondition(lambda self: self.messages > self.first + 5)
    @rule(bounds=bounds)
    def delete_and_declare_again(self, bounds: dict[str, object]) -> None:
        self.settle()
        consumers = [taker.consumer for taker in self.model.attached()]
        assert self.bench.host.delete_queue(self.queue) == len(self.model.waiting)
        assert all(consumer.ended == 1 and not consumer.attached for consumer in consumers)
        for taker in self.model.takers:
            taker.consumer.accept_all()
        for delivery in self.fetched:
            self.queue.release(delivery)
        assert (self.queue.ready, self.queue.unsettled) == (0, 0)
        self.settle_everything()
        assert self.log == []
        self.buried += self.model.dead
        self.renew(bounds)

    # Batches.

    def step(self) -> None:
        """One thing has been done; a batch of them is settled together."""
        self.steps += 1
        if self.steps % self.batch == 0:
            self.settle()

    def settle(self) -> None:
        self.settle_everything()
        self.replay()
        self.model.expire_heads()
        while self.model.somebody_searches():
            self.bench.clock.advance(PAUSE_S)
            self.model.now = self.bench.broker.tick()
            self.settle_everything()
            self.replay()
            self.model.expire_heads()
        self.everybody_able_is_served()
        self.the_dead_are_in_the_morgue()

    def settle_everything(self) -> None:
        self.bench.settle()
        assert self.bench.broker.touched == []
        assert not self.queue.touched

    def replay(self) -> None:
        self.model.replay(self.log)
        self.log.clear()

    def teardown(self) -> None:
        try:
            if hasattr(self, "model"):
                self.settle()
        finally:
            search.TESTS = TESTS

    # What always holds.

    def everybody_able_is_served(self) -> None:
        assert not any(self.model.is_due(taker) for taker in self.model.takers)

    def the_dead_are_in_the_morgue(self) -> None:
        assert self.found_dead() == self.buried + self.model.dead

    def found_dead(self) -> Counter[tuple[int, str]]:
        found: Counter[tuple[int, str]] = Counter()
        for delivery in self.morgue.waiting():
            assert delivery.message.notes is not None
            (death,) = delivery.message.notes.deaths
            found[number(delivery), death.reason] += 1
        return found

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        model = self.model
        held = [n for taker in model.takers for n in taker.held]
        waiting = [item.number for item in model.waiting]
        assert [number(delivery) for delivery in self.queue.waiting()] == [i.number for i in model.order()]
        assert sorted([*waiting, *held, *model.fetched, *model.ends]) == list(
            range(self.first, self.messages)
        )
        for taker in model.takers:
            assert [number(delivery) for delivery in taker.consumer.held] == list(taker.held)

    @invariant()
    def all_counts_are_exact(self) -> None:
        queue, model = self.queue, self.model
        ends = Counter(model.ends.values())
        assert queue.ready == len(model.waiting)
        assert queue.ready_bytes == sum(item.size for item in model.waiting)
        assert queue.expiring == sum(item.expires_at != NEVER for item in model.waiting)
        assert queue.unsettled == sum(len(taker.held) for taker in model.takers) + len(model.fetched)
        held = [
            item
            for items in (*(each.held for each in model.takers), model.fetched)
            for item in items.values()
        ]
        assert queue.unsettled_bytes == sum(item.size for item in held)
        assert queue.accepted == ends[ACCEPTED]
        assert queue.refused == ends[REFUSED]
        assert queue.published == queue.position == self.messages - self.first - ends[REFUSED]

    @invariant()
    def credit_is_exact_and_never_below_nothing(self) -> None:
        for taker in self.model.takers:
            assert taker.consumer.credit == taker.granted - len(taker.held) >= 0
        for window, granted in self.model.windows.items():
            held = sum(len(taker.held) for taker in self.model.takers if taker.window is window)
            assert window.credit == granted - held >= 0

    @invariant()
    def every_message_is_tested_once_and_again_when_it_was_away(self) -> None:
        times = Counter({body(item.number, 0): 1 + item.returned for item in self.model.items})
        for taker in self.model.takers:
            if isinstance(taker.consumer.selector, Only):
                for tested, count in taker.consumer.selector.looks.items():
                    assert count <= times[tested.rstrip(b".")] or len(tested) == 1

    @invariant()
    def a_queue_is_searched_as_long_as_somebody_seeks(self) -> None:
        seekers = [taker for taker in self.model.attached() if self.model.seeks(taker)]
        for lane in self.queue.lanes:
            if isinstance(lane, SearchedLane):
                assert len(lane.cursors) == 1 + len(seekers) > 1
                assert all(len(part.slots) <= 2 * part.filled + GAPS for part in lane.parts())
                assert lane.filled == sum(part.filled for part in lane.parts())
                assert all(len(cursor.returned) <= 2 * len(lane.back) + GAPS for cursor in lane.cursors)
            else:
                assert not seekers

    @invariant()
    def who_believes_to_be_able_stands_in_one_ring(self) -> None:
        standing = [consumer for ring in self.queue.rings for consumer in ring]
        assert len(standing) == len(set(standing))
        assert set(standing) == {t.consumer for t in self.model.attached() if t.consumer.able}
        assert [ring.priority for ring in self.queue.rings] == sorted(
            {ring.priority for ring in self.queue.rings}, reverse=True
        )


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(stateful_step_count=60)
