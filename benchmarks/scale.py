"""Go once to the numbers that Leveret is said to hold, print what each costs, and fail where a bound is broken.

    make scale                                        # all of it, compiled: 10 to 30 minutes, and some gigabytes
    python -m benchmarks.scale --only queues links    # plain
    python -m benchmarks.scale --share 0.01           # a hundredth of each number, to try it

| | |
|---|---|
| queues | 100,000 durable queues imported by HTTP; how long clients wait meanwhile; a message's cost; a restart |
| links | 65,535 links of an AMQP 1.0 session, and 65,535 channels of an AMQP 0-9-1 connection |
| connections | 10,000 that rest |
| devices | 10,000 clients of MQTT that rest, each with a subscription |
| retained | 1,000,000 retained messages of MQTT; how long clients wait while one subscribes to all of them; a restart |
| connects | 100,000, in three protocols and three manners |
| messages | 3,000,000 durable ones, filled and drained, with the memory watermark at its default |

The bounds are in bytes and in ratios of processor time, which other load on the machine changes little.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from struct import pack, unpack_from
from typing import Final

from benchmarks import paging, proofs
from benchmarks.brokers import Running, free_port, leveret, peak_kib, resident_kib
from benchmarks.crowd import GUEST, LAST_WORDS, all_descriptors, answered, connected, frame_10, login_10
from benchmarks.flood import Wire, flood
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.mqtt.codec import packets as mqtt
from leveret.protocols.mqtt.codec.reader import PublishRun, Reader
from leveret.server.node.build_info import built

QUEUES: Final = 100_000
LINKS: Final = 65_535
CONNECTIONS: Final = 10_000
CONNECTS: Final = 100_000
MESSAGES: Final = 3_000_000
RETAINED: Final = 1_000_000

QUEUE_KIB_MAX: Final = 2.0  # of memory, each
LINK_KIB_MAX: Final = 8.0
DEARER_MAX: Final = 1.35  # processor time of a message, against that without queues or links
WAIT_MS_MAX: Final = 500.0  # of a client meanwhile,
CALM_TIMES: Final = 5.0  # or so many times what it waits anyway, on a machine that does other things
DEVICE_KIB_MAX: Final = 16.0  # of memory, each client of MQTT with its session, queue and binding
RETAINED_MAX: Final = 300.0  # bytes of memory, each besides its payload
PAYLOAD: Final = 20  # bytes
GROWN_KIB_MAX: Final = 32 * 1024  # that stay after 100,000 connects: the allocator's reserve is half of it
WATERMARK: Final = 0.4  # of the memory, by default
OVER_MAX: Final = 1.2  # times the watermark
SAMPLE: Final = 30_000  # messages whose processor time is taken: little enough that some happen in peace
SAMPLES: Final = 11
AT_REST_MAX: Final = 5.0  # percent of a core, of a node whose clients do nothing
CONFIG: Final = """
[protocols.amqp091]
channel_max = 65535
[protocols.amqp10]
link_max = 65536
[limits]
consumers_per_channel_max = "unlimited"
[log]
level = "error"
"""


class Bounds:
    """Tells figures, and remembers those that are beyond their bounds."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def figure(self, what: str, value: float, unit: str, most: float | None = None) -> None:
        text = f"{what}: {value:,.2f} {unit}" if value < 100 else f"{what}: {value:,.0f} {unit}"
        if most is not None and value > most:
            self.broken.append(f"{text}, and {most:,.0f} is the most")
            text += f", MORE THAN {most:,.0f}"
        print(text, flush=True)

    def conclude(self) -> int:
        """Tell which bounds were broken, and return the exit code."""
        print("\n".join(self.broken) or "no bound was broken")
        return 1 if self.broken else 0


def cost_us(broker: Running) -> float:
    """Return the node's processor time for a transient message in and out, in microseconds: the least of some.

    What the node does every few seconds, such as looking at what there is, takes longer than some messages do. It is
    measured by itself (`at_rest`), and is not to decide what they cost.
    """
    costs = []
    for _ in range(SAMPLES):
        used = on_processor_s(broker.process)
        flood(broker.port, SAMPLE)
        costs.append((on_processor_s(broker.process) - used) / SAMPLE * 1e6)
    return min(costs)


