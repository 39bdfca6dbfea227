"""Who is read from when: rounds gone by hand, with real sockets, in calls rather than in seconds."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

from leveret.durable.store.memory import MemoryStore
from leveret.server.node import transport as reading
from leveret.server.node.gathering import SPIN_S, VAIN, Phase
from leveret.server.node.persistence import Persistence
from leveret.server.node.poller import STAY_MAX_S, STAY_S, TOGETHER, Poller
from leveret.server.node.socket_io import SocketIO
from tests.harness.call_count import calls
from tests.harness.plain import plain_only
from tests.server.node.scripted import Script, Scripted, run, until

pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="no epoll here")]

READ_SIZE = 4096  # so that what the system takes at once is several reads


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_SIZE", READ_SIZE)


class Watcher:
    """A publisher that does something whenever its broker settles."""

    persistent = False

    def __init__(self, node: Scripted, action: Callable[[], object]) -> None:
        self._broker = node.broker
        self._action = action
        node.broker.publishers.append(self)

    def mark(self) -> int:
        return 0

    def taken(self, mark: int) -> None:
        self._action()
        self._broker.publishers.append(self)

    def end(self) -> None:
        self._broker.publishers.remove(self)


def settled(node: Scripted) -> int:
    """Go round once: how often that was settled."""
    often: list[None] = []
    watcher = Watcher(node, lambda: often.append(None))
    node.poller.go_round()
    watcher.end()
    return len(often)


def be_slow(node: Scripted) -> None:
    """Have the clock go on by two turns whenever it is looked at."""
    seconds = itertools.count(node.broker.clock.now(), 0.002)
    node.broker.clock.now = lambda: next(seconds)  # type: ignore[method-assign]


def be_quick(node: Scripted) -> None:
    """Have the clock stand still."""
    now = node.broker.clock.now()
    node.broker.clock.now = lambda: now  # type: ignore[method-assign]


class Said:
    """A peer that attends, and what its front-end has got since."""

    def __init__(self, stream: trio.SocketStream, script: Script) -> None:
        self.stream = stream
        self.script = script
        script.sizes.clear()

    def say(self, octets: bytes) -> None:
        """At once: nothing else runs meanwhile. As much of it as the system takes."""
        self.stream.socket._sock.send(octets)  # type: ignore[attr-defined]

    @property
    def reads(self) -> list[int]:
        return self.script.sizes


@contextlib.asynccontextmanager
async def attending(node: Scripted, count: int) -> AsyncIterator[list[Said]]:
    peers: list[Said] = []
    for number in range(count):
        stream = await node.connect()
        await until(lambda number=number: len(node.poller._attending) == number + 1)  # type: ignore[misc]
        peers.append(Said(stream, Script.last))
    try:
        yield peers
    finally:
        for peer in peers:
            await trio.aclose_forcefully(peer.stream)


def test_what_many_say_at_once_costs_a_read_each_and_is_settled_together():
    async def test(node: Scripted) -> None:
        be_quick(node)
        async with attending(node, 10) as peers:
            for peer in peers:
                peer.say(b"e")
            reads = [transport.reads for transport in node.transports.values()]
            assert settled(node) == 1
            assert [peer.reads for peer in peers] == [[1]] * 10
            assert [transport.reads for transport in node.transports.values()] == [n + 1 for n in reads]
            for peer in peers:
                assert await peer.stream.receive_some() == b"echo"

    run(test)


def test_no_more_than_so_many_wait_for_each_other():
    async def test(node: Scripted) -> None:
        be_quick(node)
        async with attending(node, TOGETHER + 1) as peers:
            for peer in peers:
                peer.say(b"e")
            assert settled(node) == 2

    run(test)


def test_of_those_who_say_much_and_slowly_one_is_heard_in_each_round_and_they_take_turns():
    async def test(node: Scripted) -> None:
        be_slow(node)
        async with attending(node, 4) as (quick, *talkers):
            for talker in talkers:
                talker.say(b"-" * 8 * READ_SIZE)
            node.poller.go_round()  # now it is known who they are
            for talker in talkers:
                assert talker.reads.pop() == READ_SIZE
            for _ in range(3):
                quick.say(b"e")
                node.poller.go_round()
            assert quick.reads == [1, 1, 1]
            assert [talker.reads for talker in talkers] == [[READ_SIZE]] * 3

    run(test)


def test_of_those_who_say_much_and_quickly_all_are_heard_in_a_round():
    async def test(node: Scripted) -> None:
        be_quick(node)
        async with attending(node, 3) as talkers:
            for talker in talkers:
                talker.say(b"-" * 8 * READ_SIZE)
            assert settled(node) == 1
            assert settled(node) == 3
            assert [talker.reads for talker in talkers] == [[READ_SIZE] * 2] * 3

    run(test)


def test_who_halts_goes_on_after_others_in_the_next_rounds_and_is_not_read_from_until_then():
    async def test(node: Scripted) -> None:
        be_slow(node)
        async with attending(node, 3) as (quick, *halting):
            for peer in halting:
                peer.say(b"t")
            node.poller.go_round()
            assert [peer.reads for peer in halting] == [[1, 0], [1]]
            for peer in (*halting, quick):
                peer.say(b"e")
            node.poller.go_round()
            assert [peer.reads for peer in (quick, *halting)] == [[1], [1, 0, 1], [1, 0]]
            assert not node.poller.has_more
            node.poller.go_round()
            assert [peer.reads for peer in halting] == [[1, 0, 1]] * 2

    run(test)


def test_who_is_hung_up_while_the_round_is_settled_has_no_turn_left():
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            (transport,) = node.transports.values()
            watcher = Watcher(node, transport.hang_up)
            peer.say(b"t")  # it halts, so that it would go on in the next round
            node.poller.go_round()
            watcher.end()
            assert not node.poller.has_more
            node.poller.go_round()
            assert peer.reads == [1]

    run(test)


def test_who_goes_leaves_no_turn_behind():
    async def test(node: Scripted) -> None:
        be_quick(node)
        async with attending(node, 2) as (talker, other):
            talker.say(b"-" * 4 * READ_SIZE)
            node.poller.go_round()
            node.poller.go_round()
            assert talker.reads == [READ_SIZE] * 2
            for transport in list(node.transports.values()):
                transport.hang_up()
            other.say(b"e")
            node.poller.go_round()
            assert talker.reads == [READ_SIZE] * 2
            assert not other.reads
            assert not node.poller._talkers

    run(test)


# Waiting for more, instead of giving way to other tasks.


def rounds_in_a_turn(node: Scripted, peer: Said, step_s: float = 0.000001) -> int:
    """Have a turn while the peer says something again whenever it is heard, up to 20 times: how often it was heard.

    A look at the clock takes `step_s`.
    """
    now = node.broker.clock.now()
    seconds = itertools.count()
    node.broker.clock.now = lambda: now + step_s * next(seconds)  # type: ignore[method-assign]
    receive = peer.script.receive
    peer.reads.clear()

    def heard(data: bytes, now: float) -> None:
        if len(peer.reads) < 20:
            peer.say(b"e")
        receive(data, now)

    peer.script.receive = heard  # type: ignore[method-assign]
    try:
        peer.say(b"e")
        node.poller.turn()
    finally:
        peer.script.receive = receive  # type: ignore[method-assign]
    return len(peer.reads)


@pytest.mark.parametrize("owns_loop", [True, False])
def test_a_peer_that_goes_on_at_once_is_heard_in_the_same_turn_if_nothing_else_runs(owns_loop: bool):
    async def test(node: Scripted) -> None:
        async with attending(node, 2) as (peer, _):
            assert rounds_in_a_turn(node, peer) == (21 if owns_loop else 1)

    run(test, owns_loop=owns_loop)


def test_a_turn_ends_after_five_milliseconds_however_much_is_said():
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            assert 1 < rounds_in_a_turn(node, peer, step_s=STAY_MAX_S / 10) < 10

    run(test, owns_loop=True)


@pytest.mark.parametrize("phase", [Phase.AWAKE, Phase.RESTING])
def test_another_turn_follows_at_once_while_the_node_stays_awake_and_there_is_input(phase: Phase):
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            node.poller.gathering.phase = phase
            assert rounds_in_a_turn(node, peer) == 21
            assert not node.poller.has_more
            rounds_in_a_turn(node, peer, step_s=STAY_MAX_S / 10)
            assert node.poller.has_more is (phase is Phase.AWAKE)

    run(test, owns_loop=True)


def test_a_node_that_asks_in_vain_sleeps_after_a_few_turns():
    async def test(node: Scripted) -> None:
        async with attending(node, 1):
            await until(lambda: stopped_clock(node))
            node.poller.gathering.phase = Phase.AWAKE
            for _ in range(VAIN - 1):
                assert polls_in_a_turn(node) > 100
            assert node.poller.gathering.is_awake
            node.poller.turn()
            assert not node.poller.gathering.is_awake

    run(test, owns_loop=True)


def stopped_clock(node: Scripted) -> bool:
    """Stop the clock, unless a timer would end one of the turns that follow. Return whether it stands."""
    due, now = node.broker.timers.next_at(), node.broker.clock.now()
    if due is not None and due - now <= 2 * VAIN * SPIN_S:
        return False
    node.broker.clock.now = lambda: now  # type: ignore[method-assign]
    return True


def polls_in_a_turn(node: Scripted) -> int:
    """Have a turn in which nothing comes: how often the node asks."""
    poll, asked = node.poller._poll, []

    class Asked:
        def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
            asked.append(timeout)
            return poll.poll(timeout, most)

    now, looks = node.broker.clock.now(), itertools.count()
    node.broker.clock.now = lambda: now + SPIN_S / 200 * next(looks)  # type: ignore[method-assign]
    node.poller._poll = Asked()  # type: ignore[assignment]
    try:
        node.poller.turn()
    finally:
        node.poller._poll = poll
    assert set(asked) == {0}, "it never sleeps"
    return len(asked)


@pytest.mark.parametrize(("phase", "stay_s"), [(Phase.RESTING, STAY_S), (Phase.AWAKE, SPIN_S)])
def test_a_timer_that_is_due_soon_ends_a_turn(phase: Phase, stay_s: float):
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            node.poller.gathering.phase = phase
            now = node.broker.clock.now()
            node.broker.timers.at(now + stay_s * 0.9, lambda now: None)
            assert rounds_in_a_turn(node, peer) == 1

    run(test, owns_loop=True)


def test_a_connection_that_has_a_task_ends_a_turn():
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            silent = await node.connect(b"")
            await until(lambda: len(node.transports) == 2)
            assert rounds_in_a_turn(node, peer) == 1
            await silent.aclose()

    run(test, owns_loop=True)


def test_a_connection_that_does_not_read_ends_a_turn():
    async def test(node: Scripted) -> None:
        async with attending(node, 2) as (peer, slow):
            slow.say(b"s")
            node.poller.turn()
            assert node.sending == 1
            assert rounds_in_a_turn(node, peer) == 1

    run(test, owns_loop=True)


def test_what_waits_for_the_commit_before_it_does_not_end_a_turn():
    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            persistence = Persistence(node.broker, MemoryStore(), None, ())
            persistence.journal.put("key", "value")  # stays, as nothing is committed before the start
            node.persistence, node.feeds = persistence, persistence.feeds
            try:
                assert rounds_in_a_turn(node, peer) == 21
                assert persistence.journal.dirty
            finally:
                node.persistence = node.feeds = None

    run(test, owns_loop=True)


def test_reports_of_another_thread_are_heard_after_what_has_been_read_and_do_not_end_a_turn(
    monkeypatch: pytest.MonkeyPatch,
):
    async def test(node: Scripted) -> None:
        heard: list[str] = []
        monkeypatch.setattr(node, "hear_report", lambda report: report())
        async with attending(node, 1) as (peer,):
            poller = node.poller
            watcher = Watcher(node, lambda: heard.append("input"))
            thread = threading.Thread(
                target=lambda: [poller.report(lambda name=name: heard.append(name)) for name in "ab"]  # type: ignore[misc]
            )
            thread.start()
            thread.join()
            peer.say(b"e")
            poller.go_round()
            assert heard == ["input", "a", "b"]
            poller.go_round()
            assert heard == ["input", "a", "b"], "each once"
            watcher.end()
            poller.report(lambda: None)
            assert rounds_in_a_turn(node, peer) == 21

    run(test, owns_loop=True)


@plain_only
def test_of_a_publisher_and_its_consumer_the_publisher_is_told_first(monkeypatch: pytest.MonkeyPatch):
    """It waits for that; of more connections each has its turn in the order in which there was something for it."""
    sent: list[SocketIO] = []
    flush = SocketIO.flush
    monkeypatch.setattr(SocketIO, "flush", lambda line: (sent.append(line), flush(line)))

    async def test(node: Scripted) -> None:
        be_quick(node)
        async with attending(node, 3) as peers:
            first, second, third = (each.script.outbox for each in peers)
            for outboxes, order in (((first, second), (second, first)), ((first, second, third),) * 2):
                sent.clear()
                for each in outboxes:
                    each.write(b"x")
                node.settle()
                assert [line.outbox for line in sent] == list(order)

    run(test)


def test_a_thread_that_outlives_the_node_writes_to_no_file_that_has_its_number_now(tmp_path: Path) -> None:
    async def test(node: Scripted) -> None:
        reported = os.eventfd(0)
        poller = Poller(node, select.epoll(), reported, True)
        poller.close()
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        os.dup2(other, reported)
        poller.report(lambda: pytest.fail("the node has ended"))
        assert os.fstat(reported).st_size == 0
        for each in {other, reported}:
            os.close(each)

    run(test)


@plain_only
def test_a_lone_message_costs_31_python_calls_in_the_node_at_most():
    """From the poll to the answer, without the front-end's, of which its intake is the first, and the broker's: what a
    client pays for that writes once a message."""

    async def test(node: Scripted) -> None:
        async with attending(node, 1) as (peer,):
            for _ in range(2):
                peer.say(b"e")
                counted = calls(node.poller.go_round)
            assert peer.reads == [1, 1]
            assert counted["Poller.go_round"] == 1
            of_node = [count for name, count in counted.items() if not name.startswith("FrontEndIntake.")]
            assert sum(of_node) <= 31, counted

    run(test)
