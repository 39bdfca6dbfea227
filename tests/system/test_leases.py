"""Leases over real sockets, from a disk, while other clients publish and consume, and from one start to the next."""

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

from leveret import Node, ThreadedNode, embedded
from leveret.durable.store import block
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.server import cli

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)  # confirmed when on disk
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
PATH = "/api/leveret/leases/%2F/jobs/reader"
BODIES = [b"%d" % number for number in range(5_000)]


class Reader:
    """Who has a lease of the queue `jobs`."""

    def __init__(self, node: ThreadedNode) -> None:
        self.http = HTTPConnection(node.node.addresses[-1], timeout=60)
        self.fence = 0
        self.fence = self.ask("PUT", "")["fence"]

    def close(self) -> None:
        self.http.close()

    def raw(self, method: str, path: str) -> bytes:
        self.http.request(method, PATH + path, headers=LOGIN)
        answer = self.http.getresponse()
        octets = answer.read()
        assert answer.status == 200, octets
        return octets

    def ask(self, method: str, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw(method, path))
        return found

    def reserve(self, begin: int, messages: int, wait_ms: int = 0) -> int:
        """Returns the offset behind what is reserved."""
        asked = f"fence={self.fence}&from={begin}&messages={messages}&wait_ms={wait_ms}"
        following = self.ask("POST", f"/reserve?{asked}")["next"]
        assert isinstance(following, int)
        return following

    def bodies(self, begin: int, until: int) -> list[bytes]:
        found: list[bytes] = []
        while begin < until:
            octets, at = self.raw("GET", f"/blocks?from={begin}&until={until}&fence={self.fence}"), 0
            while at < len(octets):
                read = block.Block(octets, at)
                at += read.header.octets
                bodies = [each.body for each in block.messages_of(read, lambda name: ENCODING)]
                found += bodies[begin - read.header.first : until - read.header.first]
                begin = min(read.header.next, until)
        return found


def started(folder: Path) -> ThreadedNode:
    settings = {"http": {"enabled": True, "address": "127.0.0.1:0"}, "node": {"data_dir": str(folder)}}
    return ThreadedNode(embedded(settings))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ThreadedNode]:
    with started(tmp_path / "data") as running:
        yield running


def publish(node: ThreadedNode, bodies: list[bytes]) -> None:
    """On disk when it returns."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        for body in bodies[:-1]:
            channel.basic_publish("", "jobs", body, PERSISTENT)
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", bodies[-1], PERSISTENT)


def consumed(node: ThreadedNode) -> list[tuple[bytes, bool]]:
    """Bodies of all that waits, and whether each was delivered before."""
    found: list[tuple[bytes, bool]] = []
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get("jobs"))[0] is not None:
            method, _, body = got
            found.append((body, method.redelivered))
            channel.basic_ack(method.delivery_tag)
    node.wait(Node.quiet)
    return found


def test_a_queue_is_read_by_ranges_and_each_message_once(node: ThreadedNode) -> None:
    publish(node, BODIES)
    with closing(Reader(node)) as reader:
        offset, found = 0, []
        while (following := reader.reserve(offset, 700)) > offset:
            assert following - offset <= 700
            for _ in range(2):
                read = reader.bodies(offset, following)
            found += read
            offset = following
        assert found == BODIES
        state = reader.ask("POST", f"/settle?fence={reader.fence}&to={offset}")
        assert (state["first"], state["next"], state["ready"], state["octets"]) == (5_000, 5_000, 0, 0)


def test_who_waits_gets_what_is_published(node: ThreadedNode) -> None:
    publish(node, [b"first"])
    with closing(Reader(node)) as reader:
        offset = reader.reserve(0, 1)
        path = f"{PATH}/reserve?fence={reader.fence}&from={offset}&wait_ms=30000"
        reader.http.request("POST", path, headers=LOGIN)
        publish(node, [b"second"])
        state = json.loads(reader.http.getresponse().read())
        assert (state["first"], state["next"]) == (1, 2)
        assert reader.bodies(1, 2) == [b"second"]


def test_a_lease_survives_a_restart_and_what_is_released_is_consumed_in_its_order(tmp_path: Path) -> None:
    with started(tmp_path / "data") as node:
        publish(node, BODIES)
        with closing(Reader(node)) as reader:
            assert reader.reserve(0, 3_000) == 3_000
            reader.ask("POST", f"/settle?fence={reader.fence}&to=1000")
    with started(tmp_path / "data") as node:
        with closing(Reader(node)) as again:
            assert again.fence == reader.fence + 1
            assert again.bodies(1_000, 3_000) == BODIES[1_000:3_000]
            assert again.ask("DELETE", "") == {"released": 2_000}
        assert consumed(node) == [(body, number < 2_000) for number, body in enumerate(BODIES[1_000:])]


def test_the_command_line_lists_leases_and_releases_them(
    node: ThreadedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{node.node.addresses[-1]}"

    def leveret(*arguments: str) -> tuple[int, str, str]:
        return (cli.main(["leases", *arguments, "--url", url], {}), *capsys.readouterr())

    assert leveret("list") == (0, "no leases\n", "")
    publish(node, BODIES)
    with closing(Reader(node)) as reader:
        reader.reserve(0, 1_000)
    code, table, _ = leveret("list")
    assert code == 0
    names, row = (line.split() for line in table.splitlines())
    assert dict(zip(names, row, strict=True))["messages"] == "1000"
    assert row[:2] == ["jobs", "reader"]
    code, text, _ = leveret("list", "--json")
    assert json.loads(text)[0]["queue"] == "jobs"
    assert leveret("release", "jobs", "reader") == (0, "released  1000\n", "")
    assert consumed(node)[:2] == [(b"0", True), (b"1", True)]
    why = "leveret: no lease 'reader' of queue 'jobs' in vhost '/'\n"
    assert leveret("release", "jobs", "reader") == (1, "", why)
