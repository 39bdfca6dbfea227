"""Publish rates with clients over real sockets: publishers wait, nobody gets an error."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request

import pika
import pytest
from proton.utils import BlockingConnection

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

HTTP = '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
BASIC = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
RATE = 100


def ask(node: RunningNode, method: str, path: str, content: object) -> dict[str, object]:
    address = node.call(lambda: node.node.addresses[-1])
    body = json.dumps(content).encode()
    request = urllib.request.Request(f"http://{address}{path}", data=body, method=method, headers=BASIC)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else {}


def limit(node: RunningNode, rate: int = RATE) -> None:
    ask(node, "PUT", "/api/user-limits/guest/max-publish-rate", {"value": rate})


def opened(node: RunningNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=1))


def test_pika_publishes_at_the_rate_and_no_faster(node_with: Start) -> None:
    node = node_with(HTTP)
    limit(node)
    connection = opened(node)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.confirm_delivery()
    began = time.monotonic()
    for number in range(4 * RATE):
        channel.basic_publish("", "q", b"%d" % number)
    took = time.monotonic() - began
    assert took >= 2.5  # the first second's worth is the allowance
    assert node.ready("q") == 4 * RATE
    connection.close()


def test_pika_a_flood_without_confirms_waits_longer_than_its_heartbeats_and_still_gets_deliveries(
    node_with: Start,
) -> None:
    node = node_with(HTTP)
    limit(node)
    node.declare("q")
    connection = opened(node)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1000)
    bodies: list[bytes] = []
    channel.basic_consume("q", lambda ch, method, properties, body: bodies.append(body), auto_ack=True)
    for number in range(5 * RATE):
        channel.basic_publish("", "q", b"%d" % number)
    began = time.monotonic()
    while len(bodies) < 5 * RATE and time.monotonic() - began < 60:
        connection.process_data_events(0.1)
    assert time.monotonic() - began > 3  # three heartbeats, of which the node has not read any in time
    assert bodies == [b"%d" % number for number in range(5 * RATE)]
    rows = ask_rows(node)
    assert [row["user"] for row in rows] == ["guest"]
    connection.close()


def ask_rows(node: RunningNode) -> list[dict[str, object]]:
    address = node.call(lambda: node.node.addresses[-1])
    request = urllib.request.Request(f"http://{address}/api/connections", headers=BASIC)
    with urllib.request.urlopen(request) as answer:
        found = json.load(answer)
    assert isinstance(found, list)
    return found


def test_a_waiting_connection_is_shown_as_flow_and_goes_on_when_the_limit_goes(node_with: Start) -> None:
    node = node_with(HTTP)
    limit(node, 1)
    node.declare("q")
    connection = opened(node)
    channel = connection.channel()
    for _ in range(200):
        channel.basic_publish("", "q", b"x" * 100)
    wait_until(lambda: ask_rows(node)[0]["state"] == "flow", "the connection waits")
    assert node.ready("q") < 200
    ask(node, "PUT", "/api/user-limits/guest/max-publish-rate", {"value": -1})
    wait_until(lambda: node.ready("q") == 200, "everything is read")
    assert ask_rows(node)[0]["state"] == "running"
    connection.close()


def test_two_connections_of_a_user_share_its_rate_fairly(node_with: Start) -> None:
    node = node_with(HTTP)
    limit(node)
    for name in ("small", "large"):
        node.declare(name)
    stop = threading.Event()

    def publish(queue: str, batch: int) -> None:
        connection = opened(node)
        channel = connection.channel()
        channel.confirm_delivery()
        while not stop.is_set():
            for _ in range(batch):
                channel.basic_publish("", queue, b"x")
        connection.close()

    threads = [threading.Thread(target=publish, args=each) for each in (("small", 1), ("large", 20))]
    for thread in threads:
        thread.start()
    wait_until(lambda: node.ready("small") + node.ready("large") > 6 * RATE, "some seconds' worth")
    small, large = node.ready("small"), node.ready("large")
    ask(node, "DELETE", "/api/user-limits/guest/max-publish-rate", {})
    stop.set()
    for thread in threads:
        thread.join(60)
    assert 0.5 < small / large < 2


def test_proton_is_slowed_down_as_well(node_with: Start) -> None:
    node = node_with(HTTP)
    limit(node)
    node.declare("q")
    connection: BlockingConnection = connect(node)
    sender = connection.create_sender("/queues/q")
    began = time.monotonic()
    for number in range(3 * RATE):
        sender.send(data(b"%d" % number))
    assert time.monotonic() - began >= 1.5
    assert node.ready("q") == 3 * RATE
    connection.close()


def test_http_is_told_when_to_come_back(node_with: Start) -> None:
    node = node_with(HTTP)
    limit(node, 5)
    node.declare("q")
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    statuses: list[int] = []
    waits: list[int] = []
    for _ in range(20):
        try:
            ask(node, "POST", "/api/exchanges/%2F/amq.default/publish", message)
            statuses.append(200)
        except urllib.error.HTTPError as error:
            statuses.append(error.code)
            waits.append(int(error.headers["Retry-After"]))
            error.close()
    assert min(waits) >= 1
    assert set(statuses) == {200, 429}
    assert node.ready("q") == statuses.count(200)
