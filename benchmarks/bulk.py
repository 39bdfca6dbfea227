"""Measure bulk reads of a stream over HTTP: messages and bytes per second, as blocks and Arrow, from memory and disk.

    python -m benchmarks.bulk
    python -m benchmarks.bulk --messages 1000000 --rounds 3

Meanwhile, round trips of single messages show the effect on other clients.
"""

from __future__ import annotations

import argparse
import base64
import tempfile
import threading
import time
from contextlib import closing
from http.client import HTTPConnection
from importlib.util import find_spec

from benchmarks.brokers import Running, free_port, leveret
from benchmarks.flood import Publisher, Wire, flood, turn
from benchmarks.tables import spread
from leveret.protocols.amqp091.codec import methods as m

MESSAGES = 300_000
SIZE = 100  # bytes of a body
WINDOW = 1000  # unconfirmed messages while the stream is filled
QUEUE = "bulk"
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
PROBES = 300  # single messages, meanwhile


def bulk(rounds: int, messages: int = MESSAGES) -> None:
    """Measure all kinds of reads, and print a table."""
    print(f"\n## {messages:,} messages of {SIZE} octets from a stream, median (lowest to highest)\n")
    print("| | messages per second | MB per second |\n|---|---:|---:|")
    formats = ["blocks", *(["arrow"] if find_spec("pyarrow") else [])]
    with tempfile.TemporaryDirectory() as folder:
        for title, flags in (("in memory", ("--memory",)), ("data folder", ("--data", folder))):
            http = free_port()
            with leveret(*flags, "--http", f"127.0.0.1:{http}") as broker:
                fill(broker.port, messages)
                for kind in formats:
                    measure(f"{title}, {kind}", http, kind, messages, rounds)
                if flags[0] == "--data":
                    responsiveness(broker, http)


def fill(port: int, messages: int) -> None:
    with closing((wire := Wire(port)).socket):
        wire.call(m.QueueDeclare(QUEUE, durable=True, arguments={"x-queue-type": "stream"}), m.QueueDeclareOk)
    publisher = Publisher(port, QUEUE, messages, SIZE, durable=True)
    while publisher.confirms.count < messages:
        turn(publisher, None, publisher.confirms.count + WINDOW)
    publisher.wire.socket.close()


def measure(title: str, port: int, kind: str, messages: int, rounds: int) -> None:
    rates, speeds = [], []
    for each in range(rounds + 1):
        started = time.perf_counter()
        octets = read(port, kind, messages)
        seconds = time.perf_counter() - started
        if each:  # the first round warms up
            rates.append(messages / seconds)
            speeds.append(octets / seconds / 1e6)
    print(f"| {title} | {spread(rates)} | {spread(speeds)} |", flush=True)


def read(port: int, kind: str, messages: int) -> int:
    """Read the whole stream; returns its bytes."""
    offset = octets = 0
    with closing(HTTPConnection("127.0.0.1", port)) as http:
        while offset < messages:
            path = f"/api/leveret/streams/%2F/{QUEUE}/blocks?from={offset}&format={kind}"
            http.request("GET", path, headers=LOGIN)
            answer = http.getresponse()
            octets += len(answer.read())
            offset = int(answer.headers["Leveret-Next"])
    return octets


def responsiveness(broker: Running, http: int) -> None:
    """Measure round trips of single messages through a queue, without and with two bulk readers."""
    alone = flood(broker.port, PROBES, window=1, prefetch=1)
    ended = threading.Event()

    def reader() -> None:
        while not ended.is_set():
            read(http, "blocks", 1)

    readers = [threading.Thread(target=reader) for _ in range(2)]
    for each in readers:
        each.start()
    try:
        meanwhile = flood(broker.port, PROBES, window=1, prefetch=1)
    finally:
        ended.set()
        for each in readers:
            each.join()
    means = [f"{1000 / rate:.2f} ms" for rate in (alone, meanwhile)]
    print(f"\nA round trip of one message takes {means[0]}, and {means[1]} while two read in bulk.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    bulk(given.rounds, given.messages)


if __name__ == "__main__":
    main()
