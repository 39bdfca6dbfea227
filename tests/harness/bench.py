"""Brokers on a bench: without a node, with a clock that is moved by hand.

CoreBench()               # a broker with one virtual host; a test calls its queues and consumers itself
ClientBench(toml)         # a broker with a configuration, to which clients of any protocol are joined in memory
StoredBench(toml)         # the same with a store; `again()` is its next start
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from leveret.alarms import Alarms, Monitor
from leveret.broker import Broker, Outcome
from leveret.clock import ManualClock
from leveret.config.compat import Compat
from leveret.config.config import Config, parse
from leveret.durable import recovery
from leveret.durable.journal import Journal
from leveret.durable.restoration import begin, restore
from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.exchange_type import ExchangeType
from leveret.features.kinds import KINDS
from leveret.features.standard import equip
from leveret.limits import NodeLimits
from leveret.message import NO_FACTS, Facts, Message
from leveret.outbox import Outbox
from leveret.policy import Policy
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp10.broker.encoding import ENCODING as ENCODING10
from leveret.protocols.amqp10.broker.registration import restored
from leveret.protocols.mqtt.broker.encoding import ENCODING as ENCODING_MQTT
from leveret.protocols.mqtt.broker.registration import restored as restored_mqtt
from leveret.queues.queue import Queue
from leveret.server.node.assembly import populate
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Table, Value
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from .peer import JoinedPeer

ENCODING = FakeEncoding(Properties())


class Bench:
    """A broker and its clock. Every verb settles."""

    def __init__(self, broker: Broker) -> None:
        assert isinstance(broker.clock, ManualClock)
        self.broker = broker
        self.clock = broker.clock

    def settle(self) -> None:
        self.broker.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass: what is due is done."""
        self.clock.advance(seconds)
        self.broker.tick()
        self.settle()


class CoreBench(Bench):
    """A broker with one virtual host and nobody but the test that uses it."""

    def __init__(
        self, types: Mapping[str, type[ExchangeType]] | None = None, compat: Compat | None = None
    ) -> None:
        super().__init__(equip(Broker(ManualClock(), exchange_types=types, compat=compat)))
        self.host = self.broker.add_virtual_host("/")

    def queue(self, name: str = "q", **said: Value) -> Queue:
        """Declare a queue; `said` are arguments in Python's spelling: `x_max_length=1` is x-max-length."""
        return self.host.declare_queue(name, arguments=spelled(said))

    def publish(
        self, key: str, *bodies: bytes, ttl_ms: int | None = None, priority: int = 0
    ) -> list[Outcome]:
        """One batch to the default exchange."""
        exchange = self.host.default_exchange
        messages = [message(key, body, priority, ttl_ms) for body in bodies]
        outcomes = [self.broker.publish(exchange, each) for each in messages]
        self.broker.settle()
        return outcomes


def spelled(arguments: Mapping[str, Value]) -> Table:
    """Arguments of a declaration from Python's spelling: `x_max_length` is x-max-length."""
    return {name.replace("_", "-"): value for name, value in arguments.items()}


def message(
    key: str = "",
    body: bytes = b"",
    priority: int = 0,
    ttl_ms: int | None = None,
    cc: tuple[str, ...] = (),
    exchange: str = "",
) -> Message:
    plain = not priority and ttl_ms is None and not cc
    facts = NO_FACTS if plain else Facts(priority=priority, ttl_ms=ttl_ms, cc=cc)
    return Message(ENCODING, exchange, key, b"", body, facts)


class ClientBench(Bench):
    """A broker with a configuration (TOML text), and the clients that are joined to it."""

    def __init__(
        self,
        toml: str = "",
        exchange_types: Mapping[str, type[ExchangeType]] | None = None,
        monitors: tuple[Monitor, ...] = (),
    ) -> None:
        self.config: Config = parse(toml)
        limits = self.config.limits
        super().__init__(
            equip(
                Broker(
                    clock=ManualClock(),
                    exchange_types=exchange_types,
                    compat=self.config.compat.chosen,
                    node_limits=NodeLimits(
                        limits.connections_max, limits.exchanges_max, limits.consumers_per_channel_max
                    ),
                    alarms=Alarms(monitors),
                    consumer_timeout_ms=limits.consumer_timeout_ms,
                )
            )
        )
        populate(self.broker, self.config)
        self.ready: list[Outbox] = []
        self.peers: list[JoinedPeer] = []
        self.broker.alarms.listen(self._alarm)

    @property
    def host(self) -> VirtualHost:
        return self.broker.virtual_hosts["/"]

    def queue(self, name: str) -> Queue:
        return self.host.queues[name]

    def user(
        self, name: str, configure: str = ".*", write: str = ".*", read: str = ".*", tags: Iterable[str] = ()
    ) -> str:
        """Add a user whose password is the name."""
        self.broker.access.add_user(name, name, tags)
        self.broker.access.set_permissions(name, "/", configure, write, read)
        return name

    def policy(self, pattern: str, definition: Table, priority: int = 0) -> None:
        """Set the policy that is known by its pattern."""
        self.broker.policies.set(Policy(pattern, "/", pattern, definition, priority))
        self.host.apply_policies()
        self.settle()

    def settle(self) -> None:
        self.broker.tick()
        self.broker.settle()

    def watch(self) -> None:
        """Read the monitors, as the node does once a second; clients that are not held back any more are read from."""
        self.broker.alarms.check_soon()
        self.broker.alarms.check(self.broker.tick())
        for peer in self.peers:
            peer.read_on()

    def advance(self, seconds: float) -> None:
        """Let time pass: timers of the broker and deadlines of the connections run."""
        super().advance(seconds)
        for peer in self.peers:
            peer.front.on_due(self.broker.now)
        self.settle()

    def _alarm(self, reason: str | None) -> None:
        for peer in self.peers:
            peer.front.alarm(reason)


class StoredBench(ClientBench):
    """A broker with a store. Connections end with each start; what was on disk is there at the next."""

    def __init__(self, toml: str = "", store: MemoryStore | None = None) -> None:
        super().__init__(toml)
        self.toml = toml
        self.store = store or MemoryStore()
        known = (ENCODING010, ENCODING091, ENCODING10, ENCODING_MQTT)
        encodings = {each.name: lambda each=each: each for each in known}  # type: ignore[misc]
        self.journal = Journal(self.store, self.broker, encodings)
        restore(self.broker, self.journal, KINDS)
        recovery.messages(self.broker, self.journal)
        begin(self.broker, KINDS)
        restored(self.broker)
        restored_mqtt(self.broker)
        self.journal.start(lambda told: told())
        self.settle()

    def again(self) -> StoredBench:
        """The node was killed, and starts again."""
        self.settle()
        return StoredBench(self.toml, self.store.reopened())
