"""A node with a data folder ends and starts again: what pika and proton find then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
import proton
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from leveret.durable.store.folder import BadFolder
from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
TRANSIENT: Final = pika.BasicProperties(delivery_mode=1)
Seen = tuple[bytes, bool]  # body, redelivered


@pytest.fixture
def node(node_with: Start, tmp_path: Path) -> RunningNode:
    return node_with(f'[node]\ndata_dir = "{tmp_path}/data"\n')


def restart(node: RunningNode) -> None:
    node.stop()
    node.start()


@contextmanager
def channel_of(node: RunningNode) -> Iterator[BlockingChannel]:
    """A channel that confirms, of a connection of its own."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def publish(
    channel: BlockingChannel, queue: str, *bodies: bytes, properties: pika.BasicProperties = PERSISTENT
) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, properties)


def drained(channel: BlockingChannel, queue: str) -> list[Seen]:
    """Everything in a queue, acknowledged."""
    found: list[Seen] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append((got[2], got[0].redelivered))
    return found


def test_s069_what_is_durable_is_there_in_its_order_and_nothing_else(node: RunningNode):
    with channel_of(node) as channel:
        for name, durable in (("kept", True), ("fleeting", False)):
            channel.queue_declare(name, durable=durable)
            publish(channel, name, b"1", b"2")
            publish(channel, name, b"transient", properties=TRANSIENT)
            publish(channel, name, b"3")
    restart(node)
    assert node.queue_names() == ["kept"]
    with channel_of(node) as channel:
        assert drained(channel, "kept") == [(b"1", False), (b"2", False), (b"3", False)]
    restart(node)
    assert node.ready("kept") == 0


def test_a_server_named_queue_keeps_the_name_that_begins_as_the_client_asked(node: RunningNode):
    with channel_of(node) as channel:
        arguments = {"x-name-prefix": "billing"}
        name = channel.queue_declare("", durable=True, arguments=arguments).method.queue
        publish(channel, name, b"1")
    assert name.startswith("billing-")
    restart(node)
    with channel_of(node) as channel:
        channel.queue_declare(name, durable=True)  # the prefix is no argument of the queue
        assert drained(channel, name) == [(b"1", False)]


def test_s069_what_was_acknowledged_does_not_come_back_and_what_was_not_is_flagged(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", *(b"%d" % number for number in range(6)))
        methods = [channel.basic_get("q")[0] for _ in range(4)]
        channel.basic_ack(methods[0].delivery_tag)
        channel.basic_ack(methods[2].delivery_tag)
    restart(node)
    with channel_of(node) as channel:
        assert drained(channel, "q") == [(b"1", True), (b"3", True), (b"4", False), (b"5", False)]


def test_s110_what_a_client_still_had_when_the_node_ended_comes_first_and_flagged(node: RunningNode):
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"1", b"2", b"3")
    assert channel.basic_get("q")[2] == b"1"
    restart(node)
    with channel_of(node) as again:
        assert drained(again, "q") == [(b"1", True), (b"2", False), (b"3", False)]
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(60)


