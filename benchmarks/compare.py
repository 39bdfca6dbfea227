"""Compare brokers: run `leveret perf` on each in turn, round after round, and print a table and draw a picture.

    python -m benchmarks compare --rounds 5 --brokers leveret,rabbitmq --picture docs/images/compare.svg
    python -m benchmarks compare --lines transient,durable --brokers leveret,other=amqp://guest:guest@127.0.0.1:5673

The client is `leveret perf` with one process. Each broker gets as many messages as it carries in about `--seconds`, and
the time is that from the first publish to the last delivery and confirm.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.brokers import Running, family_processor_s, has_rabbitmq, lavinmq, leveret, rabbitmq
from benchmarks.charts import bars
from benchmarks.crowd import all_descriptors
from benchmarks.tables import BREATH_S, spread
from leveret.perf import cli
from leveret.perf.command import measure, plan_of
from leveret.perf.conductor import Second
from leveret.perf.errors import PerfError

FIRST: Final = 2_000  # messages, to see how fast a broker is
SETTINGS = {"rabbitmq": ("rabbitmq_amqp1_0",)}


@attrs.frozen
class Line:
    """A measurement. `published`: msg/s of RabbitMQ 3.10 and LavinMQ 2.9, natively, in the issue's benchmarks."""

    title: str
    load: str
    published: tuple[int, int] | None = None
    copies: int = 1  # of each message that are delivered


REAL: Final = "--real --single-writes --confirms 1000 --ack-every 50"
SINGLE: Final = "--real --single-writes --single-acks --confirms 1000 --ack-every 1"
LINES: Final[Mapping[str, Line]] = {
    "real": Line("own ids and headers, acks of 50", REAL),
    "real-single": Line("own ids and headers, each acknowledged", SINGLE),
    "real-topic": Line(
        "the same, topic exchange, 10 queues, 10 consumers, 4 publishers",
        f"{SINGLE} --exchange perf --type topic --keys eu.%d.x --bind eu.%d.# --key-count 10"
        " --queues 10 --consumers 10 --publishers 4",
    ),
    "real-shared": Line(
        "the same, 20 consumers on a queue, prefetch 10", f"{SINGLE} --consumers 20 --prefetch 10"
    ),
    "real-fanout": Line(
        "own ids and headers, fanout to 10 queues",
        f"{REAL} --exchange perf --type fanout --queues 10 --consumers 10",
        copies=10,
    ),
    "real-durable": Line(
        "own ids and headers, persistent, 200 to 2000 B, window 200",
        "--real --single-writes --persistent --size 200-2000 --confirms 200 --ack-every 50",
    ),
    "real-amqp10": Line(
        "AMQP 1.0, own ids and properties, unsettled", "--protocol 1.0 --real --confirms 1000 --ack-every 50"
    ),
    "transient": Line("transient, 100 B, neither confirms nor acks", "", (118_000, 704_000)),
    "confirmed": Line(
        "transient, 100 B, confirms and acks", "--confirms 1000 --ack-every 50", (68_000, 261_000)
    ),
    "durable": Line(
        "persistent, 100 B, confirms and acks",
        "--persistent --confirms 1000 --ack-every 50",
        (40_000, 273_000),
    ),
    "durable-1k": Line(
        "persistent, 1 KiB, confirms and acks",
        "--persistent --size 1024 --confirms 1000 --ack-every 50",
        (25_000, 139_000),
    ),
    "one-by-one": Line(
        "persistent, 100 B, one by one",
        "--persistent --confirms 1 --prefetch 1 --ack-every 1",
        (2_100, 3_200),
    ),
    "large": Line(
        "transient, 64 KiB, confirms and acks", "--size 65536 --confirms 100 --ack-every 50", (13_900, 3_500)
    ),
    "amqp10": Line("AMQP 1.0, 100 B, unsettled", "--protocol 1.0 --confirms 1000 --ack-every 50"),
}
MANY: Final = 1000
WINDOWS: Final = (1000, 10)  # of each publisher of these


@attrs.frozen
class Broker:
    """A running broker. `process` is None if it was not started here."""

    name: str
    url: str
    process: int | None
    flags: str = ""


@contextmanager
def brokers(names: Sequence[str], tree: Path | None) -> Iterator[list[Broker]]:
    """Start the requested brokers that are installed, each with its defaults, and ours with a data folder."""
    with ExitStack() as stack:
        found = []
        for name in names:
            label, is_url, url = name.partition("=")
            if is_url:
                found.append(Broker(label, url, None))
            elif name == "leveret":
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                kept = {} if tree is None else {"tree": tree}
                found.append(_started(stack.enter_context(leveret("--data", folder, **kept))))
            elif name == "rabbitmq" and has_rabbitmq():
                made = _started(stack.enter_context(rabbitmq(*SETTINGS[name])))
                found.append(attrs.evolve(made, flags="--address /amq/queue/%s"))
            elif name == "lavinmq" and shutil.which("lavinmq"):
                found.append(_started(stack.enter_context(lavinmq())))
            else:
                print(f"{name} is not here, and not measured")
        yield found


