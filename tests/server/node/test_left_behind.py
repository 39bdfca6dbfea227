"""What stays of connections, channels, links and sessions that have ended: nothing, once their cycles are swept."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from leveret.outbox import Outbox
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.server.node.sweeps import ENDED_MIN, LOOK_S, REST, YOUNG_MIN, Sweeps
from tests.amqp010.peer import session_of as session_010
from tests.amqp091.peer import channel_of
from tests.amqp10.parts import data
from tests.amqp10.peer import session_of as session_10
from tests.harness.bench import ClientBench, CoreBench
from tests.harness.http import HERE, Line
from tests.harness.peer import JoinedPeer

HELD = ("Message", "Delivery", "Facts", "Notes")  # that a queue has


def gone(peer: JoinedPeer) -> None:
    """The connection breaks off, and the client forgets it."""
    peer.drop()
    vars(peer).clear()


def channels(bench: ClientBench) -> None:
    """Channels are used and closed, and one is left when the connection breaks off."""
    channel = channel_of(bench)
    for each in (channel.peer.channel(2), channel):
        each.call(m.ConfirmSelect())
        each.prefetch(2)
        each.consume("q")
        for _ in range(3):
            each.publish("", "q", b"x")
        each.all()
    channel.peer.answer(2, m.ChannelClose(200, "", 0, 0))
    gone(channel.peer)


def transactions(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.call(m.TxSelect())
    channel.publish("", "q", b"x")
    channel.call(m.TxCommit())
    channel.publish("", "q", b"x")
    gone(channel.peer)


def links(bench: ClientBench) -> None:
    session = session_10(bench)
    receiver, sender = session.receiver("/queues/q", credit=2), session.sender("/queues/q")
    for _ in range(3):
        sender.publish(data(b"x"))
    receiver.all()
    gone(session.peer)


def sessions(bench: ClientBench) -> None:
    session = session_010(bench)
    session.subscribe("q", messages=2)
    for _ in range(3):
        session.publish("q", b"x", sync=True)
    session.client.read()
    session.send(c.MessageCancel("q"), sync=True)
    assert isinstance(session.client, JoinedPeer)
    gone(session.client)


def requests(bench: ClientBench) -> None:
    line = Line(bench.broker, bench.config, HERE, outbox=Outbox(bench.ready))
    line.send("GET", "/api/whoami", login="guest:guest")
    bench.settle()
    line.connection.lost()
    vars(line).clear()


def ours() -> Counter[str]:
    """The number of the broker's and the protocols' objects, by class, but for what queues hold."""
    gc.collect()
    return classes(gc.get_objects())


def swept(act: Callable[[], None]) -> Counter[str]:
    """The same of those that only the collector could free after an act."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        act()
        gc.collect()
        return classes(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def classes(objects: Iterable[object]) -> Counter[str]:
    kinds = (type(each) for each in objects)
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if kind.__module__.startswith("leveret.") and kind.__name__ not in HELD
    )


def test_nothing_stays_of_what_has_ended() -> None:
    def use() -> None:
        for used in (channels, transactions, links, sessions, requests):
            used(bench)
        bench.ready.clear()

    bench = ClientBench()
    bench.host.declare_queue("q")
    use()  # makes what is made once
    before = ours()
    use()
    assert not ours() - before


def comings(bench: ClientBench) -> Iterator[Callable[[], None]]:
    """Let channels, consumers, links and subscriptions come and go on connections that stay."""
    session, channel, subscriber = session_10(bench), channel_of(bench), session_010(bench)

    def come_and_go() -> None:
        for _ in range(10):
            session.receiver("/queues/q", credit=2).detach()
            sender = session.sender("/queues/q")
            sender.publish(data(b"x"))
            sender.detach()

    yield come_and_go

    def open_and_close() -> None:
        for _ in range(10):
            other = channel.peer.channel(2)
            other.call(m.ConfirmSelect())
            other.consume("q", "t")
            other.publish("", "q", b"x")
            other.all()
            channel.peer.answer(2, m.ChannelClose(200, "", 0, 0))

    yield open_and_close

    def subscribe_and_cancel() -> None:
        for _ in range(10):
            subscriber.subscribe("q", messages=2)
            subscriber.send(c.MessageCancel("q"), sync=True)

    yield subscribe_and_cancel


def test_what_ends_in_large_numbers_needs_no_sweep() -> None:
    """65,535 links or channels of one connection end in a second; a sweep would take as long for what they left."""
    bench = ClientBench()
    bench.host.declare_queue("q")
    for act in comings(bench):
        act()  # makes what is made once
        assert not swept(act)


@pytest.mark.parametrize(
    ("ended", "young", "count"), [(999, 999, 0), (1000, 0, 1), (0, 1000, 1), (1000, 1000, 1)]
)
def test_it_is_swept_after_so_much_has_ended_or_been_made(ended: int, young: int, count: int) -> None:
    sweeps: list[str] = []
    bench, made = CoreBench(), [5]
    Sweeps(bench.broker, lambda: sweeps.append("swept"), lambda: made[0]).begin()
    for _ in range(3):
        bench.advance(LOOK_S)
    assert not sweeps
    bench.broker.events.counts["channel.closed"] += ended
    made[0] += young
    bench.advance(LOOK_S - 1)
    assert not sweeps
    for _ in range(3):
        bench.advance(LOOK_S)
    assert len(sweeps) == count


def test_a_sweep_that_takes_long_is_followed_by_a_long_rest() -> None:
    bench, sweeps = CoreBench(), list[float]()

    def sweep() -> None:
        sweeps.append(bench.broker.now)
        bench.clock.advance(0.1)

    Sweeps(bench.broker, sweep, lambda: len(sweeps) * YOUNG_MIN + YOUNG_MIN).begin()
    bench.broker.events.counts["connection.closed"] += ENDED_MIN
    while bench.broker.now < 3 * 0.1 * REST:
        bench.advance(LOOK_S)
    assert [round(each) for each in sweeps] == [5, 105, 205]
