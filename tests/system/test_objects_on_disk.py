"""What clients declare, over real sockets and on a real disk, before and after the node."""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pika
import proton
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError
from proton.reactor import Container, DurableSubscription, Selector
from proton.utils import BlockingConnection, BlockingReceiver

from leveret import ThreadedNode, embedded
from leveret.protocols.amqp10.broker.termini import termini_of

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=2)
ARGUMENTS = {
    "x-max-length": 5,
    "x-dead-letter-exchange": "dead",
    "mine": [True, None, -5, 2**40, Decimal("1.50"), {"é": b"\xff", "at": datetime.datetime(2001, 9, 9)}],
}
PLUGIN = """
from leveret.exchanges.fanout import Fanout
class Rare(Fanout):
    name = "x-rare"
"""


def node(folder: Path, **said: object) -> ThreadedNode:
    return ThreadedNode(embedded({"node": {"data_dir": str(folder / "data")}, **said}))


@contextmanager
def channel_to(node: ThreadedNode, user: str = "guest") -> Iterator[BlockingChannel]:
    """Everybody's password is his name."""
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials(user, user)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return found


def test_s059_s069_what_is_durable_is_there_again_and_nothing_else(tmp_path: Path):
    with node(tmp_path) as before, channel_to(before) as channel:
        for durable in (True, False):
            kind = "kept" if durable else "gone"
            channel.exchange_declare(f"x-{kind}", "topic", durable=durable, arguments={"mine": 1})
            channel.queue_declare(f"q-{kind}", durable=durable)
        channel.queue_declare("mine", durable=True, exclusive=True)
        for exchange in ("x-kept", "x-gone", "amq.topic"):
            for queue in ("q-kept", "q-gone", "mine"):
                channel.queue_bind(queue, exchange, "a.#", {"n": 1})
        channel.exchange_bind("x-kept", "amq.topic", "a.#")
        channel.queue_bind("q-kept", "x-kept", "not.any.more")
        channel.queue_unbind("q-kept", "x-kept", "not.any.more")
    with node(tmp_path) as after, channel_to(after) as channel:
        host = after.node.broker.virtual_host("/")
        assert after.call(lambda: sorted(host.queues)) == ["q-kept"]
        assert "x-gone" not in after.call(lambda: list(host.exchanges))
        assert [repr(each) for each in after.call(lambda: list(host.bindings()))] == [
            "<Binding 'amq.topic' --'a.#'--> queue 'q-kept'>",
            "<Binding 'amq.topic' --'a.#'--> exchange 'x-kept'>",
            "<Binding 'x-kept' --'a.#'--> queue 'q-kept'>",
        ]
        channel.basic_publish("amq.topic", "a.b", b"1", PERSISTENT)
        channel.basic_publish("x-kept", "not.any.more", b"2", PERSISTENT)
        assert bodies(channel, "q-kept") == [b"1"]


def test_s065_what_is_declared_again_after_a_restart_has_to_be_the_same(tmp_path: Path):
    with node(tmp_path) as before, channel_to(before) as channel:
        channel.queue_declare("q", durable=True, arguments=ARGUMENTS)
    with node(tmp_path) as after:
        with channel_to(after) as channel:
            channel.queue_declare("q", durable=True, arguments=ARGUMENTS)
        for wrong in ({"durable": False}, {"durable": True, "arguments": {"x-max-length": 6}}):
            with channel_to(after) as channel, pytest.raises(ChannelClosedByBroker, match="inequivalent arg"):
                channel.queue_declare("q", **{"arguments": ARGUMENTS, **wrong})


def test_users_of_a_definitions_file_are_there_without_it_and_no_password_is_on_the_disk(tmp_path: Path):
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": "wanderer", "password": "wanderer", "tags": []}],
        "permissions": [{"user": "wanderer", "vhost": "/", **everything}],
        "policies": [{"name": "short", "vhost": "/", "pattern": "^q", "definition": {"max-length": 1}}],
    }
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    load = {"load": [str(tmp_path / "definitions.json")]}
    with node(tmp_path, definitions=load) as before, channel_to(before, "wanderer") as channel:
        channel.queue_declare("q", durable=True)
    with node(tmp_path) as after:
        with channel_to(after, "wanderer") as channel:
            for body in (b"1", b"2"):
                channel.basic_publish("", "q", body, PERSISTENT)
            assert bodies(channel, "q") == [b"2"]
        after.call(lambda: after.node.broker.access.delete_user("wanderer"))
    with node(tmp_path) as last, pytest.raises(ProbableAuthenticationError), channel_to(last, "wanderer"):
        pass
    [(value,)] = objects(tmp_path, "select count(*) from objects where key like '%wanderer%'")
    assert value == 0


