"""Show on this machine what the operations page promises, with crowds that rest, come and go, dawdle, or monitor.

python -m benchmarks proofs                        # all six, some minutes
python -m benchmarks proofs --only idle churn
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import IO, TypeAlias

from benchmarks import stalls
from benchmarks.brokers import ROOT, Running, free_port, leveret, processor_s, resident_kib
from benchmarks.crowd import GUEST, all_descriptors, tell
from benchmarks.flood import Wire, flood
from benchmarks.latency import Latencies, confirm_latency
from benchmarks.tables import spread
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire

AT_REST_S = 5.0
SETTLED_S = 3.0  # after a crowd has gone
SCRAPED_S = 1.0
LOOKED = 5  # scrapes between two requests of the page
ROUND_S = 3.0  # of a flood, alone or watched
BATCH_S = 2.0  # of a client's confirms, among strangers or not
NICENESS = 10  # of onlookers and dawdlers, which usually have a processor of their own
PATIENCE_S = 110.0

CONFIG = """
[[listeners]]
address = "127.0.0.1:{port}"
protocols = ["amqp091", "amqp10", "http"]
[http]
address = "127.0.0.1:{http}"
[log]
level = "error"
"""
PAGE = (  # the page's requests while it is open
    "/api/overview?lengths_age=600&lengths_incr=5&msg_rates_age=600&msg_rates_incr=5",
    "/api/queues?page=1&page_size=100&pagination=true",
    "/api/connections?page=1&page_size=100&pagination=true",
    "/api/nodes",
)
Told: TypeAlias = dict[str, float]


@contextlib.contextmanager
def node(folder: Path) -> Iterator[tuple[Running, int]]:
    """Run a node that serves every protocol on one port; yields it and its other port, for HTTP alone."""
    port, web = free_port(), free_port()
    file = folder / "leveret.toml"
    file.write_text(CONFIG.format(port=port, http=web))
    flags = ("--config", str(file), "--http", f"127.0.0.1:{web}")
    with leveret(*flags, configured_port=port) as running:
        yield running, web


@contextlib.contextmanager
def crowd(what: str, port: int, count: int, niceness: int = 0) -> Iterator[Callable[[], Told]]:
    """Run a crowd in a process of its own; yields a function that waits for its next report."""
    nice = ["nice", "-n", str(niceness)]
    command = [*nice, sys.executable, "-m", "benchmarks.crowd", what, str(port), str(count)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield lambda: heard(process.stdout)
        process.stdin.close()
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def heard(told: IO[str] | None) -> Told:
    assert told is not None
    line = told.readline()
    if not line:
        raise SystemExit("a client process has failed")
    found: Told = json.loads(line)
    return found


def descriptors(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def threads(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/task"))


def descriptors_left(process: int) -> int:
    """Return how many descriptors a node has when clients have gone, and it has had the time to notice."""
    left, deadline = descriptors(process), time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(SETTLED_S)
        before, left = left, descriptors(process)
        if left == before:
            break
    return left


# The proofs.


def idle(folder: Path, count: int = 10_000) -> int:
    """Measure connections that have logged in, opened a channel or a session, and send nothing.

    Returns how many descriptors are left when they have gone.
    """
    with node(folder) as (running, _):
        process = running.process
        before = resident_kib(process)
        with crowd("rest", running.port, count // 2) as one, crowd("rest", running.port, count // 2) as other:
            seconds = max(one()["seconds"], other()["seconds"])
            each = (resident_kib(process) - before) / count
            used, started = processor_s(process), time.perf_counter()
            time.sleep(AT_REST_S)
            busy = (processor_s(process) - used) / (time.perf_counter() - started)
            held = descriptors(process)
            latency = confirm_latency(running.port, rate=500, seconds=3, durable=False)
        left = descriptors_left(process)
    print(f"\n## {count} idle connections, 0-9-1 and 1.0\n")
    print(f"accepted and logged in within {seconds:.1f} s ({count / seconds:.0f} a second)")
    print(f"{each:.1f} KiB each; {held} descriptors, {left} when they had gone")
    print(f"at rest {busy:.1%} of a core; a client among them: confirm p99 {latency.p99:.1f} ms")
    return left


def churn(folder: Path, count: int = 100_000) -> dict[str, tuple[int, int]]:
    """Measure connections that come and go, in three protocols and three manners.

    Returns memory in KiB, descriptors, threads and connections, each before and afterwards.
    """
    with node(folder) as (running, web):
        process = running.process
        with crowd("churn", running.port, count // 20) as warm:
            warm()
        time.sleep(SETTLED_S)
        before = resident_kib(process), descriptors(process), threads(process)
        with (
            crowd("churn", running.port, count // 2) as one,
            crowd("churn", running.port, count // 2) as other,
        ):
            seconds = max(one()["seconds"], other()["seconds"])
        time.sleep(SETTLED_S)
        after = resident_kib(process), descriptors(process), threads(process)
        status = json.loads(ask(web, "/api/leveret/status"))
    print(f"\n## {count} connects: 0-9-1, 1.0 and HTTP; closed, cut off, and cut off during the login\n")
    print(f"{seconds:.0f} s, {count / seconds:.0f} a second")
    for what, was, now in zip(("memory, KiB", "descriptors", "threads"), before, after, strict=True):
        print(f"{what}: {was} before, {now} afterwards")
    print(f"connections that the node still counts: {status['connections']}")
    whats = ("memory", "descriptors", "threads")
    return {
        **dict(zip(whats, zip(before, after, strict=True), strict=True)),
        "connections": (0, status["connections"]),
    }


def loris(folder: Path, count: int = 400, rounds: int = 8) -> None:
    """Measure a client's confirms while strangers dawdle: headers, frames and bodies that never end.

    Each batch among them is compared with those before and after it. The difference between two quiet batches in a row
    is printed as well: less than that means nothing.
    """
    besieged, each, shares = [], [], []
    with node(folder) as (running, _):

        def batch() -> Latencies:
            return confirm_latency(running.port, rate=500, seconds=BATCH_S, durable=False)

        quiet = [batch() for _ in range(2)][1:]
        for _ in range(rounds):
            before = resident_kib(running.process)
            with crowd("dawdle", running.port, count, NICENESS) as strangers:
                strangers()
                time.sleep(1)
                used, started = processor_s(running.process), time.perf_counter()
                besieged.append(batch())
                shares.append((processor_s(running.process) - used) / (time.perf_counter() - started))
                each.append((resident_kib(running.process) - before) / count)
            time.sleep(SETTLED_S)
            quiet.append(batch())
    print(f"\n## {count} strangers who dawdle, and one client's confirms at 500 a second\n")
    for what in ("p50", "p99"):
        alone, among = ([getattr(found, what) for found in founds] for founds in (quiet, besieged))
        ratio = statistics.median(b / (q + r) * 2 for b, q, r in zip(among, alone, alone[1:], strict=False))
        noise = statistics.median(max(q, r) / min(q, r) for q, r in pairwise(alone))
        print(f"{what} alone {spread(alone, 2)} ms, among them {spread(among, 2)} ms: {ratio:.2f} times")
        print(f"  (the median of {rounds}; two quiet ones in a row differ {noise:.2f} times)")
    print(f"the node, with them and the client: {spread([100 * share for share in shares], 1)} % of a core")
    print(f"memory for each stranger {spread(each, 1)} KiB, at most")


def looked_on(folder: Path, rounds: int = 8, queues: int = 200) -> None:
    """Measure throughput, alone and with metrics scraped each second and the page open, in turn.

    The node's processor time for a message is its cost, whatever else the machine does; wall-clock time includes the
    onlooker's own work.
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    with node(folder) as (running, web), onlooker(web) as looks:
        declare(running.port, queues)
        messages = round(flood(running.port, 50_000) * ROUND_S)
        for number in range(rounds):
            for is_watched in (False, True) if number % 2 else (True, False):
                looks(is_watched)
                used = processor_s(running.process)
                rates[is_watched].append(flood(running.port, messages))
                costs[is_watched].append((processor_s(running.process) - used) / messages * 1e6)
        looks(True)
        used, started = processor_s(running.process), time.perf_counter()
        time.sleep(2 * LOOKED * SCRAPED_S)
        share = (processor_s(running.process) - used) / (time.perf_counter() - started)
    print("\n## Throughput while metrics are scraped each second and the page is open\n")
    for what, found, digits in (("messages a second", rates, 0), ("the node's us for each", costs, 2)):
        ratio = statistics.median(w / a for w, a in zip(found[True], found[False], strict=True))
        noise = statistics.median(max(a, b) / min(a, b) for a, b in pairwise(found[False]))
        alone, watched = spread(found[False], digits), spread(found[True], digits)
        print(f"{what}: alone {alone}, looked on {watched}: {ratio - 1:+.1%}, the median of {rounds} pairs")
        print(f"  (two alone in a row differ by {noise - 1:.1%})")
    print(f"looking on takes {share:.1%} of the node's core when it does nothing else")


