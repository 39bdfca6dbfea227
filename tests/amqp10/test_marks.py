"""Outcomes that wait for the disk: of exactly what was published before a mark, and of nothing that has gone since."""

from __future__ import annotations

from typing import Final

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import Sender, Session
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import data
from tests.amqp10.peer import SECOND, declare, session_of
from tests.core.slow_disk import SlowDisk
from tests.harness.bench import ClientBench

DURABLE: Final = p.Header(durable=True)
NO_ROOM: Final = {"x-max-length": 0, "x-overflow": "reject-publish"}
ACCEPTED: Final = p.Accepted()


@pytest.fixture
def bench(bench: ClientBench) -> ClientBench:
    declare(bench, "full", arguments=NO_ROOM)
    return bench


@pytest.fixture
def disk(bench: ClientBench) -> SlowDisk:
    return SlowDisk(bench.broker)


@pytest.fixture
def sender(bench: ClientBench, disk: SlowDisk) -> Sender:
    return session_of(bench).sender("/queues/q")


def send(sender: Sender, durable: bool = True, to: str | None = None, **fields: object) -> int:
    where = [] if to is None else [p.Properties(to=f"/queues/{to}")]
    return sender.send(p.Header(durable=durable), *where, data(b"x"), **fields)


def test_s226_a_durable_message_is_accepted_when_it_is_on_disk(sender: Sender, disk: SlowDisk) -> None:
    number = send(sender)
    assert sender.outcome(number) is None
    disk.land()
    assert sender.outcome(number) == ACCEPTED
    assert number in sender.session.settled


def test_s226_what_need_not_be_on_disk_is_answered_at_once(bench: ClientBench, disk: SlowDisk) -> None:
    """Messages that are not durable, that no queue has, and that a full queue has refused."""
    sender = session_of(bench).sender(None)
    numbers = [send(sender, False, "q"), send(sender, True, "nowhere"), send(sender, True, "full")]
    assert [type(sender.outcome(number)) for number in numbers] == [p.Accepted, p.Released, p.Rejected]
    assert not disk.commits


def test_s226_what_comes_while_the_disk_works_is_not_answered_by_that(
    bench: ClientBench, sender: Sender, disk: SlowDisk
) -> None:
    numbers = [send(sender, settle=False) for _ in range(3)]
    bench.settle()
    numbers += [send(sender, settle=False) for _ in range(2)]
    bench.settle()
    disk.land()
    sender.peer.read()
    assert sorted(sender.session.outcomes) == numbers[:3]
    disk.land()
    sender.peer.read()
    assert sorted(sender.session.outcomes) == numbers


def test_s226_a_settled_message_keeps_nobody_waiting(sender: Sender, disk: SlowDisk) -> None:
    send(sender, settled=True)
    assert not disk.commits
    assert sender.outcome(send(sender, durable=False)) == ACCEPTED


def test_s226_another_session_does_not_wait(bench: ClientBench, sender: Sender, disk: SlowDisk) -> None:
    waits = send(sender)
    other = sender.peer.begin().sender("/queues/q")
    assert other.outcome(send(other, durable=False)) == ACCEPTED
    assert sender.outcome(waits) is None


def test_s226_a_link_that_has_gone_is_not_answered_others_of_its_mark_are(
    bench: ClientBench, sender: Sender, disk: SlowDisk
) -> None:
    session = sender.session
    other = session.sender("/queues/q")
    gone, stays = send(sender, settle=False), send(other, settle=False)
    bench.settle()
    sender.detach()
    again = session.sender("/queues/q", name=sender.name)
    disk.land()
    assert (again.outcome(gone), again.outcome(stays)) == (None, ACCEPTED)
    later = send(again)
    disk.land()
    assert again.outcome(later) == ACCEPTED


def test_s226_a_session_that_has_ended_is_told_nothing(
    bench: ClientBench, sender: Sender, disk: SlowDisk
) -> None:
    send(sender)
    sender.session.end()
    again = sender.peer.begin(sender.session.channel)
    sender.peer.taken()
    disk.land()
    assert sender.peer.taken() == []
    other = again.sender("/queues/q")
    number = send(other)
    disk.land()
    assert other.outcome(number) == ACCEPTED


def test_a_connection_that_has_gone_is_told_nothing(
    bench: ClientBench, sender: Sender, disk: SlowDisk
) -> None:
    send(sender)
    sender.peer.drop()
    disk.land()
    assert sender.peer.take_bytes() == b""


def test_s206_a_message_without_a_target_is_released_though_others_wait_for_the_disk(
    bench: ClientBench, disk: SlowDisk
) -> None:
    """The link ends. What waits has no outcome: that is for the sender to resolve."""
    host = bench.host
    host.bind(host.declare_exchange("x", "fanout"), bench.queue("q"), "")
    sender = session_of(bench).sender("/exchanges/x/k")
    waits = send(sender)
    host.delete_exchange("x")
    released = send(sender)
    assert sender.outcome(released) == p.Released()
    assert sender.detached is not None
    assert sender.detached.error is not None
    disk.land()
    assert sender.outcome(waits) is None


