"""Nodes of one cluster: one serves, the other passes clients on to it, and takes over when it is its turn."""

from __future__ import annotations

import http.client
import json
import socket

import pika
import pytest
import trio

from leveret.config.types import Address
from leveret.durable.store.contract import FencedError
from leveret.observability.events import Event, EventListener
from leveret.protocols.amqp010.codec.commands import CLOSE_CODE_CONNECTION_FORCED
from leveret.server.cluster.introduction import Announcement, Succession
from leveret.server.cluster.lease import LOOK_S, NodeState
from leveret.server.cluster.member import OwnTerm
from tests.amqp010.client import ConnectionEnded
from tests.amqp010.over_socket import SocketClient
from tests.server.cluster.cluster import (
    TTL_S,
    confirming,
    connection,
    gone,
    in_thread,
    port_of,
    publish,
    reached,
    run,
    two_nodes,
)


def test_a_client_of_the_node_that_stands_by_is_served_by_the_other() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            assert (a.lease.state, b.lease.state) == (NodeState.SERVING, NodeState.STANDBY)
            client, channel = await in_thread(confirming, port_of(b))
            await in_thread(publish, channel, "q", b"one", b"two" * 1_000_000)
            _, _, body = await in_thread(lambda: channel.basic_get("q", auto_ack=True))
            assert body == b"one"
            assert (await in_thread(lambda: channel.basic_get("q", auto_ack=True)))[2] == b"two" * 1_000_000
            # The owner sees the client, not the node between.
            assert a.node is not None
            own = client._impl.params
            [transport] = [each for each in a.node.transports.values() if each.front is not None]
            assert transport.peer.local_port == port_of(b)
            assert transport.peer.loopback
            assert isinstance(transport._socket, socket.socket)
            assert transport._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), (
                "a dead node is noticed"
            )
            assert transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
            assert own.port == port_of(b)
            assert b.metrics()["leveret_relay_connections"] == 1
            assert b.metrics()["leveret_relay_bytes_total"] > 6_000_000
            await in_thread(client.close)

    run(scene)


def test_a_clean_stop_hands_over_at_once_and_nothing_confirmed_is_lost() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            client, channel = await in_thread(confirming, port_of(a))
            await in_thread(publish, channel, "q", *(b"%d" % n for n in range(100)))
            began = trio.current_time()
            cluster.stop("a")
            assert await cluster.owner(other_than="a") is b
            took_s = trio.current_time() - began
            assert took_s < 3  # a second for clients that do not close, and a look at the row
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
                await in_thread(client.process_data_events, 5)
            client = await in_thread(connection, port_of(b))
            channel = await in_thread(client.channel)
            found = await in_thread(lambda: channel.queue_declare("q", passive=True))
            assert found.method.message_count == 100
            await in_thread(client.close)
            assert cluster.shared.row.epoch == 2

    run(scene)


