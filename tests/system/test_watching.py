"""A node watched over HTTP, with real sockets: clients are seen, counted and sent away."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pika
import pytest

from leveret import ThreadedNode, embedded
from leveret.observability.history import History

pytestmark = pytest.mark.system

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    with ThreadedNode(embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})) as running:
        yield running


def ask(node: ThreadedNode, method: str, path: str, **headers: str) -> tuple[int, Any]:
    http = HTTPConnection(node.node.addresses[-1], timeout=60)
    http.request(method, path, headers={**LOGIN, **headers})
    response = http.getresponse()
    body = response.read()
    http.close()
    return response.status, json.loads(body) if body else None


def test_a_client_is_seen_and_sent_away_with_the_reason(node: ThreadedNode) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"hello")
    status, (seen,) = ask(node, "GET", "/api/connections")
    assert (status, seen["user"], seen["channels"], seen["protocol"]) == (200, "guest", 1, "AMQP 0-9-1")
    assert seen["recv_oct"] > 0 < seen["send_oct"]
    assert ask(node, "GET", "/api/overview")[1]["queue_totals"]["messages"] == 1
    address = f"/api/connections/{quote(seen['name'], safe='')}"
    assert ask(node, "DELETE", address, **{"X-Reason": "enough"}) == (204, None)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - enough"):
        connection.process_data_events(10)
    assert ask(node, "GET", address)[0] == 404


def test_a_long_list_comes_whole(node: ThreadedNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        for number in range(2500):
            channel.queue_declare(f"q{number:04}")
    names = [each["name"] for each in ask(node, "GET", "/api/queues")[1]]
    assert names == [f"q{number:04}" for number in range(2500)]
    page = ask(node, "GET", "/api/queues?page=25&page_size=100&sort=name&sort_reverse=true")[1]
    assert [each["name"] for each in page["items"]][-1] == "q0000"


def test_a_node_has_a_history_if_anybody_may_ask_for_it(node: ThreadedNode) -> None:
    history = node.node.broker.guests.find(History)
    assert history is not None
    assert history.tick >= 1
    with ThreadedNode(embedded({})) as silent:
        assert silent.node.broker.guests.find(History) is None
