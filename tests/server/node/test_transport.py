"""One accepted socket: real loopback connections on free ports, and everything a peer can do to them."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

import attrs
import pytest
import trio
import trio.testing

from leveret.config.config import parse
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.message import Message
from leveret.server.node.node import CLOSING_S
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties
from tests.server.node.scripted import LISTEN, MIB, Script, Scripted, read_all, run, until

pytestmark = pytest.mark.system

NO_PATIENCE = parse({**LISTEN, "limits": {"message_size_max": 0}})  # with peers that do not read


@pytest.fixture
def mistakes(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The log lines about mistakes of ours so far."""
    with caplog.at_level(logging.ERROR, "leveret"):
        yield lambda: [record.getMessage() for record in caplog.records]


def test_bytes_go_in_and_out():
    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            await node.tell(stream, b"e-e")
            assert Script.last.received == b"SCRIPTe-e"
            assert await stream.receive_some(100) == b"echoecho"

    run(test)


def test_first_bytes_may_come_one_by_one():
    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            for at in range(6):
                await node.tell(stream, b"SCRIPT"[at : at + 1])
            await node.tell(stream, b"e")
            assert Script.last.received == b"SCRIPTe"

    run(test)


def test_unknown_first_bytes_go_to_the_last_protocol_at_once():
    async def test(node: Scripted) -> None:
        async with await node.connect(b"?e") as stream:
            assert Script.last.received == b"?e"
            assert await stream.receive_some(100) == b"echo"

    run(test)


def test_a_peer_that_leaves_before_it_is_recognised_is_answered():
    """Half a header and the end of input is a wrong header: a front-end says so."""

    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            await stream.send_all(b"SCR")
            await stream.send_eof()
            assert await read_all(stream) == b""
            assert (Script.last.received, Script.last.calls) == (b"SCR", ["lost"])

    run(test)


def test_a_peer_that_sends_nothing_is_hung_up_on(autojump_clock: trio.testing.MockClock):
    async def test() -> None:
        async with Scripted() as node, await node.connect(b"") as stream:
            assert await stream.receive_some(1) == b""

    trio.run(test, clock=autojump_clock)


@pytest.fixture
def autojump_clock() -> trio.testing.MockClock:
    """Time that passes at once whenever every task waits; sockets of this process answer within the threshold."""
    return trio.testing.MockClock(autojump_threshold=0.05)


def test_a_finished_front_end_has_its_last_words_read():
    """Unread input would reset the connection and take the last words back."""

    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            await stream.send_all(b"f" + b"-" * 600_000)
            assert await read_all(stream) == b"bye"
            assert Script.last.calls == ["lost"]

    run(test)


def test_a_front_end_that_finishes_before_its_next_read_is_hung_up_on():
    """Work in portions ended it while its task was about to read: nothing would have come any more."""

    async def test(node: Scripted) -> None:
        for _ in range(20):  # either may be first
            async with await node.connect(b"SCRIPTw") as stream:
                with trio.fail_after(10):
                    assert await stream.receive_some(100) == b"bye"
                    assert await stream.receive_some(100) == b""

    run(test)


def test_what_waits_to_be_sent_when_a_front_end_finishes_is_sent():
    """The task that sends and the task that says goodbye do not both wait for the socket."""

    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            await node.tell(stream, b"sf")
            assert Script.last.calls == ["lost"]  # released at once, though the peer has read nothing yet
            assert await read_all(stream) == b"x" * (16 * MIB) + b"bye"

    run(test)


def test_a_peer_that_closes_its_half_still_gets_its_answers():
    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            await stream.send_all(b"se")
            await stream.send_eof()
            assert await read_all(stream) == b"x" * (16 * MIB) + b"echo"

    run(test)


def test_a_peer_that_resets_is_forgotten():
    async def test(node: Scripted) -> None:
        stream = await node.connect()
        reset(stream)
        await until(lambda: Script.last.calls == ["lost"])
        await until(lambda: not node.transports)

    run(test)


