"""Measure a node in a small container: more durable messages than fit, and consumers that answer late or never.

The node runs in a control group of its own with a limit on memory, where the kernel ends it as in a container; that
needs root, and control groups that can be written. A queue is filled. One consumer without a prefetch takes what it
gets, answers nothing, and goes. Twenty share the queue then, answer what they have once nothing more comes, and go on
until it is empty.

    python -m benchmarks containers                                     # 256 MiB, 2 000 000 messages of 100 B
    python -m benchmarks containers --container 512 --kept 500000 --body 1000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import pack
from typing import Final

from benchmarks.brokers import Running, leveret, resident_kib
from benchmarks.flood import BASIC_ACK, READ, Publisher, Wire, declare_afresh, delivery_size, properties, turn
from leveret.alarms import MIB
from leveret.protocols.amqp091.codec import methods as m

QUEUE: Final = "containers"
WINDOW: Final = 1000  # unconfirmed messages
SHARING: Final = 20  # consumers
QUIET_S: Final = 3.0  # without a delivery: nothing more comes until there are answers
GROUPS: Final = Path("/sys/fs/cgroup")


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """Make a control group with a limit of memory in bytes, and remove it afterwards."""
    old = GROUPS / "memory"
    top, file = (old, "memory.limit_in_bytes") if old.is_dir() else (GROUPS, "memory.max")
    group = top / f"leveret-{os.getpid()}"
    group.mkdir()
    try:
        (group / file).write_text(str(limit))
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


class Phase:
    """One phase of the measurement, and the most memory that the node had in it."""

    def __init__(self, broker: Running, name: str) -> None:
        self.broker, self.name, self.most = broker, name, 0
        self._looked = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked > 0.01:
            self._looked, self.most = now, max(self.most, resident_kib(self.broker.process))

    def end(self, remark: str = "", wait_s: float = 0.0) -> None:
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            self.look()
            time.sleep(0.05)
        self.look()
        now = resident_kib(self.broker.process) / 1024
        print(
            f"{self.name:<36} {self.most / 1024:5,.0f} MiB at most, {now:5,.0f} at last  {remark}", flush=True
        )


class Taker:
    """A consumer without a prefetch, which answers when it is told to."""

    def __init__(self, port: int, size: int) -> None:
        self.wire = Wire(port)
        self._step = delivery_size("c", "", QUEUE, size, properties(True))
        self.wire.call(m.BasicConsume(QUEUE, "c"), m.BasicConsumeOk)
        self._octets = len(self.wire.buffer)
        self.wire.socket.setblocking(False)
        self.answered = 0

    @property
    def received(self) -> int:
        return self._octets // self._step

    def receive(self) -> bool:
        try:
            octets = self.wire.socket.recv(READ)
        except BlockingIOError:
            return False
        if not octets:
            raise ConnectionError("the broker has gone")
        self._octets += len(octets)
        return True

    def answer(self) -> None:
        if self.received > self.answered:
            self.answered = self.received
            ack = BASIC_ACK + pack(">QB", self.answered, 1)
            self.wire.socket.send(b"\x01\x00\x01\x00\x00\x00\x0d" + ack + b"\xce")


def filled(broker: Running, messages: int, size: int) -> None:
    phase = Phase(broker, f"{messages:,} messages of {size:,} B")
    declare_afresh(broker.port, QUEUE, durable=True)
    publisher = Publisher(broker.port, QUEUE, messages, size, durable=True)
    while publisher.confirms.count < messages:
        turn(publisher, None, publisher.confirms.count + WINDOW, timeout_s=1.0)
        phase.look()
    publisher.wire.socket.close()
    phase.end()


def taken(phase: Phase, takers: list[Taker], is_enough: Callable[[], bool]) -> None:
    """Read what the consumers get, until it is enough or nothing more comes."""
    last = time.monotonic()
    while time.monotonic() - last < QUIET_S and not is_enough():
        try:
            came = sum([taker.receive() for taker in takers])
        except ConnectionError:
            print(f"{phase.name}: the broker has gone after {phase.most / 1024:,.0f} MiB", flush=True)
            raise
        if came:
            last = time.monotonic()
        else:
            time.sleep(0.005)
        phase.look()


def kept(broker: Running, messages: int, size: int) -> None:
    """Have one consumer take what it gets, and go without an answer."""
    phase = Phase(broker, "one consumer that never answers")
    taker = Taker(broker.port, size)
    taken(phase, [taker], lambda: taker.received >= messages)
    phase.end(f"{taker.received:,} unacknowledged")
    phase = Phase(broker, "it has gone")
    taker.wire.socket.close()
    phase.end(wait_s=10.0)


def drained(broker: Running, messages: int, size: int) -> None:
    phase = Phase(broker, f"{SHARING} consumers that answer late")
    takers = [Taker(broker.port, size) for _ in range(SHARING)]

    def all_taken() -> bool:
        return sum([taker.received for taker in takers]) >= messages

    rounds = 0
    while not all_taken():
        taken(phase, takers, all_taken)
        rounds += 1
        before = [taker.received for taker in takers]
        for taker in takers:
            taker.answer()
        if not sum(before):
            raise SystemExit("nobody gets anything")
    for taker in takers:
        taker.answer()
    phase.end(f"{rounds} rounds")
    phase = Phase(broker, "empty")
    phase.end(wait_s=10.0)
    for taker in takers:
        taker.wire.socket.close()


def main(given: argparse.Namespace) -> None:
    """Measure one container."""
    messages, size = given.kept, given.body
    print(f"\n## A container of {given.container} MiB\n")
    with (
        tempfile.TemporaryDirectory(dir=given.disk) as folder,
        control_group(given.container * MIB) as group,
        leveret("--data", str(Path(folder, "data")), group=group) as broker,
    ):
        Phase(broker, "started").end()
        filled(broker, messages, size)
        kept(broker, messages, size)
        drained(broker, messages, size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("containers")
    group.add_argument("--container", type=int, default=256, help="MiB")
    group.add_argument("--kept", type=int, default=2_000_000, help="messages")
    group.add_argument("--body", type=int, default=100, help="bytes")
    group.add_argument("--disk", type=Path, help="a folder on a disk, for the data")
