"""Nodes of one cluster in this process, whose database is in memory; clients are real, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import attrs
import pika
import trio

from leveret.config.config import parse
from leveret.durable.store.contract import Store
from leveret.server.cluster.lease import LOOK_S, NodeState
from leveret.server.cluster.member import Member
from tests.server.cluster.rows import LeasedStore, RowInMemory, ShardInMemory

T = TypeVar("T")
TTL_S: Final = 2.0  # a busy machine keeps the loop waiting for a second now and then
SUSPEND_CLOSE_S: Final = 3.0


class Cluster:
    """The nodes and their row."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.shared = RowInMemory()
        self.members: dict[str, Member] = {}
        self.stores: list[LeasedStore] = []
        self._nursery = nursery
        nursery.start_soon(self._beat)

    async def _beat(self) -> None:
        """Do what the stores' threads do when there is nothing to commit, and try what waits for the database."""
        while True:
            await trio.sleep(0.1)
            for store in self.stores:
                store.settle()

    async def start(self, name: str, more: str = "") -> Member:
        text = f"""
            [store]
            engine = "postgres"
            [cluster]
            name = "test"
            node = "{name}"
            address = "127.0.0.1:0"
            {more}
            """
        listening = [{"address": "127.0.0.1:0"}]
        config = parse(text, {}, {"listeners": listening, "http.address": "127.0.0.1:0"})
        quick = attrs.evolve(config.cluster, lease_ttl=TTL_S, suspend_close=SUSPEND_CLOSE_S)
        config = attrs.evolve(config, cluster=quick)  # the file would have to say 3 s
        member = self.members[name] = Member(config, partial(ShardInMemory, self.shared, name), self._opened)
        self._nursery.start_soon(self._run, name, member)
        await member.started.wait()
        return member

    async def _run(self, name: str, member: Member) -> None:
        await member.run()

    def _opened(self, epoch: int) -> tuple[Store, Callable[[], float]]:
        self.stores.append(store := LeasedStore(self.shared, epoch))
        return store, lambda: store.renewed_at

    def stop(self, name: str) -> None:
        """End a node properly."""
        self.members[name].stop()

    async def owner(self, other_than: str = "") -> Member:
        """Wait until a node serves."""
        while True:
            for name, member in self.members.items():
                if member.lease.is_owner and name != other_than:
                    return member
            await trio.sleep(LOOK_S / 10)


@asynccontextmanager
async def two_nodes(more: str = "") -> AsyncIterator[Cluster]:
    """Two nodes, of which "a" serves and "b" knows that."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        await cluster.start("a", more)
        await cluster.owner()
        await cluster.start("b", more)
        await trio.sleep(2 * LOOK_S)
        yield cluster
        nursery.cancel_scope.cancel()


async def reached(member: Member, state: NodeState) -> None:
    """Wait until a node is in a state."""
    while member.lease.state is not state:  # noqa: ASYNC110 - the machine tells nobody
        await trio.sleep(LOOK_S / 10)


async def gone(member: Member) -> None:
    """Wait until a node passes nobody on."""
    while member.metrics()["leveret_relay_connections"]:  # noqa: ASYNC110 - as above
        await trio.sleep(LOOK_S / 10)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        with trio.fail_after(30):
            await scene()

    trio.run(timed)


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Let a client that blocks do something."""
    return await trio.to_thread.run_sync(partial(function, *arguments))


def port_of(member: Member, index: int = 0) -> int:
    return int(member.addresses[index].rpartition(":")[2])


def connection(port: int) -> pika.BlockingConnection:
    where = pika.ConnectionParameters("127.0.0.1", port, blocked_connection_timeout=20, socket_timeout=5)
    return pika.BlockingConnection(where)


def confirming(
    port: int,
) -> tuple[pika.BlockingConnection, pika.adapters.blocking_connection.BlockingChannel]:
    """Connect, and return a channel with confirms as well; the durable queue "q" is there."""
    client = connection(port)
    channel = client.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    return client, channel


def publish(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str, *bodies: bytes) -> None:
    """Publish durable messages, each confirmed."""
    properties = pika.BasicProperties(delivery_mode=2)
    for body in bodies:
        channel.basic_publish("", queue, body, properties, mandatory=True)
