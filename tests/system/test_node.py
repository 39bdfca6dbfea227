"""A node inside a program: in trio, and in a thread of its own."""

from __future__ import annotations

import errno
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pika
import pika.exceptions
import pytest
import trio
import trio.testing

from leveret import Config, ConfigError, Node, ThreadedNode, embedded
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.message import Message
from leveret.server.node.listener import Listener, amqp_url
from leveret.testing.fakes import fake_message

pytestmark = pytest.mark.system

CODE = "import sys; import {name}; sys.exit(bool({{'trio', 'attrs', 'leveret.server.node.node'}} & set(sys.modules)))"


@pytest.mark.parametrize("name", ["leveret", "leveret.clock", "leveret.testing.pytest_plugin"])
def test_importing_a_part_costs_that_part_only(name: str):
    assert subprocess.run([sys.executable, "-c", CODE.format(name=name)], check=False).returncode == 0


def test_the_names_for_embedding_are_there_and_no_others():
    import leveret

    for name in leveret.__all__:
        assert name in dir(leveret)
        assert getattr(leveret, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Brocker'"):
        leveret.Brocker  # noqa: B018


# In trio.


def run(test: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Node(embedded()) as node:
            await test(node)

    trio.run(main)


async def wrong_header(node: Node) -> bytes:
    """What the node answers to a header that nobody speaks."""
    host, port = node.addresses[0].split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"MQTT\x00\x04....")
        return b"".join([chunk async for chunk in stream])


def test_a_node_listens_inside_its_block_and_not_after_it():
    async def main() -> None:
        async with Node(embedded()) as node:
            assert (await wrong_header(node)).startswith(b"AMQP")
        with pytest.raises(OSError, match=r"."):
            await wrong_header(node)

    trio.run(main)


def test_a_node_that_has_ended_can_still_be_asked_where_it_listens():
    async def main() -> None:
        async with Node(embedded()) as node:
            assert len(node.admin.listeners()) == len(node.addresses)
        assert node.admin.listeners() == []  # as its history does, while connections say goodbye

    trio.run(main)


def test_two_nodes_in_one_program_do_not_know_each_other():
    async def main() -> None:
        async with Node(embedded()) as one, Node(embedded()) as other:
            assert one.addresses != other.addresses
            one.broker.virtual_host("/").declare_queue("q")
            assert "q" not in other.broker.virtual_host("/").queues
            assert await wrong_header(one) == await wrong_header(other)

    trio.run(main)


def test_what_the_block_raises_comes_out_as_it_is():
    async def failing(node: Node) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(failing)


def test_a_node_that_is_cancelled_shuts_down():
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with Node(embedded()) as node:
                scope.cancel()
                await node.run()
        assert scope.cancelled_caught
        with pytest.raises(OSError, match=r"."):
            await wrong_header(node)

    trio.run(main)


def test_a_task_of_the_node_that_dies_ends_the_block():
    """Only a mistake of ours can do that, and it must not go unnoticed."""

    async def dies() -> None:
        raise ZeroDivisionError

    async def test(node: Node) -> None:
        node.start(dies)
        await node.run()

    with pytest.raises(ExceptionGroup) as caught:
        run(test)
    assert caught.group_contains(ZeroDivisionError)


def test_an_address_that_is_taken_is_told_and_nothing_stays_open():
    async def main() -> None:
        async with Node(embedded()) as node:
            taken = embedded({"listeners": [{"address": "127.0.0.1:0"}, {"address": node.addresses[0]}]})
            with pytest.raises(OSError, match=f"cannot listen on {node.addresses[0]}"):
                async with Node(taken):
                    pass
        gc.collect()  # an open socket would warn, which is an error here

    trio.run(main)


def test_a_listener_for_an_unknown_protocol_is_refused():
    async def main() -> None:
        with pytest.raises(ConfigError, match='"smtp"'):
            async with Node(embedded({"listeners": [{"address": "127.0.0.1:0", "protocols": ["smtp"]}]})):
                pass

    trio.run(main)


class Reluctant(socket.socket):
    """A listener that cannot accept at first."""

    refusals = iter([errno.EMFILE, errno.ECONNABORTED, errno.EMFILE])

    def accept(self) -> tuple[socket.socket, object]:
        if number := next(self.refusals, None):
            raise OSError(number, "no")
        return super().accept()


def test_errors_of_accept_do_not_end_the_listener(caplog: pytest.LogCaptureFixture):
    async def test(node: Node) -> None:
        with socket.create_server(("127.0.0.1", 0)) as plain:
            plain.setblocking(False)
            listener = Reluctant(fileno=plain.detach())
        address = listener.getsockname()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node._accept, Listener(listener, node.listening[0].entrance))
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(b"MQTT\x00\x04....")
                assert (await stream.receive_some(8)).startswith(b"AMQP")
            nursery.cancel_scope.cancel()

    run(test)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == ["cannot accept connections: no"]


