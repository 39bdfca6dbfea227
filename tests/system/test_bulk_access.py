"""Streams in bulk over real sockets, from a disk: whole, in order, while they grow, to those who read slowly, too."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pika
import pytest

from leveret import Node, ThreadedNode, embedded
from leveret.durable.store import block
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.http.server.memory_budget import room_of

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)  # confirmed when on disk
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
PATH = "/api/leveret/streams/%2F/s"
BODIES = [b"%d:" % number + b"x" * (number % 3000) for number in range(3000)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ThreadedNode]:
    settings = {
        "http": {"enabled": True, "address": "127.0.0.1:0"},
        "node": {"data_dir": str(tmp_path / "data")},
    }
    with ThreadedNode(embedded(settings)) as running:
        yield running


@pytest.fixture
def channel(node: ThreadedNode) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        yield channel


@pytest.fixture
def http(node: ThreadedNode) -> Iterator[HTTPConnection]:
    connection = HTTPConnection(node.node.addresses[-1], timeout=60)
    yield connection
    connection.close()


def publish(node: ThreadedNode, bodies: list[bytes]) -> None:
    """On disk when it returns."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        for body in bodies:
            channel.basic_publish("", "s", body, PERSISTENT)
        channel.confirm_delivery()
        channel.basic_publish("", "s", b"end", PERSISTENT)


def ask(http: HTTPConnection, query: str) -> None:
    http.request("GET", f"{PATH}/blocks?{query}", headers=LOGIN)


def bodies(octets: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(octets):
        read = block.Block(octets, at)
        at += read.header.octets
        found += [message.body for message in block.messages_of(read, lambda name: ENCODING)]
    return found


def following(answer: HTTPResponse) -> int:
    assert answer.status == 200
    return int(answer.headers["Leveret-Next"])


@pytest.mark.parametrize("octets", [1, 100_000, 16_777_216])
def test_a_stream_is_read_whole_and_in_order(node: ThreadedNode, channel, http: HTTPConnection, octets: int):
    expected = BODIES[: 200 if octets == 1 else None]
    publish(node, expected)
    found: list[bytes] = []
    offset = 0
    while True:
        ask(http, f"from={offset}&max_octets={octets}")
        answer = http.getresponse()
        read = answer.read()
        if not read:
            break
        found += bodies(read)
        offset = following(answer)
        assert offset == len(found)
    assert found == [*expected, b"end"]


def test_who_waits_hears_of_what_is_confirmed(node: ThreadedNode, channel, http: HTTPConnection):
    for number in range(20):
        ask(http, f"from={number}&wait_ms=30000")
        channel.basic_publish("", "s", b"%d" % number)
        answer = http.getresponse()
        assert (bodies(answer.read()), following(answer)) == ([b"%d" % number], number + 1)


def test_an_answer_on_a_connection_that_ends_with_it_is_whole(node: ThreadedNode, channel):
    publish(node, BODIES)
    host, _, port = node.node.addresses[-1].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        head = f"GET {PATH}/blocks?from=0&max_octets=16777216 HTTP/1.0\r\n"
        peer.sendall(f"{head}Authorization: {LOGIN['Authorization']}\r\n\r\n".encode())
        octets = b"".join(iter(lambda: peer.recv(65536), b""))
    assert bodies(octets.partition(b"\r\n\r\n")[2]) == [*BODIES, b"end"]


def test_pipelined_requests_are_answered_in_order_and_one_at_a_time(node: ThreadedNode, channel):
    publish(node, BODIES)
    host, _, port = node.node.addresses[-1].rpartition(":")
    request = f"GET {PATH}/blocks?from=0&max_octets=16777216 HTTP/1.1\r\nHost: localhost\r\n"
    request += f"Authorization: {LOGIN['Authorization']}\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall((f"{request}\r\n" * 4 + f"{request}Connection: close\r\n\r\n").encode())
        size = len(peer.recv(1))  # something of the first answer has come; nothing else is read yet
        assert node.call(lambda: room_of(node.node.broker).taken) <= 16_777_216
        octets = size + sum(map(len, iter(lambda: peer.recv(65536), b"")))
    assert octets > 5 * sum(map(len, BODIES))
    assert node.call(lambda: room_of(node.node.broker).taken) == 0


def test_those_who_go_away_leave_nothing_behind(node: ThreadedNode, channel, http: HTTPConnection):
    publish(node, BODIES)
    host, _, port = node.node.addresses[-1].rpartition(":")
    for query in ("from=0&max_octets=16777216", "from=3001&wait_ms=30000"):
        with socket.create_connection((host, int(port)), timeout=60) as peer:
            head = f"GET {PATH}/blocks?{query} HTTP/1.1\r\nHost: localhost\r\n"
            peer.sendall(f"{head}Authorization: {LOGIN['Authorization']}\r\n\r\n".encode())
            if "wait" not in query:
                assert peer.recv(1)
    channel.basic_publish("", "s", b"again", PERSISTENT)
    ask(http, "from=3001")
    assert bodies(http.getresponse().read()) == [b"again"]
    node.wait(Node.quiet)
    assert node.call(lambda: room_of(node.node.broker).taken) == 0
