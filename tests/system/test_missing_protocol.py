"""A node whose plug-in for a protocol was removed, and comes back: what becomes of messages of that protocol."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from leveret import ThreadedNode, embedded
from leveret.durable.store import chunk
from tests.interop.conftest import wait_until
from tests.sources import ROOT

pytestmark = pytest.mark.system

EXAMPLE = (ROOT / "examples/09_line_protocol.py").read_text()


def node_on(tmp_path: Path, *, with_line: bool) -> ThreadedNode:
    """A node on one data folder, with the line protocol, whose messages are durable here, or without it."""
    chunk.parsed.clear()  # a process that has read such messages knows their encoding
    plugins = tmp_path / "plugins"
    plugins.mkdir(exist_ok=True)
    file = plugins / "line.py"
    if with_line:
        file.write_text(EXAMPLE.replace("Facts(has_headers", "Facts(durable=True, has_headers"))
    else:
        file.unlink()
    settings = {"node": {"data_dir": str(tmp_path / "data")}, "plugins": {"folders": [str(plugins)]}}
    return ThreadedNode(embedded(settings))


@contextmanager
def connected(node: ThreadedNode) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        yield connection.channel()


def got(channel: pika.adapters.blocking_connection.BlockingChannel) -> list[bytes]:
    """The bodies that wait in the queue, left there."""
    bodies = []
    while (found := channel.basic_get("q"))[2] is not None:
        bodies.append(found[2])
    channel.basic_recover(requeue=True)
    return bodies


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("leveret")]


def test_its_messages_wait_for_it_and_the_others_are_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with node_on(tmp_path, with_line=True) as node, connected(node) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        with socket.create_connection((node.host, node.port)) as line:
            line.sendall(b"LINE guest guest /\nPUB - q one\nPUB - q two\nQUIT\n")
            assert b"TAKEN 2\n" in line.makefile("rb").read()
        channel.basic_publish("", "q", b"three", pika.BasicProperties(delivery_mode=2))
    caplog.set_level(logging.WARNING, "leveret")
    with node_on(tmp_path, with_line=False) as node, connected(node) as channel:
        assert got(channel) == [b"three"]
        wait_until(lambda: told(caplog), "all are counted")
    assert told(caplog) == [
        "the protocol 'line' is not installed, of which the store has 2 messages: 2 in queue 'q' in vhost '/'; not"
        f" delivered until it is there again, which came from {tmp_path / 'plugins/line.py'}"
    ]
    caplog.clear()
    with node_on(tmp_path, with_line=True) as node, connected(node) as channel:
        assert got(channel) == [b"one", b"two", b"three"]
    assert told(caplog) == []
