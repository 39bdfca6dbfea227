"""Measure the longest turn of the loop, in processor time, while operators send requests.

A node runs in this process, with 10,000 queues and 1000 connections; every long request of the HTTP API is made once.
The time is that of the loop's own thread, so other load on the machine does not count. The turns take longer than they
would elsewhere: the client is in the same process.

    python -m benchmarks proofs --only stalls
"""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path

import trio

from benchmarks import crowd
from leveret.config.config import parse
from leveret.memory_tuning import spare_the_collector
from leveret.server.node.node import Node

QUEUES = 10_000
CONNECTIONS = 1000
SAMPLED_S = 11.0  # histories get a sample each five seconds
CONFIG = """
[[listeners]]
address = "127.0.0.1:0"
protocols = ["amqp091", "amqp10", "http"]
[http]
address = "127.0.0.1:0"
[log]
level = "error"
"""
PAGE = "page=1&page_size=100"
PATHS = (
    "/api/overview",
    "/api/nodes",
    f"/api/queues?{PAGE}",
    f"/api/queues?{PAGE}&sort=messages&sort_reverse=true",
    f"/api/queues?{PAGE}&sort=message_stats.publish_details.rate",
    f"/api/queues?{PAGE}&name=9&use_regex=true",
    f"/api/connections?{PAGE}&sort=name",
    f"/api/channels?{PAGE}",
    "/api/queues",
    "/api/connections",
    "/api/bindings",
    "/api/definitions",
    "/api/leveret/status",
    "/metrics",
    "/metrics/per-object",
    "/metrics/detailed?family=queue_coarse_metrics",
)


class Probe(trio.abc.Instrument):
    """The longest turn of a task so far, in seconds of its thread."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_at = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_at = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest_s = max(self.longest_s, time.thread_time() - self._began_at)

    def taken_ms(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s * 1000


def main(folder: Path) -> None:
    print(f"\n## The loop's longest turn, with {QUEUES} queues and {CONNECTIONS} connections\n")
    print("| asked for | octets | the whole, ms | longest turn, ms |")
    print("|---|---:|---:|---:|")
    trio.run(measure)


async def measure() -> None:
    async with Node(parse(CONFIG)) as node:
        host = node.broker.virtual_host("/")
        for number in range(QUEUES):
            host.declare_queue(f"queue-{number:05}", durable=True)
        port = int(node.addresses[0].rpartition(":")[2])
        clients = [await client(port, number) for number in range(CONNECTIONS)]
        spare_the_collector()
        probe = Probe()
        trio.lowlevel.add_instrument(probe)
        for path in PATHS:
            probe.taken_ms()
            started = time.perf_counter()
            octets = await trio.to_thread.run_sync(ask, port, path)
            took_ms = (time.perf_counter() - started) * 1000
            print(f"| `{path}` | {octets:,} | {took_ms:.0f} | {probe.taken_ms():.1f} |", flush=True)
        await trio.sleep(SAMPLED_S)
        print(f"| nothing, for {SAMPLED_S:.0f} s | - | - | {probe.taken_ms():.1f} |")
        for each in clients:
            each.close()


async def client(port: int, number: int) -> socket.socket:
    kind = number % len(crowd.AMQP)
    made = crowd.connected(port, number, crowd.AMQP[kind](False))
    await trio.to_thread.run_sync(crowd.answered, made, crowd.LAST_WORDS[kind])
    return made


def ask(port: int, path: str) -> int:
    """Make a request; returns the bytes of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Basic {crowd.GUEST}"})
    response = connection.getresponse()
    octets = len(response.read())
    connection.close()
    if response.status != 200:
        raise SystemExit(f"GET {path}: {response.status}")
    return octets
