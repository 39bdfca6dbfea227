"""Queues for last values: the newest message of each value waits, and nothing of the others is left."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.message import Facts, Message
from leveret.queues.last_value import DEAD_MAX, LastValueQueue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Value
from tests.core.fakes import DEAD, FakeConsumer, fetched, morgue, reasons, waiting
from tests.core.queues.headed import HEADER, headed, publish
from tests.harness.bench import CoreBench


def last_values(bench: CoreBench, **said: Value) -> LastValueQueue:
    queue = bench.queue("q", x_last_value_key=HEADER, **said)
    assert isinstance(queue, LastValueQueue)
    return queue


@pytest.fixture
def queue(bench: CoreBench) -> LastValueQueue:
    return last_values(bench)


def places(queue: LastValueQueue) -> int:
    """How many places there are in the lanes, of replaced messages too."""
    return sum(sum(1 for _ in lane) for lane in queue.lanes)


def test_a_new_message_replaces_the_one_of_the_same_value_and_stands_at_its_own_place(bench: CoreBench):
    queue = last_values(bench)
    publish(bench, queue, "a1", "b1", "a2", "c1", "b2")
    assert waiting(queue) == "a2 c1 b2"
    assert (queue.ready, queue.ready_bytes, queue.published) == (3, 6, 5)
    assert [fetched(queue, True).message.body for _ in range(3)] == [b"a2", b"c1", b"b2"]
    assert queue.take_one(True) is None
    assert (queue.ready, queue.ready_bytes) == (0, 0)


def test_values_are_compared_as_texts_and_no_header_is_one_value(queue: LastValueQueue) -> None:
    for value, body in (
        (5, b"number"),
        ("5", b"text"),
        (None, b"none"),
        (None, b"none again"),
        (True, b"true"),
    ):
        queue.push(headed(value, body))
    assert [each.message.body for each in queue.waiting()] == [b"text", b"none again", b"true"]


class Subjected(FakeEncoding):
    """A protocol that has the subject as a property."""

    def property(self, properties: bytes, name: str) -> Value:
        return properties.decode() if name == "subject" else super().property(properties, name)


def test_the_subject_of_other_protocols_is_what_0_10_has_in_a_header(bench: CoreBench) -> None:
    queue = bench.queue("q", x_last_value_key="qpid.subject")
    for subject in (b"a", b"b", b"a"):
        queue.push(Message(Subjected(Properties()), "", "q", subject, subject))
    headers = Properties(headers={"qpid.subject": "b"})
    queue.push(Message(FakeEncoding(headers), "", "q", b"", b"header", Facts(has_headers=True)))
    assert waiting(queue) == "a header"


def test_what_is_replaced_is_no_dead_letter(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = last_values(bench, x_message_ttl=1000, **DEAD)
    publish(bench, queue, "a1", "a2", "b1")
    bench.advance(2)
    assert reasons(dead) == ["a2 expired", "b1 expired"]
    assert (queue.ready, queue.ready_bytes, queue.expiring) == (0, 0, 0)


def test_what_a_consumer_has_is_not_replaced(bench: CoreBench, queue: LastValueQueue) -> None:
    consumer = FakeConsumer(queue, credit=1)
    publish(bench, queue, "a1")
    publish(bench, queue, "a2", "a3")
    assert consumer.bodies() == "a1"
    assert waiting(queue) == "a3"
    consumer.accept(consumer.held[0])
    bench.settle()
    assert consumer.bodies() == "a1 a3"


def test_what_comes_back_is_dropped_if_a_newer_one_waits(bench: CoreBench, queue: LastValueQueue) -> None:
    first = fetched_after(bench, queue, "a1")
    publish(bench, queue, "a2")
    queue.release(first)
    assert waiting(queue) == "a2"
    assert (queue.ready, queue.unsettled) == (1, 0)


def test_what_comes_back_replaces_an_older_one_that_waits(bench: CoreBench, queue: LastValueQueue) -> None:
    first, second = fetched_after(bench, queue, "a1"), fetched_after(bench, queue, "a2")
    queue.release(first)
    assert waiting(queue) == "a1"
    queue.release(second)
    assert waiting(queue) == "a2"
    assert (queue.ready, queue.ready_bytes, queue.unsettled) == (1, 2, 0)


def test_one_that_dies_of_its_failures_replaces_nothing(bench: CoreBench) -> None:
    queue = last_values(bench, x_delivery_limit=1)
    first = fetched_after(bench, queue, "a1")
    queue.release(first)
    first, second = fetched(queue, False), fetched_after(bench, queue, "a2")
    queue.release(second)
    queue.release(first)
    assert waiting(queue) == "a2"


def fetched_after(bench: CoreBench, queue: LastValueQueue, said: str) -> Delivery:
    publish(bench, queue, said)
    return fetched(queue, settled=False)


def test_who_browses_sees_new_values_and_none_that_was_replaced(bench: CoreBench, queue: LastValueQueue):
    publish(bench, queue, "a1", "b1", "a2")
    looks = FakeConsumer(queue, browses=True)
    bench.settle()
    publish(bench, queue, "b2", "c1", "b3")
    assert looks.bodies() == "b1 a2 c1 b3"
    assert waiting(queue) == "a2 c1 b3"


def test_a_message_may_replace_one_of_another_priority(bench: CoreBench) -> None:
    queue = last_values(bench, x_max_priority=2)
    publish(bench, queue, "a1", "b1")
    publish(bench, queue, "a2", priority=2)
    publish(bench, queue, "b2", priority=1)
    assert waiting(queue) == "a2 b2"


@pytest.mark.parametrize("browsed", [False, True])
def test_places_of_replaced_messages_are_closed_up(bench: CoreBench, queue: LastValueQueue, browsed: bool):
    """Nothing is kept for each message, nor for each value that was."""
    if browsed:
        FakeConsumer(queue, browses=True, credit=5)
    for number in range(1000):
        publish(bench, queue, f"{chr(97 + number % 5)}{number}")
        assert places(queue) <= 2 * queue.ready + DEAD_MAX
    assert waiting(queue) == "a995 b996 c997 d998 e999"
    assert len(queue._newest) == len(queue._values) == 5
    queue.purge()
    assert (len(queue._newest), len(queue._values), places(queue)) == (0, 0, 0)


@pytest.mark.parametrize("overflow", ["reject-publish", "drop-head"])
def test_a_full_queue_takes_what_replaces_something(bench: CoreBench, overflow: str) -> None:
    queue = last_values(bench, x_max_length=2, x_overflow=overflow)
    publish(bench, queue, "a1", "b1", "a2", "c1")
    assert waiting(queue) == ("b1 a2" if overflow == "reject-publish" else "a2 c1")
    assert queue.refused == (overflow == "reject-publish")
    publish(bench, queue, "a3")
    assert queue.ready == 2


def test_a_larger_message_is_refused_and_replaces_nothing(bench: CoreBench) -> None:
    queue = last_values(bench, x_max_length_bytes=5, x_overflow="reject-publish")
    publish(bench, queue, "a1", "b1")
    publish(bench, queue, "a2345")
    assert waiting(queue) == "a1 b1"
    publish(bench, queue, "a23")
    assert waiting(queue) == "b1 a23"


def test_what_waits_may_be_acquired_and_is_replaced_no_more(bench: CoreBench, queue: LastValueQueue) -> None:
    publish(bench, queue, "a1", "b1", "a2")
    FakeConsumer(queue, browses=True)
    bench.settle()
    assert queue.acquire(0) is None
    taken = queue.acquire(2)
    assert taken is not None
    assert taken.message.body == b"a2"
    publish(bench, queue, "a3")
    assert (waiting(queue), queue.unsettled) == ("b1 a3", 1)


# All of it in any order.


class LastValues(RuleBasedStateMachine):
    """Compared with a list of what waits."""

    @initialize(ranked=st.booleans())
    def begin(self, ranked: bool) -> None:
        self.bench = CoreBench()
        self.queue = last_values(self.bench, **({"x_max_priority": 1} if ranked else {}))
        self.ranked = ranked
        self.model: list[tuple[int, int, str, float]] = []  # rank, position, body, end
        self.held: list[Delivery] = []
        self.browsers: list[FakeConsumer] = []
        self.count = 0

    def values(self) -> list[str]:
        return [body[0] for _, _, body, _ in self.model]

    def drop(self, value: str) -> None:
        self.model = [each for each in self.model if each[2][0] != value]

    @rule(value=st.sampled_from("abcd"), priority=st.integers(0, 1), ttl_s=st.sampled_from([None, 2, 5]))
    def publish(self, value: str, priority: int, ttl_s: int | None) -> None:
        body = f"{value}{self.count}"
        publish(self.bench, self.queue, body, priority=priority, ttl_ms=ttl_s and ttl_s * 1000)
        self.drop(value)
        end = NEVER if ttl_s is None else self.bench.broker.now + ttl_s
        self.model.append((priority if self.ranked else 0, self.count, body, end))
        self.count += 1

    @rule()
    def fetch(self) -> None:
        delivery = self.queue.take_one(settled=False)
        self.bench.settle()
        if delivery is None:
            assert not self.model
            return
        expected = min(self.model, key=lambda each: (-each[0], each[1]))
        assert delivery.message.body.decode() == expected[2]
        self.model.remove(expected)
        self.held.append(delivery)

    @precondition(lambda self: getattr(self, "held", None))
    @rule(which=st.integers(0, 9), answer=st.sampled_from(["accept", "reject", "release", "release"]))
    def answer(self, which: int, answer: str) -> None:
        delivery = self.held.pop(which % len(self.held))
        getattr(self.queue, answer)(delivery)
        if answer == "release":
            body = delivery.message.body.decode()
            older = [each for each in self.model if each[2][0] == body[0]]
            if not older or older[0][1] < delivery.position:
                self.drop(body[0])
                rank = delivery.message.facts.priority if self.ranked else 0
                if delivery.expires_at > self.bench.broker.now:
                    self.model.append((rank, delivery.position, body, delivery.expires_at))
        self.bench.settle()

    @rule(seconds=st.sampled_from([1, 3]))
    def advance(self, seconds: int) -> None:
        """What has come back expires only when it is at the head, so everything is looked at."""
        self.bench.advance(seconds)
        now = self.bench.broker.now
        self.model = [each for each in self.model if each[3] > now]
        overdue = [each for each in self.queue.waiting() if each.expires_at <= now]
        for each in overdue:
            if (due := self.queue.acquire(each.position)) is not None:  # due, not overdue
                self.queue.reject(due)
        self.bench.settle()
        assert not [each for each in self.queue.waiting() if each.expires_at <= now]

    @rule()
    def browse(self) -> None:
        if len(self.browsers) < 2:
            self.browsers.append(FakeConsumer(self.queue, browses=True))
            self.bench.settle()
        else:
            self.browsers.pop().leave()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.model)
        self.model.clear()

    @invariant()
    def the_newest_alone_wait(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue, now = self.queue, self.bench.broker.now
        found = [each.message.body.decode() for each in queue.waiting() if each.expires_at > now]
        expected = sorted(self.model, key=lambda each: (-each[0], each[1]))
        assert found == [body for _, _, body, _ in expected]
        assert queue.ready == sum(1 for _ in queue.waiting()) == len(queue._values) == len(queue._newest)
        assert queue.ready_bytes == sum(each.message.size for each in queue.waiting())
        assert queue.expiring == sum(each.expires_at != NEVER for each in queue.waiting())
        assert queue.unsettled == len(self.held)
        assert places(queue) == queue.ready + queue._dead
        assert bool(self.browsers) == (queue.search is not None)

    @invariant()
    def who_browses_has_seen_what_waits(self) -> None:
        for browser in getattr(self, "browsers", ()):
            seen = {each.message.body for each in browser.got}
            assert all(each.message.body in seen for each in self.queue.waiting())


TestLastValues = LastValues.TestCase
TestLastValues.settings = settings(stateful_step_count=40)
