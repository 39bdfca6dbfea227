"""MQTT over the sockets of a node: beside AMQP on one port, and what both see of each other."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pika
import pytest
from wsproto.events import AcceptConnection

from leveret.protocols.mqtt.codec.packets import Connect, Publish, SubAck, Subscribe, Subscription
from leveret.protocols.mqtt.codec.properties import Properties
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.mqtt.over_socket import SocketClient
from tests.system.test_websockets import Browser

SERVED = {"listeners": [{"address": "127.0.0.1:0", "protocols": ["amqp091", "mqtt"]}]}


def test_mqtt_goes_over_a_websocket() -> None:
    served = {"listeners": [{"address": "127.0.0.1:0", "protocols": ["mqtt"], "websocket": True}]}
    with (
        ThreadedNode(embedded(served)) as node,
        socket.create_connection((node.host, node.port), 10) as connected,
    ):
        browser = Browser(connected, "/mqtt", protocol="mqtt")
        assert isinstance(browser.answer, AcceptConnection)
        assert browser.answer.subprotocol == "mqtt"
        connect = Connect(4, "page", user_name="guest", password=b"guest")
        assert browser.greeted(connect.encode(4)) == b"\x20\2\0\0"


@pytest.fixture(scope="module")
def node() -> Iterator[ThreadedNode]:
    with ThreadedNode(embedded(SERVED)) as node:
        yield node


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_goes_from_one_client_to_another(node: ThreadedNode, version: int) -> None:
    address = f"{node.host}:{node.port}"
    with SocketClient(address, version) as one, SocketClient(address, version) as other:
        one.connect("one")
        other.connect("other")
        other.send(Subscribe(1, (Subscription("a/+", 1),)))
        assert other.next(SubAck) == SubAck(1, (1,))
        one.send(Publish("a/b", b"hello", 1, False, False, 7))
        found = other.message()
        assert (found.topic, found.payload, found.qos) == ("a/b", b"hello", 1)


def test_amqp_and_mqtt_share_a_port_and_an_exchange(node: ThreadedNode) -> None:
    with (
        SocketClient(f"{node.host}:{node.port}") as client,
        pika.BlockingConnection(pika.URLParameters(node.url)) as connection,
    ):
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "amq.topic", "devices.*.out")
        client.connect("device")
        client.send(Subscribe(1, (Subscription("devices/1/in", 1),)))
        client.next(SubAck)
        said = Properties(content_type="text/plain", user_properties=(("unit", "C"),), correlation_data=b"7")
        client.send(Publish("devices/1/out", b"21", 1, False, False, 1, said))
        for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=10):
            assert method is not None
            assert (method.routing_key, body) == ("devices.1.out", b"21")
            assert (properties.content_type, properties.headers) == ("text/plain", {"unit": "C"})
            assert (properties.correlation_id, properties.delivery_mode) == ("7", 2)
            break
        sent = pika.BasicProperties(headers={"level": 3}, delivery_mode=2)
        channel.basic_publish("amq.topic", "devices.1.in", b"on", sent)
        found = client.message()
        assert (found.topic, found.payload, found.qos) == ("devices/1/in", b"on", 1)
        assert found.properties.user_properties == (("level", "3"),)
