"""Federation with a RabbitMQ at either side: each gets what is published to the other, and queues follow consumers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.rabbitmq import IS_THERE, RabbitMq
from tests.interop.test_shovels import HTTP, Sent

# Not marked as `interop`: there it would have to run wherever CI does.
pytestmark = pytest.mark.skipif(
    not IS_THERE, reason="`make rabbitmq` runs this, where rabbitmq-server is installed"
)
POLICY = {"pattern": "^(f|g)", "definition": {"federation-upstream-set": "all"}, "apply-to": "all"}


@pytest.fixture
def leveret(node_with: Start) -> RunningNode:
    return node_with(HTTP + 'node.name = "leveret@here"\n')


@pytest.fixture
def rabbit(leveret: RunningNode, tmp_path: Path) -> Iterator[RabbitMq]:
    upstream = {"uri": leveret.url, "reconnect-delay": 1}
    definitions: dict[str, object] = {
        "parameters": [{"component": "federation-upstream", "vhost": "/", "name": "l", "value": upstream}],
        "policies": [{"name": "p", "vhost": "/", "priority": 0, **POLICY}],
    }
    rabbit = RabbitMq(tmp_path, ["rabbitmq_federation"], definitions)
    try:
        rabbit.wait()
        yield rabbit
    finally:
        rabbit.stop()


def got(url: str, queue: str) -> tuple[pika.BasicProperties, bytes] | None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, properties, body = connection.channel().basic_get(queue, auto_ack=True)
    return None if properties is None else (properties, body)


def test_exchanges_and_queues_are_federated_both_ways(leveret: RunningNode, rabbit: RabbitMq) -> None:
    sent = Sent(leveret)
    value = {"uri": rabbit.url, "reconnect-delay": 0.2}
    sent.ask("PUT", "parameters/federation-upstream/%2F/r", {"value": value})
    sent.ask("PUT", "policies/%2F/p", POLICY)
    for url in (leveret.url, rabbit.url):
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("f", "topic", durable=True)
            channel.queue_declare("q", durable=True)
            channel.queue_declare("g", durable=True)
            channel.queue_bind("q", "f", "a.#")
    links = "federation-links/%2F"
    wait_until(lambda: {each["status"] for each in sent.ask("GET", links)} == {"running"}, "Leveret's links")  # type: ignore[attr-defined]
    host = leveret.node.broker.virtual_host("/")
    # q, and its internal exchange
    wait_until(lambda: len(host.exchanges["f"].bindings) == 2, "RabbitMQ's link")
    for url, other in ((leveret.url, rabbit.url), (rabbit.url, leveret.url)):
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            properties = pika.BasicProperties(delivery_mode=2, user_id="guest")
            connection.channel().basic_publish("f", "a.b", url.encode(), properties)
        found: list[tuple[pika.BasicProperties, bytes]] = []
        wait_until(lambda: bool(found.extend([x] if (x := got(other, "q")) else [])) or bool(found), "it")  # noqa: B023
        (properties, body) = found[0]
        assert (body, properties.user_id) == (url.encode(), None)
        assert len(properties.headers["x-received-from"]) == 1
        assert got(url, "q") is not None  # its own; it has not come back
    assert got(leveret.url, "q") is None
    assert got(rabbit.url, "q") is None
    for url, other in ((leveret.url, rabbit.url), (rabbit.url, leveret.url)):
        with pika.BlockingConnection(pika.URLParameters(other)) as consuming:
            channel = consuming.channel()
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                connection.channel().basic_publish("", "g", b"1", pika.BasicProperties(delivery_mode=2))
            for method, properties, body in channel.consume("g", inactivity_timeout=30):
                assert (method is not None, body) == (True, b"1")
                assert properties.headers["x-original-routing-key"] == "g"
                channel.basic_ack(method.delivery_tag)
                break
            channel.cancel()
