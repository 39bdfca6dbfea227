"""A broker in memory with shovels between its queues; time passes when told."""

from __future__ import annotations

from leveret.features.shovels.shovel import Shovel
from leveret.features.shovels.shovels import Shovels, shovels_of
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Json
from tests.harness.bench import ClientBench, StoredBench

LOCAL = {"src-uri": "amqp://", "dest-uri": "amqp://"}
DURABLE = Facts(durable=True)


class Yard:
    """Queues `from` and `to`, and a shovel `s` that a test sets."""

    def __init__(self, bench: ClientBench | None = None) -> None:
        self.bench = bench or ClientBench()
        self.broker = self.bench.broker
        self.host = self.bench.host

    @property
    def shovels(self) -> Shovels:
        return shovels_of(self.broker)

    @property
    def shovel(self) -> Shovel:
        return self.shovels.find("/", "s").shovel

    def set(self, user: str = "guest", **said: Json) -> Shovel:
        """Set the shovel `s`; `said` are keys in Python's spelling. By default it moves from `from` to `to`."""
        value: dict[str, Json] = {**LOCAL, **{key.replace("_", "-"): item for key, item in said.items()}}
        if "src-exchange" not in value:
            value.setdefault("src-queue", "from")
        if "dest-exchange" not in value:
            value.setdefault("dest-queue", "to")
        self.shovels.set("/", "s", value, user)
        self.run()
        return self.shovel

    def run(self, seconds: float = 0.1) -> None:
        """Let the shovel take a number of steps."""
        for _ in range(20):
            self.bench.advance(seconds / 20)

    def publish(self, *bodies: bytes, queue: str = "from", facts: Facts = DURABLE) -> None:
        for body in bodies:
            message = Message(ENCODING, "", queue, b"\x10\x00\x02", body, facts)
            self.broker.publish(self.host.default_exchange, message)
        self.run()

    def bodies(self, queue: str = "to") -> list[bytes]:
        return [delivery.message.body for delivery in self.host.queues[queue].waiting()]


class StoredYard(Yard):
    """The same with a store, from one start to the next."""

    def __init__(self, bench: StoredBench | None = None) -> None:
        self.stored = bench or StoredBench()
        super().__init__(self.stored)

    def again(self) -> StoredYard:
        return StoredYard(self.stored.again())
