"""Two nodes, one row, and everything late: whatever the network and the scheduler do, no number is confirmed twice.

The row keeps a log: a commit writes the next place of it, if the epoch is still its own. Requests and answers of a node
travel as long as they like, or are lost; a node that is not asked to do anything is paused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from leveret.server.cluster.lease import NodeEvent, NodeLease, NodeState, OwnLease, Watch
from tests.server.cluster.rows import Row

T = TypeVar("T")
TTL_S: Final = 5.0
NODES: Final = ("a", "b")
WHICH: Final = st.sampled_from(NODES)


class Database:
    """The row and the log, each request in one transaction."""

    def __init__(self) -> None:
        self.row = Row(0, 0, 0, None)
        self.log: list[tuple[int, str]] = []  # epoch and content, by place
        self.checks_epoch = True

    def claim(self, epoch: int, node: str) -> int | None:
        if self.row.epoch != epoch:
            return None
        self.row = Row(epoch + 1, 0, 0, node)
        return epoch + 1

    def commit(self, epoch: int, place: int, content: str) -> bool:
        if self.checks_epoch and self.row.epoch != epoch:
            return False
        del self.log[place:]  # nothing, but for an owner that nothing stops
        self.log.append((epoch, content))
        self.row = attrs.evolve(self.row, number=self.row.number + 1)
        return True

    def beat(self, epoch: int) -> bool:
        if self.row.epoch != epoch:
            return False
        self.row = attrs.evolve(self.row, beat=self.row.beat + 1)
        return True


class Node:
    """One node: what it knows, and what it has asked for and not been told yet."""

    def __init__(self, name: str, began: float) -> None:
        self.name = name
        self.began = began  # its clock shows the time since then
        self.lease, self.watch = NodeLease(), Watch(name, TTL_S)
        self.tenure: OwnLease | None = None
        self.log: list[str] = []  # as it knows it: confirmed, or read at the takeover
        self.on_its_way: list[Callable[[], None]] = []  # requests, then answers, in order of neither
        self.break_off: Callable[[], None] = lambda: None
        self.is_waiting = False  # for the answer of its connection, which has one request at a time


class TwoNodes(RuleBasedStateMachine):
    """Two nodes, each of which stands by, claims, publishes, beats and delivers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.database = Database()
        self.suspends = True
        self.nodes = {"a": Node("a", 0.0), "b": Node("b", -1000.0)}
        self.time = 0.0
        self.confirmed: dict[int, tuple[int, str]] = {}
        # epochs whose owner was succeeded because it was quiet, and not before
        self.silenced: set[int] = set()
        self.made = 0

    @rule(seconds=st.sampled_from((0.1, 1.0, 4.0)))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(which=WHICH, looks=st.integers(1, 8))
    def stands_by(self, which: str, looks: int) -> None:
        for _ in range(looks):
            self.time += 1.0
            self._look(which)

    def _look(self, which: str) -> None:
        node = self.nodes[which]
        if node.lease.state is not NodeState.STANDBY or node.is_waiting:
            return
        row = self.database.row
        why = node.watch.see(row, self.time - node.began)
        if why is None:
            return
        node.lease.on(NodeEvent.DUE)
        sent = self.time

        def answered(epoch: int | None) -> None:
            if epoch is None:
                node.lease.on(NodeEvent.LOST)
                node.watch.forget()
                return
            node.lease.on(NodeEvent.CLAIMED)
            node.tenure = OwnLease(epoch, TTL_S, sent)
            node.log = [content for _, content in self.database.log]
            node.lease.on(NodeEvent.RECOVERED)

        def arrived() -> int | None:
            epoch = self.database.claim(row.epoch, which)
            if epoch is not None and why.startswith("silent"):
                self.silenced.add(row.epoch)
            return epoch

        self._ask(node, arrived, answered, lambda: node.lease.on(NodeEvent.LOST))

    @rule(which=WHICH)
    def publishes(self, which: str) -> None:
        node = self.nodes[which]
        if not self._may_serve(node) or node.is_waiting:
            return
        assert node.tenure is not None
        epoch, place, sent = node.tenure.epoch, len(node.log), self.time
        self.made += 1
        content = f"{which}{self.made}"

        def answered(done: bool) -> None:
            if not done:
                self._end(node)
                return
            self._renew(node, sent)
            before = self.confirmed.setdefault(place, (epoch, content))
            assert before == (epoch, content), (
                f"number {place} was confirmed in epoch {before[0]} and {epoch}"
            )
            node.log.append(content)

        def arrived() -> bool:
            if self.database.log[place : place + 1] == [(epoch, content)]:
                return True  # the same commit again
            return self.database.commit(epoch, place, content)

        def again() -> None:
            self._ask(node, arrived, answered, again)  # until it is known

        self._ask(node, arrived, answered, again)

    @rule(which=WHICH)
    def beats(self, which: str) -> None:
        node = self.nodes[which]
        if not node.lease.is_owner or node.is_waiting:
            return
        assert node.tenure is not None
        epoch, sent = node.tenure.epoch, self.time
        self._ask(
            node,
            lambda: self.database.beat(epoch),
            lambda done: self._renew(node, sent) if done else self._end(node),
            lambda: None,
        )

    @rule(which=WHICH)
    def delivers(self, which: str) -> None:
        """Hand something out of memory: not after another node was right to think that this one is dead."""
        node = self.nodes[which]
        if self._may_serve(node):
            assert node.tenure is not None
            assert node.tenure.epoch not in self.silenced, "delivered after another node had taken over"

    @rule(which=WHICH, times=st.integers(1, 4))
    def arrives(self, which: str, times: int) -> None:
        """Let the network do what it was asked to, the oldest first."""
        for _ in range(times):
            if self.nodes[which].on_its_way:
                self.nodes[which].on_its_way.pop(0)()

    @rule(which=WHICH, place=st.integers(0, 5))
    def something_overtakes(self, which: str, place: int) -> None:
        on_its_way = self.nodes[which].on_its_way
        if place < len(on_its_way):
            on_its_way.pop(place)()

    @rule(which=WHICH)
    def connection_breaks(self, which: str) -> None:
        if self.nodes[which].is_waiting:
            self.nodes[which].break_off()

    def _ask(
        self,
        node: Node,
        arrived: Callable[[], T],
        answered: Callable[[T], None],
        failed: Callable[[], object],
    ) -> None:
        """Send a request, which arrives some time, as does its answer, unless the connection breaks before.

        A request of a connection that has broken off may still arrive.
        """
        node.is_waiting = True

        def request() -> None:
            answer = arrived()
            node.on_its_way.append(lambda: over(lambda: answered(answer)))

        def over(then: Callable[[], object]) -> None:
            if not is_over:
                is_over.append(True)
                node.is_waiting = False
                then()

        is_over: list[bool] = []
        node.break_off = lambda: over(failed)
        node.on_its_way.append(request)

    def _may_serve(self, node: Node) -> bool:
        if not node.lease.is_owner:
            return False
        assert node.tenure is not None
        if self.suspends and node.lease.state is NodeState.SERVING and node.tenure.has_lapsed(self.time):
            node.lease.on(NodeEvent.LAPSED)
        return node.lease.state is NodeState.SERVING

    def _renew(self, node: Node, sent: float) -> None:
        if node.lease.is_owner:
            assert node.tenure is not None
            node.tenure.renew(sent)
            if node.lease.state is NodeState.SUSPENDED and not node.tenure.has_lapsed(self.time):
                node.lease.on(NodeEvent.RENEWED)

    def _end(self, node: Node) -> None:
        if node.lease.is_owner:
            node.lease.on(NodeEvent.ENDED)
            node.watch.forget()

    @invariant()
    def what_was_confirmed_is_there(self) -> None:
        for place, kept in self.confirmed.items():
            assert self.database.log[place : place + 1] == [kept], f"number {place} is lost"


