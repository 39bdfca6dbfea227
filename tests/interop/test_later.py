"""Messages that wait for a time, with clients as programs use them: pika and Qpid Proton."""

from __future__ import annotations

import time

import pika
import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from leveret.policy import Policy
from tests.interop.conftest import RunningNode, wait_until
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

RETRY = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 300, "x-delayed-retry-max": 400}
CREDITS = 10


def delayed(node: RunningNode, name: str) -> int:
    queue = node.find(name)
    return 0 if queue is None else queue.delayed


def receive(receiver: BlockingReceiver, timeout_s: float = 10):
    return receiver.receive(timeout=timeout_s)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("answer", ["reject", "nack"])
def test_pika_gets_what_it_gave_back_later_each_time(node: RunningNode, kind: str, answer: str):
    node.declare("dead", durable=True)
    arguments = {
        **RETRY,
        "x-queue-type": kind,
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    parameters = pika.ConnectionParameters("127.0.0.1", node.port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        given_back, seen = 0.0, []
        for method, properties, _ in channel.consume("q", inactivity_timeout=5):
            assert method is not None
            waited = time.monotonic() - given_back
            count = (properties.headers or {}).get("x-delivery-count")
            seen.append((count, method.redelivered, waited > (0.29, 0.29, 0.39)[len(seen)]))
            given_back = time.monotonic()
            if answer == "reject":
                channel.basic_reject(method.delivery_tag, requeue=True)
            else:
                channel.basic_nack(method.delivery_tag, requeue=True)
            if len(seen) == 3:
                break
        assert seen == [(None, False, True), (1, True, True), (2, True, True)]
        channel.cancel()
    wait_until(lambda: node.ready("dead") == 1, "the dead letter")


def test_a_closed_channel_gives_back_for_later(node: RunningNode):
    node.declare("q", arguments=RETRY)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        channel.basic_publish("", "q", b"x")
        wait_until(lambda: channel.basic_get("q")[0], "the message")
        channel.close()
        assert delayed(node, "q") == 1
        wait_until(lambda: node.ready("q") == 1, "the end of its wait")


def modify(receiver: BlockingReceiver, failed: bool, annotations: dict[object, object] | None = None) -> None:
    """Give back the last message that was received, as a modified outcome."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = failed
    if annotations:
        delivery.local.annotations = annotations
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


@pytest.fixture
def link(node: RunningNode):
    connection: BlockingConnection = connect(node)
    yield connection
    connection.close()


def test_proton_chooses_the_time_of_the_next_delivery(node: RunningNode, link: BlockingConnection):
    node.declare("q")
    link.create_sender("/queues/q").send(data(b"x"))
    receiver = link.create_receiver("/queues/q", credit=CREDITS)
    receive(receiver)
    due_ms = int(time.time() * 1000) + 700
    modify(receiver, failed=True, annotations={symbol("x-opt-delivery-time"): due_ms})
    again = receive(receiver)
    assert time.time() * 1000 >= due_ms
    assert (again.delivery_count, again.annotations["x-opt-delivery-time"]) == (1, due_ms)
    receiver.accept()


@pytest.mark.parametrize(("type_", "failed"), [("failed", True), ("returned", False)])
def test_proton_is_delayed_by_what_it_says_of_a_delivery(
    node: RunningNode, link: BlockingConnection, type_: str, failed: bool
):
    node.declare("q", arguments={**RETRY, "x-delayed-retry-type": type_})
    link.create_sender("/queues/q").send(data(b"x"))
    receiver = link.create_receiver("/queues/q", credit=CREDITS)
    receive(receiver)
    modify(receiver, failed=not failed)
    receive(receiver)
    began = time.monotonic()
    modify(receiver, failed=failed)
    receive(receiver)
    assert time.monotonic() - began > 0.29
    receiver.accept()


# Messages that are published for later.


@pytest.mark.parametrize("annotation", ["x-opt-delivery-delay", "x-opt-delivery-time"])
def test_proton_publishes_for_later(node: RunningNode, link: BlockingConnection, annotation: str):
    node.declare("q", arguments={"x-queue-type": "quorum"}, durable=True)
    sender = link.create_sender("/queues/q")
    wall_ms = int(time.time() * 1000)
    value = 600 if annotation.endswith("delay") else wall_ms + 600
    assert sender.send(annotated(b"later", annotation, value)).remote_state == Delivery.ACCEPTED
    assert (node.ready("q"), delayed(node, "q")) == (0, 1), "it is confirmed when the queue has it"
    sender.send(data(b"now"))
    receiver = link.create_receiver("/queues/q", credit=CREDITS)
    assert bytes(receive(receiver).body) == b"now"
    receiver.accept()
    last = receive(receiver)
    assert time.time() * 1000 >= wall_ms + 600
    assert (bytes(last.body), last.delivery_count, last.first_acquirer) == (b"later", 0, True)
    receiver.accept()


def annotated(body: bytes, name: str, value: object) -> Message:
    message = data(body)
    message.annotations = {symbol(name): value}
    return message


def test_a_delay_that_is_no_number_ends_the_link(node: RunningNode, link: BlockingConnection):
    node.declare("q")
    with pytest.raises(LinkDetached, match=r"bad value for .*x-opt-delivery-delay"):
        link.create_sender("/queues/q").send(annotated(b"x", "x-opt-delivery-delay", "soon"))
    assert (node.ready("q"), delayed(node, "q")) == (0, 0)


@pytest.mark.parametrize("by", ["exchange", "queue", "policy"])
def test_pika_publishes_for_later_where_headers_are_read(node: RunningNode, by: str):
    if by == "policy":
        node.call(
            lambda: node.node.broker.policies.set(Policy("later", "/", "^later$", {"delayed-message": True}))
        )
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "later", "topic", arguments={"x-delayed-exchange": True} if by == "exchange" else None
        )
        channel.queue_declare("q", arguments={"x-delayed-message": True} if by == "queue" else None)
        channel.queue_bind("q", "later", "#")
        wall_ms = int(time.time() * 1000)
        channel.basic_publish("later", "a", b"delay", pika.BasicProperties(headers={"x-delay": 500}))
        absolute = pika.BasicProperties(headers={"x-opt-delivery-time": wall_ms + 700})
        channel.basic_publish("later", "a", b"time", absolute)
        channel.basic_publish("later", "a", b"now")
        assert (node.ready("q"), delayed(node, "q")) == (1, 2)
        seen = []
        for method, _, body in channel.consume("q", auto_ack=True, inactivity_timeout=10):
            assert method is not None
            seen.append((body, method.redelivered, time.time() * 1000 >= wall_ms + 500))
            if len(seen) == 3:
                break
        assert seen == [(b"now", False, False), (b"delay", False, True), (b"time", False, True)]
        assert time.time() * 1000 >= wall_ms + 700
