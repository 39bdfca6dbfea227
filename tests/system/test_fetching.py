"""A fetch of messages that come from another machine: one that arrives while it is asked for is not passed over."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Sequence

import pika
import pytest

from leveret.durable.store.memory import MemoryStore
from leveret.server.node.threaded import ThreadedNode, embedded

pytestmark = pytest.mark.system

COUNT = 20
BODIES = [b"%d" % number for number in range(COUNT)]
GROUPS = {"x-message-group-key": "group"}


class ArrivingStore(MemoryStore):
    """A store that lacks messages each time it is asked first, and has them when it is asked once more."""

    asked = 0

    def lacks(self, numbers: Sequence[int]) -> bool:
        self.asked += 1
        return self.asked % 2 == 1

    def brings(self, numbers: Sequence[int]) -> bool:
        return self.lacks(numbers)


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    """A node that has just started, with messages on disk only: in `q`, and each of another group in `grouped`."""
    config = embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})
    store = ArrivingStore()
    with ThreadedNode(config, store=store) as before, connected(before) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, arguments in (("q", {}), ("grouped", GROUPS)):
            channel.queue_declare(name, durable=True, arguments=arguments)
            for each in BODIES:
                properties = pika.BasicProperties(delivery_mode=2, headers={"group": int(each)})
                channel.basic_publish("", name, each, properties)
    later = ArrivingStore()
    later.content = store.content.copy()
    with ThreadedNode(config, store=later) as running:
        yield running
        assert later.asked, "the messages were in memory"


def connected(node: ThreadedNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(node.url))


@pytest.fixture
def ask(node: ThreadedNode) -> Callable[[str, object], object]:
    """Sends a request to the node's API, and returns what it answers."""
    address = next(each for each in node.call(lambda: list(node.node.addresses)) if each != address_of(node))

    def send(path: str, body: object) -> object:
        request = urllib.request.Request(
            f"http://{address}/api/{path}", json.dumps(body).encode(), method="POST"
        )
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    return send


def address_of(node: ThreadedNode) -> str:
    return node.url.split("@")[-1].split("/")[0]


@pytest.mark.parametrize("queue", ["q", "grouped"])
def test_amqp_0_9_1_gets_each(node: ThreadedNode, queue: str) -> None:
    with connected(node) as connection:
        channel = connection.channel()
        assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(COUNT)] == BODIES
        assert channel.basic_get(queue)[0] is None


@pytest.mark.parametrize("queue", ["q", "grouped"])
def test_http_gets_all(ask: Callable[[str, object], object], queue: str) -> None:
    wanted = {"count": 2 * COUNT, "ackmode": "ack_requeue_false", "encoding": "auto"}
    found = ask(f"queues/%2F/{queue}/get", wanted)
    assert isinstance(found, list)
    assert [each["payload"].encode() for each in found] == BODIES


@pytest.mark.parametrize("queue", ["q", "grouped"])
def test_all_are_moved(node: ThreadedNode, ask: Callable[[str, object], object], queue: str) -> None:
    with connected(node) as connection:
        connection.channel().queue_declare("other", durable=True)
        assert ask(f"leveret/queues/%2F/{queue}/move", {"to": "other"}) == {"moved": COUNT, "left": 0}