class Heard(EventListener):
    """What the audit log gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def test_an_owner_that_is_fenced_closes_its_clients_and_stands_by_without_ending() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            _, channel = await in_thread(confirming, port_of(a))
            assert a.node is not None
            a.node.broker.events.listeners.append(heard := Heard())
            shard = b._new_shard()
            shard.claim(cluster.shared.row.epoch, "c", "127.0.0.1:1/00")  # a third node, which then dies
            with pytest.raises(pika.exceptions.AMQPError) as refused:
                await in_thread(publish, channel, "q", b"never confirmed")
            assert "another node serves now" in str(refused.value)
            await reached(a, NodeState.STANDBY)
            assert a.metrics()["leveret_cluster_fenced_total"] == 1
            [told] = [each for each in heard.events if each.name == "cluster.fenced"]
            assert told.facts == {"name": "a", "epoch": 1}
            assert await cluster.owner() in (a, b)  # the third one is silent

    run(scene)


@pytest.mark.parametrize("is_suspended", [False, True])
def test_each_client_of_a_fenced_owner_is_told_after_what_it_had_is_given_back(is_suspended: bool) -> None:
    """Its timers do not run, and so nothing that is done in portions goes on; it reads only what clients answer."""

    async def scene() -> None:
        async with two_nodes() as cluster:
            a = cluster.members["a"]
            node = a.node
            assert node is not None
            told: list[str] = []

            def consume() -> pika.BlockingConnection:
                client = connection(port_of(a))
                channel = client.channel()
                name = channel.queue_declare("", exclusive=True).method.queue
                bodies: list[bytes] = []
                channel.basic_consume(name, lambda _, __, ___, body: bodies.append(body))
                for _ in range(5):
                    channel.basic_publish("", name, b"unanswered")
                while len(bodies) < 5:
                    client.process_data_events(1)
                return client

            def hear(client: pika.BlockingConnection) -> None:
                with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as ended:
                    client.process_data_events(20)
                told.append(ended.value.reply_text)

            clients = [await in_thread(consume) for _ in range(6)]
            node.broker.long_work._portion_s = -1.0  # each step is a portion
            node._closing_s = 60.0
            if is_suspended:
                cluster.shared.is_away = True
                await reached(a, NodeState.SUSPENDED)
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for each in clients:
                        nursery.start_soon(in_thread, hear, each)
                    node.end_term(FencedError("another node has taken over"))
                cluster.shared.is_away = False
                await reached(a, NodeState.STANDBY)
            assert len(told) == 6
            assert all("another node serves now" in each for each in told)

    run(scene)


def test_an_owner_that_cannot_commit_is_suspended_and_goes_on_when_it_can() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a = cluster.members["a"]
            client = await in_thread(connection, port_of(a))
            channel = await in_thread(client.channel)
            await in_thread(lambda: channel.queue_declare("q", durable=True))
            cluster.shared.is_away = True
            await reached(a, NodeState.SUSPENDED)
            assert a.node is not None
            assert a.node.suspended
            other = trio.Event()
            bodies: list[bytes] = []

            def consumed() -> None:
                channel.basic_publish("", "q", b"later", pika.BasicProperties(delivery_mode=2))
                while not bodies:
                    found = channel.basic_get("q", auto_ack=True)
                    if found[2] is not None:
                        bodies.append(found[2])

            async def consume() -> None:
                await in_thread(consumed)
                other.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(consume)
                await trio.sleep(0.5)
                assert not other.is_set()
                assert a.node.broker.virtual_hosts["/"].queues["q"].ready == 0  # nothing was read
                cluster.shared.is_away = False
                await other.wait()
            assert bodies == [b"later"]
            assert a.lease.state is NodeState.SERVING
            assert cluster.shared.row.epoch == 1
            await in_thread(client.close)

    run(scene)


def test_clients_of_an_owner_that_is_cut_off_are_served_by_its_successor_at_once() -> None:
    """The successor tells the owner, whose own view of the database is gone: it closes them, and passes them on."""

    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            client, channel = await in_thread(confirming, port_of(a))
            cluster.shared.cut.add("a")
            assert await cluster.owner(other_than="a") is b
            began = trio.current_time()
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="another node serves now"):
                await in_thread(publish, channel, "q", b"not confirmed by the first")
            await reached(a, NodeState.STANDBY)
            assert a.metrics()["leveret_cluster_fenced_total"] == 1
            client, channel = await in_thread(confirming, port_of(a))
            await in_thread(publish, channel, "q", b"confirmed by the other")
            assert trio.current_time() - began < 2 + TTL_S, (
                "the last may be the time that it took to be suspended"
            )
            assert b.node is not None
            assert b.node.broker.virtual_hosts["/"].queues["q"].ready == 1
            assert a.metrics()["leveret_relay_connections"] == 1
            await in_thread(client.close)
            cluster.shared.cut.clear()
            await trio.sleep(3 * LOOK_S)
            assert (a.lease.state, b.lease.state) == (NodeState.STANDBY, NodeState.SERVING)

    run(scene)


def test_news_of_an_epoch_that_is_over_change_nothing() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a = cluster.members["a"]
            assert a.node is not None
            a.hear(Succession("b", 1, Announcement(Address("127.0.0.1", 1), b"k" * 32)))
            client, channel = await in_thread(confirming, port_of(a))
            await in_thread(publish, channel, "q", b"confirmed")
            assert a.lease.state is NodeState.SERVING
            await in_thread(client.close)

    run(scene)


class Steps(trio.abc.Instrument):
    """Counts how often the task that keeps a node's time runs."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("_keep_time")


