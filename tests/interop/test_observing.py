"""What observers see while real clients use a node: the firehose, the event exchange, metrics and the audit log."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ProbableAuthenticationError
from prometheus_client.parser import text_string_to_metric_families
from proton import Message

from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect

pytestmark = pytest.mark.interop

TRACE: Final = "amq.rabbitmq.trace"
EVENT: Final = "amq.rabbitmq.event"
OBSERVED: Final = """
[node]
data_dir = "{folder}/data"
[log]
audit = "{folder}/audit.log"
[prometheus]
enabled = true
address = "127.0.0.1:0"
"""
Copy = tuple[str, dict[str, object], bytes]


@pytest.fixture
def node(node_with: Start, tmp_path: Path) -> RunningNode:
    return node_with(OBSERVED.format(folder=tmp_path))


@pytest.fixture
def connection(node: RunningNode) -> Iterator[BlockingConnection]:
    with BlockingConnection(pika.URLParameters(node.url)) as connection:
        yield connection


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


def listen(channel: BlockingChannel, exchange: str, pattern: str = "#", durable: bool = False) -> None:
    channel.queue_declare("copies", durable=durable)
    channel.queue_bind("copies", exchange, pattern)


def copies(channel: BlockingChannel) -> list[Copy]:
    found: list[Copy] = []
    while (got := channel.basic_get("copies", auto_ack=True))[0] is not None:
        method, properties, body = got
        found.append((method.routing_key, properties.headers, body))
    return found


def trace(node: RunningNode, on: bool) -> None:
    node.call(lambda: node.node.broker.virtual_host("/").set_tracing(on))


def test_pika_reads_copies_as_rabbitmq_writes_them(node: RunningNode, channel: BlockingChannel) -> None:
    listen(channel, TRACE)
    channel.queue_declare("q")
    trace(node, True)
    said = pika.BasicProperties(
        headers={"a": 1, "n": {"b": 2}}, content_type="x/y", delivery_mode=2, message_id="m"
    )
    channel.basic_publish("", "q", b"hi", said)
    channel.basic_get("q", auto_ack=True)
    trace(node, False)
    channel.basic_publish("", "q", b"not traced")
    (published, headers, body), (delivered, more, again) = copies(channel)
    common = {
        "exchange_name": "",
        "routing_keys": ["q"],
        "properties": {
            "headers": {"a": 1, "n": {"b": 2}},
            "content_type": "x/y",
            "delivery_mode": 2,
            "message_id": "m",
        },
        "node": "leveret",
        "vhost": "/",
        "connection": headers["connection"],
        "channel": 1,
        "user": "guest",
    }
    assert (published, headers, body) == ("publish.", {**common, "routed_queues": ["q"]}, b"hi")
    assert (delivered, more, again) == ("deliver.q", {**common, "redelivered": 0}, b"hi")
    assert str(headers["connection"]).startswith("127.0.0.1:")


def test_copies_of_what_1_0_publishes_and_receives(node: RunningNode, channel: BlockingChannel) -> None:
    listen(channel, TRACE)
    channel.queue_declare("q")
    trace(node, True)
    other = connect(node)
    other.create_sender("/queues/q").send(Message(body=b"hello", inferred=True, properties={"k": "v"}))
    other.create_receiver("/queues/q").receive()
    other.close()
    found = copies(channel)
    assert [(key, headers["user"]) for key, headers, _ in found] == [
        ("publish.", "guest"),
        ("deliver.q", "guest"),
    ]
    assert {body for _, _, body in found} == {b"hello"}
    properties = found[0][1]["properties"]
    assert isinstance(properties, dict)
    assert properties["headers"] == {"k": "v"}


def test_consumers_are_traced_with_their_connection(
    node: RunningNode, connection: BlockingConnection, channel: BlockingChannel
) -> None:
    listen(channel, TRACE, "deliver.*")
    channel.queue_declare("q")
    trace(node, True)
    channel.basic_consume("q", lambda *_: None, auto_ack=True)
    channel.basic_publish("", "q", b"a")
    connection.process_data_events(time_limit=0.01)
    [(key, headers, _)] = copies(channel)
    assert (key, headers["user"], headers["channel"]) == ("deliver.q", "guest", 1)


def test_bindings_to_the_event_exchange_outlive_the_node(node: RunningNode) -> None:
    with BlockingConnection(pika.URLParameters(node.url)) as connection:
        listen(connection.channel(), EVENT, "queue.*", durable=True)
    node.stop()
    node.start()
    with BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("new", arguments={"x-max-length": 4})
        channel.queue_delete("new")
        (created, facts, body), (deleted, _, _) = copies(channel)[-2:]
    assert (created, deleted, body) == ("queue.created", "queue.deleted", b"")
    assert (facts["name"], facts["vhost"], facts["user_who_performed_action"]) == ("new", "/", "guest")
    assert facts["arguments"] == {"x-max-length": 4}
    assert isinstance(facts["timestamp_in_ms"], int)


def test_logins_are_events(node: RunningNode, channel: BlockingChannel) -> None:
    listen(channel, EVENT, "user.authentication.*")
    with pytest.raises(ProbableAuthenticationError):
        BlockingConnection(pika.URLParameters(node.url_with("canary")))
    BlockingConnection(pika.URLParameters(node.url)).close()
    found = copies(channel)
    assert [(key, facts["name"]) for key, facts, _ in found] == [
        ("user.authentication.failure", "guest"),
        ("user.authentication.success", "guest"),
    ]
    assert "canary" not in repr(found)


def test_prometheus_reads_the_listener_of_its_own(node: RunningNode, channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"a")
    channel.basic_get("q", auto_ack=True)
    [address] = [each.address for each in node.node.listening if each.entrance.names == ("prometheus",)]
    for path in ("/metrics", "/metrics/per-object"):
        with urllib.request.urlopen(f"http://{address}{path}") as response:
            text = response.read().decode()
        found = {each.name: each for each in text_string_to_metric_families(text)}
        assert sum(one.value for one in found["rabbitmq_queue_get"].samples) == 1
    with urllib.request.urlopen(
        f"http://{address}/metrics/detailed?family=channel_exchange_metrics"
    ) as response:
        assert b'rabbitmq_detailed_channel_messages_published_total{vhost="/",connection="' in response.read()


def test_the_audit_log_has_logins_and_changes(node: RunningNode, channel: BlockingChannel, tmp_path: Path):
    channel.queue_declare("q")
    with pytest.raises(ProbableAuthenticationError):
        BlockingConnection(pika.URLParameters(node.url_with("canary")))
    text = (tmp_path / "audit.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    told = [(each["actor"], each["action"], each["object"], each["outcome"]) for each in lines]
    assert told == [
        ("guest", "user.authentication.success", "guest", "ok"),
        ("guest", "queue.created", "q", "ok"),
        ("guest", "user.authentication.failure", "guest", "refused"),
    ]
    assert {each["protocol"] for each in lines} == {"AMQP 0-9-1"}
    assert all(each["peer"].startswith("127.0.0.1:") for each in lines)
    assert "canary" not in text