def test_a_peer_that_resets_while_much_is_on_its_way_to_it_is_forgotten():
    async def test(node: Scripted) -> None:
        stream = await node.connect()
        await node.tell(stream, b"s")
        reset(stream)
        await until(lambda: Script.last.calls == ["lost"])
        await until(lambda: not node.transports)

    run(test)


def reset(stream: trio.SocketStream) -> None:
    """Close with RST instead of FIN."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def test_a_peer_that_never_reads_is_not_read_from_for_ever():
    async def test(node: Scripted) -> None:
        stream = await node.connect()
        for _ in range(4):
            await node.tell(stream, b"s")
        assert Script.last.received == b"SCRIPTs"  # one answer of 16 MiB is more than the limit of 1 MiB
        reset(stream)
        await until(lambda: Script.last.calls[-1:] == ["lost"])

    run(test, NO_PATIENCE)


def test_a_peer_that_has_an_answer_to_read_is_still_listened_to():
    """One message more than the limit may wait for it: its answers to that have to come through."""

    async def test(node: Scripted) -> None:
        stream = await node.connect()
        await node.tell(stream, b"s")
        await node.tell(stream, b"e")
        assert Script.last.outbox.size > Script.last.outbox.limit
        assert Script.last.received == b"SCRIPTse"
        reset(stream)
        await until(lambda: Script.last.calls[-1:] == ["lost"])

    run(test)


def test_nobody_waits_for_the_deadline_of_a_peer_that_has_gone():
    async def test(node: Scripted) -> None:
        stream = await node.connect()
        Script.last.deadline_at = trio.current_time() + 1000
        await node.tell(stream, b"e")
        [transport] = node.transports.values()
        timer = transport._timer
        assert timer is not None
        assert not timer.cancelled
        await stream.aclose()
        await until(lambda: not node.transports)
        assert timer.cancelled

    run(test)


def test_a_peer_that_reads_late_gets_everything():
    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.send_all, b"s" * 10)
                await until(lambda: Script.last.outbox.size > 0)
                received = 0
                while received < 160 * MIB:
                    received += len(await stream.receive_some(MIB))
            await node.tell(stream, b"e")
            assert await stream.receive_some(10) == b"echo"

    run(test, NO_PATIENCE)


def test_a_blocked_front_end_is_not_read_from_until_the_alarm_is_over():
    async def test(node: Scripted) -> None:
        node.broker.alarms.set("low on patience")
        async with await node.connect() as stream:
            await node.tell(stream, b"h")
            await node.tell(stream, b"e")
            node.broker.alarms.set("low on ideas")  # another one is no reason to go on
            await node.quiet()
            assert Script.last.received == b"SCRIPTh"
            node.broker.alarms.clear("low on ideas")
            node.broker.alarms.clear("low on patience")
            assert await stream.receive_some(10) == b"echo"

    run(test)


def test_a_blocked_connection_is_read_from_again_to_say_goodbye():
    async def test() -> None:
        async with Scripted(closing_s=30) as node:
            stream = await node.connect()
            node.broker.alarms.set("low on patience")
            await node.tell(stream, b"h")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer_goodbye, stream)
                nursery.start_soon(node._close)
            assert Script.last.calls[-1] == "lost"

    trio.run(test)


def test_what_it_takes_to_tell_the_clients_is_part_of_the_time_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0.01)

    def slow(self: Script, reason: str) -> None:
        clock.jump(0.75)  # as with many messages that go back to their queues

    async def test() -> None:
        async with Scripted(owns_loop=True) as node:
            streams = [await node.connect() for _ in range(2)]
            monkeypatch.setattr(Script, "shut_down", slow)
            began = trio.current_time()
            await node._close()
            assert trio.current_time() - began == pytest.approx(CLOSING_S)
            for stream in streams:
                await stream.aclose()

    trio.run(test, clock=clock)


async def answer_goodbye(stream: trio.SocketStream) -> None:
    assert b"shutdown" in await stream.receive_some(100)
    await stream.send_all(b"f")
    assert await read_all(stream) == b"bye"
    await stream.aclose()


def test_a_deadline_is_kept_and_what_it_says_is_sent():
    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            Script.last.deadline_at = trio.current_time() + 0.01
            await node.tell(stream, b"-")
            assert await read_all(stream) == b"bye"
            assert Script.last.calls == ["on_deadline", "lost"]

    run(test)


# Mistakes of ours.


def test_a_mistake_while_receiving_ends_that_connection_only(mistakes: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        async with await node.connect() as other, await node.connect() as stream:
            await stream.send_all(b"!")
            assert await read_all(stream) == b"almost"
            await node.tell(other, b"e")
            assert await other.receive_some(10) == b"echo"

    run(test)
    assert len(mistakes()) == 1


def test_a_factory_that_raises_ends_that_connection_only(mistakes: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        async with await node.connect() as other:
            stream = await node.connect(b"BROKEN")
            assert await read_all(stream) == b""
            await stream.aclose()
            await node.tell(other, b"e")
            assert await other.receive_some(10) == b"echo"

    run(test)
    assert len(mistakes()) == 1


@attrs.frozen
class Mistake:
    """Something that makes the node call a front-end in one way."""

    name: str
    provoke: Callable[[Scripted, trio.SocketStream], Awaitable[None]]


async def raise_alarm(node: Scripted, stream: trio.SocketStream) -> None:
    node.broker.alarms.set("low on patience")


async def let_time_pass(node: Scripted, stream: trio.SocketStream) -> None:
    Script.last.deadline_at = trio.current_time()
    await node.tell(stream, b"-")


async def hang_up(node: Scripted, stream: trio.SocketStream) -> None:
    await stream.send_eof()


async def close_all(node: Scripted, stream: trio.SocketStream) -> None:
    transport = next(t for t in node.transports.values() if t.front is Script.last)
    transport.shut_down("why not")


async def drain(node: Scripted, stream: trio.SocketStream) -> None:
    Script.last.outbox.waiting = True
    await node.tell(stream, b"e")


MISTAKES = [
    Mistake("alarm", raise_alarm),
    Mistake("on_deadline", let_time_pass),
    Mistake("lost", hang_up),
    Mistake("shut_down", close_all),
    Mistake("drained", drain),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_anywhere_ends_that_connection_only(mistake: Mistake, mistakes: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        async with await node.connect() as other, await node.connect() as stream:
            front = Script.last
            front.fails_in = mistake.name
            await mistake.provoke(node, stream)
            await read_all(stream)
            assert front.calls[-1] == "lost"
            await node.tell(other, b"e")
            assert await other.receive_some(10) == b"echo"

    run(test)
    assert len(mistakes()) == 1


# Fairness.


class Greedy(Consumer):
    """Takes whatever fits into its outbox."""

    def __init__(self, node: Scripted, front: Script) -> None:
        self.front = front
        queue = node.broker.virtual_host("/").declare_queue("q")
        super().__init__(queue, True, UNLIMITED, Window())

    def room(self) -> int:
        return self.front.outbox.room()

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.front.outbox.write(delivery.message.body)

    def cancelled(self) -> None:
        pass


class Bottomless:
    """A socket whose peer reads as fast as we write."""

    def __init__(self, connected: socket.socket) -> None:
        self.recv = connected.recv
        self.fileno = connected.fileno

    def send(self, data: memoryview) -> int:
        return len(data)


def test_a_queue_that_one_consumer_empties_does_not_keep_others_waiting():
    """Each settle fills the outbox once; then trio, and so everybody else, has a turn."""

    async def test(node: Scripted) -> None:
        async with await node.connect():
            front = Script.last
            transport = next(t for t in node.transports.values() if t.front is front)
            connected = transport._socket
            transport._socket = Bottomless(connected)  # type: ignore[assignment]
            consumer = Greedy(node, front)
            front.drained = consumer.wake  # type: ignore[method-assign]
            consumer.queue.add_consumer(consumer)
            body = bytes(MIB // 2)
            for _ in range(64):
                consumer.queue.push(Message(FakeEncoding(Properties()), "", "q", b"", body))
            node.settle()
            given = 64 - consumer.queue.ready
            assert 0 < given < 8
            turns = 0
            while consumer.queue.ready:
                await trio.lowlevel.checkpoint()
                turns += 1
            assert turns > 4
            transport._socket = connected

    run(test)