class Clumsy(Consumer):
    """Fails on the first delivery."""

    def __init__(self, node: Node, name: str, fails: bool) -> None:
        queue = node.broker.virtual_host("/").declare_queue(name)
        super().__init__(queue, True, UNLIMITED, Window())
        self.fails = fails
        self.bodies: list[bytes] = []

    def room(self) -> int:
        return 1

    def deliver(self, deliveries: list[Delivery]) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("a mistake of ours")
        self.bodies += [delivery.message.body for delivery in deliveries]

    def cancelled(self) -> None:
        pass


def test_a_consumer_that_raises_does_not_keep_other_queues_from_delivering(caplog: pytest.LogCaptureFixture):
    async def test(node: Node) -> None:
        consumers = [Clumsy(node, name, fails=name == "first") for name in ("first", "second")]
        for consumer in consumers:
            consumer.queue.add_consumer(consumer)
            message: Message = fake_message(consumer.queue.name, body=b"hello")
            node.broker.publish(node.broker.virtual_host("/").default_exchange, message)
        node.work()
        while not consumers[1].bodies:
            await trio.lowlevel.checkpoint()

    run(test)
    assert "a mistake of ours while delivering" in caplog.text


@pytest.mark.parametrize(
    ("parts", "url"),
    [
        (("127.0.0.1:5672", "guest", "guest", "/"), "amqp://guest:guest@127.0.0.1:5672/%2F"),
        (("0.0.0.0:1", "a@b", "p/w:", "x y"), "amqp://a%40b:p%2Fw%3A@127.0.0.1:1/x%20y"),
        (("[::]:5672", "a", "b", "v"), "amqp://a:b@[::1]:5672/v"),
    ],
)
def test_a_url_holds_whatever_the_names_are(parts: tuple[str, str, str, str], url: str):
    assert amqp_url(*parts) == url


# In a thread.


@pytest.fixture
def node():
    with ThreadedNode() as node:
        yield node


def connected(node: ThreadedNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(node.url))


def test_a_client_in_the_same_program_connects_by_the_url(node: ThreadedNode):
    assert node.url == f"amqp://guest:guest@127.0.0.1:{node.port}/%2F"
    assert node.host == "127.0.0.1"
    with connected(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"hello")
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"


def test_a_call_runs_in_the_broker_and_what_it_causes_is_delivered(node: ThreadedNode):
    def publish(body: bytes) -> str:
        host = node.node.broker.virtual_host("/")
        node.node.broker.publish(host.default_exchange, fake_message("q", body=body))
        return threading.current_thread().name

    with connected(node) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        deliveries = channel.consume("q", auto_ack=True)
        assert node.call(publish, body=b"from inside") == "leveret"
        assert next(deliveries)[2] == b"from inside"


def test_a_call_cannot_stop_the_node_that_runs_it(node: ThreadedNode):
    with pytest.raises(RuntimeError, match="cannot be stopped by a function that it runs"):
        node.call(node.stop)
    assert node.call(lambda: 7) == 7


FORKING = """
import os
from leveret import ThreadedNode

with ThreadedNode() as node:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        raise SystemExit(os.waitstatus_to_exitcode(status))
    try:
        node.call(print)
    except RuntimeError as error:
        node.stop()
        os._exit(0 if "forked from" in str(error) else 1)
"""


def test_a_process_that_was_forked_from_that_of_the_node_is_told_and_does_not_wait_for_ever():
    assert subprocess.run([sys.executable, "-c", FORKING], check=False, timeout=60).returncode == 0


def test_a_node_without_listeners_runs_and_has_no_url():
    with ThreadedNode(embedded({"listeners": []})) as node:
        assert node.call(lambda: 7) == 7
        with pytest.raises(RuntimeError, match="the node has no listener"):
            _ = node.url


def test_what_a_call_raises_is_raised_to_the_caller(node: ThreadedNode):
    with pytest.raises(KeyError, match="nobody"):
        node.call(lambda: {}["nobody"])
    assert node.call(lambda: 1 + 1) == 2


def test_a_node_starts_and_stops_as_often_as_one_likes():
    before = threading.active_count()
    node = ThreadedNode()
    for _ in range(3):
        node.start()
        with pytest.raises(RuntimeError, match="running already"):
            node.start()
        connected(node).close()
        node.stop()
        node.stop()
        assert threading.active_count() == before
    for use in (lambda: node.url, lambda: node.call(int)):
        with pytest.raises(RuntimeError, match="not running"):
            use()


