"""The firehose: what is published and delivered in a traced virtual host is copied, and nothing is paid without it."""

from __future__ import annotations

import pytest

from leveret.delivery import UNLIMITED
from leveret.exchanges.exchange_type import Exchange
from leveret.message import Facts
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.observability.firehose import TRACE
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING_0_10
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING_0_9_1
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING_1_0
from leveret.publishing.portion import publish_portion
from leveret.queues.queue import Queue
from leveret.transaction import Transaction
from leveret.values import Properties, Table
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench, message
from tests.harness.call_count import calls
from tests.harness.http import FakeNode
from tests.metrics.stand import Front, Link

ENCODINGS = (ENCODING_0_9_1, ENCODING_1_0, ENCODING_0_10)


class Listened(CoreBench):
    """A traced bench with a queue for all copies."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.encodings = {"amqp091": lambda: ENCODING_0_9_1}
        self.copies = self.listen(TRACE)
        self.host.set_tracing(True)

    def listen(self, exchange: str) -> Queue:
        queue = self.host.declare_queue("copies")
        self.host.bind(self.host.exchange(exchange), queue, "#")
        return queue

    def told(self) -> list[tuple[str, Table, bytes]]:
        """The copies since last time: key, headers, body."""
        self.settle()
        found = [(d.message.key, d.message.headers, d.message.body) for d in self.copies.waiting()]
        self.copies.purge()
        return found


@pytest.fixture
def bench() -> Listened:
    return Listened()


def exchange(bench: CoreBench, name: str) -> Exchange:
    return bench.host.exchange(name)


def bodies(copies: list[tuple[str, Table, bytes]]) -> list[tuple[str, bytes]]:
    return [(key, body) for key, _, body in copies]


def test_what_is_published_is_copied_with_where_it_went(bench: Listened) -> None:
    bench.queue("q")
    bench.publish("q", b"hi")
    assert bench.told() == [
        (
            "publish.",
            {
                "exchange_name": "",
                "routing_keys": ["q"],
                "properties": {},
                "node": "",
                "vhost": "/",
                "connection": "",
                "channel": 0,
                "user": "",
                "routed_queues": ["q"],
            },
            b"hi",
        )
    ]


def test_what_no_queue_takes_is_copied_too(bench: Listened) -> None:
    bench.broker.publish(exchange(bench, "amq.fanout"), message("k", b"lost", exchange="amq.fanout"))
    [(key, headers, body)] = bench.told()
    assert (key, headers["routed_queues"], body) == ("publish.amq.fanout", [], b"lost")


def test_what_is_delivered_is_copied_each_time(bench: Listened) -> None:
    consumer = FakeConsumer(bench.queue("q"), credit=1)
    bench.publish("q", b"a")
    [_, (key, headers, body)] = bench.told()
    assert (key, headers["redelivered"], body) == ("deliver.q", 0, b"a")
    assert "routed_queues" not in headers
    consumer.release(consumer.got[0])
    consumer.grant(1)
    [(key, headers, _)] = bench.told()
    assert (key, headers["redelivered"]) == ("deliver.q", 1)


def test_what_is_fetched_is_copied(bench: Listened) -> None:
    queue = bench.queue("q")
    bench.publish("q", b"a")
    bench.told()
    assert queue.take_one(settled=True) is not None
    assert queue.take_one(settled=True) is None
    assert bodies(bench.told()) == [("deliver.q", b"a")]


def test_every_way_to_publish_is_traced_once(bench: Listened) -> None:
    broker, host = bench.broker, bench.host
    for name in ("x", "y"):
        host.bind(exchange(bench, "amq.topic"), bench.queue(name), "k.#")
    host.bind(exchange(bench, "amq.match"), host.queue("x"), "", {"x-match": "all"})
    sent = exchange(bench, "amq.topic")
    told = []
    for copy in (
        message("k.1", b"1", exchange="amq.topic"),
        message("k.1", b"2", cc=("k.2",), exchange="amq.topic"),
    ):
        broker.publish(sent, copy)
        assert broker.publish_if_room(sent, copy) is not None
        broker.publish_immediate(sent, copy)
        assert publish_portion(host, [copy, copy]).taken == 2
        told.append([key for key, _, _ in bench.told()])
    assert told == [["publish.amq.topic"] * 5] * 2
    broker.publish(exchange(bench, "amq.match"), message("", b"", exchange="amq.match"))
    assert [headers["routed_queues"] for _, headers, _ in bench.told()] == [["x"]]


def test_a_copy_is_neither_traced_itself_nor_are_its_dead(bench: Listened) -> None:
    host = bench.host
    dead = bench.queue("dead")
    bench.copies.apply(bench.queue("m", x_max_length=1, x_dead_letter_exchange="amq.fanout").limits)
    host.bind(exchange(bench, "amq.fanout"), dead, "")
    FakeConsumer(dead, credit=UNLIMITED)
    FakeConsumer(bench.queue("q"), credit=UNLIMITED)
    bench.publish("q", b"a", b"b", b"c")
    assert bench.copies.published == 6
    assert dead.delivered == 5


def test_dead_letters_are_copied_when_they_are_delivered_only(bench: Listened) -> None:
    bench.queue("dead")
    queue = bench.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    bench.publish("q", b"a")
    delivery = queue.take_one(settled=False)
    assert delivery is not None
    queue.reject(delivery)
    bench.told()
    assert bench.host.queue("dead").ready == 1
    assert bench.host.queue("dead").take_one(settled=True) is not None
    assert bodies(bench.told()) == [("deliver.dead", b"a")]


def test_messages_of_every_protocol_are_copied_with_their_properties() -> None:
    said = Properties(content_type="text/plain", headers={"a": 1}, durable=True, message_id="m", priority=3)
    bench = Listened()
    bench.queue("q")
    for encoding in ENCODINGS:
        copy = message("q")
        copy.encoding, copy.properties = encoding, encoding.write(said)
        copy.body, copy.facts = encoding.body(b"hello"), Facts(has_headers=True)
        bench.broker.publish(bench.host.default_exchange, copy)
        [(_, headers, body)] = bench.told()
        assert body == b"hello"
        assert headers["properties"] == {
            "content_type": "text/plain",
            "headers": {"a": 1},
            "priority": 3,
            "message_id": "m",
            "delivery_mode": 2,
        }


def test_a_queue_may_get_copies_of_what_it_delivers(bench: Listened) -> None:
    queue = bench.queue("q")
    bench.host.bind(exchange(bench, TRACE), queue, "deliver.q")
    consumer = FakeConsumer(queue, credit=UNLIMITED)
    bench.publish("q", b"a", b"b")
    assert consumer.bodies() == "a b a b"
    assert bodies(bench.told()) == [
        ("publish.", b"a"),
        ("publish.", b"b"),
        ("deliver.q", b"a"),
        ("deliver.q", b"b"),
    ]


def test_readers_of_streams_are_traced_each_and_those_who_look_are_not(bench: Listened) -> None:
    stream = bench.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    for _ in range(2):
        FakeConsumer(stream, credit=9, arguments={"x-stream-offset": "first"})
    FakeConsumer(bench.queue("q"), browses=True)
    bench.publish("s", b"a")
    bench.publish("q", b"b")
    assert bodies(bench.told()) == [
        ("publish.", b"a"),
        ("deliver.s", b"a"),
        ("deliver.s", b"a"),
        ("publish.", b"b"),
    ]


def test_who_asks_is_known_by_his_connection_and_his_only_channel(bench: Listened) -> None:
    node = bench.broker.operations = FakeNode()
    bench.queue("q")
    for channels in (1, 2):
        facts = ConnectionFacts(protocol="AMQP 1.0", user="shop", virtual_host="/", channels=channels)
        node.fed = Link(7, Front(facts, [ChannelFacts(number=n) for n in range(5, 5 + channels)]))
        bench.publish("q", b"a")
    told = [(headers["connection"], headers["channel"], headers["user"]) for _, headers, _ in bench.told()]
    name = "127.0.0.1:7 -> 127.0.0.1:5672"
    assert told == [(name, 5, "shop"), (name, 0, "shop")]
    node.fed = None
    bench.publish("q", b"nobody's")
    [(_, headers, _)] = bench.told()
    assert (headers["connection"], headers["user"], headers["node"]) == ("", "", "leveret")


def test_tracing_ends_and_begins_while_queues_are_in_use(bench: Listened) -> None:
    bench.queue("q")
    bench.host.set_tracing(False)
    bench.host.set_tracing(False)
    FakeConsumer(bench.host.queue("q"), credit=UNLIMITED)
    bench.publish("q", b"a")
    assert bench.told() == []
    assert not bench.host.tracing
    bench.host.set_tracing(True)
    bench.queue("late")
    bench.publish("late", b"b")
    assert bench.host.queue("late").take_one(settled=True) is not None
    assert [key for key, _, _ in bench.told()] == ["publish.", "deliver.late"]
    assert bench.host.tracing


def test_what_a_transaction_publishes_is_copied_at_its_end_if_tracing_is_on_still(bench: Listened) -> None:
    bench.queue("q")
    for stays_on, copied in ((True, ["publish."]), (False, [])):
        transaction = Transaction()
        transaction.publish(bench.broker, bench.host.default_exchange, message("q"))
        assert bench.told() == []
        bench.host.set_tracing(stays_on)
        transaction.commit()
        assert [key for key, _, _ in bench.told()] == copied


def test_queues_that_nobody_knows_of_are_not_traced(bench: Listened) -> None:
    queue = bench.queue("q")
    del bench.host.queues["q"]
    bench.host.add_hidden_queue(queue)
    FakeConsumer(queue, credit=UNLIMITED)
    bench.publish("q", b"a")
    assert bodies(bench.told()) == [("publish.", b"a")]


def test_nobody_pays_for_tracing_that_is_off() -> None:
    bench, other = CoreBench(), Listened()
    other.host.set_tracing(False)

    def counted(each: CoreBench) -> object:
        queue = each.host.queues.get("q") or each.queue("q")
        FakeConsumer(queue, credit=UNLIMITED)
        each.publish("q", b"warm")
        return calls(lambda: each.publish("q", b"a", b"b"))

    assert counted(bench) == counted(other)


def test_copies_are_not_made_while_nobody_listens(bench: Listened) -> None:
    bench.queue("q")
    bench.host.delete_queue(bench.copies)
    made = calls(lambda: bench.publish("q", b"a"))
    assert not [name for name in made if "_copy" in name or "convert" in name]
