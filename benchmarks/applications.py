"""Measure what applications do, with a client that costs little: peer091.c, on rabbitmq-c, a write for each publish.

Each message has ids, a time and headers of its own, unless a line says that they are alike. The client is compiled for
the occasion (Debian: apt-get install gcc librabbitmq-dev). Leveret has a data folder. Printed are the processor time
that the broker takes for a message, with its way in and out, and messages per second; for requests, the median of a
round trip. A second table has some of the lines over TLS.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks import secured
from benchmarks.brokers import Running, family_processor_s, free_port, has_rabbitmq, leveret, rabbitmq
from benchmarks.flood import Wire
from benchmarks.tables import BREATH_S, spread
from leveret.protocols.amqp091.codec import methods as m

SOURCE: Final = Path(__file__).with_name("peer091.c")
EXCHANGE: Final = "applications"
QUEUE: Final = "applications.%d"
ASKED: Final = "peer091.asked"  # the queue of requests, as the client calls it
REQUESTS: Final = 4000
TIMEOUT_S: Final = 60


@attrs.frozen
class Line:
    """A load. `kind`: of the exchange that it goes through, if it does not go straight to the queues. Each publisher
    sends to all queues in turn (`turns`), or to one."""

    title: str
    messages: int = 60_000
    publishers: int = 1
    consumers: int = 1
    queues: int = 1
    turns: bool = True
    confirms: int = 1000
    prefetch: int = 200
    ack_every: int = 50
    copies: int = 1
    persistent: bool = False
    own: bool = True
    sizes: tuple[int, int] = (100, 100)
    kind: str = ""


LINES: Final = (
    Line("alike, acks of 50", own=False),
    Line("alike, each acknowledged", own=False, ack_every=1),
    Line("own ids and headers, acks of 50"),
    Line("own ids and headers, each acknowledged", ack_every=1),
    Line(
        "own, each acknowledged, ten pairs on ten queues",
        publishers=10,
        consumers=10,
        queues=10,
        turns=False,
        ack_every=1,
    ),
    Line(
        "own, each acknowledged, topic exchange, 10 queues and consumers, 4 publishers",
        publishers=4,
        consumers=10,
        queues=10,
        ack_every=1,
        kind="topic",
    ),
    Line(
        "own, each acknowledged, headers exchange, 10 queues and consumers, 4 publishers",
        publishers=4,
        consumers=10,
        queues=10,
        ack_every=1,
        kind="headers",
    ),
    Line(
        "own, each acknowledged, 20 consumers on a queue, prefetch 10", consumers=20, prefetch=10, ack_every=1
    ),
    Line("own, fanout to 10 queues (a message)", 15_000, consumers=10, queues=10, copies=10, kind="fanout"),
    Line(
        "own, persistent, 200 to 2000 B, window 200",
        30_000,
        confirms=200,
        persistent=True,
        sizes=(200, 2000),
    ),
    Line("alike, persistent, 100 B, acks of 50", persistent=True, own=False),
    Line("alike, persistent, 1 KiB, acks of 50", 30_000, persistent=True, own=False, sizes=(1024, 1024)),
    Line("persistent, confirmed one by one, acks of 100", 3000, confirms=1, ack_every=100, persistent=True),
    Line("alike, 64 KiB, window 100, acks of 50", 10_000, confirms=100, own=False, sizes=(65_536, 65_536)),
)
WITH_TLS: Final = (
    Line("alike, acks of 50", own=False),
    Line("own ids and headers, each acknowledged", ack_every=1),
    Line("alike, acks of 50, four pairs", publishers=4, consumers=4, queues=4, turns=False, own=False),
    Line("alike, 64 KiB, window 100, acks of 50", 5000, confirms=100, own=False, sizes=(65_536, 65_536)),
)


@contextmanager
def client() -> Iterator[str | None]:
    """Yield the path of the compiled client; None, with a line that says why, where it cannot be compiled."""
    if not shutil.which("cc") or not shutil.which("pkg-config"):
        print("no C compiler, or no pkg-config, for the client; not measured", file=sys.stderr)
        yield None
        return
    asked = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "librabbitmq"], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        print("no librabbitmq for the client (Debian: apt-get install librabbitmq-dev)", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/peer091"
        flags = ["-O2", "-pthread", "-o", program, str(SOURCE), *shlex.split(asked.stdout)]
        subprocess.run(["cc", *flags], check=True)
        yield program


@attrs.frozen
class Secured:
    """A way to a broker over TLS: another port of it, and the file of the authority of its certificate."""

    port: int
    authority: Path


def load(program: str, broker: Running, line: Line, way: Secured | None = None) -> tuple[float, float]:
    """Return the broker's processor time for a message in microseconds, and messages per second."""
    prepare(broker.port, line)
    before = family_processor_s(broker.process)
    took_s = float(ran(program, "load", way, broker.port, *command_of(line))[0])
    time.sleep(BREATH_S)  # what the broker still does belongs to it
    return 1e6 * (family_processor_s(broker.process) - before) / line.messages, line.messages / took_s


