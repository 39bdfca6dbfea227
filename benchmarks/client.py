"""Measure what `leveret perf` itself costs: messages per second of its processor time, to a sink and from a source.

Both are separate processes that only read, or write the same bytes over and over. In a measurement the client has both
ends, and so carries about as many messages as 1 / (1 / one + 1 / other).
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from benchmarks.tables import spread
from leveret.perf.amqp091 import Connection091, publish_pattern
from leveret.perf.block import Block
from leveret.perf.connection import Inbox
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally
from leveret.perf.plan import Plan, Url
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties

MESSAGES = 1_000_000
SIZE = 100
BLOCK = 128 << 10  # bytes
ALIKE = 500  # messages with the same time, as an unpaced publisher sends them
PLAN = Plan(Url("127.0.0.1", 5672, "guest", "guest", "/"))


def client(rounds: int) -> None:
    print(
        f"\n## The client alone: messages of {SIZE} B per second of its processor time, median (lowest to highest)\n"
    )
    print(f"published: {spread([published() for _ in range(rounds)])}")
    print(f"received: {spread([received() for _ in range(rounds)])}")


def published() -> float:
    with peer(_swallow) as made:
        tally = Tally(0)
        block = Block([publish_pattern(PLAN, 1, 0, "perf-0", SIZE, 131072)], BLOCK, False)
        source = PublisherEnd(block, tally, MESSAGES, 0, None)
        connection = _connection(made, tally)
        connection.sources = [source]
        started = time.process_time()
        while source.sent < MESSAGES or connection.is_full:
            connection.push(time.monotonic_ns())
            if connection.is_full:
                select.select([], [made], [])
        return MESSAGES / (time.process_time() - started)


def received() -> float:
    with peer(_pour) as made:
        tally = Tally(0)
        connection = _connection(made, tally)
        connection.subscriptions = {1: ConsumerEnd("perf-0", tally, 0, 0, None)}
        started = time.process_time()
        while tally.received < MESSAGES:
            select.select([made], [], [])
            connection.receive(time.monotonic_ns())
        return MESSAGES / (time.process_time() - started)


def _connection(made: socket.socket, tally: Tally) -> Connection091:
    talk: Any = SimpleNamespace(socket=made, buffer=b"")
    return Connection091(talk, Inbox(), tally)


def _swallow(end: socket.socket) -> None:
    room = bytearray(1 << 20)
    while end.recv_into(room):
        pass


def _pour(end: socket.socket) -> None:
    out: list[bytes] = []
    for tag in range(2 * ALIKE):
        method = m.BasicDeliver("perf-00001", tag + 1, False, "", "perf-0").encode()
        body = (1 + tag // ALIKE).to_bytes(8, "little") + b"x" * (SIZE - 8)
        wire.append_content(out, 1, method, BasicProperties(delivery_mode=1).encode(), body, 131072)
    octets = b"".join(out)
    for _ in range(MESSAGES // (2 * ALIKE)):
        end.sendall(octets)
    end.recv(1)  # until the other end is closed


@contextmanager
def peer(work: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """Connect to a process that runs this function."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            try:
                work(listener.accept()[0])
            finally:
                os._exit(0)
        made = socket.create_connection(listener.getsockname())
    try:
        yield made
    finally:
        made.close()
        os.waitpid(child, 0)
