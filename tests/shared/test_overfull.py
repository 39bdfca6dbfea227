"""A connection of each version of AMQP that publishes to a queue which is too long is not read from for a while."""

from __future__ import annotations

import pytest

from leveret.front_end import FrontEnd
from leveret.protocols.shared.broker.served_connection import READ_ALL, READ_LITTLE, READ_LITTLE_S
from tests.amqp091.peer import Peer as Peer091
from tests.core.fakes import fetched
from tests.harness.bench import ClientBench, spelled
from tests.shared.test_publish_rates import Publish, limit, over_010, over_091, over_10

LONGEST = 10
Publisher = tuple[ClientBench, FrontEnd, Publish]


@pytest.fixture(params=[over_091, over_10, over_010])
def publisher(request: pytest.FixtureRequest) -> Publisher:
    bench = ClientBench()
    said = spelled({"x_max_length": LONGEST, "x_overflow": "producer-flow-control"})
    bench.host.declare_queue("q", arguments=said)
    return bench, *request.param(bench)


def take(bench: ClientBench, count: int) -> None:
    for _ in range(count):
        fetched(bench.queue("q"), settled=True)
    bench.settle()


def test_it_waits_until_the_queue_is_shorter(publisher: Publisher) -> None:
    bench, front, publish = publisher
    publish(LONGEST)
    assert not front.throttled
    publish(1)
    assert front.throttled
    facts = front.facts()
    assert facts is not None
    assert (facts.throttled, facts.blocked) == (True, False)
    take(bench, 2)
    assert front.throttled
    take(bench, 1)
    assert not front.throttled
    assert (front.read_max, bench.queue("q").published) == (READ_ALL, LONGEST + 1)


def test_its_silence_is_not_held_against_it(publisher: Publisher) -> None:
    bench, front, publish = publisher
    publish(2 * LONGEST)
    bench.advance(3600)
    assert front.throttled
    assert not front.closed
    bench.queue("q").purge()
    bench.settle()
    assert not front.throttled


def test_it_waits_for_both_its_rate_and_its_queue(publisher: Publisher) -> None:
    bench, front, publish = publisher
    limit(bench, LONGEST)
    publish(2 * LONGEST)
    bench.queue("q").purge()
    bench.settle()
    assert front.throttled
    publish(2 * LONGEST)
    bench.advance(100)
    assert front.throttled
    bench.queue("q").purge()
    bench.settle()
    assert not front.throttled


def test_it_is_read_to_its_end_when_it_is_closed(publisher: Publisher) -> None:
    bench, front, publish = publisher
    publish(2 * LONGEST)
    front.shut_down("an operator asked for it")
    bench.settle()
    assert not front.throttled
    take(bench, 2 * LONGEST)


def test_others_that_publish_elsewhere_do_not_wait(publisher: Publisher) -> None:
    bench, front, publish = publisher
    bench.host.declare_queue("r")
    other = Peer091(bench).open()
    publish(2 * LONGEST)
    other.channel().publish("", "r", b"x")
    assert front.throttled
    assert not other.front.throttled


def test_from_one_that_consumes_a_little_is_read_now_and_then(publisher: Publisher) -> None:
    """Its acknowledgements are what makes the queue shorter."""
    bench, *_ = publisher
    peer = Peer091(bench).open()
    channel = peer.channel()
    bench.host.declare_queue("r")
    channel.consume("r")
    for _ in range(LONGEST + 1):
        channel.publish("", "q", b"x")
    assert (peer.front.throttled, peer.front.read_max) == (True, READ_LITTLE)
    bench.advance(READ_LITTLE_S * 1.1)
    assert not peer.front.throttled
    channel.publish("", "q", b"x")
    assert peer.front.throttled
    bench.advance(READ_LITTLE_S * 1.1)
    channel.publish("", "r", b"x")
    assert not peer.front.throttled, "what it publishes elsewhere is read"
