"""Measure what a message over MQTT costs brokers: Leveret, mosquitto, and RabbitMQ with its plug-in, in turns.

    make bench ARGS="mqtt --rounds 3"

The client is `leveret perf`, one process, with version 3.1.1, which all three speak. Each broker has its defaults, but
for as many messages on their way to a client as the others have; Leveret has a data folder. What has QoS 0 is paced, as
brokers drop it where a client is slower than its publishers; what has QoS 1 goes as fast as it is acknowledged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.brokers import (
    MQTT_HELLO,
    family,
    free_port,
    has_mosquitto,
    has_rabbitmq,
    leveret,
    mosquitto,
    rabbitmq,
    wait_for,
)
from benchmarks.compare import Broker, load, times
from benchmarks.scale import on_processor_s
from benchmarks.tables import BREATH_S, spread

IN_FLIGHT: Final = 1000  # messages of QoS 1 on their way to a client
ACKNOWLEDGED: Final = "--ack-every 1"
LINES: Final[Mapping[str, str]] = {
    "QoS 0, one to one, 20,000/s": "--rate 20000 --messages 40000",
    "QoS 0, one to ten, 5,000/s": "--rate 5000 --consumers 10 --messages 10000",
    "QoS 0, ten to one, 20,000/s": "--rate 2000 --publishers 10 --messages 3000",
    "QoS 0, one to one, 60,000/s": "--rate 60000 --messages 120000",
    "QoS 0, one to ten, 15,000/s": "--rate 15000 --consumers 10 --messages 30000",
    "QoS 0, ten to one, 60,000/s": "--rate 6000 --publishers 10 --messages 9000",
    "QoS 1, one to one": f"--confirms 1000 {ACKNOWLEDGED} --messages 40000",
    "QoS 1, one to ten": f"--confirms 100 {ACKNOWLEDGED} --consumers 10 --messages 6000",
    "QoS 1, ten to one": f"--confirms 100 {ACKNOWLEDGED} --publishers 10 --messages 3000",
    "QoS 1, 1000 topics to one": f"--confirms 1000 {ACKNOWLEDGED} --messages 40000 --drain 2"
    " --keys devices/%d/out --key-count 1000 --bind devices/+/out",
    "QoS 1, one to one, 5,000/s": f"--rate 5000 --confirms 1000 {ACKNOWLEDGED} --messages 10000",
    "QoS 1, one session that lasts": f"--persistent --confirms 1000 {ACKNOWLEDGED} --messages 20000",
}


@contextmanager
def brokers() -> Iterator[list[Broker]]:
    """Start those that are here, Leveret first."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        configured = folder / "leveret.toml"
        listener = f'[[listeners]]\naddress = "127.0.0.1:{port}"\nprotocols = ["amqp091", "mqtt"]\n'
        configured.write_text(listener)
        flags = ("--config", str(configured), "--data", str(folder / "data"))
        ours = stack.enter_context(leveret(*flags, configured_port=port))
        found = [_reached(ours.name, port, ours.process)]
        if has_mosquitto():
            settings = (f"max_inflight_messages {IN_FLIGHT}", "max_queued_messages 0")
            other = stack.enter_context(mosquitto(*settings))
            found.append(_reached(other.name, other.port, other.process))
        if has_rabbitmq():
            port = free_port()
            said = f"mqtt.listeners.tcp.1 = 127.0.0.1:{port}\nmqtt.prefetch = {IN_FLIGHT}\n"
            other = stack.enter_context(rabbitmq("rabbitmq_mqtt", settings=said))
            wait_for(port, MQTT_HELLO)
            found.append(_reached(other.name, port, other.process))
        yield found


def _reached(name: str, port: int, process: int) -> Broker:
    return Broker(name, f"mqtt://guest:guest@127.0.0.1:{port}/", process)


@attrs.frozen
class Measured:
    """One load of a broker: its processor time for a message in microseconds, and messages per second."""

    cost_us: float
    rate: float


def measured(broker: Broker, said: str) -> Measured:
    """Load a broker. Raises SystemExit if a message is lost: what is dropped costs little."""
    assert broker.process is not None
    before = spent_s(broker.process)
    told = load(broker, f"--quiet --drain 20 {said}")
    time.sleep(BREATH_S)  # what the broker still does belongs to it
    spent = spent_s(broker.process) - before
    sent, received = told["messages"]["sent"], told["messages"]["received"]
    copies = 10 if "--consumers 10" in said else 1
    if received < copies * sent:
        raise SystemExit(f"{broker.name}: {received} of {copies * sent} messages with {said}")
    return Measured(1e6 * spent / sent, told["rates"]["sent"]["mean"])


def spent_s(process: int) -> float:
    """Return the processor time of a broker and its children."""
    return sum(on_processor_s(each) for each in family(process))


def mqtt(rounds: int) -> None:
    """Print a table of processor times, and one of rates."""
    print("\n## Over MQTT, 100 bytes\n")
    with brokers() as found:
        names = [broker.name for broker in found]
        _head("processor time of the broker for a message, us", names)
        rates = []
        for title, said in LINES.items():
            results: dict[str, list[Measured]] = {name: [] for name in names}
            for each in range(rounds + 1):
                for broker in found if each % 2 else reversed(found):
                    result = measured(broker, said)
                    if each:  # the first round warms up
                        results[broker.name].append(result)
            costs = {name: [each.cost_us for each in column] for name, column in results.items()}
            print(f"| {title} | {_cells(costs, 1)} |", flush=True)
            speeds = {name: [each.rate for each in column] for name, column in results.items()}
            rates.append(f"| {title} | {_cells(speeds, 0)} |")
    print()
    _head("messages per second", names)
    print("\n".join(rates))


def _head(title: str, names: Sequence[str]) -> None:
    print(f"| {title} | {' | '.join(names)} |{''.join(f' to {name} |' for name in names[1:])}")
    print(f"|---|{'---:|' * (2 * len(names) - 1)}")


def _cells(columns: Mapping[str, list[float]], digits: int) -> str:
    """Return the cells of a row: each broker's median and spread, and the medians of the ratios round by round."""
    ours, *others = columns
    shown = [spread(column, digits) for column in columns.values()]
    return " | ".join(shown + [f"{times(dict(columns), ours, other):.2f}" for other in others])
