"""Attack a node in each way that strangers and careless clients have, and measure another client's confirms meanwhile.

    python -m benchmarks.attacks                       # all of them, a few minutes
    python -m benchmarks.attacks --only guess links

The client beside them publishes 500 transient messages a second. Its p99 among the attackers is compared with that
before and after them: at most twice as much, or 20 ms. On a busy machine the quiet p99 tells how busy it is; with
`--passes` it is measured how long each pass of the loop holds others up, in processor time of its thread, which other
load changes little.

    python -m benchmarks.attacks NAME PORT HTTP_PORT   # attackers alone, until standard input ends
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Final

import trio

from benchmarks import crowd, proofs, stalls
from benchmarks.brokers import ROOT
from benchmarks.flood import Wire, publish_frames
from benchmarks.latency import confirm_latency
from benchmarks.scale import Bounds, attached, conditions, opened, post
from leveret.config.config import parse
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.server.node.node import Node

RATE: Final = 500
MEASURED_S: Final = 3.0
BEGUN_S: Final = 1.0  # after the attackers have begun
TIMES_MAX: Final = 2.0
P99_MS_MAX: Final = 20.0
NICENESS: Final = 10  # of attackers, which usually have a processor of their own
LINKS: Final = 3000


def strangers(port: int, web: int) -> None:
    """Connections that say a byte now and then."""
    for number in range(200):
        crowd.drips(crowd.stranger(port, number))


def guess(port: int, web: int) -> None:
    """Guess passwords over HTTP and 0-9-1, of another user than the one who looks on.

    Whoever guesses more than 20 a second at a user's own address has new logins of that name wait (docs/security.md).
    """
    connection = http.client.HTTPConnection("127.0.0.1", web, timeout=30)
    connection.request("GET", "/api/whoami", headers={"Authorization": "Basic c2hvcDp3cm9uZw=="})
    connection.getresponse().read()
    connection.close()
    said = wire.method_frame(0, m.ConnectionStartOk({}, "PLAIN", b"\0shop\0wrong", "en_US").encode())
    crowd.connected(port, 0, b"AMQP\x00\x00\x09\x01" + said).close()


def garbage(port: int, web: int) -> None:
    """Send bytes that are no protocol, and protocols that go wrong."""
    for number in range(50):
        said = random.randbytes(4096) if number % 2 else crowd.login_091(False) + random.randbytes(4096)
        with contextlib.suppress(ConnectionError):
            crowd.connected(port, number, said).close()


def churn(port: int, web: int) -> None:
    """Connect and leave."""
    with contextlib.redirect_stdout(io.StringIO()):
        crowd.churn(port, 60)


def unread(port: int, web: int) -> None:
    """Ask for messages and large answers, and read nothing."""
    owner = Wire(port)
    owner.call(m.QueueDeclare("unread"), m.QueueDeclareOk)
    owner.socket.sendall(publish_frames("", "unread", 60_000, BasicProperties().encode()) * 200)
    for number in range(10):
        reader = Wire(port)
        reader.send(1, m.BasicConsume("unread", f"c{number}", no_ack=False))
        crowd.connected(web, number, crowd.request(False) * 20)
    time.sleep(0.2)
    owner.call(m.QueueDelete("unread"), m.QueueDeleteOk)
    owner.socket.close()


def headers(port: int, web: int) -> None:
    """Publish messages with thousands of headers to exchanges that look at them."""
    client = Wire(port)
    client.call(m.ExchangeDeclare("bombs", "headers"), m.ExchangeDeclareOk)
    client.call(m.QueueDeclare("bombed", arguments={"x-max-length": 5}), m.QueueDeclareOk)
    arguments = {f"h{number}": number for number in range(1000)}
    client.call(m.QueueBind("bombed", "bombs", "", arguments=arguments), m.QueueBindOk)
    properties = BasicProperties(headers=arguments).encode()
    client.socket.sendall(publish_frames("bombs", "", 10, properties) * 20)
    client.call(m.BasicQos(), m.BasicQosOk)
    client.socket.close()


def topics(port: int, web: int) -> None:
    """Publish keys of many words to a topic exchange with many wildcards."""
    client = Wire(port)
    client.call(m.ExchangeDeclare("words", "topic"), m.ExchangeDeclareOk)
    client.call(m.QueueDeclare("worded", arguments={"x-max-length": 5}), m.QueueDeclareOk)
    for number in range(1, 30):
        client.call(m.QueueBind("worded", "words", ".".join(["#", "*"] * number)[:250]), m.QueueBindOk)
    client.socket.sendall(publish_frames("words", ".".join("a" * 120), 10, b"\x00\x00") * 50)
    client.call(m.BasicQos(), m.BasicQosOk)
    client.socket.close()


def links(port: int, web: int) -> None:
    """Attach thousands of links, open thousands of channels, and hang up."""
    attached(port, 250)()
    opened(port, 2000)()


def definitions(port: int, web: int) -> None:
    """Import thousands of queues, and export them."""
    names = [f"imported-{number}" for number in range(2000)]
    post(
        web,
        "/api/definitions",
        json.dumps({"queues": [{"name": each, "vhost": "/"} for each in names]}).encode(),
    )
    proofs.ask(web, "/api/definitions")


def pages(port: int, web: int) -> None:
    """Ask for everything that there is, as JSON and as metrics."""
    for path in ("/api/queues", "/metrics/per-object", "/api/connections", "/api/overview", *proofs.PAGE):
        proofs.ask(web, path)


def transactions(port: int, web: int) -> None:
    """Roll large transactions back."""
    client = Wire(port)
    client.call(m.TxSelect(), m.TxSelectOk)
    client.call(m.QueueDeclare("rolled"), m.QueueDeclareOk)
    client.socket.sendall(publish_frames("", "rolled", 1000, BasicProperties().encode()) * 2000)
    client.call(m.TxRollback(), m.TxRollbackOk)
    client.socket.close()


def bodies(port: int, web: int) -> None:
    """Begin a large message on each of many channels, and leave it there."""
    client = Wire(port)
    for channel in range(2, 1000):
        client.send(channel, m.ChannelOpen())
    for channel in range(2, 1000):
        client.send(channel, m.BasicPublish("amq.fanout", ""))
        client.socket.sendall(wire.header_frame(channel, 60, 16_000_000, b"\x00\x00"))
        body = bytes(100_000)
        client.socket.sendall(pack(">BHI", m.FRAME_BODY, channel, len(body)) + body + b"\xce")
    client.socket.close()


ATTACKS: Final[dict[str, Callable[[int, int], None]]] = {
    each.__name__: each
    for each in (
        strangers,
        guess,
        garbage,
        churn,
        unread,
        headers,
        topics,
        links,
        definitions,
        pages,
        transactions,
        bodies,
    )
}


@contextlib.contextmanager
def attackers(name: str, port: int, web: int) -> Iterator[None]:
    """Run attackers in a process of their own."""
    command = [
        "nice",
        "-n",
        str(NICENESS),
        sys.executable,
        "-m",
        "benchmarks.attacks",
        name,
        str(port),
        str(web),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        process.stdout.readline()  # they have begun
        time.sleep(BEGUN_S)
        yield
        if process.poll() is not None:
            raise SystemExit(f"the attackers of '{name}' have ended")
    finally:
        process.kill()
        process.wait()


def attack(name: str, port: int, web: int) -> None:
    """Attack again and again until standard input ends."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print("begun", flush=True)
    while not over.is_set():
        ATTACKS[name](port, web)
        time.sleep(0.01)


