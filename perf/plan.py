"""Describe a load completely, in records that can be sent to other processes."""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from leveret.perf.block import HEAD, STAMP

PORTS: Final = {"amqp": 5672, "amqps": 5671, "mqtt": 1883, "mqtts": 8883}
RANDOM_SIZES: Final = 64  # drawn from a range, and then repeated
SEED: Final = 8


@attrs.frozen
class Url:
    """The address of the broker, and the login. `ca_file` has the trusted certificates; without `verify`, all are."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    scheme: str = "amqp"
    tls: bool = False
    ca_file: str | None = None
    verify: bool = True

    @classmethod
    def read(cls, text: str) -> Url:
        """Parse amqp[s]:// or mqtt[s]://user:password@host:port/vhost. Raises ValueError for other text."""
        parts = urlsplit(text)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{text!r} is not amqp:// or mqtt://user:password@host:port/vhost")
        return cls(
            host=parts.hostname,
            port=parts.port or PORTS[parts.scheme],
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
            scheme=parts.scheme.removesuffix("s"),
            tls=parts.scheme.endswith("s"),
        )

    def __str__(self) -> str:
        return f"{self.scheme}{'s' if self.tls else ''}://{self.user}@{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@attrs.frozen
class Sizes:
    """Sizes of bodies in bytes, one after another, repeated."""

    octets: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Sizes:
        """Parse `100`; `100,1000` for both in turn; `100-2000` for sizes in a range. Raises ValueError."""
        found: list[int] = []
        chance = random.Random(SEED)
        for part in text.split(","):
            least, dash, most = part.partition("-")
            if dash:
                found += [chance.randint(int(least), int(most)) for _ in range(RANDOM_SIZES)]
            else:
                found.append(int(least))
        return cls(tuple(found))


@attrs.frozen
class Plan:
    """A load; the fields are the options of `leveret perf --help`."""

    url: Url
    protocol: str = "0-9-1"
    by_topic: bool = False  # clients see topics, and no queues: see `drivers`
    publishers: int = 1
    consumers: int = 1
    per_connection: int = 1  # publishers, or consumers, that share one
    queues: int = 1
    queue_name: str = "perf-%d"
    exchange: str = ""
    exchange_type: str = "direct"
    keys: str = "perf-%d"
    key_count: int = 0  # 0: one for each queue
    bind: str = "perf-%d"
    address: str = "/queues/%s"  # of a queue, in 1.0
    share: str = ""  # consumers share messages in a group of this name, in MQTT
    qos: int = 1  # of what is confirmed and acknowledged, in MQTT
    arguments: Mapping[str, str | int | bool] = attrs.field(factory=dict)
    predeclared: bool = False
    delete: bool = False
    keep: bool = False

    sizes: Sizes = Sizes((100,))
    stamped: bool = True
    verify: bool = False
    persistent: bool = False
    mandatory: bool = False
    real: bool = False  # each message has ids, a time and a trace header of its own
    single_writes: bool = False  # one write to the socket for each message
    rate: tuple[tuple[float, float], ...] = ()  # of a publisher: messages/s, and for how many seconds
    confirms: int = 0  # the most that are unconfirmed; 0: no confirms
    prefetch: int = 200
    ack_every: int = 0  # 0: no acknowledgements
    single_acks: bool = False  # each message is acknowledged by itself
    think_s: float = 0.0

    messages: int = 0  # of each publisher; 0: no limit
    time_s: float = 0.0
    warm_up_s: float = 0.0
    drain_s: float = 1.0
    processes: int = 1

    def queue(self, number: int) -> str:
        return numbered(self.queue_name, number)

    def queues_of(self, which: int, among: int) -> list[int]:
        """Return the queues of a publisher or consumer: at least one, and together they have all queues."""
        return list(range(which, self.queues, among)) or [which % self.queues]

    def keys_of(self, publisher: int) -> list[str]:
        """Return the routing keys of a publisher's messages, in turn."""
        if not (self.exchange or self.by_topic):
            return [self.queue(each) for each in self.queues_of(publisher, self.publishers)]
        count = self.key_count or self.queues
        if self.publishers >= count:
            return [numbered(self.keys, publisher % count)]
        return [numbered(self.keys, each) for each in range(publisher, count, self.publishers)]

    def filter(self, number: int) -> str:
        """Return what a queue is bound with, or a consumer subscribes to."""
        return numbered(self.bind, number)

    @property
    def copies(self) -> int:
        """Return how many times each message is delivered; 0 where that cannot be known."""
        if not self.by_topic:
            return 1 if not self.exchange else self.queues if self.exchange_type == "fanout" else 0
        if self.bind != self.keys or self.key_count not in (0, self.queues):
            return 0
        if self.share or self.consumers <= self.queues:
            return 1
        return self.consumers if self.queues == 1 else 0

    @property
    def is_stream(self) -> bool:
        return self.arguments.get("x-queue-type") == "stream"

    @property
    def head(self) -> int:
        """Return how many bytes each body needs at its start."""
        return HEAD if self.verify else STAMP if self.stamped else 0


def numbered(pattern: str, number: int) -> str:
    return pattern.replace("%d", str(number))
