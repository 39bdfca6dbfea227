"""The exchange type `system`: services that answer, over each protocol, and what they do not do for a stranger."""

from __future__ import annotations

import json

import pytest

from leveret.errors import PreconditionFailed
from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.plugins.system_exchange import SERVICES, SystemExchange
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.methods import BasicProperties
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.testing.conformance import check_exchange_type
from leveret.values import Properties
from tests.amqp010 import peer as peer010
from tests.amqp091.peer import Content, channel_of
from tests.harness.bench import ClientBench

REPLY_TO = "amq.rabbitmq.reply-to"
TYPES = {**STANDARD, "system": SystemExchange}


@pytest.fixture
def bench() -> ClientBench:
    bench = ClientBench(exchange_types=TYPES)
    bench.host.declare_exchange("sys", "system", durable=True)
    return bench


def test_it_keeps_the_contract() -> None:
    check_exchange_type(SystemExchange, messages=[("amq.ping", {}), ("amq.time", {}), ("amq.none", {})])
    check_exchange_type(SystemExchange, arguments={"x-reply-to-prefix": "replies."})


# Over 0-9-1.


def asked(bench: ClientBench, service: str, body: bytes = b"", **said: object) -> object:
    """The answer at a direct reply-to."""
    channel = channel_of(bench)
    channel.consume(REPLY_TO, no_ack=True)
    channel.publish("sys", service, body, BasicProperties(reply_to=REPLY_TO, **said))
    answers = channel.deliveries()
    return answers[0] if answers else None


def test_a_ping_comes_back_as_it_was(bench: ClientBench) -> None:
    answer = asked(bench, "amq.ping", b"\x00hello", correlation_id="7", content_type="x/y")
    assert answer.body == b"\x00hello"
    assert answer.properties == BasicProperties(correlation_id="7", content_type="x/y")


def test_an_answer_is_told_apart_by_the_message_id_if_there_is_no_correlation_id(bench: ClientBench) -> None:
    assert asked(bench, "amq.ping", message_id="5").properties.correlation_id == "5"
    assert asked(bench, "amq.ping", message_id="5", correlation_id="6").properties.correlation_id == "6"


def test_the_time(bench: ClientBench) -> None:
    answer = asked(bench, "amq.time")
    assert answer.body.decode().startswith("2")
    assert answer.body.decode().endswith("+00:00")
    assert answer.properties.content_type == "text/plain"


def test_the_services(bench: ClientBench) -> None:
    assert json.loads(asked(bench, "amq.services").body) == sorted(SERVICES)


def test_the_totals_of_the_virtual_host_and_of_no_other(bench: ClientBench) -> None:
    bench.broker.add_virtual_host("other").declare_queue("theirs")
    channel = channel_of(bench)
    channel.declare("q")
    for body in (b"12", b"3"):
        channel.publish("", "q", body)
    channel.get("q", no_ack=False)
    told = json.loads(asked(bench, "amq.stats").body)
    assert told == {
        "connections": 2,
        "exchanges": len(bench.host.exchanges),
        "queues": 1,
        "consumers": 0,
        "ready": 1,
        "ready_octets": 1,
        "unsettled": 1,
        "published": 2,
        "delivered": 1,
        "accepted": 0,
    }
    assert "q" not in told


def test_who_asks_again_and_again_is_told_the_same_for_a_second(bench: ClientBench) -> None:
    channel = channel_of(bench)
    assert json.loads(asked(bench, "amq.stats").body)["queues"] == 0
    channel.declare("q")
    bench.advance(0.9)
    assert json.loads(asked(bench, "amq.stats").body)["queues"] == 0
    bench.advance(0.2)
    assert json.loads(asked(bench, "amq.stats").body)["queues"] == 1