def test_s180_to_drain_does_not_wait_for_the_disk(bench: ClientBench, sender: Sender, disk: SlowDisk) -> None:
    send(sender)
    receiver = session_of(bench).receiver("/queues/q", credit=5)
    receiver.get()
    receiver.want(5, drain=True)
    assert receiver.drained
    assert len(disk.commits) == 1


# What waits in the connection.


def test_s175_a_commit_is_answered_when_it_is_on_disk(bench: ClientBench, disk: SlowDisk) -> None:
    """The whole connection waits: the outcomes that take effect are told by other links."""
    session = session_of(bench)
    control, sender = Control(session), session.sender("/queues/q")
    tx = control.declare()
    sender.send(DURABLE, data(b"x"), state=in_tx(tx))
    assert not disk.holds
    control.roll_back(tx)
    assert not disk.holds
    tx = control.declare()
    sender.send(DURABLE, data(b"x"), state=in_tx(tx))
    control.commit(tx)
    assert disk.holds


def test_a_sender_that_comes_back_is_told_what_is_on_disk_only(bench: ClientBench, disk: SlowDisk) -> None:
    """It left before the outcome was known; our attach tells it, and waits."""
    target = p.Target(address="/queues/q", expiry_policy=Symbol(p.TERMINUS_EXPIRY_POLICY_NEVER), timeout=0)
    session = session_of(bench)
    sender = session.sender(target, name="s", rcv_settle_mode=SECOND)
    send(sender, tag=b"one")
    sender.detach(closed=False)
    assert not disk.holds
    again = session.sender(target, name="s", rcv_settle_mode=SECOND, unsettled={b"one": None})
    assert again.attached is not None
    assert list(again.attached.unsettled or ()) == [b"one"]
    assert disk.holds


# Any order.

KINDS: Final[dict[str, tuple[str, bool, type[object]]]] = {  # queue, durable, outcome
    "kept": ("q", True, p.Accepted),
    "transient": ("q", False, p.Accepted),
    "nowhere": ("nowhere", True, p.Released),
    "refused": ("full", True, p.Rejected),
}


@attrs.define
class Published:
    """A delivery, and what should be said of it."""

    session: int
    link: int
    number: int
    kind: str
    commit: int = -1  # that it waits for; 0: none, -1: not settled yet
    lost: bool = False  # its link went before it could be told


publishes = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from(list(KINDS))), min_size=1, max_size=6
)


class Marks(RuleBasedStateMachine):
    """Two sessions of two connections, two links on each, and a disk of any speed."""

    @initialize(second=st.booleans())
    def begin(self, second: bool) -> None:
        self.bench = ClientBench()
        declare(self.bench, "q")
        declare(self.bench, "full", arguments=NO_ROOM)
        self.disk = SlowDisk(self.bench.broker)
        self.fields = {"rcv_settle_mode": SECOND} if second else {}
        self.commits = self.landed = 0
        self.published: list[Published] = []
        self.sessions = [session_of(self.bench) for _ in range(2)]
        self.links = [[self._sender(session) for _ in range(2)] for session in self.sessions]

    def _sender(self, session: Session) -> Sender:
        return session.sender(None, **self.fields)

    @rule(publishes=publishes)
    def publish(self, publishes: list[tuple[int, int, str]]) -> None:
        for at, link, kind in publishes:
            queue, durable, _ = KINDS[kind]
            number = send(self.links[at][link], durable, queue, settle=False)
            self.published.append(Published(at, link, number, kind))
        self.bench.settle()
        waits = [self._waits(at) for at in range(2)]
        for each in self.published:
            if each.commit < 0:
                each.commit = self.commits + 1 if waits[each.session] else 0
        self.commits += any(waits)

    def _waits(self, session: int) -> bool:
        """Sessions are told in order: for a durable message, or for an earlier batch."""
        mine = [each for each in self.published if each.session == session]
        new = [each for each in mine if each.commit < 0]
        earlier = any(each.commit > self.landed for each in mine)
        return bool(new) and (earlier or any(each.kind == "kept" for each in new))

    @rule(count=st.integers(1, 3))
    def land(self, count: int) -> None:
        self.disk.land(count)
        self.landed = min(self.landed + count, self.commits)

    @rule(at=st.integers(0, 1), link=st.integers(0, 1))
    def detach_and_attach_again(self, at: int, link: int) -> None:
        self._lose(at, link)
        self.links[at][link].detach()
        self.links[at][link] = self._sender(self.sessions[at])

    @rule(at=st.integers(0, 1))
    def end_and_begin_again(self, at: int) -> None:
        peer, old = self.sessions[at].peer, self.sessions[at]
        self.published = [each for each in self.published if each.session != at]
        old.end()
        session = self.sessions[at] = peer.begin(old.channel)
        self.links[at] = [self._sender(session) for _ in range(2)]

    def _lose(self, at: int, link: int) -> None:
        for each in self.published:
            if (each.session, each.link) == (at, link) and each.commit > self.landed:
                each.lost = True

    @invariant()
    def exactly_what_is_due_has_been_told(self) -> None:
        for at, session in enumerate(getattr(self, "sessions", ())):
            session.peer.read()
            assert session.ended is None
            assert {number: type(state) for number, state in session.outcomes.items()} == {
                each.number: KINDS[each.kind][2]
                for each in self.published
                if each.session == at and not each.lost and each.commit <= self.landed
            }


TestMarks = Marks.TestCase
