"""Groups of readers of a stream: one at a time is active, and the next goes on where the one before it was."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.errors import PreconditionFailed
from leveret.exchanges.super_streams import add_super_stream
from leveret.queues.stream import StreamQueue
from leveret.values import Timestamp, Value
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench


class Member(FakeConsumer):
    """A reader in a group that remembers what it was told of its being active."""

    def __init__(self, queue: StreamQueue, credit: int = 2, start: Value = "first", **more: object) -> None:
        self.told: list[bool] = []
        arguments = {"x-stream-group": "g", "x-stream-offset": start}
        super().__init__(queue, credit=credit, arguments=arguments, **more)  # type: ignore[arg-type]
        queue.virtual_host.broker.settle()

    def elected(self) -> None:
        self.told.append(True)

    def passed_over(self) -> None:
        self.told.append(False)

    @property
    def offsets(self) -> list[int]:
        return [delivery.position for delivery in self.got]

    def answer(self, count: int = 1) -> None:
        for _ in range(count):
            self.accept(self.held[0])
            self.wake()
            self.queue.virtual_host.broker.settle()

    def go(self) -> None:
        """Leave, and give back what is not answered, as a channel does that ends."""
        self.queue.remove_consumer(self)
        for delivery in list(self.held):
            self.release(delivery)
        self.queue.virtual_host.broker.settle()


def stream(bench: CoreBench, name: str = "s", messages: int = 10) -> StreamQueue:
    queue = bench.host.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    assert isinstance(queue, StreamQueue)
    bench.publish(name, *[b"%d" % number for number in range(messages)])
    return queue


def left_of(queue: StreamQueue) -> tuple[object, dict[object, object], object]:
    """Return the groups, the deliveries that they owe answers to, and the members."""
    groups = queue.groups
    return ({}, {}, {}) if groups is None else (groups.by_name, dict(groups._owed), groups.group_of)


def test_the_member_that_came_first_is_active_and_the_next_goes_on_where_it_was(bench: CoreBench) -> None:
    queue = stream(bench)
    first, second = Member(queue), Member(queue)
    first.answer(3)
    assert (first.offsets, second.offsets) == ([0, 1, 2, 3, 4], [])
    assert (queue.serves(first), queue.serves(second)) == (True, False)
    first.go()  # 3 and 4 were not answered
    assert second.offsets == [3, 4]
    assert (first.told, second.told) == ([True], [True])
    second.answer(2)
    assert second.offsets == [3, 4, 5, 6]


def test_x028_a_member_that_does_not_answer_gives_up_its_activity(bench: CoreBench) -> None:
    queue = stream(bench)
    first, second = Member(queue), Member(queue)
    bench.advance(1)
    queue.timed_out(first)
    for delivery in list(first.held):
        first.release(delivery)
    bench.settle()
    assert (first.offsets, second.offsets) == ([0, 1], [0, 1])
    assert (first.told, second.told) == ([True, False], [True])
    second.answer(2)
    second.go()
    assert first.told == [True, False, True]


def test_groups_and_readers_without_one_do_not_disturb_each_other(bench: CoreBench) -> None:
    queue = stream(bench, messages=3)
    grouped = Member(queue, credit=9)
    alone = FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "first"})
    other = FakeConsumer(queue, credit=9, arguments={"x-stream-group": "h", "x-stream-offset": 1})
    bench.settle()
    assert (grouped.bodies(), alone.bodies(), other.bodies()) == ("0 1 2", "0 1 2", "1 2")


def test_the_next_one_waits_for_the_answers_of_one_that_has_left(bench: CoreBench) -> None:
    """As after basic.cancel: the channel still has the deliveries."""
    queue = stream(bench)
    first, second = Member(queue), Member(queue)
    queue.remove_consumer(first)
    bench.settle()
    assert second.offsets == []
    first.accept(first.held[0])
    bench.settle()
    assert second.offsets == []
    first.reject(first.held[0])
    bench.settle()
    assert second.offsets == [2, 3]


def test_a_member_that_comes_when_answers_are_owed_goes_on_as_well(bench: CoreBench) -> None:
    queue = stream(bench)
    first = Member(queue)
    queue.remove_consumer(first)
    second = Member(queue, start="first")
    assert second.offsets == []
    first.release(first.held[1])
    first.accept(first.held[0])
    bench.settle()
    assert second.offsets == [1, 2]


def test_what_the_active_one_gives_back_comes_again_with_all_behind_it(bench: CoreBench) -> None:
    queue = stream(bench)
    member = Member(queue, credit=3)
    member.release(member.held[1])
    member.wake()
    bench.settle()
    assert member.offsets == [0, 1, 2, 1]
    member.answer(3)
    assert member.offsets == [0, 1, 2, 1, 2, 3, 4]


def test_a_group_ends_with_its_last_member(bench: CoreBench) -> None:
    queue = stream(bench)
    member = Member(queue)
    member.answer(4)
    member.go()
    assert left_of(queue) == ({}, {}, {})
    assert Member(queue, start=8).offsets == [8, 9]


def test_the_first_member_says_where_the_group_begins(bench: CoreBench) -> None:
    queue = stream(bench)
    first, second = Member(queue, start=5), Member(queue, start="first")
    assert first.offsets == [5, 6]
    first.go()
    assert second.offsets == [5, 6]


def test_a_group_may_begin_at_a_time(bench: CoreBench) -> None:
    queue = stream(bench, messages=2)
    bench.advance(10)
    bench.publish("s", b"2", b"3")
    begin = Timestamp(int(bench.clock.wall()) - 5)
    first, second = Member(queue, start=begin), Member(queue)
    assert first.offsets == [2, 3]
    first.go()
    assert second.offsets == [2, 3]


def test_members_wait_for_new_messages_and_take_over_at_the_end(bench: CoreBench) -> None:
    queue = stream(bench, messages=0)
    first, second = Member(queue), Member(queue)
    bench.publish("s", b"0")
    first.answer()
    first.go()
    bench.publish("s", b"1")
    assert (first.offsets, second.offsets) == ([0], [1])


def test_partitions_are_spread_over_the_members_and_move_when_one_comes_or_goes(bench: CoreBench) -> None:
    names = add_super_stream(bench.host, "events", 3)
    queues = [bench.host.queues[name] for name in names]
    first = [Member(queue) for queue in queues]  # type: ignore[arg-type]
    assert [queue.serves(each) for queue, each in zip(queues, first, strict=True)] == [True] * 3
    second = [Member(queue) for queue in queues]  # type: ignore[arg-type]
    assert [queue.serves(each) for queue, each in zip(queues, first, strict=True)] == [True, False, True]
    assert [queue.serves(each) for queue, each in zip(queues, second, strict=True)] == [False, True, False]
    assert first[1].told == [True, False]
    for each in second:
        each.go()
    assert [queue.serves(each) for queue, each in zip(queues, first, strict=True)] == [True] * 3
    assert first[1].told == [True, False, True]


def test_activity_moves_only_when_the_one_before_has_answered(bench: CoreBench) -> None:
    add_super_stream(bench.host, "events", 2)
    queue = bench.host.queues["events-1"]
    bench.publish("events-1", *[b"m"] * 6)
    first, second = Member(queue), Member(queue)  # type: ignore[arg-type]
    assert (first.offsets, second.offsets, queue.serves(second)) == ([0, 1], [], True)
    first.accept(first.held[0])
    first.wake()
    bench.settle()
    assert (first.offsets, second.offsets) == ([0, 1], [])
    first.accept(first.held[0])
    bench.settle()
    assert (first.offsets, second.offsets) == ([0, 1], [2, 3])


def test_a_deleted_stream_leaves_nothing(bench: CoreBench) -> None:
    queue = stream(bench)
    first, second = Member(queue), Member(queue)
    bench.host.delete_queue(queue)
    assert left_of(queue) == ({}, {}, {})
    assert (first.ended, second.ended) == (1, 1)
    first.release(first.held[0])  # the channel ends later


@pytest.mark.parametrize("name", [5, "", "a" * 256, None])
def test_a_group_has_a_name(bench: CoreBench, name: Value) -> None:
    queue = stream(bench)
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-stream-group' for queue 's'"):
        FakeConsumer(queue, credit=1, arguments={"x-stream-group": name})
    assert (queue.consumers, queue.cursors, left_of(queue)) == ({}, {}, ({}, {}, {}))


class GroupMachine(RuleBasedStateMachine):
    """Members of one group of a partition come, go, cancel, and answer in any order; messages arrive."""

    @initialize(partition=st.integers(0, 2))
    def begin(self, partition: int) -> None:
        self.bench = CoreBench()
        add_super_stream(self.bench.host, "e", 3)
        self.name = f"e-{partition}"
        self.queue = self.bench.host.queues[self.name]
        self.members: list[Member] = []
        self.left: list[Member] = []  # cancelled, with answers that they owe
        self.published = 0
        self.begun = False
        self.accepted: set[int] = set()

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        self.bench.publish(self.name, *[b"m"] * count)
        self.published += count

    @precondition(lambda self: len(self.members) < 4)
    @rule(credit=st.integers(1, 3))
    def come(self, credit: int) -> None:
        if not self.members and not self.left:
            self.accepted.clear()  # a new group, from the first message on
        self.members.append(Member(self.queue, credit=credit))  # type: ignore[arg-type]

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.members.remove(member)
        member.go()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.members.remove(member)
        self.queue.remove_consumer(member)
        if member.held:
            self.left.append(member)
        self.bench.settle()

    @rule(data=st.data(), outcome=st.sampled_from(["accept", "accept", "accept", "release"]))
    def answer(self, data: st.DataObject, outcome: str) -> None:
        owing = [each for each in (*self.members, *self.left) if each.held]
        if not owing:
            return
        member = data.draw(st.sampled_from(owing))
        delivery = data.draw(st.sampled_from(member.held))
        if outcome == "accept":
            self.accepted.add(delivery.position)
            member.accept(delivery)
        else:
            member.release(delivery)
        member.wake()
        self.bench.settle()
        self.left = [each for each in self.left if each.held]

    @invariant()
    def at_most_one_has_messages(self) -> None:
        if hasattr(self, "queue"):
            assert sum(bool(each.held) for each in (*self.members, *self.left)) <= 1
            if not self.members and not self.left:
                assert not left_of(self.queue)[0]
            assert len(left_of(self.queue)[1]) == sum(len(each.held) for each in (*self.members, *self.left))

    def teardown(self) -> None:
        """Whatever has happened, the members get everything that was not accepted."""
        if not hasattr(self, "queue") or not self.members:
            return
        for each in self.left:
            for delivery in list(each.held):
                each.release(delivery)
        self.bench.settle()
        for _ in range(500):
            holder = next((each for each in self.members if each.held), None)
            if holder is None:
                break
            self.accepted.add(holder.held[0].position)
            holder.answer()
        assert self.accepted == set(range(self.published))


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_a_group_gets_everything_one_member_at_a_time = GroupMachine.TestCase
