"""Brokers in memory with federated exchanges and queues between them; time passes when told.

Region()   # one broker: its virtual host "/" is downstream of its virtual host "up"
Regions()  # two brokers: the virtual host "/" of `here` is downstream of that of `there`, over AMQP 0-9-1
"""

from __future__ import annotations

from leveret.broker import Broker
from leveret.features.federation.federation import Federation, federation_of
from leveret.features.federation.link import FederationLink
from leveret.message import Facts, Message
from leveret.plugins.federation_upstream import FederationUpstream
from leveret.policy import ApplyTo, Policy
from leveret.protocols.amqp091.broker.core_values import field_table
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.queues.queue import Queue
from leveret.values import Json, Table
from leveret.virtual_host import VirtualHost
from tests.core.fakes import FakeConsumer
from tests.features.shovels.joined import TwoBrokers
from tests.harness.bench import ClientBench
from tests.harness.http import FakeNode

DURABLE = Facts(durable=True)
POLICY = "federated"


def named_node(name: str) -> FakeNode:
    node = FakeNode()
    node.name = name
    return node


class Downstream:
    """The side that messages come to, and what tests do there and at the other side."""

    broker: Broker
    host: VirtualHost
    up: VirtualHost
    uri: str

    @property
    def federation(self) -> Federation:
        return federation_of(self.broker)

    @property
    def link(self) -> FederationLink:
        (link,) = self.federation
        return link

    def run(self, seconds: float = 0.1) -> None:
        raise NotImplementedError

    def upstream(self, name: str = "up", user: str = "guest", **said: Json) -> None:
        """Set an upstream; `said` are keys in Python's spelling."""
        value = {"uri": self.uri, **{key.replace("_", "-"): item for key, item in said.items()}}
        self.federation.upstreams.set("/", name, value, user)
        self.run()

    def federate(self, pattern: str = "^f", **definition: Json) -> None:
        """Set the policy: by default exchanges and queues whose names begin with f have the upstream `up`."""
        said: Table = {key.replace("_", "-"): item for key, item in definition.items()}
        asked = said or {"federation-upstream": "up"}
        self.broker.policies.set(Policy(POLICY, "/", pattern, asked, 0, ApplyTo.ALL))
        self.host.apply_policies()
        self.run()

    def stop_federating(self) -> None:
        self.broker.policies.clear("/", POLICY)
        self.host.apply_policies()
        self.run()

    def message(self, exchange: str, key: str, body: bytes, **headers: Json) -> Message:
        """Return a persistent message."""
        fields = field_table(headers) if headers else None
        properties = BasicProperties(delivery_mode=2, headers=fields).encode()
        facts, properties = ENCODING.published(properties)
        return Message(ENCODING, exchange, key, properties, body, facts)

    def publish(self, host: VirtualHost, exchange: str, key: str, *bodies: bytes, **headers: Json) -> None:
        for body in bodies:
            message = self.message(exchange, key, body, **headers)
            host.broker.publish(host.exchanges[exchange], message)
            host.broker.settle()
        self.run()


class Region(Downstream):
    def __init__(self, bench: ClientBench | None = None) -> None:
        self.bench = bench or ClientBench()
        self.broker = self.bench.broker
        self.broker.operations = named_node("a")
        self.host = self.bench.host
        self.up = self.broker.add_virtual_host("up")
        self.broker.access.set_permissions("guest", "up", ".*", ".*", ".*")
        self.uri = "amqp:///up"

    def run(self, seconds: float = 0.1) -> None:
        for _ in range(20):
            self.bench.advance(seconds / 20)


class Regions(Downstream):
    def __init__(self, knows_type: bool = True) -> None:
        """`knows_type`: the upstream has the exchange type for federation."""
        self.both = TwoBrokers()
        self.broker = self.both.yard.broker
        self.host = self.both.yard.host
        self.both.network.name = "a"
        there = self.both.there
        self.up = there.host
        if knows_type:
            there.broker.exchange_types = {
                **there.broker.exchange_types,
                FederationUpstream.name: FederationUpstream,
            }
        self.uri = "amqp://guest:guest@there"

    def run(self, seconds: float = 0.1) -> None:
        self.both.run(seconds)


def bodies(queue: Queue) -> list[bytes]:
    return [delivery.message.body for delivery in queue.waiting()]


def consumer_of(queue: Queue, credit: int = 1 << 62, priority: int = 0) -> FakeConsumer:
    """Return a consumer that gets what a queue has."""
    return FakeConsumer(queue, credit=credit, priority=priority)