def test_nothing_is_confirmed_in_two_epochs_nor_lost_nor_delivered_by_an_owner_that_was_silent() -> None:
    run_state_machine_as_test(TwoNodes, settings=settings(stateful_step_count=60, deadline=None))


def an_owner_is_paused(nodes: TwoNodes) -> None:
    """Have "a" serve, and "b" take over and confirm something while "a" is paused, with a commit on its way."""
    nodes.stands_by("a", 1)
    nodes.arrives("a", 2)
    nodes.publishes("a")
    nodes.arrives("a", 2)
    nodes.publishes("a")
    nodes.stands_by("b", 8)
    nodes.arrives("b", 2)
    nodes.publishes("b")
    nodes.arrives("b", 2)
    assert nodes.nodes["b"].lease.state is NodeState.SERVING
    assert len(nodes.confirmed) == 2
    nodes.delivers("a")
    nodes.arrives("a", 2)
    nodes.what_was_confirmed_is_there()


def test_an_owner_that_is_paused_does_no_harm() -> None:
    nodes = TwoNodes()
    an_owner_is_paused(nodes)
    assert nodes.nodes["a"].lease.state is NodeState.STANDBY


def test_an_owner_whose_epoch_is_not_checked_is_noticed() -> None:
    nodes = TwoNodes()
    nodes.database.checks_epoch = False
    with pytest.raises(AssertionError, match="number 1 was confirmed in epoch 2 and 1"):
        an_owner_is_paused(nodes)


def test_an_owner_that_does_not_suspend_itself_is_noticed() -> None:
    nodes = TwoNodes()
    nodes.suspends = False
    with pytest.raises(AssertionError, match="delivered after another node had taken over"):
        an_owner_is_paused(nodes)
