"""What comes and goes leaves nothing behind: who lives by unique names would otherwise fill the memory in a month."""

from __future__ import annotations

import gc

from leveret.exchanges import routing
from leveret.protocols.amqp091.codec import methods as m
from tests.amqp091.peer import Peer, channel_of
from tests.harness.bench import ClientBench
from tests.harness.plain import plain_only

TIMES = 5


def come_and_go(bench: ClientBench, name: str) -> None:
    """A user logs in, publishes, and is deleted."""
    peer = Peer(bench).open(bench.user(name), name)
    peer.channel().publish("amq.direct", "k")
    peer.drop()
    bench.broker.access.delete_user(name)


def test_a_user_without_connections_is_not_counted() -> None:
    bench = ClientBench()
    for number in range(TIMES):
        come_and_go(bench, f"u{number}")
    assert bench.broker.connections_of == {}
    assert bench.broker.channels_of == {}


def test_of_two_connections_one_goes_and_one_is_counted() -> None:
    bench = ClientBench()
    stays, goes = Peer(bench).open(), Peer(bench).open()
    stays.channel()
    goes.channel()
    goes.drop()
    assert bench.broker.connections_of == {"guest": 1}
    assert bench.broker.channels_of == {"guest": 1}


def test_a_queue_whose_dead_letters_come_back_is_reported_once_and_forgotten_with_it(caplog) -> None:
    channel = channel_of()
    bench = channel.peer.bench
    for _ in range(2):
        channel.declare(
            "q",
            arguments={"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
        )
        for _ in range(TIMES):
            channel.publish("", "q")
            bench.advance(1)
            bench.advance(1)
        channel.does(m.QueueDelete("q"))
    said = [record.getMessage() for record in caplog.records if "cycle" in record.getMessage()]
    # once for each queue
    assert said == ["dead-letter cycle at queue 'q' in vhost '/': messages dropped"] * 2


def test_publish_targets_are_remembered_as_long_as_the_user_has_a_channel() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    for number in (1, 2):
        peer.channel(number).publish("amq.direct", "k")
    assert len(bench.host.remembered) == 1  # for both channels
    peer.channel(3)
    for number in range(TIMES):
        come_and_go(bench, f"u{number}")
    gc.collect()
    assert len(bench.host.remembered) == 1
    peer.drop()
    gc.collect()
    assert len(bench.host.remembered) == 0


@plain_only
def test_remembered_routes_are_counted_over_all_exchanges(monkeypatch) -> None:
    monkeypatch.setattr(routing, "ROUTES_MAX", 10)
    channel = channel_of()
    host = channel.peer.bench.host
    exchanges = [channel.exchange(f"x{number}") for number in range(4)]
    for number in range(100):
        channel.publish(exchanges[number % 4], f"key {number}")
        assert host.routes_remembered == sum(len(each.routes) for each in host.exchanges.values()) <= 10


def test_a_deleted_exchange_takes_its_remembered_routes_along() -> None:
    channel = channel_of()
    host = channel.peer.bench.host
    channel.exchange("x")
    exchange = host.exchanges["x"]
    for number in range(TIMES):
        channel.publish("x", f"key {number}")
    assert host.routes_remembered == TIMES
    channel.does(m.ExchangeDelete("x"))
    assert host.routes_remembered == len(exchange.routes) == 0