class Passes(trio.abc.Instrument):
    """The processor time of each pass of the loop, from one wait for input to the next, in milliseconds."""

    def __init__(self) -> None:
        self.taken_ms: list[float] = []
        self._began_at = time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        self.taken_ms.append((time.thread_time() - self._began_at) * 1000)

    def after_io_wait(self, timeout: float) -> None:
        self._began_at = time.thread_time()


async def passes(names: list[str]) -> Bounds:
    """Measure the passes of the loop of a node in this process, under each attack."""
    bounds = Bounds()
    logging.disable()  # what the node has to say of attackers
    for name in names:
        async with Node(parse(stalls.CONFIG), owns_loop=True) as node:
            port = int(node.addresses[0].rpartition(":")[2])
            seen = Passes()

            def attacked(name: str = name, port: int = port) -> None:
                with attackers(name, port, port):
                    time.sleep(MEASURED_S)

            trio.lowlevel.add_instrument(seen)
            await trio.to_thread.run_sync(attacked)
            trio.lowlevel.remove_instrument(seen)
        longest = statistics.quantiles(seen.taken_ms, n=100)[98]
        bounds.figure(f"{name}: a pass of the loop, p99", longest, "ms", P99_MS_MAX / 2)
    return bounds


def measured(names: list[str]) -> Bounds:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as folder, proofs.node(Path(folder)) as (node, web):

        def p99_ms() -> float:
            return confirm_latency(node.port, rate=RATE, seconds=MEASURED_S, durable=False).p99

        before = p99_ms()
        for name in names:
            with attackers(name, node.port, web):
                among = p99_ms()
            time.sleep(BEGUN_S)
            after = p99_ms()
            quiet = statistics.mean((before, after))
            bounds.figure(
                f"{name}: p99 alone {quiet:.1f} ms, among them",
                among,
                "ms",
                max(P99_MS_MAX, TIMES_MAX * quiet),
            )
            before = after
    return bounds


def main() -> int:
    crowd.all_descriptors()
    if len(sys.argv) == 4 and sys.argv[1] in ATTACKS:
        attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS], default=[*ATTACKS])
    parser.add_argument("--passes", action="store_true", help="measure the loop, not a client")
    given = parser.parse_args()
    print(conditions())
    found: Bounds = trio.run(passes, given.only) if given.passes else measured(given.only)
    return found.conclude()


if __name__ == "__main__":
    sys.exit(main())