def test_another_service_is_unroutable_and_the_alternate_gets_it(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.publish("sys", "amq.none", b"?", mandatory=True)
    returned = channel.next()
    assert isinstance(returned, Content)
    assert isinstance(returned.method, m.BasicReturn)
    bench.host.bind(bench.host.declare_exchange("rest", "fanout"), bench.host.declare_queue("lost"), "")
    bench.host.declare_exchange("sys2", "system", arguments={"alternate-exchange": "rest"})
    channel.publish("sys2", "mine", b"?", BasicProperties(reply_to="lost"))
    assert channel.bodies("lost") == [b"?"]


def test_without_a_reply_to_nothing_happens(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.declare("q", exclusive=True)
    channel.publish("sys", "amq.ping", b"?", mandatory=True)
    assert channel.all() == []
    assert (bench.queue("q").ready, bench.host.exchanges["sys"].route_errors) == (0, 0)


# Where answers may go.


def ask(bench: ClientBench, reply_to: str, exchange: str = "sys", body: bytes = b"ping") -> None:
    channel = channel_of(bench)
    channel.publish(exchange, "amq.ping", body, BasicProperties(reply_to=reply_to))
    assert channel.all() == []


def test_an_answer_goes_to_an_exclusive_queue_and_to_no_other(bench: ClientBench) -> None:
    mine = channel_of(bench)
    mine.declare("mine", exclusive=True)
    mine.declare("orders")
    for reply_to in ("mine", "orders", "nowhere", "/queues/mine", "/queues/orders", "/exchanges/none/k"):
        ask(bench, reply_to)
    assert (bench.queue("mine").ready, bench.queue("orders").ready) == (2, 0)


def test_an_argument_names_other_queues(bench: ClientBench) -> None:
    bench.host.declare_exchange("open", "system", arguments={"x-reply-to-prefix": "replies."})
    for name in ("replies.1", "reply.1"):
        bench.host.declare_queue(name)
        ask(bench, name, "open")
        ask(bench, name)
    assert (bench.queue("replies.1").ready, bench.queue("reply.1").ready) == (1, 0)


@pytest.mark.parametrize("prefix", ["", 5, None, True])
def test_a_prefix_that_is_none(bench: ClientBench, prefix: object) -> None:
    if prefix is None:
        bench.host.declare_exchange("e", "system", arguments={"x-reply-to-prefix": prefix})
        return
    with pytest.raises(PreconditionFailed, match="'x-reply-to-prefix' must be a text"):
        bench.host.declare_exchange("e", "system", arguments={"x-reply-to-prefix": prefix})


def test_the_prefix_counts_when_the_exchange_is_declared_again(bench: ClientBench) -> None:
    with pytest.raises(PreconditionFailed, match="x-reply-to-prefix"):
        bench.host.declare_exchange("sys", "system", durable=True, arguments={"x-reply-to-prefix": "r"})


def test_an_answer_may_go_through_an_exchange_that_leads_to_a_private_queue(bench: ClientBench) -> None:
    mine = channel_of(bench)
    mine.declare("mine", exclusive=True)
    mine.declare("orders")
    for queue in ("mine", "orders"):
        mine.bind(queue, "amq.direct", "a b")
    ask(bench, "/exchanges/amq.direct/a%20b")
    assert (bench.queue("mine").ready, bench.queue("orders").ready) == (1, 0)


# No answer is answered.


def test_an_answer_to_a_system_exchange_is_not_passed_to_a_service(bench: ClientBench) -> None:
    mine = channel_of(bench)
    mine.declare("mine", exclusive=True)
    mine.exchange("relay", "fanout")
    mine.link("relay", "sys", "")
    ask(bench, "/exchanges/sys/amq.ping")
    ask(bench, "/exchanges/relay/amq.ping")
    assert (bench.queue("mine").ready, bench.host.exchanges["sys"].route_errors) == (0, 0)


def test_an_answer_that_dies_and_comes_to_a_service_has_no_reply_to(bench: ClientBench) -> None:
    mine = channel_of(bench)
    arguments = {"x-dead-letter-exchange": "sys", "x-dead-letter-routing-key": "amq.ping", "x-max-length": 1}
    mine.declare("mine", exclusive=True, arguments=arguments)
    for _ in range(3):
        ask(bench, "mine")
    bench.settle()
    assert (bench.queue("mine").ready, bench.queue("mine").published) == (1, 3)


# How it is asked.


def test_a_request_in_a_transaction_is_answered_at_its_commit(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.declare("mine", exclusive=True)
    channel.call(m.TxSelect())
    channel.publish("sys", "amq.ping", b"?", BasicProperties(reply_to="mine"))
    assert bench.queue("mine").ready == 0
    channel.call(m.TxCommit())
    assert bench.queue("mine").ready == 1


def test_a_request_that_is_explained_is_not_answered(bench: ClientBench) -> None:
    channel = channel_of(bench)
    channel.declare("mine", exclusive=True)
    assert (explain(bench.host, "sys", "amq.ping").handled, bench.queue("mine").ready) == (True, 0)


def test_properties_that_cannot_be_read_get_no_answer(bench: ClientBench) -> None:
    channel_of(bench).declare("mine", exclusive=True)
    exchange = bench.host.exchanges["sys"]
    bench.broker.publish(exchange, Message(ENCODING, "sys", "amq.ping", b"\xff", b""))
    assert (exchange.route_errors, bench.queue("mine").ready) == (1, 0)


def test_who_may_not_write_to_it_may_not_ask(bench: ClientBench) -> None:
    bench.user("eve", write="^other$")
    channel = channel_of(bench, "eve")
    channel.publish("sys", "amq.ping")
    assert channel.refusal().startswith("403")


# Over 0-10.


def test_over_0_10(bench: ClientBench) -> None:
    session = peer010.session_of(bench)
    session.declare("mine", exclusive=True, auto_delete=True)
    session.bind("mine", "amq.direct", "mine")
    inbox = session.subscribe("mine")
    for exchange in (None, "", "amq.direct"):
        about = c.MessageProperties(
            correlation_id=b"7", reply_to=c.ReplyTo(exchange, "mine"), application_headers={"a": 1}
        )
        session.publish("amq.ping", b"hello", "sys", about)
        session.sync()
        answer = inbox.get()
        assert (answer.body, answer.properties.correlation_id) == (b"hello", b"7")
        assert answer.properties.reply_to is None
        assert not answer.headers
    session.publish("amq.stats", b"", "sys", c.MessageProperties(reply_to=c.ReplyTo("", "mine")))
    session.sync()
    answer = inbox.get()
    assert json.loads(answer.body)["queues"] == 1
    assert answer.properties.content_type == "application/json"


def test_another_service_is_an_exception_over_0_10_or_discarded(bench: ClientBench) -> None:
    session = peer010.session_of(bench)
    delivery = c.DeliveryProperties(discard_unroutable=True, routing_key="amq.none")
    session.publish("", b"?", "sys", delivery=delivery)
    session.sync()
    assert not session.is_over


# Over 1.0.


def test_over_1_0_an_answer_is_a_data_section(bench: ClientBench) -> None:
    mine = channel_of(bench)
    mine.declare("mine", exclusive=True)
    about = ENCODING10.write(Properties(reply_to="mine", correlation_id="7"))
    for service in ("amq.ping", "amq.services"):
        request = Message(ENCODING10, "sys", service, about, ENCODING10.body(b"hello"))
        bench.broker.publish(bench.host.exchanges["sys"], request)
    answers = [ENCODING10.convert(delivery.message) for delivery in bench.queue("mine").waiting()]
    assert [body for _, body in answers] == [b"hello", json.dumps(sorted(SERVICES)).encode()]
    assert [(said.correlation_id, said.reply_to) for said, _ in answers] == [("7", None), ("7", None)]
    mine.bodies("mine")
