"""The default type of queues as an application finds it: over 0-9-1, over HTTP, in definitions, after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.interop.conftest import RunningNode, Start
from tests.interop.management import asked

pytestmark = pytest.mark.interop

HTTP = 'http = { enabled = true, address = "127.0.0.1:0" }\nlisteners = [{ address = "127.0.0.1:0" }]\n'


@contextmanager
def channel_of(node: RunningNode, virtual_host: str) -> Iterator[BlockingChannel]:
    parameters = pika.URLParameters(node.url)
    parameters.virtual_host = virtual_host
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def types(node: RunningNode) -> dict[str, object]:
    queues = asked(node, "GET", "/api/queues/shop")
    assert isinstance(queues, list)
    return {each["name"]: (each["type"], each["arguments"].get("x-queue-type")) for each in queues}


def test_declarations_without_a_type_get_the_default_which_outlives_the_node(
    node_with: Start, tmp_path: Path
):
    node = node_with(f'{HTTP}[node]\ndata_dir = "{tmp_path}/data"\n')
    asked(node, "PUT", "/api/vhosts/shop", {"default_queue_type": "quorum"})
    for name in ("a", "b"):
        with channel_of(node, "shop") as channel:
            channel.queue_declare(name, durable=True)
            channel.queue_declare(name, durable=True)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_declare("mine", exclusive=True)
            assert types(node)["mine"] == ("classic", "classic")
            with pytest.raises(ChannelClosedByBroker) as refused:
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "classic"})
            assert "received the value 'classic' of type 'longstr' but current is the value 'quorum'" in str(
                refused.value
            )
        assert types(node)[name] == ("quorum", "quorum")
        node.stop()
        node.start()
    asked(node, "PUT", "/api/queues/shop/c", {})
    assert set(types(node).values()) == {("quorum", "quorum")}

    exported = asked(node, "GET", "/api/definitions")
    assert isinstance(exported, dict)
    del exported["queues"][0]["arguments"]["x-queue-type"]  # as an application writes it
    other = node_with(HTTP)
    asked(other, "POST", "/api/definitions", exported)
    assert types(other) == types(node)
    shown = asked(other, "GET", "/api/vhosts/shop")
    assert isinstance(shown, dict)
    assert shown["default_queue_type"] == "quorum"
