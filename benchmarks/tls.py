"""Measure the cost of TLS: the same flood in clear and encrypted, on two listeners of one node, in turn.

python -m benchmarks tls
"""

from __future__ import annotations

import select
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import Running, free_port, leveret, resident_kib
from benchmarks.flood import Wire, flood
from benchmarks.secured import LEVERET, certified
from benchmarks.tables import head, row

LOADS: tuple[tuple[str, int, dict[str, int | bool]], ...] = (
    ("100 B, confirms and acks", 100_000, {}),
    ("100 B, neither", 200_000, {"confirms": False, "acks": False}),
    ("10 kB, neither", 20_000, {"confirms": False, "acks": False, "size": 10_000}),
    ("100 B, one at a time", 3_000, {"window": 1, "prefetch": 1}),
)
HELD = 500


class Secured:
    """A client's socket with TLS, for the flood: it waits for the rest of a record, and never for a whole one."""

    def __init__(self, context: ssl.SSLContext, where: tuple[str, int]) -> None:
        self._socket = context.wrap_socket(socket.create_connection(where), server_hostname="localhost")

    def recv(self, size: int) -> bytes:
        while True:
            try:
                return self._socket.recv(size)
            except ssl.SSLWantReadError:
                select.select([self._socket], [], [])

    def send(self, octets: bytes) -> int:
        try:
            return self._socket.send(octets)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


@contextmanager
def speaking(connect: Callable[[tuple[str, int]], object]) -> Iterator[None]:
    """Have the flood connect with this function."""
    Wire.connect = staticmethod(connect)
    try:
        yield
    finally:
        Wire.connect = staticmethod(socket.create_connection)


def main(rounds: int) -> None:
    """Measure throughput, handshakes, and memory of idle connections."""
    print("\n## In clear and over TLS, transient messages per second\n")
    with tempfile.TemporaryDirectory() as made:
        folder, plain, secured = Path(made), free_port(), free_port()
        context = certified(folder)
        (folder / "leveret.toml").write_text(LEVERET.format(plain=plain, secured=secured))
        ends = {secured: ("TLS 1.3", partial(Secured, context)), plain: ("plain", socket.create_connection)}
        flags = ("--config", str(folder / "leveret.toml"))
        for port, (name, connect) in ends.items():
            with leveret(*flags, configured_port=plain) as node:
                print(f"{name}: {_opened(attrs.evolve(node, port=port), connect)}\n")
        with leveret(*flags, configured_port=plain) as node:
            brokers = [attrs.evolve(node, name=name, port=port) for port, (name, _) in ends.items()]
            head("transient messages", brokers)
            for title, messages, load in LOADS:

                def measure(
                    end: Running, messages: int = messages, load: dict[str, int | bool] = load
                ) -> float:
                    with speaking(ends[end.port][1]):
                        return flood(end.port, messages, **load)  # type: ignore[arg-type]

                row(title, brokers, rounds, measure)


def _opened(end: Running, connect: Callable[[tuple[str, int]], object]) -> str:
    """Measure the time to log in and open a channel, and the memory of a connection afterwards."""
    with speaking(connect):
        for _ in range(20):
            Wire(end.port).socket.close()
        before, times, held = resident_kib(end.process), [], []
        for _ in range(HELD):
            started = time.perf_counter()
            held.append(Wire(end.port))
            times.append(time.perf_counter() - started)
        each = (resident_kib(end.process) - before) / HELD
        for wire in held:
            wire.socket.close()
    return f"{statistics.median(times) * 1000:.2f} ms to open a connection with a channel, {each:.1f} KiB at rest"