def objects(folder: Path, query: str) -> list[tuple[object, ...]]:
    """What is in the file that the objects are in."""
    [file] = (folder / "data").glob("meta.db")
    with sqlite3.connect(file) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


def test_the_disk_holds_hashes_and_not_passwords(tmp_path: Path):
    with node(tmp_path) as running:
        running.call(lambda: running.node.broker.access.add_user("u", "a rare pass word"))
    data = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert b"password_hash" in data
    assert b"a rare pass word" not in data


def test_an_exchange_waits_for_its_plug_in(tmp_path: Path):
    """Its messages take the alternate meanwhile; a reload brings it back to life, bindings and all."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "rare.py").write_text(PLUGIN)
    said = {"plugins": {"folders": [str(folder)]}}
    with node(tmp_path, **said) as before, channel_to(before) as channel:
        for queue in ("q", "spare"):
            channel.queue_declare(queue, durable=True)
        channel.exchange_declare("other", "fanout", durable=True)
        channel.exchange_declare("r", "x-rare", durable=True, arguments={"alternate-exchange": "other"})
        channel.queue_bind("q", "r")
        channel.queue_bind("spare", "other")
    (folder / "rare.py").unlink()
    with node(tmp_path, **said) as between, channel_to(between) as channel:
        channel.basic_publish("r", "", b"1", PERSISTENT)
        assert (bodies(channel, "q"), bodies(channel, "spare")) == ([], [b"1"])
        (folder / "rare.py").write_text(PLUGIN)
        between.call(between.node.admin.reload_plugins)
        channel.basic_publish("r", "", b"2", PERSISTENT)
        assert (bodies(channel, "q"), bodies(channel, "spare")) == ([b"2"], [])
    with node(tmp_path, **said) as after, channel_to(after) as channel:
        channel.basic_publish("r", "", b"3", PERSISTENT)
        assert bodies(channel, "q") == [b"3"]


def test_an_auto_delete_queue_that_went_with_its_consumer_stays_away(tmp_path: Path):
    """S068: one that nobody has used yet is there again."""
    with node(tmp_path) as before, channel_to(before) as channel:
        for queue in ("used", "new"):
            channel.queue_declare(queue, durable=True, auto_delete=True)
        channel.basic_cancel(channel.basic_consume("used", lambda *delivery: None))
    with node(tmp_path) as after, channel_to(after) as channel:
        assert after.call(lambda: list(after.node.broker.virtual_host("/").queues)) == ["new"]
        channel.basic_cancel(channel.basic_consume("new", lambda *delivery: None))
        assert after.call(lambda: list(after.node.broker.virtual_host("/").queues)) == []


class Terms(Selector, DurableSubscription):
    """A durable subscription with a selector, as proton's users put it together."""

    def apply(self, receiver: proton.Receiver) -> None:
        Selector.apply(self, receiver)
        DurableSubscription.apply(self, receiver)


def subscribed(node: ThreadedNode) -> tuple[BlockingConnection, BlockingReceiver]:
    container = Container()
    container.container_id = "reader"
    connection = connected(node, container)
    return connection, connection.create_receiver(
        "/exchanges/amq.topic/news.%23", name="news", options=Terms("colour = 'red'")
    )


def connected(node: ThreadedNode, container: Container | None = None) -> BlockingConnection:
    address = node.url.rpartition("@")[2].partition("/")[0]
    return BlockingConnection(
        f"amqp://{address}", user="guest", password="guest", allowed_mechs="PLAIN", container=container
    )


def publish(node: ThreadedNode, *colours: str) -> None:
    connection = connected(node)
    sender = connection.create_sender("/exchanges/amq.topic/news.today")
    for colour in colours:
        message = proton.Message(body=colour, durable=True, properties={"colour": colour})
        assert sender.send(message).remote_state == proton.Delivery.ACCEPTED
    connection.close()


def test_a_durable_subscription_is_found_again_with_its_selector(tmp_path: Path):
    with node(tmp_path) as before:
        connection, _ = subscribed(before)
        connection.close()
        publish(before, "red", "blue")
    with node(tmp_path) as after:
        host = after.node.broker.virtual_host("/")
        assert after.call(lambda: list(termini_of(host).sources)) == [("", "reader", "news")]
        publish(after, "red", "green")
        connection, receiver = subscribed(after)
        assert [receiver.receive().body for _ in range(2)] == ["red", "red"]
        with pytest.raises(proton.Timeout):
            receiver.receive(timeout=0.1)
        receiver.close()
        connection.close()
    with node(tmp_path) as last:
        assert last.call(lambda: list(last.node.broker.virtual_host("/").queues)) == []
