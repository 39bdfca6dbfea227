"""A connection of each version of AMQP that publishes faster than its rate is not read from for a while."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from leveret.front_end import FrontEnd
from leveret.limits import UserLimits
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.peer import session_of as session010
from tests.amqp091.peer import Peer as Peer091
from tests.amqp10.parts import data
from tests.amqp10.peer import session_of as session10
from tests.harness.bench import ClientBench

RATE = 10
HELLO = data(b"hello")

Publish = Callable[[int], None]


def over_091(bench: ClientBench) -> tuple[FrontEnd, Publish]:
    peer = Peer091(bench).open()
    channel = peer.channel()

    def publish(count: int) -> None:
        for _ in range(count):
            channel.publish("", "q", b"x")

    return peer.front, publish


def over_10(bench: ClientBench) -> tuple[FrontEnd, Publish]:
    session = session10(bench)
    sender = session.sender("/queues/q")

    def publish(count: int) -> None:
        for _ in range(count):
            sender.send(HELLO)

    return session.peer.front, publish


def over_010(bench: ClientBench) -> tuple[FrontEnd, Publish]:
    session = session010(bench)

    def publish(count: int) -> None:
        for _ in range(count):
            session.publish("q", b"x")

    return session.client.front, publish


@pytest.fixture(params=[over_091, over_10, over_010])
def publisher(request: pytest.FixtureRequest) -> tuple[ClientBench, FrontEnd, Publish]:
    bench = ClientBench()
    bench.host.declare_queue("q")
    limit(bench, RATE)
    return bench, *request.param(bench)


def limit(bench: ClientBench, rate: int | None) -> None:
    user = bench.broker.access.user("guest")
    assert user is not None
    bench.broker.access.put_user(attrs.evolve(user, limits=UserLimits(max_publish_rate=rate)))


def test_it_waits_until_the_rate_allows_more(publisher: tuple[ClientBench, FrontEnd, Publish]) -> None:
    bench, front, publish = publisher
    publish(RATE)
    assert not front.throttled
    publish(1)
    assert front.throttled
    facts = front.facts()
    assert facts is not None
    assert (facts.throttled, facts.blocked) == (True, False)
    bench.advance(0.15)
    assert front.throttled
    bench.advance(0.1)
    assert not front.throttled
    assert bench.queue("q").published == RATE + 1  # nothing is refused


def test_its_silence_is_not_held_against_it(publisher: tuple[ClientBench, FrontEnd, Publish]) -> None:
    bench, front, publish = publisher
    publish(100 * RATE)
    bench.advance(90)
    assert front.throttled
    assert not front.closed
    bench.advance(10)
    assert not front.throttled


def test_an_alarm_that_ends_does_not_end_the_wait(publisher: tuple[ClientBench, FrontEnd, Publish]) -> None:
    bench, front, publish = publisher
    publish(2 * RATE)
    bench.broker.alarms.set("low on memory")
    publish(1)
    bench.broker.alarms.clear("low on memory")
    assert front.throttled
    assert not front.blocked
    bench.advance(1.5)
    assert not front.throttled


def test_it_is_read_to_its_end_when_it_is_closed(publisher: tuple[ClientBench, FrontEnd, Publish]) -> None:
    bench, front, publish = publisher
    publish(100 * RATE)
    assert front.throttled
    front.shut_down("an operator asked for it")
    bench.settle()
    assert not front.throttled


def test_without_a_limit_it_never_waits(publisher: tuple[ClientBench, FrontEnd, Publish]) -> None:
    bench, front, publish = publisher
    publish(5 * RATE)
    limit(bench, None)
    assert not front.throttled
    publish(50 * RATE)
    assert not front.throttled


def test_ending_a_session_is_no_way_around_the_rate() -> None:
    bench = ClientBench()
    bench.host.declare_queue("q")
    limit(bench, RATE)
    session = session10(bench)
    sender = session.sender("/queues/q")
    sender.send(HELLO, settle=False)
    for _ in range(2 * RATE):
        sender.send(HELLO, settle=False)
    session.send(p.End(), settle=False)
    bench.settle()
    session.peer.read()
    assert session.peer.front.throttled
