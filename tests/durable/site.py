"""A node's broker with a store, from one start to the next, without the node.

before = Site()
before.host.declare_queue("q", durable=True)
after = before.again()                        # what was on disk, and the configuration on top of it
assert after.shape() == before.shape()
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.config.config import Config
from leveret.durable import recovery
from leveret.durable.journal import Journal
from leveret.durable.restoration import begin, restore
from leveret.durable.store.memory import MemoryStore
from leveret.durable.stored_catalogue import StoredCatalogue
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.standard import STANDARD
from leveret.features.kinds import KINDS
from leveret.features.standard import equip
from leveret.message import Facts, Message
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.queues.filtered import FilteredQueue
from leveret.queues.queue import Queue
from leveret.security.access import Access
from leveret.security.passwords import Hashing
from leveret.server.node.assembly import populate
from leveret.values import Value
from leveret.virtual_host import PREDECLARED, VirtualHost
from tests.features.leases.leased import settle_down
from tests.harness.bench import ENCODING, Bench, spelled
from tests.harness.threads import CHEAP


class Rare(Fanout):
    """A type that comes from a plug-in."""

    name = "x-rare"
    argument_names = ("mine",)


TYPES: dict[str, type[ExchangeType]] = {**STANDARD, Rare.name: Rare}
DEFAULTS = Config()
THERE_ANYWAY = {"", *(name for name, _, _ in PREDECLARED)}


class Site(Bench):
    """One start."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        config: Config | None = None,
        types: Mapping[str, type[ExchangeType]] = TYPES,
        clock: ManualClock | None = None,
        recovery_s: float = 0,
    ) -> None:
        """`recovery_s`: how long it takes to get the messages back."""
        self.store = store or MemoryStore()
        self.config = config or Config()
        self.types = dict(types)
        compat = None if self.config == DEFAULTS else self.config.compat.chosen
        access = Access(random_octets=bytes)  # the built-in user's hash is made at each start
        access.hashing = Hashing(cost=CHEAP)
        super().__init__(
            equip(Broker(clock or ManualClock(), exchange_types=self.types, access=access, compat=compat))
        )
        known = (ENCODING, ENCODING010, ENCODING091)
        self.broker.encodings = {each.name: lambda each=each: each for each in known}  # type: ignore[misc]
        self.journal = Journal(self.store, self.broker, self.broker.encodings)
        restore(self.broker, self.journal, KINDS)
        assert isinstance(self.broker.catalogue, StoredCatalogue)
        self.catalogue = self.broker.catalogue
        populate(self.broker, self.config)
        self.clock.advance(recovery_s)
        recovery.messages(self.broker, self.journal)
        begin(self.broker, KINDS)
        self.journal.start(lambda told: told())
        self.settle()

    def again(
        self,
        config: Config | None = None,
        types: Mapping[str, type[ExchangeType]] | None = None,
        away_s: float = 0,
        clean: bool = False,
        recovery_s: float = 0,
    ) -> Site:
        """The next start. The node was killed when all was settled, or was shut down: `clean`."""
        self.settle()
        if clean:
            self.journal.close()
        clock = ManualClock(7.0, self.clock.wall() + away_s)
        return Site(self.store.reopened(), config or self.config, types or self.types, clock, recovery_s)

    # What a test does, and asks.

    @property
    def host(self) -> VirtualHost:
        return self.broker.virtual_host("/")

    @property
    def objects(self) -> dict[str, str]:
        return dict(self.store.objects())

    def kinds(self) -> list[str]:
        """The kinds of all objects, each once."""
        return sorted({json.loads(key)[0] for key in self.objects})

    def damage(self, key: str, text: str) -> None:
        """The object says something else when the store is opened again."""
        assert key in self.objects
        self.store.content.objects[key] = text

    def queue(self, name: str = "q", **said: Value) -> Queue:
        return self.host.declare_queue(name, durable=True, arguments=spelled(said))

    def exchange(self, name: str = "x", type_: str = "fanout", auto_delete: bool = False) -> Exchange:
        return self.host.declare_exchange(name, type_, durable=True, auto_delete=auto_delete)

    def publish(self, exchange: str, key: str, *bodies: bytes) -> None:
        for body in bodies:
            message = Message(ENCODING, exchange, key, b"", body, Facts(durable=True))
            self.broker.publish(self.host.exchange(exchange), message)
        self.settle()

    def users(self) -> list[str]:
        return [user.name for user in self.broker.access.users()]

    def permissions(self) -> list[str]:
        return [f"{user}@{host}" for user, host, _ in self.broker.access.permissions()]

    def policies(self) -> list[str]:
        return [f"{policy.name}@{policy.virtual_host}" for policy in self.broker.policies.list()]

    def shape(self) -> dict[str, object]:
        """What has to outlive the node: by the semantics, whoever keeps it."""
        access, policies = self.broker.access, self.broker.policies
        return {
            "hosts": {host.name: shape_of(host) for host in self.broker.hosts()},
            "users": access.users(),
            "permissions": access.permissions(),
            "topics": access.topic_permissions(),
            "policies": policies.list(),
            "operators": policies.list_operator(),
        }


def held_site() -> Site:
    """A site whose commits land when a test says so. All there is so far is on disk."""
    site = Site(MemoryStore(held=True))
    land_all(site)
    return site


def land_all(site: Site) -> None:
    settle_down(site.broker)
    while site.store.flying is not None:
        site.store.land()
        settle_down(site.broker)


def shape_of(host: VirtualHost) -> dict[str, object]:
    queues = [queue for queue in host.queues.values() if queue.durable and not queue.exclusive]
    exchanges = [each for each in host.exchanges.values() if each.durable and each.name not in THERE_ANYWAY]
    return {
        "limits": host.limits,
        "exchanges": {each.name: shape_of_exchange(each) for each in exchanges},
        "queues": {each.name: shape_of_queue(each) for each in queues},
        "from": {
            each.name: shape_of_bindings(each.bindings) for each in host.exchanges.values() if each.durable
        },
        "to": {each.name: shape_of_bindings(host.bindings_to(each)) for each in (*exchanges, *queues)},
    }


def shape_of_exchange(exchange: Exchange) -> object:
    type_, flags = exchange.type.name, (exchange.auto_delete, exchange.internal)
    return type_, flags, typed(exchange.arguments), exchange.alternate


def shape_of_queue(queue: Queue) -> object:
    selector = queue.selector.text if isinstance(queue, FilteredQueue) else None
    said = queue.auto_delete, typed(queue.arguments), typed(queue.notes), selector
    return queue.number, type(queue), queue.type, said, queue.declared_limits, queue.limits


def shape_of_bindings(bindings: Iterable[Binding]) -> list[object]:
    kept = [
        each
        for each in bindings
        if each.source.durable
        and each.destination.durable
        and not (isinstance(each.destination, Queue) and each.destination.exclusive)
    ]
    return [
        (each.source.name, each.destination.kind, each.destination.name, each.key, typed(each.arguments))
        for each in kept
    ]


def typed(value: Value) -> object:
    """A value with the types of all there is in it: equal only to what is the same in every respect."""
    if isinstance(value, Mapping):
        return dict, [(name, typed(item)) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return list, [typed(item) for item in value]
    return type(value), repr(value)
