"""The event loop of a node that has just taken over waits for no message that is in the database only."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pika
import pytest
import trio

from leveret.config.config import parse
from leveret.durable.store.contract import Chunk
from leveret.durable.store.postgres.scratch import Scratch
from leveret.durable.store.postgres.session import Database
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.source import Source
from leveret.durable.store.postgres.store import PostgresStore
from leveret.server.node.node import Node
from tests.server.cluster.cluster import in_thread, publish

CONFIG = '[store]\nengine = "postgres"\n'
PLACES = {"listeners": [{"address": "127.0.0.1:0"}], "http.address": "127.0.0.1:0"}
SHORT = {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}

QUEUES: dict[str, dict[str, object]] = {
    "dead": {},
    "seen": {},
    "grouped": {"x-message-group-key": "group"},
    "moved": {"x-alternate-exchange": "amq.fanout"},
    "later": {
        "x-delayed-message": True,
        "x-max-length": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    },
}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Until it is open, no message comes from the database; none may ever be read by the loop."""
    opened = Event()
    bodies = Source.bodies

    def later(source: Source, firsts: list[int]) -> list[Chunk]:
        assert not source._name.endswith(":loop"), "the loop waits"
        opened.wait()
        return bodies(source, firsts)

    monkeypatch.setattr(Source, "bodies", later)
    monkeypatch.setattr(Scratch, "_bring_all", lambda scratch: None)  # nothing comes by itself
    return opened


@asynccontextmanager
async def node(database: Database, folder: Path) -> AsyncIterator[Node]:
    """A node that takes over, and that dies."""
    shard = Shard(database, "test")
    epoch = await in_thread(lambda: shard.claim(shard.observe().epoch, "test", None))
    shard.close()
    assert epoch is not None
    store = await in_thread(PostgresStore, database, epoch, folder)
    made = Node(parse(CONFIG, {}, PLACES), closing_s=0.1, store=store)
    async with made:
        yield made
        made.feeds.fail()


def connection(made: Node) -> pika.BlockingConnection:
    port = int(made.addresses[0].rpartition(":")[2])
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


def test_a_message_that_is_fetched_is_waited_for_by_its_client_alone(
    database: Database, tmp_path: Path, gate: Event
) -> None:
    async def scene() -> None:
        async with node(database, tmp_path / "one") as made:
            client = await in_thread(connection, made)
            channel = await in_thread(client.channel)
            await in_thread(channel.confirm_delivery)
            await in_thread(lambda: channel.queue_declare("q", durable=True))
            await in_thread(lambda: channel.queue_declare("dead", durable=True))
            await in_thread(lambda: channel.queue_declare("short", durable=True, arguments=SHORT))
            await in_thread(publish, channel, "q", b"1", b"2")
            await in_thread(publish, channel, "short", b"1", b"2", b"3")
            await in_thread(client.close)
        async with node(database, tmp_path / "two") as made:
            await fetched_while_others_go_on(made, gate)

    trio.run(scene)


def test_what_looks_at_all_of_a_queue_or_moves_it_waits_alone(
    database: Database, tmp_path: Path, gate: Event
) -> None:
    """A look over HTTP, a fetch from groups, a deletion that moves messages, a limit that drops delayed ones."""

    async def scene() -> None:
        async with node(database, tmp_path / "one") as made:
            client = await in_thread(connection, made)
            channel = await in_thread(client.channel)
            await in_thread(channel.confirm_delivery)
            for name, arguments in QUEUES.items():
                await in_thread(partial(channel.queue_declare, name, durable=True, arguments=arguments))
            await in_thread(lambda: channel.queue_bind("dead", "amq.fanout"))
            for name in QUEUES.keys() - {"dead", "later"}:
                await in_thread(publish, channel, name, b"1", b"2")
            await in_thread(delay, channel, b"late 1", b"late 2")
            await in_thread(client.close)
        async with node(database, tmp_path / "two") as made:
            await all_wanted_while_others_go_on(made, gate)

    trio.run(scene)


async def all_wanted_while_others_go_on(made: Node, gate: Event) -> None:
    client, other = await in_thread(connection, made), await in_thread(connection, made)
    channel, second = await in_thread(client.channel), await in_thread(other.channel)
    await in_thread(second.confirm_delivery)
    host = made.broker.virtual_hosts["/"]
    seen: list[object] = []
    deleted = host.queues["moved"]

    def fetch() -> None:
        seen.append(channel.basic_get("grouped", auto_ack=True)[2])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, fetch)
        nursery.start_soon(in_thread, lambda: seen.append(peeked(made, "seen")))
        await in_thread(second.queue_delete, "moved")
        await in_thread(lambda: second.queue_declare("moved", durable=True))  # its name is free
        await in_thread(delay, second, b"late 3")  # one too many
        assert (seen, host.queues["dead"].ready, deleted.ready, host.queues["later"].delayed) == ([], 0, 2, 3)
        gate.set()
    assert sorted(map(str, seen)) == ["['1', '2']", "b'1'"]
    while host.queues["dead"].ready < 3:  # noqa: ASYNC110 - a queue tells nobody
        await trio.sleep(0.01)
    found = await in_thread(lambda: [second.basic_get("dead")[2] for _ in range(3)])
    assert sorted(found) == [b"1", b"2", b"late 1"]
    assert (deleted.deleted, host.queues["later"].delayed, host.queues["moved"].number > 0) == (True, 2, True)
    assert made.broker.catalogue is not None
    for each in (client, other):
        await in_thread(each.close)


def delay(channel: pika.adapters.blocking_connection.BlockingChannel, *bodies: bytes) -> None:
    """Publish durable messages that wait for an hour, each confirmed."""
    properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000})
    for body in bodies:
        channel.basic_publish("", "later", body, properties)


def peeked(made: Node, queue: str) -> list[str]:
    port = int(made.addresses[1].rpartition(":")[2])
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    path = f"/api/leveret/queues/%2F/{queue}/peek"
    line.request("GET", path, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    found = [each["payload"] for each in json.loads(line.getresponse().read())]
    line.close()
    return found


async def fetched_while_others_go_on(made: Node, gate: Event) -> None:
    client, other = await in_thread(connection, made), await in_thread(connection, made)
    channel = await in_thread(client.channel)
    found: list[bytes] = []
    queues = made.broker.virtual_hosts["/"].queues

    def fetch() -> None:
        for _ in range(2):
            found.append(channel.basic_get("q", auto_ack=True)[2])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, fetch)
        second = await in_thread(other.channel)
        await in_thread(second.confirm_delivery)
        for body in (b"4", b"5"):  # while the other one waits; the queue is too long until its head has come
            await in_thread(publish, second, "short", body)
        assert (found, queues["q"].ready, queues["short"].ready) == ([], 2, 5)
        gate.set()
    assert found == [b"1", b"2"]
    assert (
        await in_thread(lambda: client.channel().queue_declare("q", passive=True))
    ).method.message_count == 0
    while queues["short"].ready > 3:  # noqa: ASYNC110 - a queue tells nobody
        await trio.sleep(0.01)
    assert queues["dead"].ready == 2
    for each in (client, other):
        await in_thread(each.close)
