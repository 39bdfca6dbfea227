"""The memory of clients that rest: nodes have very many of them."""

from __future__ import annotations

import gc
import tracemalloc

from leveret.outbox import Outbox
from leveret.protocols.mqtt.broker.adapter import AdapterMqtt
from leveret.protocols.mqtt.codec.packets import Connect, Subscribe, Subscription
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK

CLIENTS = 300


def memory_of_each(bench: ClientBench, subscribes: bool) -> float:
    """Return the bytes of the broker's memory that a client takes that has logged in."""
    said = []
    for number in range(CLIENTS + 50):
        octets = Connect(4, f"device-{number}", False, 0, "guest", b"guest").encode(4)
        if subscribes:
            octets += Subscribe(1, (Subscription(f"devices/{number}/in", 1),)).encode(4)
        said.append(octets)
    fronts: list[AdapterMqtt] = []
    outboxes = [Outbox(bench.ready) for _ in said]

    def connect(first: int, last: int) -> None:
        for number in range(first, last):
            now = bench.broker.tick()
            front = AdapterMqtt(bench.broker, bench.config, outboxes[number], LOOPBACK, now)
            fronts.append(front)
            front.receive(said[number], now)
            bench.broker.settle()
            assert outboxes[number].take()
        bench.ready.clear()

    connect(0, 50)
    gc.collect()
    tracemalloc.start()
    try:
        connect(50, len(said))
        gc.collect()
        octets_each = tracemalloc.get_traced_memory()[0] / CLIENTS
    finally:
        tracemalloc.stop()
    assert not any(front.closed for front in fronts)
    return octets_each


def test_a_resting_client_takes_little_memory() -> None:
    assert memory_of_each(ClientBench(), subscribes=False) < 5400


def test_a_resting_client_with_a_subscription_takes_little_memory() -> None:
    assert memory_of_each(ClientBench(), subscribes=True) < 10200