def _started(running: Running) -> Broker:
    return Broker(running.name, f"amqp://guest:guest@127.0.0.1:{running.port}/", running.process)


def options_of(broker: Broker, said: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.COMMAND.add_to(parser, {})
    flags = broker.flags if "1.0" in said else ""
    return parser.parse_args(f"--url {broker.url} --delete {said} {flags}".split())


def load(broker: Broker, said: str, on_second: Callable[[Second], None] = lambda second: None) -> Any:
    """Return the report of `leveret perf`."""
    told, _ = measure(plan_of(options_of(broker, said)), on_second)
    return told


def carried(broker: Broker, line: Line, messages: int) -> tuple[float, float]:
    """Return messages per second, once all have arrived, and the broker's processor time for one, in microseconds."""
    before = _processor(broker)
    told = load(broker, f"{line.load} --messages {messages}")
    spent = _processor(broker) - before
    if told["messages"]["received"] != line.copies * told["messages"]["sent"]:
        raise SystemExit(f"{broker.name}: {told['messages']} with {line.load}")
    rate: float = told["rates"]["received"]["mean"] / line.copies
    return rate, 1e6 * spent / told["messages"]["sent"]


def messages_for(broker: Broker, line: Line, seconds: float) -> int:
    """Return how many messages a publisher sends in about `seconds`; measuring that also warms the broker up."""
    count, publishers = FIRST, options_of(broker, line.load).publishers
    for share in (4, 1):
        count = max(FIRST, int(carried(broker, line, count)[0] * seconds / share / publishers))
    return count


Rates = dict[str, list[float]]  # by broker


def lines(
    found: Sequence[Broker], names: Sequence[str], rounds: int, seconds: float
) -> tuple[dict[str, Rates], dict[str, Rates]]:
    """Print the table of rates, a row as soon as it is measured, and that of processor times.

    Return both, by line. The brokers take turns, with the order reversed in every other round.
    """
    ours = [broker.name for broker in found]
    others = ours[1:]
    print(f"\n| messages/s, median (lowest to highest) | {' | '.join(ours)} |", end="")
    print(
        "".join(f" to {name} |" for name in others) + (" published: LavinMQ to RabbitMQ |" if others else "")
    )
    print(f"|---|{'---:|' * (len(ours) + len(others) + bool(others))}")
    results: dict[str, Rates] = {}
    costs: dict[str, Rates] = {}
    for name in names:
        line = LINES[name]
        counts = {broker.name: messages_for(broker, line, seconds) for broker in found}
        rates = results[name] = {broker: [] for broker in ours}
        cost = costs[name] = {broker: [] for broker in ours}
        for each in range(rounds):
            for broker in found if each % 2 else reversed(found):
                rate, spent = carried(broker, line, counts[broker.name])
                rates[broker.name].append(rate)
                cost[broker.name].append(spent)
                time.sleep(BREATH_S)
        cells = [spread(each) for each in rates.values()]
        cells += [f"{times(rates, ours[0], other):.2f}" for other in others]
        if others:
            cells.append(f"{line.published[1] / line.published[0]:.2f}" if line.published else "-")
        print(f"| {line.title} | {' | '.join(cells)} |", flush=True)
    _print_costs(found, costs)
    return results, costs


def _print_costs(found: Sequence[Broker], costs: Mapping[str, Rates]) -> None:
    """Print processor times of the brokers that were started here."""
    known = [broker.name for broker in found if broker.process is not None]
    if not known:
        return
    print(f"\n| processor time of the broker for a message, us | {' | '.join(known)} |", end="")
    print("".join(f" to {name} |" for name in known[1:]))
    print(f"|---|{'---:|' * (2 * len(known) - 1)}")
    for name, cost in costs.items():
        cells = [spread(cost[each], 1) for each in known]
        cells += [f"{times(cost, known[0], other):.2f}" for other in known[1:]]
        print(f"| {LINES[name].title} | {' | '.join(cells)} |", flush=True)


def times(rates: Rates, one: str, other: str) -> float:
    """Return the median of the ratios by round."""
    return statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True))


# Many connections.


def many(found: Sequence[Broker], rounds: int, seconds: float) -> dict[str, Rates]:
    """Measure a message's cost with a thousand publishers, consumers and queues, beside one of each."""
    print(
        f"\n| messages/s, 100 B | a pair | {MANY} pairs on {MANY} queues | a message's processor time, to the pair's |"
    )
    print("|---|---:|---:|---:|")
    results: dict[str, Rates] = {}
    for broker in found:
        for window in WINDOWS:
            name = f"{broker.name}, window {window}"
            try:
                rates = results[name] = _crowded(broker, window, rounds, max(seconds, 3.0))
            except PerfError as error:
                print(f"| {name}: {error.text} | - | - | - |", flush=True)
                continue
            cost = spread(rates["cost"], 2) if broker.process else "-"
            print(f"| {name} | {spread(rates['one'])} | {spread(rates['many'])} | {cost} |", flush=True)
    return results