def test_what_is_due_in_a_suspended_node_waits_until_it_goes_on_and_costs_nothing() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a = cluster.members["a"]
            assert a.node is not None
            cluster.shared.is_away = True
            await reached(a, NodeState.SUSPENDED)
            done: list[float] = []
            a.node.broker.timers.at(a.node.broker.now, done.append)
            a.node.wake()
            trio.lowlevel.add_instrument(steps := Steps())
            await trio.sleep(LOOK_S)
            trio.lowlevel.remove_instrument(steps)
            assert (steps.count, done) == (1, [])
            cluster.shared.is_away = False
            await reached(a, NodeState.SERVING)
            while not done:  # noqa: ASYNC110 - as in the harness
                await trio.sleep(LOOK_S / 10)

    run(scene)


def test_a_suspended_node_takes_no_new_clients_and_not_those_of_others() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            cluster.shared.is_away = True
            await reached(a, NodeState.SUSPENDED)
            for member in (a, b):
                began = trio.current_time()
                with pytest.raises(pika.exceptions.AMQPConnectionError):
                    await in_thread(connection, port_of(member))
                assert trio.current_time() - began < 1
            cluster.shared.is_away = False
            await reached(a, NodeState.SERVING)
            await in_thread((await in_thread(connection, port_of(b))).close)

    run(scene)


def test_an_owner_that_was_stopped_in_its_poll_reads_nothing_of_what_the_poll_has_found() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a = cluster.members["a"]
            node = a.node
            assert node is not None
            assert isinstance(node.term, OwnTerm)
            first, second = [await in_thread(connection, port_of(a)) for _ in range(2)]
            channel, other = await in_thread(first.channel), await in_thread(second.channel)
            bodies: list[bytes] = []

            def consume() -> None:
                channel.queue_declare("q", durable=True)
                channel.basic_qos(prefetch_count=1)
                channel.basic_consume("q", lambda _, __, ___, body: bodies.append(body))
                for body in (b"one", b"two"):
                    channel.basic_publish("", "q", body)
                while not bodies:
                    first.process_data_events(1)

            await in_thread(consume)
            await node.quiet()
            # From here on the loop does not run, which is this thread's.
            channel._impl.basic_ack(0, True)
            first._flush_output(lambda: True)
            other._impl.queue_declare("q", passive=True, callback=lambda _: None)
            second._flush_output(lambda: True)
            found: list[tuple[int, int]] = []
            while len(found) < 2:
                found = node.poller._poll.poll(1.0)
            ttl_s, node.term.own._ttl_s = node.term.own._ttl_s, -1.0
            sent = sum(each.octets_sent for each in node.transports.values())
            node.poller._go_round(found)
            assert node.suspended
            assert node.broker.virtual_hosts["/"].queues["q"].ready == 1
            assert sum(each.octets_sent for each in node.transports.values()) == sent
            node.term.own._ttl_s = ttl_s

            def goes_on() -> None:
                while len(bodies) < 2:
                    first.process_data_events(1)

            await in_thread(goes_on)
            assert bodies == [b"one", b"two"]
            for client in (first, second):
                await in_thread(client.close)

    run(scene)


def test_connections_are_closed_when_the_database_is_away_for_too_long() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            client = await in_thread(connection, port_of(cluster.members["a"]))
            cluster.shared.is_away = True
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="away for too long"):
                await in_thread(client.process_data_events, 10)
            cluster.shared.is_away = False

    run(scene)