def pages(folder: Path, queues: int = 10_000, connections: int = 1000, rounds: int = 10) -> None:
    """Measure pages of 100 of many queues and connections, and the longest wait of another client meanwhile."""
    with node(folder) as (running, web):
        declare(running.port, queues)
        with crowd("rest", running.port, connections) as held:
            held()
            calm = longest_wait(running.port, lambda: time.sleep(2))
            print(f"\n## A page of 100 of {queues} queues and {connections} connections\n")
            print(f"longest wait of another client meanwhile: nothing asked: {calm:.1f} ms")
            for path in (*PAGE[1:3], PAGE[1] + "&sort=messages&sort_reverse=true", PAGE[1] + "&name=99"):
                took: list[float] = []

                def asked(path: str = path, took: list[float] = took) -> None:
                    for _ in range(rounds):
                        started = time.perf_counter()
                        ask(web, path)
                        took.append((time.perf_counter() - started) * 1000)

                longest = longest_wait(running.port, asked)
                print(f"{path}: {spread(took, 1)} ms; longest wait of another client {longest:.1f} ms")


# Onlookers and waiting clients.


def ask(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Authorization": f"Basic {GUEST}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise SystemExit(f"GET {path}: {response.status} {body[:200]!r}")
    return body


@contextlib.contextmanager
def onlooker(port: int) -> Iterator[Callable[[bool], None]]:
    """Run a process that scrapes metrics and requests what the page does, while it is told to; it begins paused."""
    command = ["nice", "-n", str(NICENESS), sys.executable, "-m", "benchmarks.proofs", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def looks(may: bool) -> None:
        if process.poll() is not None:
            raise SystemExit("the onlooker has failed")
        process.send_signal(signal.SIGCONT if may else signal.SIGSTOP)

    try:
        heard(process.stdout)  # it has made its first requests
        looks(False)
        yield looks
        looks(True)
    finally:
        process.kill()
        process.wait()


def look_on(port: int) -> None:
    """Scrape for ever, and make the page's requests at every `LOOKED`th scrape; the time of a pause does not count."""
    for second in count():
        started = time.perf_counter()
        ask(port, "/metrics")
        if second % LOOKED == 0:
            for path in PAGE:
                ask(port, path)
        if second == 0:
            tell(looked=started)
        time.sleep(max(0.0, SCRAPED_S - (time.perf_counter() - started)))


def declare(port: int, queues: int) -> None:
    owner = Wire(port)
    for first in range(0, queues, 500):
        names = [f"queue-{number:05}" for number in range(first, min(first + 500, queues))]
        frames = (wire.method_frame(1, m.QueueDeclare(name, no_wait=True).encode()) for name in names)
        owner.socket.sendall(b"".join(frames))
        owner.call(m.BasicQos(), m.BasicQosOk)
    owner.socket.close()


def longest_wait(port: int, meanwhile: Callable[[], object]) -> float:
    """Return the longest wait of a client's small requests, one after another, during `meanwhile`, in milliseconds."""
    client, over = Wire(port), threading.Event()

    def work() -> None:
        try:
            meanwhile()
        finally:
            over.set()

    worker = threading.Thread(target=work)
    worker.start()
    longest = 0.0
    while not over.is_set():
        started = time.perf_counter()
        client.call(m.BasicQos(), m.BasicQosOk)
        longest = max(longest, time.perf_counter() - started)
        time.sleep(0.001)
    worker.join()
    client.socket.close()
    return longest * 1000


PROOFS: dict[str, Callable[[Path], object]] = {
    "idle": idle,
    "churn": churn,
    "loris": loris,
    "metrics": looked_on,
    "pages": pages,
    "stalls": stalls.main,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=[*PROOFS], default=[*PROOFS], help="of the proofs")


def main(given: argparse.Namespace) -> None:

    all_descriptors()
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            PROOFS[name](Path(folder))


if __name__ == "__main__":
    look_on(int(sys.argv[1]))