def _crowded(broker: Broker, window: int, rounds: int, seconds: float) -> Rates:
    """Return messages per second of one pair and of many, each with a window, and how their costs compare.

    The prefetch equals the window: if it were smaller, publishers would outrun their consumers, and waiting in queues
    would be measured.
    """
    said = f"--confirms {window} --prefetch {window} --ack-every {min(window // 2, 50)} --time {seconds} --warm-up 1"
    crowd = f"--publishers {MANY} --consumers {MANY} --queues {MANY}"
    rates: Rates = {"one": [], "many": [], "cost": []}
    for _ in range(rounds):
        one, alone = _with_cost(broker, said)
        many, crowded = _with_cost(broker, f"{crowd} {said}")
        rates["one"].append(one)
        rates["many"].append(many)
        rates["cost"].append(crowded / alone if alone else 0.0)
    return rates


def _with_cost(broker: Broker, said: str) -> tuple[float, float]:
    """Return messages per second, and the broker's processor time for one, once all are connected and warm."""
    spent: list[tuple[float, int]] = []  # at the end of a second, and what was sent and received in it

    def on_second(second: Second) -> None:
        spent.append((_processor(broker), second.counts["sent"] + second.counts["received"]))

    told = load(broker, said, on_second)
    messages = sum(both / 2 for _, both in spent[1:])
    return told["rates"]["received"]["mean"], (spent[-1][0] - spent[0][0]) / messages


def _processor(broker: Broker) -> float:
    """Return a broker's processor time; none if it was not started here."""
    if broker.process is None:
        return 0.0
    return family_processor_s(broker.process)


# Fairness.


def fairness(found: Sequence[Broker], rounds: int, seconds: float) -> dict[str, Rates]:
    """Measure latencies of a paced connection while another one floods the broker."""
    print(
        "\n| 500 messages/s, confirmed and acknowledged: p99 of deliveries, ms | alone | beside a firehose |"
    )
    print("|---|---:|---:|")
    paced = f"--queue-name paced --rate 500 --confirms 1000 --ack-every 1 --time {seconds} --warm-up 1"
    results: dict[str, Rates] = {}
    for broker in found:
        rates: Rates = {"alone": [], "beside": []}
        for _ in range(rounds):
            rates["alone"].append(_p99(broker, paced))
            with firehose(broker, seconds + 5):
                rates["beside"].append(_p99(broker, paced))
        results[broker.name] = rates
        print(f"| {broker.name} | {spread(rates['alone'], 1)} | {spread(rates['beside'], 1)} |", flush=True)
    return results


def _p99(broker: Broker, said: str) -> float:
    p99: float = load(broker, said)["delivery_us"]["p99"]
    return p99 / 1000


@contextmanager
def firehose(broker: Broker, seconds: float) -> Iterator[None]:
    """Run a process that publishes as fast as it can, and consumes."""
    child = os.fork()
    if not child:
        try:
            load(broker, f"--queue-name firehose --time {seconds} --ack-every 0 --keep")
        finally:
            os._exit(0)
    time.sleep(1.0)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        load(broker, "--queue-name firehose --messages 1")


# All of it.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    adding = parser.add_argument_group("compare")
    adding.add_argument(
        "--brokers", default="leveret,rabbitmq,lavinmq", help="names, or NAME=amqp://..., with commas"
    )
    adding.add_argument(
        "--lines", default=",".join((*LINES, "many", "fairness")), help="default: %(default)s"
    )
    adding.add_argument("--seconds", type=float, default=2.0, help="of a measurement, about")
    adding.add_argument(
        "--tree", type=Path, metavar="FOLDER", help="another version of Leveret, or one compiled"
    )
    adding.add_argument(
        "--picture", type=Path, metavar="FILE", help="write it as .svg or .png; needs leveret[charts]"
    )
    adding.add_argument("--results", type=Path, metavar="FILE", help="write all figures as JSON")


def main(given: argparse.Namespace) -> None:
    names = given.lines.split(",")
    unknown = set(names) - {*LINES, "many", "fairness"}
    if unknown:
        raise SystemExit(f"no such lines: {', '.join(sorted(unknown))}")
    print("\n## Brokers side by side")
    all_descriptors()  # the brokers inherit the limit
    results: dict[str, dict[str, Rates]] = {}
    with brokers(given.brokers.split(","), given.tree) as found:
        wanted = [name for name in names if name in LINES]
        if wanted:
            results["lines"], results["costs"] = lines(found, wanted, given.rounds, given.seconds)
        if "many" in names:
            results["many"] = many(found, given.rounds, given.seconds)
        if "fairness" in names:
            results["fairness"] = fairness(found, given.rounds, max(given.seconds, 3.0))
    if given.results:
        given.results.write_text(json.dumps(results, indent=2) + "\n")
    if given.picture and wanted:
        titles = {name: LINES[name].title for name in wanted}
        bars(given.picture, titles, results["lines"])
