"""A transaction that a crash undoes as a whole, after a consumer has seen what it published."""

from __future__ import annotations

from leveret.durable.store.memory import MemoryStore
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import Content, Peer
from tests.harness.bench import StoredBench

DURABLE = BasicProperties(delivery_mode=2)


def test_x094_a_consumer_may_have_seen_a_transaction_that_a_crash_undid() -> None:
    bench = StoredBench(store=MemoryStore())
    publisher, consumer = Peer(bench).open().channel(), Peer(bench).open().channel()
    publisher.declare("from", durable=True)
    publisher.declare("to", durable=True)
    publisher.publish("", "from", b"order", DURABLE)
    publisher.call(m.TxSelect())
    order = publisher.get("from", no_ack=False)
    assert order is not None
    consumer.consume("to", "c", no_ack=True)
    bench.settle()
    bench.store.held = True  # what is committed from now on is not on disk before it is killed
    publisher.publish("", "to", b"invoice", DURABLE)
    publisher.ack(1)
    publisher.send(m.TxCommit())
    assert [each.body for each in consumer.deliveries()] == [b"invoice"]
    assert bench.store.flying is not None  # commit-ok waits for it, in a node
    after = bench.again()
    channel = Peer(after).open().channel()
    again = channel.get("from")
    assert isinstance(again, Content)
    assert again.body == b"order"
    assert channel.get("to") is None