def test_a_hand_over_to_a_node_goes_there() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = cluster.members["a"], cluster.members["b"]
            assert a.node is not None
            assert a.node.term is not None
            a.node.term.overview["standby"] = [{"name": "b"}]
            a.node.term.fail_over("b")
            assert await cluster.owner(other_than="a") is b
            assert a.lease.state is NodeState.STANDBY
            assert not a.metrics()["leveret_cluster_fenced_total"]

    run(scene)


def asked(port: int, path: str) -> tuple[int, dict[str, str]]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request("GET", path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


def test_a_node_that_stands_by_answers_for_itself_and_passes_other_requests_on() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            a, b = (port_of(cluster.members[name], 1) for name in "ab")
            path = "/api/health/checks/is-owner"
            assert (await in_thread(asked, a, path))[0] == 200
            status, said = await in_thread(asked, b, path)
            assert (status, said["reason"]) == (503, "node b stands by; the owner is a")
            assert await in_thread(asked, b, "/api/leveret/health") == (200, {"status": "ok"})
            status, said = await in_thread(asked, b, "/api/cluster")
            assert (status, said["owner"], said["state"], said["epoch"]) == (200, "a", "serving", 1)
            assert (await in_thread(asked, b, "/api/overview"))[0] == 200

    run(scene)


def test_without_a_relay_clients_of_the_node_that_stands_by_are_turned_away() -> None:
    async def scene() -> None:
        async with two_nodes("relay = false") as cluster:
            b = cluster.members["b"]
            with pytest.raises(pika.exceptions.AMQPError):
                await in_thread(connection, port_of(b))
            assert (await in_thread(asked, port_of(b, 1), "/api/health/checks/is-owner"))[0] == 503

    run(scene)


def test_only_nodes_of_the_cluster_may_pass_clients_on() -> None:
    async def scene() -> None:
        async with two_nodes() as cluster:
            door = cluster.members["a"].doors[0].getsockname()[1]
            with pytest.raises(pika.exceptions.AMQPError):
                await in_thread(connection, door)

    run(scene)


def test_clients_beyond_the_most_that_are_passed_on_are_refused_in_their_protocol() -> None:
    async def scene() -> None:
        async with two_nodes("relay_connections_max = 1\n[protocols.amqp010]\nenabled = true") as cluster:
            b = cluster.members["b"]
            client = await in_thread(connection, port_of(b))
            with pytest.raises(
                pika.exceptions.AMQPConnectionError, match=r"320.*passes on 1 clients already"
            ):
                await in_thread(connection, port_of(b))
            http, path = port_of(b, 1), "/api/overview"
            status, said = await in_thread(asked, http, path)
            assert (status, said["reason"]) == (503, "node b stands by, and passes on 1 clients already")
            assert await in_thread(asked, http, "/api/leveret/health") == (200, {"status": "ok"})
            assert b.metrics()["leveret_relay_refused_total"] == 3
            assert await in_thread(answered, port_of(b), b"AMQP\x00\x01\x00\x00") == b"AMQP\x03\x01\x00\x00"
            assert await in_thread(refused_over_0_10, port_of(b)) == (
                CLOSE_CODE_CONNECTION_FORCED,
                "node b stands by, and passes on 1 clients already",
            )
            await in_thread(client.close)
            await gone(b)
            await in_thread(lambda: connection(port_of(b)).close())

    run(scene)


def refused_over_0_10(port: int) -> tuple[int, str | None]:
    """Return the code and the text with which a node closes the connection of an AMQP 0-10 client."""
    with SocketClient(f"127.0.0.1:{port}") as client, pytest.raises(ConnectionEnded) as ended:
        client.open()
    close = ended.value.close
    assert close is not None
    return close.reply_code, close.reply_text


def answered(port: int, octets: bytes) -> bytes:
    """Return all that a node answers until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(octets)
        return b"".join(iter(lambda: client.recv(4096), b""))
