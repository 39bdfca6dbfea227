"""Crowds of hundreds, as benchmarks/proofs.py has them by the thousand: nothing of them stays."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing

from benchmarks import crowd
from benchmarks.flood import Wire
from leveret.clock import LongWork
from leveret.config.config import parse
from leveret.protocols.amqp091.codec import methods as m
from leveret.server.node.node import Node

pytestmark = pytest.mark.system

CONFIG = """
[[listeners]]
address = "127.0.0.1:0"
protocols = ["amqp091", "amqp10", "http"]
[http]
enabled = false
[log]
level = "error"
"""
QUIET_S = 60.0


class Standing:
    """What there is of a node that somebody has started in this process."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.port = int(node.addresses[0].rpartition(":")[2])

    def counts(self) -> dict[str, int]:
        broker = self.node.broker
        return {
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "connections": len(self.node.admin.connections()),
            "clients": len(broker.clients),
            "channels": broker.channels_of.total(),
            "queues": sum(len(host.queues) for host in broker.hosts()),
        }

    async def gone(self) -> None:
        """Until the last connection has been forgotten, and its task has ended."""
        with trio.fail_after(QUIET_S):
            while self.node.admin.connections():
                await self.node._empty.wait()
            await trio.testing.wait_all_tasks_blocked()


def with_a_node(test: Callable[[Standing], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Node(parse(CONFIG)) as node:
            await test(Standing(node))

    trio.run(main)


async def in_a_thread(work: Callable[[], object]) -> None:
    await trio.to_thread.run_sync(work)


def answer(port: int) -> None:
    """A client like any other comes, asks, and goes."""
    client = Wire(port)
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    client.socket.close()


def test_nothing_stays_of_connections_that_come_and_go(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    # on a busy machine all of a crowd may have to wait for long
    monkeypatch.setattr(crowd, "QUIET_S", QUIET_S)

    async def test(standing: Standing) -> None:
        await in_a_thread(partial(answer, standing.port))  # what is made once is there now
        await in_a_thread(partial(crowd.churn, standing.port, 30))
        await standing.gone()
        before = standing.counts()
        await in_a_thread(partial(crowd.churn, standing.port, 300))
        await standing.gone()
        assert standing.counts() == before

    with_a_node(test)


def test_clients_that_rest_cost_a_task_and_a_descriptor_each():
    async def test(standing: Standing) -> None:
        await in_a_thread(partial(answer, standing.port))
        await standing.gone()
        before = standing.counts()
        kinds = len(crowd.AMQP)
        held = []
        for number in range(200):
            kind = number % kinds
            client = crowd.connected(standing.port, number, crowd.AMQP[kind](False))
            await in_a_thread(partial(crowd.answered, client, crowd.LAST_WORDS[kind]))
            held.append(client)
        now = standing.counts()
        assert now["clients"] == before["clients"] + 200
        assert now["tasks"] == before["tasks"] + 200
        assert now["descriptors"] == before["descriptors"] + 2 * 200  # both ends are in this process
        for client in held:
            client.close()
        await standing.gone()
        assert standing.counts() == before

    with_a_node(test)


def test_connections_that_end_in_portions_are_answered_and_forgotten():
    async def test(standing: Standing) -> None:
        broker = standing.node.broker
        broker.long_work = LongWork(broker.clock, broker.timers, -1.0)  # each step is a portion
        asking, told, cut = [await trio.to_thread.run_sync(consuming, standing.port, name) for name in "atc"]
        asking.send(0, m.ConnectionClose(200, "bye", 0, 0))
        asking.send(0, m.ConnectionClose(200, "bye", 0, 0))  # it is read from meanwhile
        await in_a_thread(partial(asking.expect, m.ConnectionCloseOk))
        assert "a" not in broker.virtual_hosts["/"].queues
        cut.socket.close()
        standing.node.admin.close_connections("for a test")
        await in_a_thread(partial(told.expect, m.ConnectionClose))
        assert "t" not in broker.virtual_hosts["/"].queues
        told.send(0, m.ConnectionCloseOk())
        await standing.gone()
        while broker.clients:
            await trio.testing.wait_all_tasks_blocked()  # the one that was cut has no task to wait for
        assert not broker.channels_of.total()
        assert not broker.virtual_hosts["/"].queues
        asking.socket.close()
        told.socket.close()

    with_a_node(test)


def consuming(port: int, name: str) -> Wire:
    """Return a client with consumers of an exclusive queue of its own."""
    client = Wire(port)
    client.call(m.QueueDeclare(name, exclusive=True), m.QueueDeclareOk)
    for number in range(10):
        client.call(m.BasicConsume(name, f"c{number}"), m.BasicConsumeOk)
    return client


def test_strangers_who_dawdle_are_no_clients_and_keep_nobody_out():
    async def test(standing: Standing) -> None:
        await in_a_thread(partial(answer, standing.port))
        await standing.gone()
        before = standing.counts()
        strangers = [crowd.stranger(standing.port, number) for number in range(160)]
        for _ in range(5):
            await in_a_thread(partial(answer, standing.port))
            for each in strangers:
                crowd.drips(each)
        await trio.testing.wait_all_tasks_blocked()  # until the last who asked has been forgotten
        there = standing.counts()
        assert there["clients"] == 0
        assert 0 < there["connections"] <= 160
        for each in strangers:
            each.close()
        await standing.gone()
        assert standing.counts() == before

    with_a_node(test)