def queues(bounds: Bounds, folder: Path, share: float) -> None:
    count = max(1, round(QUEUES * share))
    data = ("--data", str(folder / "data"))
    names = (f"queue-{number:06}" for number in range(count))
    body = json.dumps({"queues": [{"name": name, "vhost": "/", "durable": True} for name in names]}).encode()
    web = free_port()
    with leveret(*data, "--http", f"127.0.0.1:{web}") as broker:
        cheap, before = cost_us(broker), resident_kib(broker.process)
        calm = proofs.longest_wait(broker.port, lambda: time.sleep(3))
        started, used = time.perf_counter(), on_processor_s(broker.process)
        longest = proofs.longest_wait(broker.port, lambda: post(web, "/api/definitions", body))
        bounds.figure(f"{count:,} queues imported", time.perf_counter() - started, "s")
        bounds.figure("processor time for them", on_processor_s(broker.process) - used, "s")
        bounds.figure("longest wait of another client meanwhile", longest, "ms", patience_ms(calm))
        bounds.figure("a queue", (resident_kib(broker.process) - before) / count, "KiB", QUEUE_KIB_MAX)
        bounds.figure("at rest", 100 * at_rest(broker), "% of a core", AT_REST_MAX)
        bounds.figure("a message, against none of them", cost_us(broker) / cheap, "times", DEARER_MAX)
    started = time.perf_counter()
    with leveret(*data, "--http", f"127.0.0.1:{web}") as broker:
        bounds.figure("started again with them", time.perf_counter() - started, "s")
        bounds.figure("processor time until then", on_processor_s(broker.process), "s")
        found = json.loads(proofs.ask(web, "/api/leveret/status"))["queues"]
        bounds.figure("queues that are missing then", count - found, "", 0)


def patience_ms(calm: float) -> float:
    """Return how long a client may wait, from what its longest wait is when nothing happens."""
    return max(WAIT_MS_MAX, CALM_TIMES * calm)


def on_processor_s(process: int) -> float:
    """Return the time that a process's threads were on a processor, to the nanosecond (Linux)."""
    spent = (path.read_text().split()[0] for path in Path(f"/proc/{process}/task").glob("*/schedstat"))
    return sum(map(int, spent)) / 1e9


def at_rest(broker: Running, seconds: float = 5.0) -> float:
    used, started = on_processor_s(broker.process), time.perf_counter()
    time.sleep(seconds)
    return (on_processor_s(broker.process) - used) / (time.perf_counter() - started)


def post(port: int, path: str, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, body, {"Authorization": f"Basic {GUEST}"})
    response = connection.getresponse()
    told = response.read()
    connection.close()
    if response.status >= 300:
        raise SystemExit(f"POST {path}: {response.status} {told[:200]!r}")


def links(bounds: Bounds, folder: Path, share: float) -> None:
    count = max(1, round(LINKS * share))
    config = folder / "leveret.toml"
    config.write_text(CONFIG)
    for what, attach in (("link", attached), ("channel", opened)):
        with leveret("--memory", "--config", str(config)) as broker:
            cheap, before = cost_us(broker), resident_kib(broker.process)
            calm = proofs.longest_wait(broker.port, lambda: time.sleep(3))
            started = time.perf_counter()
            close = attach(broker.port, count)
            bounds.figure(f"{count:,} {what}s", time.perf_counter() - started, "s")
            each = (resident_kib(broker.process) - before) / count
            bounds.figure(f"a {what}", each, "KiB", LINK_KIB_MAX)
            bounds.figure("at rest", 100 * at_rest(broker), "% of a core", AT_REST_MAX)
            bounds.figure("a message, against none of them", cost_us(broker) / cheap, "times", DEARER_MAX)
            longest = proofs.longest_wait(broker.port, lambda close=close: (close(), time.sleep(3)))  # type: ignore[misc]
            what = "longest wait of another client when they go at once"
            bounds.figure(what, longest, "ms", patience_ms(calm))


def attached(port: int, count: int) -> Callable[[], None]:
    """Attach receivers to one queue, of one session, with no credit. Returns what hangs up."""
    owner = Wire(port)
    owner.call(m.QueueDeclare("linked"), m.QueueDeclareOk)
    client = connected(port, 0, login_10(False))
    heard = Frames10(client.recv)
    heard.until(p.Begin, 1)
    source = p.Source(address="/queues/linked")
    for batch in batches(count):
        frames = (
            p.Attach(name=f"l{n}", handle=n, role=True, source=source, target=p.Target(), snd_settle_mode=0)
            for n in batch
        )
        client.sendall(b"".join(frame_10(0, each) for each in frames))
        heard.until(p.Attach, len(batch))

    def close() -> None:
        client.close()
        owner.socket.close()

    return close


