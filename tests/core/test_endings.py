"""What a connection, a channel or a session holds is released in portions, between which others have turns."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from leveret.clock import PORTION_S, Clock, LongWork, Timers
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import control_frame
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer as Peer091
from tests.amqp091.peer import channel_of
from tests.amqp10.parts import frame
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import JoinedPeer

MANY = 20
AT_ONCE = 3  # steps of a portion, by the clock below


class Hurried(Clock):
    """A clock that goes on by more than a third of a portion whenever it is looked at."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        self.time += 0.4 * PORTION_S
        return self.time

    def wall(self) -> float:
        return self.time


class HurriedBench(ClientBench):
    """A bench with such a clock, a queue `q`, and another client."""

    def __init__(self) -> None:
        super().__init__()
        self.hurried = self.broker.clock = Hurried()
        self.broker.long_work = LongWork(self.hurried, self.broker.timers)
        self.other = channel_of(self)
        self.other.declare("q")

    def opened(self, opened: Callable[[HurriedBench], Crowd]) -> Crowd:
        """Return a crowd of which each consumer has a message."""
        crowd = opened(self)
        for number in range(MANY):
            self.other.publish("", "q", b"%d" % number)
        assert self.queue("q").unsettled == MANY
        return crowd

    def turn(self) -> int:
        """Let the next portion be done; return how many consumers of `q` it has ended."""
        before = len(self.queue("q").consumers)
        self.hurried.time += 2 * PORTION_S
        self.settle()
        return before - len(self.queue("q").consumers)


@attrs.frozen
class Crowd:
    """A connection with many consumers of `q`, each of which has a message of it, and room for another one."""

    peer: JoinedPeer
    end: bytes  # what ends the channel or session that holds them
    close: bytes


def consumers(bench: HurriedBench) -> Crowd:
    """Consumers of one channel."""
    channel = channel_of(bench)
    channel.prefetch(2)
    for number in range(MANY):
        channel.consume("q", f"c{number}")
    end = wire.method_frame(1, m.ChannelClose(200, "", 0, 0).encode())
    return Crowd(channel.peer, end, wire.method_frame(0, m.ConnectionClose(200, "", 0, 0).encode()))


def channels(bench: HurriedBench) -> Crowd:
    """Channels with a consumer each."""
    peer = Peer091(bench).open()
    for number in range(MANY):
        channel = peer.channel(number + 1)
        channel.prefetch(2)
        channel.consume("q")
    return Crowd(peer, b"", wire.method_frame(0, m.ConnectionClose(200, "", 0, 0).encode()))


def links(bench: HurriedBench) -> Crowd:
    """Links of one session."""
    peer = Peer10(bench).open()
    session = peer.begin()
    for number in range(MANY):
        session.receiver("/queues/q", name=f"l{number}", credit=2)
    return Crowd(peer, frame(0, p.End()), frame(0, p.Close()))


def sessions(bench: HurriedBench) -> Crowd:
    """Sessions with a link each."""
    peer = Peer10(bench).open()
    for _ in range(MANY):
        peer.begin().receiver("/queues/q", credit=2)
    return Crowd(peer, b"", frame(0, p.Close()))


def subscriptions(bench: HurriedBench) -> Crowd:
    """Subscriptions of one session."""
    peer = Peer010(bench)
    peer.open("guest", "guest")
    session = peer.attach("crowd")
    for number in range(MANY):
        session.subscribe("q", f"s{number}", messages=2)
    end = control_frame(session.channel, c.SessionDetach(b"crowd").encode())
    return Crowd(peer, end, control_frame(0, c.ConnectionClose(200, "").encode()))


ALL = [consumers, channels, links, sessions, subscriptions]
IN_ONE = [consumers, links, subscriptions]
Opened = Callable[[HurriedBench], Crowd]


@pytest.mark.parametrize("opened", ALL)
def test_a_lost_connection_leaves_in_portions_and_what_it_had_goes_in_order_to_others(opened: Opened) -> None:
    bench = HurriedBench()
    crowd = bench.opened(opened)
    queue = bench.queue("q")
    bench.other.consume("q", no_ack=True)
    crowd.peer.drop()
    turns = 1
    while len(queue.consumers) > 1:
        bench.other.publish("", "q", b"%d" % (MANY + turns), settle=False)
        assert bench.turn() <= AT_ONCE
        turns += 1
    assert turns >= MANY / AT_ONCE
    while len(bench.broker.clients) > 1:
        bench.turn()
    delivered = bench.other.deliveries()
    old = [each.body for each in delivered if each.method.redelivered]
    assert old == [b"%d" % number for number in range(MANY)]
    assert len(delivered) == MANY + turns - 1  # none went to a consumer that was leaving
    assert bench.broker.channels_of == {"guest": 1}


@pytest.mark.parametrize("opened", ALL)
def test_a_close_is_answered_when_all_that_the_connection_held_has_been_released(opened: Opened) -> None:
    bench = HurriedBench()
    crowd = bench.opened(opened)
    before = crowd.peer.outbox.written()
    crowd.peer.send_bytes(crowd.close)
    turns = 1
    while not crowd.peer.front.closed:
        assert crowd.peer.front.waits
        assert crowd.peer.outbox.written() == before
        crowd.peer.send_bytes(crowd.close)  # what comes meanwhile is dropped
        bench.turn()
        turns += 1
    assert turns >= MANY / AT_ONCE
    assert crowd.peer.outbox.written() > before
    assert not bench.queue("q").consumers
    assert bench.queue("q").ready == MANY
    crowd.peer.drop()
    assert [*bench.broker.clients] == [bench.other.peer.front.client]


