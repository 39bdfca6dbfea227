"""No-local with real clients: pika in profile `spec`, and proton."""

from __future__ import annotations

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, need_module

proton = need_module("proton")

from proton import Message, symbol  # noqa: E402
from proton.reactor import Filter  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

pytestmark = pytest.mark.interop


def test_pika_gets_what_others_publish(node_with: Start):
    node = node_with('compat.profile = "spec"')
    node.declare("q")
    parameters = pika.URLParameters(node.url)
    with pika.BlockingConnection(parameters) as connection, pika.BlockingConnection(parameters) as other:
        channel, others = connection.channel(), other.channel()
        for each, body in ((channel, b"mine"), (others, b"theirs")):
            each.confirm_delivery()
            each.basic_publish("", "q", body)
        # pika's own call has no such flag
        method = pika.spec.Basic.Consume(queue="q", consumer_tag="c", no_local=True)
        got: list[bytes] = []
        channel._impl._consumers["c"] = lambda channel, method, properties, body: got.append(body)
        channel._impl._send_method(method)
        while not got:
            connection.process_data_events(time_limit=0.1)
        connection.process_data_events(time_limit=0.2)
        assert got == [b"theirs"]
        assert node.ready("q") == 1


class NoLocal(Filter):
    def __init__(self) -> None:
        kind = symbol("apache.org:no-local-filter:list")
        super().__init__({symbol("no-local"): proton.Described(kind, [])})


def test_proton_gets_what_others_publish(node: RunningNode):
    node.declare("q")
    mine, other = (BlockingConnection(f"127.0.0.1:{node.port}") for _ in range(2))
    for connection, body in ((mine, "mine"), (other, "theirs")):
        connection.create_sender("/queues/q").send(Message(body))
    receiver = mine.create_receiver("/queues/q", credit=5, options=NoLocal())
    assert receiver.receive(timeout=30).body == "theirs"
    receiver.accept()
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=0.3)
    taken = other.create_receiver("/queues/q", credit=5)
    assert taken.receive(timeout=30).body == "mine"
    taken.accept()
    mine.close()
    other.close()
