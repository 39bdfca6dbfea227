"""Messages in runs against the same one by one: the same are dropped, and the work is in proportion."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import TAKEN
from leveret.message import Message
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.values import Value
from tests.amqp091.peer import Peer
from tests.core.fakes import CoreBench, waiting
from tests.features.deduplication.published import headed, identified
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

SWITCH = "x-message-deduplication"
PLACES: list[tuple[dict[str, Value], dict[str, Value]]] = [
    ({SWITCH: True}, {}),
    ({SWITCH: True, "x-cache-size": 2}, {}),
    ({}, {SWITCH: True}),
    ({}, {SWITCH: True, "x-cache-size": 2}),
    ({}, {SWITCH: True, "x-max-length": 3, "x-overflow": "reject-publish"}),
    ({SWITCH: True}, {"x-max-length": 3, "x-overflow": "reject-publish"}),
    ({SWITCH: True}, {SWITCH: True, "x-max-length": 3}),
]


@dataclass
class Desk:
    """An exchange and one or two queues behind it."""

    of_exchange: dict[str, Value]
    of_queue: dict[str, Value]
    queues: int

    def __post_init__(self) -> None:
        self.bench = CoreBench()
        host = self.bench.host
        self.exchange = host.declare_exchange("x", "fanout", arguments=self.of_exchange)
        for n in range(self.queues):
            queue = host.declare_queue(f"q{n}", arguments=self.of_queue if n == 0 else {})
            host.bind(self.exchange, queue, "")
        self.bench.broker.publish(self.exchange, headed({}))  # the route is remembered
        self.queue = host.queue("q0")
        self.queue.purge()

    def publish(self, messages: list[Message]) -> None:
        for message in messages:
            self.bench.broker.publish(self.exchange, message)

    def publish_in_runs(self, messages: list[Message]) -> None:
        """Publish as the adapters do: what a run leaves goes by itself, and the rest again as a run."""
        while messages:
            taken = self.bench.broker.publish_run(self.exchange, messages)
            messages = messages[taken:]
            if messages:
                self.bench.broker.publish(self.exchange, messages[0])
                messages = messages[1:]

    def state(self) -> tuple[object, ...]:
        known = [each.deduplication for each in (self.exchange, self.queue)]
        return (
            [waiting(queue) for queue in self.bench.host.queues.values()],
            [(each.entries, each.repeated) for each in known if each is not None],
            (self.exchange.published, self.exchange.routed, self.queue.published),
        )


def messages_of(ids: list[int]) -> list[Message]:
    """Messages with like facts; a negative number stands for one without an id."""
    return [
        headed({}, b"none") if n < 0 else identified(f"id{n}", str(n).encode(), exchange="x") for n in ids
    ]


@pytest.mark.parametrize(("of_exchange", "of_queue"), PLACES, ids=str)
@given(batches=st.lists(st.lists(st.integers(-1, 5), max_size=12), max_size=4), queues=st.integers(1, 2))
def test_a_run_ends_as_the_same_messages_one_by_one(
    of_exchange: dict[str, Value], of_queue: dict[str, Value], batches: list[list[int]], queues: int
) -> None:
    alone, together = Desk(of_exchange, of_queue, queues), Desk(of_exchange, of_queue, queues)
    for ids in batches:
        alone.publish(messages_of(ids))
        together.publish_in_runs(messages_of(ids))
        assert together.state() == alone.state()
        for desk in (alone, together):
            desk.queue.take_one(True)  # its id may come again
            desk.bench.settle()


@pytest.mark.parametrize(("of_exchange", "of_queue"), PLACES[:4:2], ids=str)
def test_new_ids_go_in_one_run(of_exchange: dict[str, Value], of_queue: dict[str, Value]) -> None:
    desk = Desk(of_exchange, of_queue, 1)
    assert desk.bench.broker.publish_run(desk.exchange, messages_of([1, 2, 3])) == 3
    assert desk.bench.broker.publish_run(desk.exchange, messages_of([4, 1, 5])) == 1
    assert desk.bench.broker.publish(desk.exchange, messages_of([1])[0]) is TAKEN
    assert waiting(desk.queue) == "1 2 3 4"


def frames(ids: range) -> bytes:
    out: list[bytes] = []
    for n in ids:
        properties = BasicProperties(headers={"x-deduplication-header": f"order-{n:06}"}).encode()
        wire.append_content(out, 1, m.BasicPublish("x", "").encode(), properties, b"body", 131072)
    return b"".join(out)


@plain_only
@pytest.mark.parametrize(("of_exchange", "of_queue"), PLACES[:3:2], ids=str)
@pytest.mark.parametrize("repeated", [0, 1])
def test_the_work_for_a_read_is_in_proportion_to_its_messages(
    of_exchange: dict[str, Value], of_queue: dict[str, Value], repeated: int
) -> None:
    def cost(messages: int) -> int:
        bench = ClientBench()
        peer = Peer(bench).open()
        peer.channel()
        exchange = bench.host.declare_exchange("x", "fanout", arguments=of_exchange)
        bench.host.bind(exchange, bench.host.declare_queue("q", arguments=of_queue), "")

        def receive(octets: bytes) -> None:
            peer.front.receive(octets, bench.broker.tick())
            bench.broker.settle()

        receive(frames(range(1000, 1002)))
        for _ in range(repeated):
            receive(frames(range(messages)))
        octets = frames(range(messages))
        return calls(lambda: receive(octets)).total()

    assert cost(400) < 2.4 * cost(200)
