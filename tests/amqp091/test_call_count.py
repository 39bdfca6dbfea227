"""The price of a message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import pytest

from leveret.durable.journal import Journal
from leveret.durable.store.memory import MemoryStore
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import Peer
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls
from tests.harness.plain import calls_under, plain_only

MESSAGES = 100
ACK = wire.method_frame(1, m.BasicAck(1, False).encode())[:-10]  # up to the tag


class Line:
    """One publisher with confirms, one consumer, one durable queue."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.bench = ClientBench()
        self.store = store
        self.said: deque[Callable[[], None]] = deque()
        self.publisher, self.consumer = Peer(self.bench).open(), Peer(self.bench).open()
        publishing, consuming = self.publisher.channel(), self.consumer.channel()
        publishing.declare("q", durable=True)
        if store is not None:
            journal = Journal(store, self.bench.broker, {"amqp091": lambda: ENCODING})
            self.queue.number, self.queue.journal = 1, journal
            journal.start(self.said.append)
        publishing.confirms()
        consuming.call(m.BasicQos(0, 2 * MESSAGES))
        consuming.consume("q")
        out: list[bytes] = []
        properties = BasicProperties(delivery_mode=1 if store is None else 2).encode()
        wire.append_content(out, 1, m.BasicPublish("", "q").encode(), properties, bytes(100), 131072)
        self.batch = b"".join(out) * MESSAGES
        self.tag = 0
        self.one_by_one = False

    def own_properties(self) -> None:
        """Give each message of a batch an id and a header of its own, and have each acknowledged by itself."""
        out: list[bytes] = []
        for number in range(MESSAGES):
            properties = BasicProperties(
                message_id=f"m{number:05d}", headers={"trace": f"{number:032x}", "n": 7}
            )
            publish = m.BasicPublish("", "q").encode()
            wire.append_content(out, 1, publish, properties.encode(), bytes(100), 131072)
        self.batch = b"".join(out)
        self.one_by_one = True

    @property
    def queue(self):
        return self.bench.queue("q")

    def round_trip(self) -> tuple[int, int]:
        """A batch in, confirms and deliveries out, one ack for all of them. Returns octets delivered, and confirmed.

        With a store, everything is on disk before it is acknowledged, which is the most work there can be.
        """
        self._settle(self.publisher, self.batch)
        delivered = sum(map(len, self.consumer.outbox.take()))
        confirmed = sum(map(len, self.publisher.outbox.take()))
        self.tag += MESSAGES
        if self.one_by_one:
            first = self.tag - MESSAGES + 1
            acks = b"".join(
                [ACK + tag.to_bytes(8, "big") + b"\0\xce" for tag in range(first, first + MESSAGES)]
            )
        else:
            acks = wire.method_frame(1, m.BasicAck(self.tag, True).encode())
        self._settle(self.consumer, acks)
        return delivered, confirmed

    def _settle(self, peer: Peer, octets: bytes) -> None:
        broker = self.bench.broker
        peer.intake.receive(octets, broker.tick())
        broker.settle()
        while self.store is not None and (self.store.given or self.said):
            if self.store.given:
                self.store.land()
            self.said.popleft()()

    def cost(self) -> Counter[str]:
        """The calls of one round trip, once everything has been seen before."""
        self.round_trip()
        seen: list[tuple[int, int]] = []
        counted = calls(lambda: seen.append(self.round_trip()))
        delivered, confirmed = seen[0]
        assert delivered > MESSAGES * 100
        assert confirmed == 21
        assert self.queue.unsettled == 0
        return counted


def test_a_confirmed_and_acknowledged_message_costs_three_python_calls_at_most() -> None:
    cost = Line().cost()
    assert cost.total() / MESSAGES < 2.77, cost.most_common(20)


def test_a_message_that_could_be_kept_but_need_not_costs_no_more() -> None:
    """With a store there is one look for each batch, and none for a message."""
    line = Line(MemoryStore(held=True))
    line.batch = line.batch.replace(b"\x10\x00\x02", b"\x10\x00\x01")
    cost = line.cost()
    assert cost.total() / MESSAGES < 2.85, cost.most_common(20)
    assert line.store is not None
    assert not line.store.stats().commits


def test_a_message_that_is_kept_costs_five_python_calls_at_most() -> None:
    """Packing and checksums included, and settling it when it is on disk. Columns and runs are what makes it cheap."""
    store = MemoryStore(held=True)
    cost = Line(store).cost()
    assert cost.total() / MESSAGES < 4.03, cost.most_common(20)
    assert store.stats().commits == 4
    assert not store.stats().chunks


def test_messages_by_turns_for_ten_queues_cost_two_python_calls_more_at_most() -> None:
    """Reading the publish of each; every queue gets its share of a read at once."""
    line = Line()
    out: list[bytes] = []
    channel = line.publisher.channel(2)
    for number in range(MESSAGES):
        channel.declare(f"q{number % 10}")
        publish = m.BasicPublish("", f"q{number % 10}").encode()
        wire.append_content(out, 1, publish, BasicProperties().encode(), bytes(100), 131072)
    for _ in range(2):  # routes are known after the first, and used after the second
        line._settle(line.publisher, b"".join(out))
    cost = calls(lambda: line._settle(line.publisher, b"".join(out)))
    assert cost.total() / MESSAGES < 4.3, cost.most_common(20)
    assert {line.bench.queue(f"q{number}").ready for number in range(10)} == {30}


def test_messages_with_ids_and_headers_of_their_own_cost_seven_python_calls_more_at_most() -> None:
    """Reading their properties, and nothing on the way to the consumer; each is acknowledged by itself."""
    line = Line()
    line.own_properties()
    cost = line.cost()
    assert cost.total() / MESSAGES < 9.8, cost.most_common(20)


@plain_only
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("messages", [1, MESSAGES])
def test_a_confirm_goes_straight_from_the_broker_to_the_outbox(messages: int, durable: bool) -> None:
    """From being told that all is safe: four calls in three modules, for one message and for a hundred."""
    line = Line(MemoryStore(held=True) if durable else None)
    line.round_trip()
    batch = line.batch[: len(line.batch) * messages // MESSAGES]
    calls, modules = calls_under("Publishing.taken", lambda: line._settle(line.publisher, batch))
    assert calls == ["Publishing.taken", "Publishing._ack_through", "confirm_frame", "Outbox.write"]
    assert modules == {"publishing", "wire", "outbox"}
    confirm = m.BasicAck(MESSAGES + messages, messages > 1)
    assert line.publisher.outbox.take() == [wire.method_frame(1, confirm.encode())]
