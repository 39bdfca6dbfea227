"""What is to be done: everything a worker has to know, in records that can be sent to another process."""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from perf.block import HEAD, STAMP

PORTS: Final = {"amqp": 5672, "amqps": 5671}
RANDOM_SIZES: Final = 64  # drawn from a range, and then round and round
SEED: Final = 8


@attrs.frozen
class Url:
    """Where the broker is, and who we are there. `ca_file`: whose certificates are trusted; `verify`: at all."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    ca_file: str | None = None
    verify: bool = True

    @classmethod
    def read(cls, text: str) -> Url:
        """amqp[s]://user:password@host:port/vhost. Raises ValueError."""
        parts = urlsplit(text)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{text!r} is not amqp://user:password@host:port/vhost")
        return cls(
            host=parts.hostname,
            port=parts.port or PORTS[parts.scheme],
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
            tls=parts.scheme == "amqps",
        )

    def __str__(self) -> str:
        return f"{'amqps' if self.tls else 'amqp'}://{self.user}@{self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@attrs.frozen
class Sizes:
    """Of bodies, in octets: one after another, round and round."""

    octets: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Sizes:
        """`100`, `100,1000` in turn, `100-2000` evenly spread. Raises ValueError."""
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
    """See `leveret perf --help`, whose words these are."""

    url: Url
    protocol: str = "0-9-1"
    publishers: int = 1
    consumers: int = 1
    per_connection: int = 1  # publishers that share one, or consumers
    queues: int = 1
    queue_name: str = "perf-%d"
    exchange: str = ""
    exchange_type: str = "direct"
    keys: str = "perf-%d"
    key_count: int = 0  # 0: as many as there are queues
    bind: str = "perf-%d"
    address: str = "/queues/%s"  # of a queue, in 1.0
    arguments: Mapping[str, str | int | bool] = attrs.field(factory=dict)
    predeclared: bool = False
    delete: bool = False
    keep: bool = False

    sizes: Sizes = Sizes((100,))
    stamped: bool = True
    verify: bool = False
    persistent: bool = False
    mandatory: bool = False
    rate: tuple[tuple[float, float], ...] = ()  # of a publisher: messages/s, and for how many seconds
    confirms: int = 0  # unconfirmed messages; 0: none are confirmed
    prefetch: int = 200
    ack_every: int = 0  # 0: nothing is acknowledged
    think_s: float = 0.0

    messages: int = 0  # of each publisher; 0: without end
    time_s: float = 0.0
    warm_up_s: float = 0.0
    drain_s: float = 1.0
    processes: int = 1

    def queue(self, number: int) -> str:
        return numbered(self.queue_name, number)

    def queues_of(self, which: int, among: int) -> list[int]:
        """Which queues the publisher or consumer of this number has: one at least, and each queue somebody."""
        return list(range(which, self.queues, among)) or [which % self.queues]

    def keys_of(self, publisher: int) -> list[str]:
        """The routing keys of its messages, in turn."""
        if not self.exchange:
            return [self.queue(each) for each in self.queues_of(publisher, self.publishers)]
        count = self.key_count or self.queues
        if self.publishers >= count:
            return [numbered(self.keys, publisher % count)]
        return [numbered(self.keys, each) for each in range(publisher, count, self.publishers)]

    @property
    def is_stream(self) -> bool:
        return self.arguments.get("x-queue-type") == "stream"

    @property
    def head(self) -> int:
        """Octets that each body needs at its start."""
        return HEAD if self.verify else STAMP if self.stamped else 0


def numbered(pattern: str, number: int) -> str:
    return pattern.replace("%d", str(number))