@pytest.mark.parametrize("opened", IN_ONE)
def test_what_follows_the_end_of_a_channel_or_session_waits_until_its_consumers_have_ended(
    opened: Opened,
) -> None:
    bench = HurriedBench()
    crowd = bench.opened(opened)
    crowd.peer.send_bytes(crowd.end + crowd.close[:-1], settle=False)
    crowd.peer.send_bytes(crowd.close[-1:], settle=False)
    turns = 1
    while crowd.peer.front.waits:
        assert not crowd.peer.front.halted
        assert bench.turn() <= AT_ONCE
        turns += 1
    assert turns >= MANY / AT_ONCE
    assert bench.queue("q").ready == MANY
    assert crowd.peer.front.halted
    assert not crowd.peer.front.closed
    crowd.peer.send_bytes(b"")
    assert crowd.peer.front.closed


@pytest.mark.parametrize("opened", IN_ONE)
def test_a_connection_that_is_lost_while_a_channel_or_session_ends_releases_both(opened: Opened) -> None:
    bench = HurriedBench()
    crowd = bench.opened(opened)
    crowd.peer.send_bytes(crowd.end)
    crowd.peer.drop()
    while len(bench.broker.clients) > 1:
        assert bench.turn() <= AT_ONCE
    assert bench.queue("q").ready == MANY
    assert not bench.queue("q").consumers
    assert bench.broker.channels_of == {"guest": 1}


def test_a_session_that_was_kept_is_released_in_portions_when_its_time_is_over() -> None:
    bench = HurriedBench()
    crowd = bench.opened(subscriptions)
    assert isinstance(crowd.peer, Peer010)
    session = crowd.peer.sessions[1]
    session.control(c.SessionRequestTimeout(10))
    crowd.peer.drop()
    assert len(bench.queue("q").consumers) == MANY
    bench.hurried.time += 20.0
    turns = 0
    while bench.queue("q").consumers:
        assert bench.turn() <= AT_ONCE
        turns += 1
    assert turns >= MANY / AT_ONCE
    assert bench.queue("q").ready == MANY


def test_exclusive_queues_go_in_portions() -> None:
    bench = HurriedBench()
    channel = channel_of(bench)
    for number in range(MANY):
        channel.declare(f"mine {number}", exclusive=True)
    channel.peer.drop()
    turns = 1
    while len(bench.host.queues) > 1:
        before = len(bench.host.queues)
        bench.turn()
        assert 0 < before - len(bench.host.queues) <= AT_ONCE
        turns += 1
    assert turns >= MANY / AT_ONCE


def test_a_connection_that_ends_by_itself_tells_its_client_why_when_it_has_ended() -> None:
    bench = HurriedBench()
    crowd = bench.opened(consumers)
    peer = crowd.peer
    assert isinstance(peer, Peer091)
    peer.all()
    peer.front.shut_down("for a test")
    assert peer.next() is None
    while peer.front.waits:
        bench.turn()
    assert peer.refusal() == "320 CONNECTION_FORCED - for a test"


# LongWork.


class Work:
    """Work of some steps, which notes what is done."""

    def __init__(self, name: str, steps: int, notes: list[str], fails_at: int = -1) -> None:
        self.name, self.left, self.notes, self.fails_at = name, steps, notes, fails_at

    def step(self) -> bool:
        if self.left == self.fails_at:
            raise ValueError(self.name)
        self.left -= 1
        self.notes.append(self.name)
        return self.left > 0

    def done(self) -> None:
        self.notes.append(f"{self.name} done")


def test_pieces_of_work_are_done_in_turn_and_a_short_one_at_once() -> None:
    clock, timers, notes = Hurried(), Timers(), list[str]()
    long_work = LongWork(clock, timers)
    long, longer = Work("a", 5, notes), Work("b", 8, notes)
    assert not long_work.begin(long.step, long.done)
    assert not long_work.begin(longer.step, longer.done)
    assert long_work.begin(Work("c", 2, notes).step)
    assert "".join(notes) == "aaabbbcc"
    notes.clear()
    while (at := timers.next_at()) is not None:
        clock.time = at
        assert timers.run(at) == 1
        notes.append(".")
    assert notes == ["a", "a", "a done", ".", "b", "b", "b", ".", "b", "b", "b done", "."]


def test_work_that_fails_ends_and_the_other_goes_on() -> None:
    clock, timers, notes = Hurried(), Timers(), list[str]()
    long_work = LongWork(clock, timers)
    failing, other = Work("a", 9, notes, fails_at=4), Work("b", 5, notes)
    long_work.begin(failing.step, failing.done)
    long_work.begin(other.step, other.done)
    clock.time = 1.0
    with pytest.raises(ValueError, match="a"):
        timers.run(1.0)
    timers.run(2.0)
    assert notes == ["a", "a", "a", "b", "b", "b", "a", "a", "a done", "b", "b", "b done"]


def test_the_end_of_a_node_waits_for_all_that_is_left() -> None:
    timers, notes = Timers(), list[str]()
    long_work = LongWork(Hurried(), timers)
    for name in "ab":
        work = Work(name, 5, notes)
        long_work.begin(work.step, work.done)
    long_work.finish()
    assert notes == [*"aaabbbaa", "a done", "b", "b", "b done"]
    assert timers.run(9.0) == 1
    assert len(notes) == 12
