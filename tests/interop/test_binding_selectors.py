"""Bindings with selectors, made by pika and over HTTP, for messages of pika and proton; after a restart, and a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from tests.crash.node import Node
from tests.interop.conftest import Start, need_module
from tests.interop.management import asked

proton = need_module("proton")

from proton.utils import BlockingConnection, SendException  # noqa: E402

pytestmark = pytest.mark.interop

HTTP = 'http = { enabled = true, address = "127.0.0.1:0" }\nlisteners = [{ address = "127.0.0.1:0" }]\n'
SELECTOR = "x-filter-jms-selector"


@contextmanager
def channel_at(port: int) -> Iterator[BlockingChannel]:
    """A channel that confirms, of a connection of its own."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def publish(channel: BlockingChannel, colour: str, size: int = 0) -> bool:
    """Whether a mandatory message was routed."""
    properties = pika.BasicProperties(headers={"colour": colour, "size": size}, delivery_mode=2)
    try:
        channel.basic_publish("shop", "orders.new", b"m", properties, mandatory=True)
    except UnroutableError:
        return False
    return True


def declare(channel: BlockingChannel) -> None:
    channel.exchange_declare("shop", "topic", durable=True)
    for queue, selector in (
        ("red", "colour = 'red'"),
        ("large", "size > 10 AND amqp.delivery_mode = 'PERSISTENT'"),
    ):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "shop", "orders.*", {SELECTOR: selector})


def test_messages_of_all_protocols_go_where_the_selectors_let_them(node_with: Start, tmp_path: Path):
    node = node_with(f'{HTTP}[node]\ndata_dir = "{tmp_path}/data"\n')
    with channel_at(node.port) as channel:
        declare(channel)
        assert [publish(channel, "red"), publish(channel, "blue", 11), publish(channel, "blue")] == [
            True,
            True,
            False,
        ]
        with pytest.raises(
            ChannelClosedByBroker, match=r"the selector of the binding is wrong: at character 9"
        ):
            channel.queue_bind("red", "shop", "k", {SELECTOR: "colour ="})
    node.declare("blue")
    asked(
        node,
        "POST",
        "/api/bindings/%2F/e/shop/q/blue",
        {"routing_key": "#", "arguments": {SELECTOR: "colour = 'blue'"}},
    )
    definitions = asked(node, "GET", "/api/definitions")
    assert isinstance(definitions, dict)
    told = {each["destination"]: each["arguments"].get(SELECTOR) for each in definitions["bindings"]}
    assert told["red"] == "colour = 'red'"
    bindings = asked(node, "GET", "/api/exchanges/%2F/shop/bindings/source")
    assert isinstance(bindings, list)
    assert [each["warnings"] for each in bindings] == [[], [], []]
    connection = BlockingConnection(f"127.0.0.1:{node.port}")
    sender = connection.create_sender("/exchanges/shop/orders.new")
    sender.send(proton.Message("m", properties={"colour": "blue", "size": 0}))
    with pytest.raises(SendException):
        sender.send(proton.Message("m", properties={"colour": "green", "size": 0}))
    connection.close()
    assert (node.ready("red"), node.ready("large"), node.ready("blue")) == (1, 1, 1)
    node.stop()
    node.start()
    with channel_at(node.port) as channel:
        assert [publish(channel, "red"), publish(channel, "green")] == [True, False]
    asked(node, "POST", "/api/definitions", definitions)
    assert node.ready("red") == 2


def test_a_subscription_of_rabbitmqs_jms_client_gets_what_it_selects(node_with: Start, tmp_path: Path):
    """What that client declares: a selector exchange behind the topic exchange, and its own version with both."""
    node = node_with(f'[node]\ndata_dir = "{tmp_path}/data"\n')
    term = "{'and',{'>',{'ident',<<\"size\">>},10},{'like',{'ident',<<\"colour\">>},<<\"r%\">>,'no_escape'}}."
    arguments = {"rjms_erlang_selector": term, "rjms_version": "3.4.0"}
    with channel_at(node.port) as channel:
        for version in ("3.4.0", "2.8.0"):
            channel.exchange_declare(
                "selecting", "x-jms-topic", durable=True, arguments={"rjms_version": version}
            )
        channel.exchange_declare("shop", "topic", durable=True)
        channel.exchange_bind("selecting", "shop", "orders.new")
        channel.queue_declare("subscribed", durable=True)
        channel.queue_bind("subscribed", "selecting", "orders.new", arguments)
    node.stop()
    node.start()
    with channel_at(node.port) as channel:
        sent = [("red", 11), ("red", 5), ("blue", 11)]
        assert [publish(channel, *each) for each in sent] == [True, False, False]
        wrong = {"rjms_erlang_selector": "{xq7fkd9, 42}."}
        with pytest.raises(ChannelClosedByBroker, match="'xq7fkd9' is no operator of selectors"):
            channel.queue_bind("subscribed", "selecting", "orders.new", wrong)


@pytest.mark.system
def test_selectors_survive_a_kill(tmp_path: Path):
    node = Node(tmp_path / "data")
    try:
        with channel_at(node.port) as channel:
            declare(channel)
            node.kill()
            channel.connection.process_data_events()
    except pika.exceptions.AMQPError:
        pass
    finally:
        node.kill()
    node = Node(tmp_path / "data")
    try:
        with channel_at(node.port) as channel:
            assert [publish(channel, "red"), publish(channel, "blue")] == [True, False]
        node.stop()
    finally:
        node.kill()
