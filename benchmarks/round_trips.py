"""Measure a message's way through a queue and back, again and again until standard input ends (0-9-1).

    python -m benchmarks.round_trips 5672        prints: count, and p50, p99 and the longest in ms

To be run beside something else, in a process of its own, so that only the broker and the processor are shared.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

from benchmarks.flood import Wire, delivery_size, properties, publish_frames
from leveret.protocols.amqp091.codec import methods as m

SIZE = 100  # bytes of the body
PAUSE_S = 0.005  # between two of them
QUEUE = "round-trips"


def main() -> None:
    wire = Wire(int(sys.argv[1]))
    wire.call(m.QueueDeclare(QUEUE, exclusive=True), m.QueueDeclareOk)
    wire.call(m.BasicConsume(QUEUE, "c", no_ack=True), m.BasicConsumeOk)
    frames = publish_frames("", QUEUE, SIZE, properties(durable=False))
    octets = delivery_size("c", "", QUEUE, SIZE, properties(durable=False))
    took: list[float] = []
    print("begun", flush=True)
    while not select.select([sys.stdin], (), (), PAUSE_S)[0]:
        began = time.perf_counter()
        wire.socket.sendall(frames)
        left = octets
        while left:
            left -= len(wire.socket.recv(left))
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(len(took), took[len(took) // 2], took[len(took) * 99 // 100], took[-1])


@contextmanager
def round_trips(port: int) -> Iterator[list[float]]:
    """Run round trips within the context; afterwards the list has count, p50, p99 and the longest, in milliseconds."""
    found: list[float] = []
    probe = Popen(
        [sys.executable, "-m", "benchmarks.round_trips", str(port)], stdin=PIPE, stdout=PIPE, text=True
    )
    assert probe.stdout is not None
    probe.stdout.readline()
    try:
        yield found
    finally:
        said, _ = probe.communicate()
        found += map(float, said.split())


if __name__ == "__main__":
    main()
