"""Staged publishing over a real node with a data folder: batches go in over HTTP, and come out over AMQP 0-9-1."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret import ThreadedNode, embedded
from leveret.durable.store import block
from leveret.durable.store.contract import Append
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Properties
from tests.harness.seldom import elsewhere
from tests.system.served import Serve, port, screen

pytestmark = pytest.mark.system

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
BASE = "/api/leveret/staging/%2F/job"
DURABLE = ENCODING.write(Properties(durable=True, content_type="text/plain"))
ROWS = 3000


def started(folder: Path) -> ThreadedNode:
    settings = {
        "http": {"enabled": True, "address": "127.0.0.1:0"},
        "node": {"data_dir": str(folder / "data")},
    }
    return ThreadedNode(embedded(settings))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ThreadedNode]:
    with started(tmp_path) as running:
        yield running


def rows(*bodies: bytes) -> bytes:
    facts = Facts()
    return block.pack(
        Append(0, 0, 0, 0, [Message(ENCODING, "", "q", DURABLE, body, facts) for body in bodies])
    )


class Asker:
    """Asks one node."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(
        self, method: str, path: str, body: bytes = b"", base: str = BASE
    ) -> tuple[int, dict[str, Any]]:
        with closing(HTTPConnection(self._address, timeout=60)) as connection:
            connection.request(method, base + path, body, LOGIN)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def commit(self, batch: int, *parts: list[int]) -> tuple[int, dict[str, Any]]:
        return self("POST", f"/{batch}/commit", json.dumps({"parts": parts}).encode())


def consumed(node: ThreadedNode, count: int) -> list[bytes]:
    """So many messages of the queue, and there are no more."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        found = everything_in(connection)
        assert len(found) == count
        return found


def everything_in(connection: pika.BlockingConnection) -> list[bytes]:
    """What waits in the queue, taken out of it."""
    channel = connection.channel()
    count = channel.queue_declare("q", passive=True).method.message_count
    found: list[bytes] = []
    for _, properties, body in channel.consume("q", auto_ack=True):
        assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
        assert not properties.headers
        found.append(body)
        if len(found) == count:
            break
    channel.cancel()
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    return found


def declare(node: ThreadedNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        connection.channel().queue_declare("q", durable=True)


def test_what_was_committed_comes_out_once_and_in_its_order(node: ThreadedNode) -> None:
    declare(node)
    ask = Asker(node.node.addresses[-1])
    bodies = [b"%d" % number for number in range(ROWS)]
    for partition in (1, 0):
        for piece in (0, 1):
            half = bodies[piece * ROWS // 2 : (piece + 1) * ROWS // 2]
            sent = rows(*[b"%d:" % partition + body for body in half])
            path = f"/7/{partition}/3?piece={piece}"
            assert ask("POST", path, sent) == (200, {"rows": len(half) * (piece + 1)})
            assert ask("POST", path, sent) == (200, {"rows": len(half) * (piece + 1)})
    assert ask("POST", "/7/0/4?piece=0", rows(b"another attempt")) == (200, {"rows": 1})
    parts = [[0, 3, ROWS], [1, 3, ROWS]]
    assert ask.commit(7, *parts) == (200, {"published": 2 * ROWS, "unroutable": 0, "repeated": False})
    assert ask.commit(7, *parts) == (200, {"published": 2 * ROWS, "unroutable": 0, "repeated": True})
    assert consumed(node, 2 * ROWS) == [b"0:" + body for body in bodies] + [b"1:" + body for body in bodies]


def test_what_was_staged_outlives_the_node(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        declare(node)
        ask = Asker(node.node.addresses[-1])
        assert ask("POST", "/7/0/1?piece=0", rows(b"a", b"b")) == (200, {"rows": 2})
        assert ask("POST", "/8/0/1?piece=0", rows(b"c")) == (200, {"rows": 1})
        assert ask.commit(7, [0, 1, 2])[0] == 200
    with started(tmp_path) as node:
        ask = Asker(node.node.addresses[-1])
        status, state = ask("GET", "")
        assert (status, state["batch"], state["staged"], state["publishing"]) == (200, 7, {"8": 1}, 0)
        assert ask.commit(7, [0, 1, 2]) == (200, {"published": 2, "unroutable": 0, "repeated": True})
        assert ask.commit(8, [0, 1, 1]) == (200, {"published": 1, "unroutable": 0, "repeated": False})
        assert consumed(node, 3) == [b"a", b"b", b"c"]


def test_a_body_of_many_mebibytes_is_waited_for(node: ThreadedNode) -> None:
    declare(node)
    large = [bytes([65 + number]) * 4_000_000 for number in range(4)]
    assert Asker(node.node.addresses[-1])("POST", "/0/0/0?piece=0", rows(*large)) == (200, {"rows": 4})
    assert Asker(node.node.addresses[-1]).commit(0, [0, 0, 4]) == (
        200,
        {"published": 4, "unroutable": 0, "repeated": False},
    )
    assert consumed(node, 4) == large


def test_messages_are_published_at_once_as_well(node: ThreadedNode) -> None:
    declare(node)
    answer = Asker(node.node.addresses[-1])("POST", "", rows(b"a", b"b"), base="/api/leveret/publish/%2F")
    assert answer == (200, {"published": 2, "unroutable": 0})
    assert consumed(node, 2) == [b"a", b"b"]


@pytest.mark.parametrize("left", [pytest.param(20_000, marks=elsewhere), 8_000])
def test_a_kill_while_a_batch_is_published_neither_loses_nor_repeats_a_row(
    serve: Serve, tmp_path: Path, left: int
) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    node = serve(*arguments)
    shown = screen(node)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port(shown))) as connection:
        connection.channel().queue_declare("q", durable=True)
    address = http_address(shown)
    ask = Asker(address)
    bodies = [b"%d" % number for number in range(20_000)]
    for piece in (0, 1):
        half = bodies[piece * 10_000 : (piece + 1) * 10_000]
        assert ask("POST", f"/7/0/1?piece={piece}", rows(*half))[0] == 200
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 20000]]}', LOGIN)
        state = {"batch": -1}
        while state["batch"] != 7 or state["publishing"] > left:
            state = ask("GET", "")[1]
        node.kill()
        node.wait()
    shown = screen(serve(*arguments))
    answer = Asker(http_address(shown)).commit(7, [0, 1, 20_000])
    assert answer[0] == 200
    assert (answer[1]["published"], answer[1]["unroutable"]) == (20_000, 0)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port(shown))) as connection:
        assert everything_in(connection) == bodies


def http_address(shown: str) -> str:
    return shown.split("HTTP")[0].split()[-1]