def opened(port: int, count: int) -> Callable[[], None]:
    """Open channels of one connection. Returns what hangs up."""
    client = Wire(port)
    for batch in batches(count - 1):
        frames = (wire.method_frame(number + 2, m.ChannelOpen().encode()) for number in batch)
        client.socket.sendall(b"".join(frames))
        for _ in batch:
            client.expect(m.ChannelOpenOk)
    return client.socket.close


def batches(count: int, size: int = 500) -> Iterator[range]:
    return (range(first, min(first + size, count)) for first in range(0, count, size))


class Frames10:
    """Counts what a broker says over AMQP 1.0, by the descriptors of its frames."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._buffer = b""

    def until(self, kind: type[p.Attach | p.Begin], count: int) -> None:
        """Return after so many performatives of a kind. Raises SystemExit if the broker closes, ends or detaches."""
        while count:
            octets = self._receive(1 << 16)
            if not octets:
                raise SystemExit("the broker has hung up")
            self._buffer += octets
            at = 0
            while len(self._buffer) - at >= 8:
                if self._buffer.startswith(b"AMQP", at):
                    at += 8
                    continue
                (size,) = unpack_from(">I", self._buffer, at)
                if len(self._buffer) - at < size:
                    break
                count -= self._is(kind, self._buffer[at + 8 : at + size])
                at += size
            self._buffer = self._buffer[at:]

    def _is(self, kind: type, body: bytes) -> bool:
        said = body[:3]
        if said in (ENDED, CLOSED, DETACHED):
            raise SystemExit(f"the broker refused: {body!r}")
        return bool(said) and said == KINDS[kind]


KINDS: Final[dict[type, bytes]] = {p.Attach: b"\x00\x53\x12", p.Begin: LAST_WORDS[1]}
DETACHED, ENDED, CLOSED = (pack(">BBB", 0, 0x53, code) for code in (0x16, 0x17, 0x18))


def connections(bounds: Bounds, folder: Path, share: float) -> None:
    left = proofs.idle(folder, max(2, round(CONNECTIONS * share)))
    bounds.figure("descriptors left", left, "", 64)


def devices(bounds: Bounds, folder: Path, share: float) -> None:
    count = max(2, round(CONNECTIONS * share))
    with mqtt_node(folder) as broker:
        with proofs.crowd("devices", broker.port, 100) as warm:
            warm()
        before = resident_kib(broker.process)
        with proofs.crowd("devices", broker.port, count) as one:
            bounds.figure(f"{count:,} clients with a subscription", one()["seconds"], "s")
            each = (resident_kib(broker.process) - before) / count
            bounds.figure("a client", each, "KiB", DEVICE_KIB_MAX)
            bounds.figure("at rest", 100 * at_rest(broker), "% of a core", AT_REST_MAX)


@contextmanager
def mqtt_node(folder: Path) -> Iterator[Running]:
    """Start a node that serves 0-9-1 and MQTT on one port."""
    port, config = free_port(), folder / "leveret.toml"
    listener = f'[[listeners]]\naddress = "127.0.0.1:{port}"\nprotocols = ["amqp091", "mqtt"]\n'
    config.write_text(f"{listener}[protocols.mqtt]\nretained_max = {2 * RETAINED}\n")
    flags = ("--config", str(config), "--data", str(folder / "data"))
    with leveret(*flags, configured_port=port) as running:
        yield running


def retained(bounds: Bounds, folder: Path, share: float) -> None:
    count = max(1000, round(RETAINED * share))
    with mqtt_node(folder) as broker:
        retain(broker.port, range(count, count + 1000))
        before = resident_kib(broker.process)
        started = time.perf_counter()
        retain(broker.port, range(count))
        bounds.figure(f"{count:,} retained messages", time.perf_counter() - started, "s")
        time.sleep(2.0)
        each = (resident_kib(broker.process) - before) * 1024 / count - PAYLOAD
        bounds.figure("one, besides its payload", each, "bytes", RETAINED_MAX)
        calm = proofs.longest_wait(broker.port, lambda: time.sleep(3))
        bounds.figure("longest wait of another client, at rest", calm, "ms")
        every = count + 1000
        for topic_filter, found in (
            ("+/x", 0),
            ("devices/+/nothing", 0),
            ("devices/+/out", every),
            ("#", every),
        ):
            came: list[int] = []
            longest = proofs.longest_wait(
                broker.port,
                lambda asked=topic_filter, came=came, few=found: came.append(shown(broker.port, asked, few)),  # type: ignore[misc]
            )
            what = f"longest wait of another client while one subscribes to {topic_filter}"
            bounds.figure(what, longest, "ms", patience_ms(calm))
            bounds.figure("retained messages that it did not get", found - came[0], "")
    started = time.perf_counter()
    with mqtt_node(folder) as broker:
        bounds.figure("started again with them", time.perf_counter() - started, "s")
        each = resident_kib(broker.process) * 1024 / count
        bounds.figure("all of the node's memory then, for each of them", each, "bytes")


def retain(port: int, numbers: range) -> None:
    """Retain a message for each of these devices, with QoS 1."""
    client = device(port, "retains")
    for batch in batches(len(numbers)):
        packets = (
            mqtt.Publish(f"devices/{numbers[at]}/out", b"x" * PAYLOAD, 1, True, packet_id=at % 1000 + 1)
            for at in batch
        )
        client.sendall(b"".join(packet.encode(mqtt.MQTT_311) for packet in packets))
        left = 4 * len(batch)  # bytes of PUBACKs
        while left:
            left -= len(client.recv(left))
    client.close()


def shown(port: int, topic_filter: str, most: int) -> int:
    """Subscribe, and return how many messages came until there were `most`, or none came for two seconds."""
    client = device(port, "shown")
    client.sendall(mqtt.Subscribe(1, (mqtt.Subscription(topic_filter, 0),)).encode(mqtt.MQTT_311))
    client.settimeout(2.0)
    reader, came = Reader(from_client=False, version=mqtt.MQTT_311), 0
    while came < most or not most:
        try:
            octets = client.recv(1 << 18)
        except TimeoutError:
            break
        reader.push(octets)
        while (taken := reader.take()) is not None:
            came += len(taken.payloads) if isinstance(taken, PublishRun) else 0
    client.close()
    return came


def device(port: int, name: str) -> socket.socket:
    """Connect a client of MQTT 3.1.1."""
    login = mqtt.Connect(mqtt.MQTT_311, name, user_name="guest", password=b"guest").encode()
    client = connected(port, 0, login)
    answered(client, mqtt.ConnAck().encode(mqtt.MQTT_311))
    return client


def connects(bounds: Bounds, folder: Path, share: float) -> None:
    found = proofs.churn(folder, max(20, round(CONNECTS * share)))
    bounds.figure("memory more than before", found["memory"][1] - found["memory"][0], "KiB", GROWN_KIB_MAX)
    for what in ("descriptors", "threads", "connections"):
        bounds.figure(f"{what} more than before", found[what][1] - found[what][0], "", 4)


def messages(bounds: Bounds, folder: Path, share: float) -> None:
    count = max(1000, round(MESSAGES * share))
    watermark_kib = WATERMARK * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024
    with leveret("--data", str(folder / "data")) as broker:
        print(paging.filled(broker, count, 100).described("Filling"))
        print(paging.drained(broker, count, 100).described("Draining"))
        time.sleep(10.0)
        bounds.figure(
            "memory at most", peak_kib(broker.process) / 1024, "MiB", OVER_MAX * watermark_kib / 1024
        )
        bounds.figure("memory 10 s later", resident_kib(broker.process) / 1024, "MiB", watermark_kib / 1024)
    octets = sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
    bounds.figure("the folder then", octets / (1 << 20), "MiB")


LINES: Final[dict[str, Callable[[Bounds, Path, float], None]]] = {
    "queues": queues,
    "links": links,
    "connections": connections,
    "devices": devices,
    "retained": retained,
    "connects": connects,
    "messages": messages,
}


def conditions() -> str:
    """Return when and on what something was measured."""
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {built()}, {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*LINES], default=[*LINES])
    parser.add_argument("--share", type=float, default=1.0, help="of each number; default: 1")
    given = parser.parse_args()
    all_descriptors()
    bounds = Bounds()
    print(conditions())
    for name in given.only:
        print(f"\n# {name}\n", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            LINES[name](bounds, Path(folder), given.share)
    print(f"\n{conditions()}")
    return bounds.conclude()


if __name__ == "__main__":
    sys.exit(main())
