"""How much of one connection's input is processed before others are read from: the same in every protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker import TURN_S, WORK_MAX
from leveret.clock import Clock
from leveret.front_end import FrontEnd
from leveret.outbox import Outbox
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.attack import command
from tests.amqp010.peer import Peer as Peer010
from tests.amqp010.peer import session_of as session_010
from tests.amqp091.peer import channel_of
from tests.amqp10.parts import frame
from tests.amqp10.peer import session_of as session_10
from tests.harness.bench import ClientBench
from tests.harness.http import HERE, Line, request

MANY = 20


class Watched(Clock):
    """A clock that goes on by more than a third of a turn whenever it is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> float:
        self.looks += 1
        return self.wall()

    def wall(self) -> float:
        return self.looks * TURN_S * 0.4


def channels(bench: ClientBench) -> tuple[FrontEnd, Outbox, bytes]:
    """Return a connection with an open channel, and declarations of queues."""
    peer = channel_of(bench).peer
    frames = (wire.method_frame(1, m.QueueDeclare(f"q{number}").encode()) for number in range(MANY))
    return peer.front, peer.outbox, b"".join(frames)


def links(bench: ClientBench) -> tuple[FrontEnd, Outbox, bytes]:
    """Return a connection with a session, and links to a queue."""
    bench.host.declare_queue("q")
    session = session_10(bench)
    source, target = p.Source(address="/queues/q"), p.Target()
    attaches = (
        p.Attach(name=f"l{number}", handle=number, role=True, source=source, target=target)
        for number in range(MANY)
    )
    return session.peer.front, session.peer.outbox, b"".join(frame(session.channel, a) for a in attaches)


def commands(bench: ClientBench) -> tuple[FrontEnd, Outbox, bytes]:
    """Return a connection with a session, and declarations of queues."""
    client = session_010(bench).client
    assert isinstance(client, Peer010)
    octets = b"".join(command(c.QueueDeclare(f"q{number}")) for number in range(MANY))
    return client.front, client.outbox, octets


def requests(bench: ClientBench) -> tuple[FrontEnd, Outbox, bytes]:
    """Return a connection for HTTP, and pipelined requests."""
    outbox = Outbox(bench.ready)
    front = Line(bench.broker, bench.config, HERE, outbox=outbox).connection
    return front, outbox, request("GET", "/api/whoami", login="guest:guest") * MANY


@pytest.mark.parametrize("opened", [channels, links, commands, requests])
def test_a_connection_that_asks_for_much_gives_way_after_a_millisecond_and_goes_on_in_its_next_turn(
    opened: Callable[[ClientBench], tuple[FrontEnd, Outbox, bytes]],
) -> None:
    whole, bench = ClientBench(), ClientBench()
    front, at_once, octets = opened(whole)
    front.receive(octets, whole.broker.tick())
    whole.settle()
    assert not front.halted  # its clock stands still
    front, outbox, octets = opened(bench)
    bench.broker.clock = Watched()
    turns, said = 0, octets
    while said or front.halted:
        before = outbox.written()
        front.receive(said, bench.broker.tick())
        bench.settle()
        assert outbox.written() > before or not front.halted
        turns, said = turns + 1, b""
    assert MANY / 3 < turns <= MANY + 1
    assert bench.host.queues.keys() == whole.host.queues.keys()
    assert outbox.written() >= at_once.written()  # 0-10 tells in each turn what is complete
    assert not front.closed


@pytest.mark.parametrize("is_known", [False, True])
def test_headers_that_are_looked_at_count_as_work(is_known: bool) -> None:
    """Ten thousand bytes of headers take as long as hundreds of copies; an eighth of that if the route is known."""
    bench = ClientBench()
    channel = channel_of(bench)
    channel.exchange("x", "headers")
    channel.declare("q")
    channel.bind("q", "x", arguments={"header-0": 0})
    out: list[bytes] = []
    count = 96 if is_known else 12
    for each in range(count):
        headers = {f"header-{number}": number for number in range(700)}
        if not is_known:
            headers["header-1"] = each
            channel.bind("q", "x", arguments={"x-match": "any", "header-1": each})
        properties = BasicProperties(headers=headers).encode()
        wire.append_content(out, 1, m.BasicPublish("x", "").encode(), properties, b"1", 131072)
    front, turns = channel.peer.front, 1
    front.receive(b"".join(out), bench.broker.tick())
    while front.halted:
        assert WORK_MAX < bench.broker.work <= WORK_MAX + len(properties)
        front.receive(b"", bench.broker.tick())
        turns += 1
    assert turns > 2
    assert bench.queue("q").ready == count
