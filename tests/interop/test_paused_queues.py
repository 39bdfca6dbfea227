"""Queues that are paused, with clients over real sockets and over a restart."""

from __future__ import annotations

import base64
import urllib.request
from pathlib import Path

import pika
import pytest
from proton import Timeout
from proton.utils import BlockingConnection

from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

BASIC = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@pytest.fixture
def node(node_with: Start, tmp_path: Path) -> RunningNode:
    return node_with(
        f'[node]\ndata_dir = "{tmp_path}/data"\n[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
    )


def ask(node: RunningNode, verb: str) -> None:
    address = node.call(lambda: node.node.addresses[-1])
    request = urllib.request.Request(
        f"http://{address}/api/queues/%2F/jobs/{verb}", method="PUT", headers=BASIC
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 204


def test_pika_gets_nothing_while_the_queue_is_paused_also_after_a_restart(node: RunningNode) -> None:
    node.declare("jobs", durable=True)
    ask(node, "pause")
    for start in range(2):
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"%d" % start, pika.BasicProperties(delivery_mode=2))
        assert next(channel.consume("jobs", inactivity_timeout=0.3))[0] is None
        channel.cancel()
        assert channel.basic_get("jobs") == (None, None, None)
        assert node.ready("jobs") == start + 1
        connection.close()
        node.stop()
        node.start()
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    consuming = connection.channel().consume("jobs", auto_ack=True)
    ask(node, "resume")
    assert [next(consuming)[2] for _ in range(2)] == [b"0", b"1"]
    connection.close()


def test_protons_link_stays_and_goes_on(node: RunningNode) -> None:
    node.declare("jobs")
    connection: BlockingConnection = connect(node)
    receiver = connection.create_receiver("/queues/jobs", credit=1)
    ask(node, "pause")
    connection.create_sender("/queues/jobs").send(data(b"work"))
    with pytest.raises(Timeout):
        receiver.receive(timeout=0.3)
    ask(node, "resume")
    assert bytes(receiver.receive(timeout=60).body) == b"work"
    receiver.accept()
    connection.close()
