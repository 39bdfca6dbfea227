"""Federation between two nodes over sockets, with pika at both sides and the management API."""

from __future__ import annotations

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.test_shovels import HTTP, Sent

pytestmark = pytest.mark.interop

COUNT = 300
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def set_up(sent: Sent, there: RunningNode) -> None:
    upstream = {"uri": there.url, "reconnect-delay": 0.05, "prefetch-count": 20}
    sent.ask("PUT", "parameters/federation-upstream/%2F/up", {"value": upstream})
    policy = {"pattern": "^f", "definition": {"federation-upstream-set": "all"}, "apply-to": "all"}
    sent.ask("PUT", "policies/%2F/p", policy)


def links(sent: Sent) -> list[dict[str, object]]:
    found = sent.ask("GET", "federation-links/%2F")
    assert isinstance(found, list)
    return found


def publish(node: RunningNode, exchange: str, key: str, first: int, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        for number in range(first, first + count):
            channel.basic_publish(exchange, key, b"%d" % number, PERSISTENT)


def test_an_exchange_gets_what_is_published_to_the_other_node_over_a_break(node_with: Start) -> None:
    here, there = node_with(HTTP + 'node.name = "here"\n'), node_with('node.name = "there"\n')
    sent = Sent(here)
    with pika.BlockingConnection(pika.URLParameters(here.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("f", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "f", "eu.#")
    set_up(sent, there)
    wait_until(lambda: [each["status"] for each in links(sent)] == ["running"], "the link")
    publish(there, "f", "eu.berlin", 0, COUNT)
    publish(there, "f", "us.boston", 0, COUNT)
    there.close_connections()
    wait_until(lambda: [each["status"] for each in links(sent)] == ["running"], "the link again")
    publish(there, "f", "eu.berlin", COUNT, COUNT)
    wait_until(lambda: there.ready("federation: f -> here") == 0, "the upstream queue to be empty")
    wait_until(lambda: here.ready("q") >= 2 * COUNT, "all of them")
    with pika.BlockingConnection(pika.URLParameters(here.url)) as connection:
        channel = connection.channel()
        found = set()
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.add(int(got[2]))
            assert got[1].headers["x-received-from"][0]["cluster-name"] == "there"
    assert found == set(range(2 * COUNT))
    sent.ask("DELETE", "policies/%2F/p")
    wait_until(lambda: there.clients() == 0, "the connection to be closed")
    assert [name for name in there.node.broker.virtual_host("/").queues if "federation" in name] == []


def test_a_queue_gets_messages_of_the_other_node_for_a_consumer_that_acknowledges_one_at_a_time(
    node_with: Start,
) -> None:
    here, there = node_with(HTTP), node_with()
    sent = Sent(here)
    for node in (here, there):
        with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
            connection.channel().queue_declare("fed", durable=True)
    set_up(sent, there)
    publish(there, "", "fed", 0, 50)
    with pika.BlockingConnection(pika.URLParameters(here.url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        found = []
        for method, properties, body in channel.consume("fed", inactivity_timeout=20):
            assert method is not None, f"nothing after {len(found)}"
            assert properties.headers["x-original-routing-key"] == "fed"
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == 50:
                break
        channel.cancel()
    assert found == list(range(50))
    wait_until(lambda: there.ready("fed") + there.unsettled("fed") == 0, "the upstream queue to be empty")
