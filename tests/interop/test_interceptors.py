"""Interceptors in a node, as pika and proton meet them: what they add, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError
from proton import Delivery
from proton.utils import SendException

from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect, data
from tests.sources import ROOT

pytestmark = pytest.mark.interop

PAGE = (ROOT / "docs" / "interceptors.md").read_text()
(PLUGIN,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

SETTINGS = """
[node]
name = "here"
[plugins]
folders = ["{folder}"]
[[interceptors]]
name = "x-json"
[[interceptors]]
name = "set_header_timestamp"
[[interceptors]]
name = "set_header_routing_node"
overwrite = true
"""


@pytest.fixture
def node(node_with: Start, tmp_path: Path) -> RunningNode:
    (tmp_path / "json_only.py").write_text(PLUGIN)
    running = node_with(SETTINGS.format(folder=tmp_path))
    running.declare("q")
    return running


def test_pika_sees_what_was_added_and_is_told_what_was_refused(node: RunningNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        forged = pika.BasicProperties(headers={"x-routed-by": "elsewhere", "mine": 1}, app_id="a")
        channel.basic_publish("", "q", b"{}", forged)
        with pytest.raises(NackError):
            channel.basic_publish("", "q", b"text")
        _, properties, body = channel.basic_get("q", auto_ack=True)
        headers = properties.headers
        assert (body, properties.app_id, headers["x-routed-by"], headers["mine"]) == (b"{}", "a", "here", 1)
        assert headers["x-fields"] == 0
        assert properties.timestamp == headers["timestamp_in_ms"] // 1000
        channel.basic_publish("", "q", b"{}", pika.BasicProperties(timestamp=7))
        _, properties, _ = channel.basic_get("q", auto_ack=True)
        assert properties.timestamp == 7
        assert properties.headers["timestamp_in_ms"] > 1_000_000_000_000


def test_in_a_transaction_a_refusal_closes_the_channel(node: RunningNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("", "q", b"text")
        with pytest.raises(ChannelClosedByBroker, match="the body is no JSON") as closed:
            channel.tx_commit()
        assert closed.value.reply_code == 406
    assert node.ready("q") == 0


def test_proton_sees_what_was_added_and_why_a_message_was_refused(node: RunningNode) -> None:
    connection = connect(node)
    sender = connection.create_sender("/queues/q")
    with pytest.raises(SendException) as refused:
        sender.send(data(b"text"))
    assert refused.value.state == Delivery.REJECTED
    sender.send(data(b"{}"))
    received = connection.create_receiver("/queues/q", credit=1).receive()
    assert received.annotations["x-routed-by"] == "here"
    assert received.annotations["x-opt-rabbitmq-received-time"] > 1_000_000_000_000
    connection.close()


def test_operators_see_which_interceptors_are_in_use_and_what_they_refused(node: RunningNode) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(NackError):
            channel.basic_publish("", "q", b"text")
    listed = node.call(node.node.admin.plugins)["interceptors"]
    assert [(each["name"], each["place"], each["refused"]) for each in listed if "place" in each] == [
        ("x-json", 1, 1),
        ("set_header_timestamp", 2, 0),
        ("set_header_routing_node", 3, 0),
    ]


def test_a_reload_of_the_file_holds_for_the_next_message(node: RunningNode, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        (tmp_path / "json_only.py").write_text(PLUGIN.replace("x-fields", "x-members"))
        node.call(node.node.admin.reload_plugins)
        channel.basic_publish("", "q", b"{}")
        _, properties, _ = channel.basic_get("q", auto_ack=True)
        assert properties.headers["x-members"] == 0