def test_s059_bindings_are_there_if_both_their_ends_are(node: RunningNode):
    with channel_of(node) as channel:
        channel.exchange_declare("x", "topic", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("fleeting")
        channel.queue_bind("kept", "x", "a.#")
        channel.queue_bind("fleeting", "x", "b.#")
    restart(node)
    with channel_of(node) as channel:
        channel.queue_declare("fleeting")
        channel.basic_publish("x", "a.1", b"a", PERSISTENT)
        channel.basic_publish("x", "b.1", b"b", PERSISTENT)
        assert drained(channel, "kept") == [(b"a", False)]
        assert drained(channel, "fleeting") == []


def test_an_exchange_that_is_not_durable_is_gone(node: RunningNode):
    with channel_of(node) as channel:
        channel.exchange_declare("x", "fanout")
    restart(node)
    with pytest.raises(ChannelClosedByBroker, match="404"), channel_of(node) as channel:
        channel.exchange_declare("x", passive=True)


def test_s141_what_came_by_an_alternate_exchange_is_there(node: RunningNode):
    with channel_of(node) as channel:
        channel.exchange_declare("rest", "fanout", durable=True)
        channel.exchange_declare("x", "direct", durable=True, arguments={"alternate-exchange": "rest"})
        channel.queue_declare("kept", durable=True)
        channel.queue_bind("kept", "rest")
        channel.basic_publish("x", "nowhere", b"1", PERSISTENT)
    restart(node)
    with channel_of(node) as channel:
        channel.basic_publish("x", "nowhere", b"2", PERSISTENT)
        assert drained(channel, "kept") == [(b"1", False), (b"2", False)]


def test_a_transaction_is_there_whole(node: RunningNode):
    """What was not committed when the node ended is not."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        for name in ("from", "to"):
            channel.queue_declare(name, durable=True)
        channel.tx_select()
        channel.basic_publish("", "from", b"job", PERSISTENT)
        channel.tx_commit()
        method, _, _ = channel.basic_get("from")
        channel.basic_ack(method.delivery_tag)
        channel.basic_publish("", "to", b"done", PERSISTENT)
        channel.tx_commit()
        channel.basic_publish("", "to", b"never", PERSISTENT)
    restart(node)
    with channel_of(node) as channel:
        assert (drained(channel, "from"), drained(channel, "to")) == ([], [(b"done", False)])


def test_priorities_limits_and_deaths_are_as_they_were(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-priority": 3}
        channel.queue_declare("q", durable=True, arguments=arguments)
        for priority in (1, 3, 2):
            publish(
                channel,
                "q",
                b"%d" % priority,
                properties=pika.BasicProperties(delivery_mode=2, priority=priority),
            )
        method, _, body = channel.basic_get("q")
        assert body == b"3"
        channel.basic_reject(method.delivery_tag, requeue=False)
    restart(node)
    with channel_of(node) as channel:
        assert drained(channel, "q") == [(b"2", False), (b"1", False)]
        _, properties, body = channel.basic_get("dead")
        assert body == b"3"
        [death] = properties.headers["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)


def test_a_message_expires_while_the_node_is_away(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", b"late", properties=pika.BasicProperties(delivery_mode=2, expiration="1"))
        publish(
            channel, "q", b"in time", properties=pika.BasicProperties(delivery_mode=2, expiration="600000")
        )
    restart(node)
    with channel_of(node) as channel:
        assert [body for body, _ in drained(channel, "q")] == [b"in time"]


# With the other protocol.


def test_s228_a_message_of_1_0_is_kept_if_it_says_so(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True)
    connection = connect(node)
    sender = connection.create_sender("/queues/q")
    for body, durable in ((b"1", True), (b"2", False), (b"3", True)):
        message = data(body)
        message.durable = durable
        sender.send(message)
    connection.close()
    restart(node)
    connection = connect(node)
    receiver = connection.create_receiver("/queues/q", credit=10)
    messages = [receiver.receive() for _ in range(2)]
    assert [bytes(message.body) for message in messages] == [b"1", b"3"]
    assert [(message.first_acquirer, message.delivery_count) for message in messages] == [(True, 0)] * 2
    connection.close()


def test_s228_how_often_a_message_failed_is_known_after_a_restart(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
        publish(channel, "q", b"x")
    for _ in range(2):
        connection = connect(node)
        receiver = connection.create_receiver("/queues/q", credit=1)
        receiver.receive()
        receiver.fetcher.unsettled[0].local.failed = True
        receiver.settle(proton.Delivery.MODIFIED)
        connection.close()
        restart(node)
    connection = connect(node)
    assert connection.create_receiver("/queues/q", credit=1).receive().delivery_count == 2
    connection.close()


@pytest.mark.parametrize("body", [b"bytes", "text", {"a": [1, 2.5, None]}], ids=["data", "string", "map"])
def test_a_message_is_the_same_octets_after_a_restart(node: RunningNode, body: object):
    """As it is published, so it comes back, to its own protocol and to the other."""
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True)
        channel.queue_declare("copy", durable=True)
        for name in ("q", "copy"):
            channel.queue_bind(name, "amq.fanout")
    connection = connect(node)
    message = proton.Message(body=body, durable=True, id="m-1", subject="s", properties={"n": 5})
    connection.create_sender("/exchanges/amq.fanout").send(message)
    receiver = connection.create_receiver("/queues/copy")
    before = receiver.receive()
    receiver.release()
    connection.close()
    restart(node)
    connection = connect(node)
    after = connection.create_receiver("/queues/copy").receive()
    connection.close()
    assert (after.body, after.id, after.subject, after.properties) == (
        before.body,
        before.id,
        before.subject,
        before.properties,
    )
    with channel_of(node) as channel:
        _, properties, _ = channel.basic_get("q")
        assert (properties.message_id, properties.headers["n"]) == ("m-1", 5)


def test_nobody_else_may_have_the_folder(node: RunningNode):
    other = RunningNode()
    other.config = node.config
    with pytest.raises(BadFolder, match="is in use"):
        other.start()
    assert node.queue_names() == []


def test_a_folder_is_free_again_when_a_node_could_not_start(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
):
    """And what was closed properly before is not taken for what was not."""
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", b"x")
    node.stop()

    def stumble(self: object) -> None:
        raise OSError("the address is taken")

    with monkeypatch.context() as patched:
        patched.setattr("leveret.server.node.node.Node._bind", stumble)
        with pytest.raises(OSError, match="is taken"):
            node.start()
    node.start()
    with channel_of(node) as channel:
        assert drained(channel, "q") == [(b"x", False)]


def test_priorities_of_a_quorum_queue_count_without_any_argument_and_after_a_restart(node: RunningNode):
    with channel_of(node) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        for priority in (None, 1, 31, 5):
            properties = pika.BasicProperties(delivery_mode=2, priority=priority)
            publish(channel, "q", str(priority).encode(), properties=properties)
        method, _, body = channel.basic_get("q")
        assert body == b"31"
        channel.basic_nack(method.delivery_tag)
        assert channel.basic_get("q", auto_ack=True)[2] == b"31"
    restart(node)
    with channel_of(node) as channel:
        assert [body for body, _ in drained(channel, "q")] == [b"5", b"None", b"1"]