def test_errors_of_the_start_are_raised_to_the_caller(node: ThreadedNode):
    before = threading.active_count()
    taken = ThreadedNode(embedded({"listeners": [{"address": f"{node.host}:{node.port}"}]}))
    with pytest.raises(OSError, match="cannot listen on"):
        taken.start()
    assert threading.active_count() == before


def test_a_node_that_dies_says_so_when_it_is_stopped():
    async def dies() -> None:
        raise ZeroDivisionError

    node = ThreadedNode()
    node.start()
    node.call(lambda: node.node.start(dies))
    with pytest.raises(ExceptionGroup) as caught:
        node.stop()
    assert caught.group_contains(ZeroDivisionError)


def test_several_nodes_run_side_by_side():
    with ThreadedNode() as one, ThreadedNode() as other:
        assert one.port != other.port
        with connected(one) as connection:
            connection.channel().queue_declare("only here")
        assert other.call(lambda: list(other.node.broker.virtual_host("/").queues)) == []


def test_clients_are_told_when_the_node_stops():
    with ThreadedNode(closing_s=0) as node:
        connection = connected(node)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="shutdown"):
        connection.process_data_events()


def test_clients_of_a_deleted_virtual_host_are_sent_away_and_others_stay():
    hosts = [{"name": "/"}, {"name": "doomed"}]
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    users = [{"name": "u", "password": "p", "permissions": {host["name"]: everything for host in hosts}}]
    with ThreadedNode(embedded({"virtual_hosts": hosts, "users": users})) as node:
        stays = connected(node)
        goes = pika.BlockingConnection(
            pika.URLParameters(amqp_url(f"{node.host}:{node.port}", "u", "p", "doomed"))
        )
        node.call(node.node.broker.delete_virtual_host, "doomed")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'doomed' is deleted"):
            goes.process_data_events()
        stays.channel().queue_declare("q")
        stays.close()


def test_the_embedded_configuration_can_be_added_to():
    config = embedded(
        {"node": {"name": "mine"}, "http": {"address": "127.0.0.1:1"}}, {"limits.queues_max": 3}
    )
    assert (config.node.name, config.limits.queues_max) == ("mine", 3)
    assert not config.http.enabled
    assert [entry.address.port for entry in config.listeners] == [0]
    with pytest.raises(ConfigError, match=r"limits.queues_max"):
        embedded(overrides={"limits.queues_max": "many"})


# Plugin folders.

TYPE = """
from leveret.exchanges.exchange_type import ExchangeType
class Mine(ExchangeType):
    name = "x-{name}"
    def route(self, message):
        return []
"""


def test_watching_plugin_folders_begins_and_ends_with_a_reload(tmp_path: Path):
    watch = False

    def reread() -> Config:
        return embedded({"plugins": {"folders": [str(tmp_path)], "watch": watch}})

    async def seen(node: Node, name: str) -> bool:
        (tmp_path / f"{name}.py").write_text(TYPE.format(name=name))
        await trio.sleep(3)  # the clock is a mock: nobody waits
        return f"x-{name}" in node.broker.exchange_types

    async def main() -> None:
        nonlocal watch
        async with Node(reread(), reread) as node:
            assert not await seen(node, "a")
            watch = True
            assert node.admin.reload().changed == ("plugins.watch",)
            assert await seen(node, "b")
            watch = False
            node.admin.reload()
            assert not await seen(node, "c")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_folder_that_is_missing_at_a_reload_is_told(tmp_path: Path):
    absent = str(tmp_path / "absent")

    async def main() -> None:
        async with Node(embedded(), lambda: embedded({"plugins": {"folders": [absent]}})) as node:
            assert node.admin.reload().refused == (absent,)

    trio.run(main)


# Addresses.


def test_a_name_is_listened_on_at_every_address_it_stands_for():
    known = {found[4][0] for found in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}

    async def main() -> None:
        async with Node(embedded({"listeners": [{"address": "localhost:0"}]})) as node:
            hosts = {address.rpartition(":")[0].strip("[]") for address in node.addresses}
            assert known - {"::1"} <= hosts <= known  # there may be no IPv6

    trio.run(main)


def test_a_name_that_cannot_be_one_is_told():
    async def main() -> None:
        with pytest.raises(OSError, match=r"cannot listen on a\.\.b:1: "):
            async with Node(embedded({"listeners": [{"address": "a..b:1"}]})):
                pass

    trio.run(main)
