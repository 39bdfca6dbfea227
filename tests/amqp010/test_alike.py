"""A batch of deliveries: each message is shown as if it came alone, whatever came before it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .client import ClientSession, Received
from .peer import session_of

TEXT = c.MessageProperties(content_type="text/plain")
OTHER = c.MessageProperties(content_type="text/other")
KINDS = ["plain", "other", "key", "exchange", "ttl", "expiration", "bare", "0-9-1", "dead", "returned"]


def publish(session: ClientSession, kind: str, number: int) -> None:
    """One message of this kind to the queue q. What was `returned` has been with a consumer."""
    body = b"%d" % number
    match kind:
        case "plain" | "returned":
            session.publish("q", body, properties=TEXT)
        case "other":
            session.publish("q", body, properties=OTHER)
        case "key":
            session.publish("another", body, "amq.fanout", TEXT)
        case "exchange":
            session.publish("q", body, "amq.fanout", TEXT)
        case "ttl":
            session.publish("q", body, "", TEXT, c.DeliveryProperties(ttl=60_000, routing_key="q"))
        case "expiration":
            wall = 4_000_000_000
            session.publish("q", body, "", TEXT, c.DeliveryProperties(expiration=wall, routing_key="q"))
        case "bare":
            session.send(c.MessageTransfer("amq.fanout"), structs=[], body=body)
        case "dead":
            session.publish("dying", body, properties=TEXT)
    session.sync()


def returned(session: ClientSession) -> None:
    """The last message of the queue has been taken and given back."""
    inbox = session.subscribe("q", "taker")
    messages = inbox.all()
    session.call(c.MessageCancel("taker"))
    if messages:
        session.release([message.id for message in messages[:-1]])
        session.release(messages[-1].id, redelivered=True)


def shown(message: Received) -> tuple[object, ...]:
    return message.body, message.delivery, message.properties


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=8))
def test_a_message_looks_the_same_in_a_batch_and_alone(kinds: list[str]) -> None:
    bench = ClientBench()
    session = session_of(bench)
    channel = channel_of(bench)
    session.declare("q")
    session.declare(
        "dying", {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    )
    session.bind("q", "amq.fanout")
    for number, kind in enumerate(kinds):
        if kind == "0-9-1":
            channel.publish("", "q", b"%d" % number, BasicProperties(content_type="text/plain"))
        else:
            publish(session, kind, number)
        if kind == "returned":
            returned(session)
        bench.settle()
    together = session.subscribe("q", "together", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED).all()
    alone = session.subscribe("q", "alone", 0, acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED)
    one_by_one = []
    for _ in kinds:
        session.call(c.MessageFlow("alone", c.CREDIT_UNIT_MESSAGE, 1))
        one_by_one.append(alone.get())
    assert len(together) == len(kinds)
    assert [shown(each) for each in together] == [shown(each) for each in one_by_one]