def command_of(line: Line) -> list[object]:
    """Return what the client is told of a load, after the port."""
    key = {"": QUEUE, "topic": "eu.%d.x"}.get(line.kind, "")
    return [
        *(line.messages // line.publishers, line.publishers, line.consumers, line.queues),
        *(int(line.turns), line.confirms),
        *(line.prefetch, line.ack_every, line.copies, int(line.persistent), int(line.own), *line.sizes),
        *(EXCHANGE if line.kind else "", key, QUEUE),
    ]


def ask(program: str, broker: Running, way: Secured | None = None) -> tuple[float, float]:
    """Return the broker's processor time for a request with its reply, and the median of the round trips, in us."""
    wire = Wire(broker.port)
    wire.call(m.QueueDeclare(ASKED), m.QueueDeclareOk)
    wire.socket.close()
    before = family_processor_s(broker.process)
    median_us = float(ran(program, "ask", way, broker.port, REQUESTS)[0])
    time.sleep(BREATH_S)
    return 1e6 * (family_processor_s(broker.process) - before) / REQUESTS, median_us


def prepare(port: int, line: Line) -> None:
    """Make the exchange and the queues of a load afresh."""
    wire = Wire(port)
    wire.call(m.ExchangeDelete(EXCHANGE), m.ExchangeDeleteOk)
    if line.kind:
        wire.call(m.ExchangeDeclare(EXCHANGE, line.kind), m.ExchangeDeclareOk)
    for number in range(line.queues):
        name = QUEUE % number
        wire.call(m.QueueDelete(name), m.QueueDeleteOk)
        wire.call(m.QueueDeclare(name, durable=line.persistent), m.QueueDeclareOk)
        if line.kind:
            wanted = (
                {"x-match": "all", "tenant": f"t{number}", "attempt": 1} if line.kind == "headers" else {}
            )
            wire.call(m.QueueBind(name, EXCHANGE, f"eu.{number}.#", arguments=wanted), m.QueueBindOk)
    wire.socket.close()


def ran(program: str, what: str, way: Secured | None, port: int, *arguments: object) -> list[str]:
    """Run the client, and return the words that it prints."""
    port, more = (port, {}) if way is None else (way.port, {"PEER091_CA": str(way.authority)})
    command = [program, what, str(port), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env={**os.environ, **more}
    )
    if done.returncode:
        raise SystemExit(f"the client of the benchmark failed: {done.stderr.strip()}")
    return done.stdout.split()


def measured(
    brokers: list[Running], rounds: int, measure: Callable[[Running], tuple[float, float]]
) -> Mapping[str, list[tuple[float, float]]]:
    """Return what was measured by broker; the brokers take turns, and the first round warms up."""
    found: dict[str, list[tuple[float, float]]] = {broker.name: [] for broker in brokers}
    for each in range(rounds + 1):
        for broker in brokers if each % 2 else reversed(brokers):
            pair = measure(broker)
            if each:
                found[broker.name].append(pair)
    return found


def cells(found: Mapping[str, list[tuple[float, float]]], which: int, digits: int) -> str:
    """Return the cells of a row: each broker's median and spread, and the median of the ratios round by round."""
    columns = [[pair[which] for pair in pairs] for pairs in found.values()]
    shown = [spread(column, digits) for column in columns]
    if len(columns) > 1:
        shown.append(f"{statistics.median(a / b for a, b in zip(*columns, strict=True)):.2f}")
    return " | ".join(shown)


def applications(rounds: int) -> None:
    """Print a table of processor times and rates, and one of some lines over TLS."""
    with ExitStack() as stack:
        program = stack.enter_context(client())
        if program is None:
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain, port = free_port(), free_port()
        secured.certified(folder)
        authority = folder / "authority.pem"
        configured = folder / "leveret.toml"
        configured.write_text(secured.LEVERET.format(plain=plain, secured=port))
        flags = ("--config", str(configured), "--data", str(folder / "data"))
        brokers = [stack.enter_context(leveret(*flags, configured_port=plain))]
        ways = {brokers[0].name: Secured(port, authority)}
        if has_rabbitmq():
            port = free_port()
            brokers.append(
                stack.enter_context(rabbitmq(settings=secured.RABBITMQ.format(port=port, folder=folder)))
            )
            ways[brokers[1].name] = Secured(port, authority)
        print("\n## What applications do, with a client in C\n")
        _table(program, brokers, rounds, LINES, {})
        print("\n## Over TLS 1.3\n")
        _table(program, brokers, rounds, WITH_TLS, ways)


def _table(
    program: str, brokers: list[Running], rounds: int, lines: Sequence[Line], ways: Mapping[str, Secured]
) -> None:
    """Print a row for each line, and one for requests."""
    titles = [f"{what}, {each.name}" for what in ("us a message", "messages/s") for each in brokers]
    if len(brokers) > 1:
        titles.insert(2, "ratio")
        titles.append("ratio")
    print(f"| | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for line in lines:
        found = measured(
            brokers,
            rounds,
            lambda broker, line=line: load(program, broker, line, ways.get(broker.name)),  # type: ignore[misc]
        )
        print(f"| {line.title} | {cells(found, 0, 1)} | {cells(found, 1, 0)} |", flush=True)
    found = measured(brokers, rounds, lambda broker: ask(program, broker, ways.get(broker.name)))
    print(
        f"| request and reply; p50 of a round trip, us | {cells(found, 0, 1)} | {cells(found, 1, 0)} |",
        flush=True,
    )
