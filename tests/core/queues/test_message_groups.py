"""Message groups: one consumer at a time has something of a group, in order; everybody else goes on with the others."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.delivery import Delivery
from leveret.errors import PreconditionFailed
from leveret.features.leases.lease import opened
from leveret.queues import message_groups
from leveret.queues.message_groups import MessageGroupQueue
from leveret.values import Value
from tests.core.fakes import FakeConsumer, Only, fetched, waiting
from tests.core.queues.headed import HEADER, headed, publish
from tests.harness.bench import CoreBench
from tests.harness.call_count import calls


def grouped(bench: CoreBench, **said: Value) -> MessageGroupQueue:
    queue = bench.queue("q", x_message_group_key=HEADER, **said)
    assert isinstance(queue, MessageGroupQueue)
    return queue


@pytest.fixture
def queue(bench: CoreBench) -> MessageGroupQueue:
    return grouped(bench)


def got(consumer: FakeConsumer) -> str:
    return consumer.bodies()


def test_a_group_goes_to_one_consumer_and_others_to_the_next(
    bench: CoreBench, queue: MessageGroupQueue
) -> None:
    one, two = FakeConsumer(queue, credit=1), FakeConsumer(queue, credit=2)
    publish(bench, queue, "a1", "a2", "b1", "a3", "c1")
    assert (got(one), got(two)) == ("a1", "b1 c1")
    assert waiting(queue) == "a2 a3"


def test_a_group_is_free_when_all_of_it_is_settled(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one = FakeConsumer(queue, credit=2)
    publish(bench, queue, "a1", "a2", "a3")
    two = FakeConsumer(queue, credit=5)
    bench.settle()
    one.queue.accept(one.held[0])
    bench.settle()
    assert got(two) == ""
    one.queue.accept(one.held[1])
    bench.settle()
    assert (got(one), got(two)) == ("a1 a2", "a3")


@pytest.mark.parametrize("answer", ["accept", "reject", "release"])
def test_what_clients_had_before_a_restart_holds_its_group(
    bench: CoreBench, queue: MessageGroupQueue, answer: str
) -> None:
    publish(bench, queue, "a1", "a2", "b1", "a3")
    first, second = queue.take_stored([0, 1])
    one = FakeConsumer(queue)
    bench.settle()
    assert got(one) == "b1"
    queue.accept(first)
    bench.settle()
    assert got(one) == "b1"
    getattr(queue, answer)(second)
    bench.settle()
    assert got(one) == ("b1 a2 a3" if answer == "release" else "b1 a3")


@pytest.mark.parametrize("answer", ["reject", "release"])
def test_any_answer_frees_a_group(bench: CoreBench, queue: MessageGroupQueue, answer: str) -> None:
    one = FakeConsumer(queue, credit=1)
    publish(bench, queue, "a1", "a2")
    two = FakeConsumer(queue, credit=1)
    bench.settle()
    getattr(queue, answer)(one.held[0])
    bench.settle()
    assert got(two) == ("a1" if answer == "release" else "a2")


def test_what_comes_back_comes_first_and_to_the_owner_of_its_group(
    bench: CoreBench, queue: MessageGroupQueue
):
    one, two = FakeConsumer(queue, credit=2), FakeConsumer(queue, credit=0)
    publish(bench, queue, "a1", "a2", "a3", "b1")
    queue.release(one.held[0])
    two.grant(5)
    bench.settle()
    assert got(two) == "b1"
    one.grant(5)
    bench.settle()
    assert got(one) == "a1 a2 a1 a3"


def test_a_consumer_that_leaves_keeps_its_groups_until_it_has_answered(
    bench: CoreBench, queue: MessageGroupQueue
):
    one, two = FakeConsumer(queue, credit=1), FakeConsumer(queue, credit=9)
    publish(bench, queue, "a1", "a2")
    one.leave()
    bench.settle()
    assert got(two) == ""
    queue.release(one.held[0])
    bench.settle()
    assert got(two) == "a1 a2"


def test_who_does_not_answer_owns_nothing(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one, two = FakeConsumer(queue, settled=True, credit=1), FakeConsumer(queue, credit=9)
    publish(bench, queue, "a1", "a2")
    assert (got(one), got(two)) == ("a1", "a2")


def test_selectors_and_groups_both_hold(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one = FakeConsumer(queue, credit=1, selector=Only(b"a"))
    publish(bench, queue, "a1", "a2", "b1")
    two = FakeConsumer(queue, credit=9, selector=Only(b"a"))
    bench.settle()
    assert (got(one), got(two), waiting(queue)) == ("a1", "", "a2 b1")
    queue.accept(one.held[0])
    bench.settle()
    assert (got(one), got(two), waiting(queue)) == ("a1", "a2", "b1")


def test_who_browses_sees_everything(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one = FakeConsumer(queue, credit=1)
    publish(bench, queue, "a1", "a2", "b1")
    looks = FakeConsumer(queue, browses=True)
    bench.settle()
    assert (got(looks), got(one)) == ("a2 b1", "a1")


def test_a_fetch_takes_the_first_of_a_free_group_and_owns_it(
    bench: CoreBench, queue: MessageGroupQueue
) -> None:
    publish(bench, queue, "a1", "a2", "b1", "b2")
    first, second = fetched(queue, settled=False), fetched(queue, settled=False)
    assert (first.message.body, second.message.body) == (b"a1", b"b1")
    assert queue.take_one(settled=False) is None
    queue.accept(first)
    assert fetched(queue, settled=True).message.body == b"a2"
    assert (queue.ready, queue.unsettled, queue.search) == (1, 1, None)


def test_what_is_another_consumers_cannot_be_acquired(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one = FakeConsumer(queue, credit=1)
    publish(bench, queue, "a1", "a2", "b1")
    assert queue.acquire(1) is None
    assert (waiting(queue), queue.unsettled) == ("a2 b1", 1)
    taken = queue.acquire(2)
    assert taken is not None
    one.grant(9)
    publish(bench, queue, "b2")
    assert got(one) == "a1 a2"
    queue.accept(taken)
    bench.settle()
    assert got(one) == "a1 a2 b2"


def test_messages_without_a_group_are_one_group(bench: CoreBench, queue: MessageGroupQueue) -> None:
    one, two = FakeConsumer(queue, credit=1), FakeConsumer(queue, credit=1)
    for body in (b"x", b"y"):
        queue.push(headed(None, body))
    bench.settle()
    assert (got(one), got(two)) == ("x", "")


def test_who_has_passed_by_enough_goes_on_when_that_has_gone(
    bench: CoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_groups, "LOOK_AHEAD", 4)
    queue = grouped(bench)
    one = FakeConsumer(queue, credit=1)
    publish(bench, queue, *(f"a{number}" for number in range(9)), "b0")
    two = FakeConsumer(queue, credit=1)
    bench.settle()
    assert got(two) == ""  # b0 is too far away
    for _ in range(8):
        one.grant(1)
        bench.settle()
    assert got(two) == "b0"
    assert got(one) == " ".join(f"a{number}" for number in range(9))


def test_who_has_passed_by_enough_and_takes_nothing_leaves_the_queue_at_rest(
    bench: CoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_groups, "LOOK_AHEAD", 2)
    queue = grouped(bench)
    one = FakeConsumer(queue, credit=1)
    publish(bench, queue, *(f"a{number}" for number in range(9)), "b0")
    two = FakeConsumer(queue, credit=1)
    bench.settle()
    two.pause()
    one.grant(7)
    publish(bench, queue, "a9")
    assert bench.broker.touched == []
    two.resume()
    bench.settle()
    assert (got(two), got(one)) == ("b0", " ".join(f"a{number}" for number in range(8)))


def test_a_free_group_is_looked_for_where_it_was_passed_by(
    bench: CoreBench, queue: MessageGroupQueue
) -> None:
    """Not from the front of a long queue, each time."""
    one, two = FakeConsumer(queue, credit=1), FakeConsumer(queue, credit=1)
    publish(bench, queue, *(f"a{number}" for number in range(500)))
    publish(bench, queue, "b1", "b2")
    assert got(two) == "b1"

    def answers() -> None:
        two.accept(two.held[0])
        bench.settle()

    assert sum(calls(answers).values()) < 150
    assert (got(one), got(two)) == ("a0", "b1 b2")


def test_it_cannot_be_leased_for_a_lease_would_own_all_groups(bench: CoreBench) -> None:
    with pytest.raises(PreconditionFailed, match="message groups"):
        opened(grouped(bench), "reader")


def test_immediate_messages_of_a_group_that_is_not_free_cannot_be_delivered_now(bench: CoreBench) -> None:
    queue = grouped(bench)
    one = FakeConsumer(queue, credit=2)
    assert queue.can_deliver_now(headed("a", b""))
    publish(bench, queue, "a1")
    assert got(one) == "a1"
    assert not queue.can_deliver_now(headed("a", b""))
    assert queue.can_deliver_now(headed("b", b""))


# All of it in any order.


class Groups(RuleBasedStateMachine):
    """What each consumer is given is compared with what a look at everything says it may have."""

    @initialize(ranked=st.booleans(), look_ahead=st.sampled_from([3, 1000]))
    def begin(self, ranked: bool, look_ahead: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(message_groups, "LOOK_AHEAD", look_ahead)
        self.look_ahead = look_ahead
        self.bench = CoreBench()
        self.queue = grouped(self.bench, **({"x_max_priority": 1} if ranked else {}))
        self.log: list[tuple[FakeConsumer, Delivery]] = []
        self.consumers: list[FakeConsumer] = []
        self.gone: list[FakeConsumer] = []  # those who left, and may still answer
        self.fetched: list[Delivery] = []
        self.count = 0
        self.owners: dict[str, tuple[object, set[Delivery]]] = {}
        for credit in (1, 3):
            self.consume(credit, None, "t")

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    def settle(self) -> None:
        """Whoever was given something owned the group, or it was free."""
        begin = len(self.log)
        self.bench.settle()
        for consumer, delivery in self.log[begin:]:
            if not (consumer.browses or consumer.settled):
                self.own(consumer, delivery)

    def own(self, owner: object, delivery: Delivery) -> None:
        group = delivery.message.body.decode()[0]
        by, held = self.owners.setdefault(group, (owner, set()))
        assert by is owner
        held.add(delivery)

    def answered(self, delivery: Delivery) -> None:
        group = delivery.message.body.decode()[0]
        held = self.owners[group][1]
        held.remove(delivery)
        if not held:
            del self.owners[group]

    @rule(group=st.sampled_from("abc"), priority=st.integers(0, 1), count=st.integers(1, 4))
    def publish(self, group: str, priority: int, count: int) -> None:
        for _ in range(count):
            self.queue.push(headed(group, f"{group}{self.count}".encode(), priority))
            self.count += 1
        self.settle()

    @rule(credit=st.integers(0, 3), only=st.sampled_from([None, None, b"ab"]), kind=st.sampled_from("ttttsb"))
    def consume(self, credit: int, only: bytes | None, kind: str) -> None:
        if len(self.consumers) < 4:
            self.consumers.append(
                FakeConsumer(
                    self.queue,
                    credit=credit,
                    settled=kind == "s",
                    browses=kind == "b",
                    log=None,
                    selector=None if only is None else Only(only),
                )
            )
            self.consumers[-1].log = self.log
            self.settle()

    @precondition(lambda self: getattr(self, "consumers", None))
    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        consumer = self.consumers.pop(which % len(self.consumers))
        consumer.leave()
        self.gone.append(consumer)
        self.settle()

    @precondition(lambda self: getattr(self, "consumers", None))
    @rule(which=st.integers(0, 9), credit=st.integers(1, 4))
    def grant(self, which: int, credit: int) -> None:
        self.consumers[which % len(self.consumers)].grant(credit)
        self.settle()

    @rule()
    def fetch(self) -> None:
        delivery = self.queue.take_one(settled=False)
        if delivery is not None:
            self.own(delivery, delivery)
            self.fetched.append(delivery)
        self.settle()

    @rule(which=st.integers(0, 50), answer=st.sampled_from(["accept", "release", "release", "reject"]))
    def answer(self, which: int, answer: str) -> None:
        holders = [each.held for each in (*self.consumers, *self.gone)] + [self.fetched]
        held = [(pile, delivery) for pile in holders for delivery in pile]
        if held:
            pile, delivery = held[which % len(held)]
            pile.remove(delivery)
            self.answered(delivery)
            getattr(self.queue, answer)(delivery)
            self.settle()

    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.settle()

    @invariant()
    def nobody_waits_for_what_he_may_have(self) -> None:
        if not hasattr(self, "queue"):
            return
        left = [*self.queue.waiting()]
        assert self.queue.ready == len(left)
        assert self.queue.unsettled == sum(len(held) for _, held in self.owners.values())
        assert {*self.queue._held} == {*self.owners}
        if self.look_ahead < 1000:
            return
        for consumer in self.consumers:
            if consumer.credit > 0 and not consumer.browses:
                assert not [each for each in left if self.may_have(consumer, each)]

    def may_have(self, consumer: FakeConsumer, delivery: Delivery) -> bool:
        owner = self.owners.get(delivery.message.body.decode()[0])
        wants = consumer.selector is None or consumer.selector.matches(delivery.message)
        return wants and (owner is None or owner[0] is consumer)

    @invariant()
    def a_group_comes_in_order(self) -> None:
        """Of one priority, what was never given back comes in the order of arrival."""
        seen: dict[tuple[str, int], int] = {}
        for consumer, delivery in getattr(self, "log", ()):
            if consumer.browses or delivery.redelivered:
                continue
            line = delivery.message.body.decode()[0], delivery.message.facts.priority
            if any(each.selector is not None for each in (*self.consumers, *self.gone)):
                return
            assert seen.get(line, -1) < delivery.position
            seen[line] = delivery.position


TestGroups = Groups.TestCase
TestGroups.settings = settings(stateful_step_count=40)
