"""What stays of connections, channels, links and sessions that have ended: nothing, once their cycles are swept."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from broker_core.node.sweeps import ENDED_MIN, LOOK_S, REST, YOUNG_MIN, Sweeps
from broker_core.outbox import Outbox
from protocols.amqp010.codec import commands as c
from protocols.amqp091.codec import methods as m
from tests.amqp010.peer import session_of as session_010
from tests.amqp091.peer import channel_of
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
        sender.publish()
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
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if kind.__module__.startswith(("broker_core.", "protocols.")) and kind.__name__ not in HELD
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


@pytest.mark.parametrize(
    ("ended", "young", "swept"), [(999, 999, 0), (1000, 0, 1), (0, 1000, 1), (1000, 1000, 1)]
)
def test_it_is_swept_after_so_much_has_ended_or_been_made(ended: int, young: int, swept: int) -> None:
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
    assert len(sweeps) == swept


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
