"""A virtual host: its exchanges, queues and bindings, and the operations that change them.

`revision` rises with every change that could alter where a message goes; caches of routes and publish targets compare
it. Declaring is idempotent, contradicting an earlier declaration is refused (S039, S065). Permissions are checked in
`client.py`, not here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import attrs
from mypy_extensions import mypyc_attr

from leveret.arguments.deduplication_settings import (
    refuse_faulty,
)
from leveret.arguments.queue_declaration import parse_queue_arguments, shared
from leveret.arguments.warnings import queue_warnings
from leveret.catalogue import VIRTUAL_HOST
from leveret.errors import PLUGIN_MISTAKES, AccessRefused, PreconditionFailed, no_exchange, no_queue
from leveret.exchanges import redeclaration
from leveret.exchanges.answer import mistakes_refused
from leveret.exchanges.decorator import decorate, told
from leveret.exchanges.default import DefaultExchange
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange
from leveret.exchanges.redeclaration import check_alternate
from leveret.guests import G, Guest, Guests
from leveret.limits import Overflow, QueueType, VirtualHostLimits, with_credit
from leveret.observability.tracer import Traced
from leveret.policy import effective_alternate, effective_limits
from leveret.queues import default_type
from leveret.queues.contract import QueueTerms
from leveret.queues.ending_queues import EndingQueues
from leveret.queues.factory import new_queue
from leveret.queues.queue import PAUSED, Queue, event_fields, locked, require_access
from leveret.queues.redeclaration import require_equivalent
from leveret.queues.slow_consumers import watch_consumers
from leveret.queues.undelivered import Undelivered
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.client import Client
    from leveret.config.compat import Compat
    from leveret.selectors.parser import Selector
    from leveret.settling import Settling

PREDECLARED: Final = (
    ("amq.direct", "direct", False),
    ("amq.topic", "topic", False),
    ("amq.fanout", "fanout", False),
    ("amq.match", "headers", False),
    ("amq.headers", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
)
RESERVED: Final = "amq."
NOT_HELD: Final = (
    "dead-letter-strategy: dead letters are delivered at most once, as at-least-once needs the overflow reject-publish "
    "and a dead-letter exchange"
)
NO_DISK: Final = (
    "overflow: flow-to-disk has no effect, as the node has no data folder; messages stay in memory"
)


@attrs.frozen
class Description:
    """A description of a virtual host for people: a sentence, and tags to find it by. The broker does not use it."""

    text: str = ""
    tags: tuple[str, ...] = ()


@mypyc_attr(native_class=False)
class Remembered:
    """A front-end's cache of the publish targets of one user. To be subclassed."""

    __slots__ = ("__weakref__",)


class VirtualHost(Traced):
    """A virtual host is a separate namespace of exchanges and queues."""

    def __init__(self, broker: Broker, name: str, limits: VirtualHostLimits | None = None) -> None:
        self.broker = broker
        self.settling: Settling = broker
        self.name = name
        self.limits = limits or VirtualHostLimits()
        self.description = Description()
        self.own_queue_type: QueueType | None = None  # the default of queues that name none; None: the node's
        self.revision = 0
        # Rises on every change of topology or permissions: the checks of a client hold for one value of it.
        self.checks_revision = 0
        self.undelivered = Undelivered(broker.timers)  # dead letters that wait for another topology
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.hidden_queues: dict[str, Queue] = {}  # reachable through the default exchange, but not listed
        self.guests = Guests(self)
        self.connections = 0  # clients that have entered
        # The caches of publish targets, by protocol and user; front-ends fill and bound them. Each lasts as long as
        # a front-end that refers to it, since users come and go.
        self.remembered: WeakValueDictionary[tuple[str, str], Remembered] = WeakValueDictionary()
        self.routes_remembered = 0  # by all exchanges together
        self._incoming: dict[Destination, dict[Binding, None]] = {}
        self.ending = EndingQueues(self)
        self.default_exchange = Exchange(self, "", DefaultExchange, durable=True)
        self.exchanges[""] = self.default_exchange
        for exchange_name, type_name_, internal in PREDECLARED:
            type_class = broker.exchange_types[type_name_]
            self.add_exchange(Exchange(self, exchange_name, type_class, durable=True, internal=internal))

    @property
    def stored_as(self) -> tuple[str, ...]:
        return VIRTUAL_HOST, self.name

    def describe(self, description: Description) -> None:
        """Replace the description."""
        if description == self.description:
            return
        self.description = description
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(self)

    @property
    def compat(self) -> Compat:
        return self.broker.compat

    @property
    def default_queue_type(self) -> QueueType | None:
        """The type of new queues whose declaration names none; None: they are classic, and have no such argument."""
        return self.own_queue_type or self.broker.default_queue_type

    def set_default_queue_type(self, type_: QueueType | None) -> None:
        """Replace the virtual host's own default type of queues. Queues that exist keep their types."""
        if type_ is self.own_queue_type:
            return
        self.own_queue_type = type_
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(self)

    def guest(self, kind: type[G]) -> G:
        """Return the guest of this class, made on the first call."""
        return self.guests.of(kind)

    @property
    def hearing(self) -> tuple[Guest, ...]:
        """The guests that hear of what happens in the virtual host."""
        return (*self.guests, *self.broker.guests)

    def set_limits(self, limits: VirtualHostLimits) -> None:
        """Replace the limits. Connections and queues beyond them stay."""
        self.limits = limits
        self.broker.publish_rates.changed_of_host(self)
        self._happened("vhost.limits.set", {"name": self.name})
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(self)

    def topology_changed(self) -> None:
        """Note a change that could alter where a message goes."""
        self.revision += 1
        self.checks_revision += 1
        self.undelivered.topology_changed(self.broker.now)

    # Exchanges.

    def exchange(self, name: str) -> Exchange:
        """Return the exchange of that name. Raises NotFound."""
        if (exchange := self.exchanges.get(name)) is None:
            raise no_exchange(name, self.name)
        return exchange

    def declare_exchange(
        self,
        name: str,
        type_: str,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        may_create: Callable[[], None] = lambda: None,
        reserved: bool = False,
    ) -> Exchange:
        """Return the exchange, creating it if there is none; `may_create` is called before that, and may raise (S148).

        `reserved` permits a name that begins with `amq.`, as definitions of other brokers have them. Raises
        PreconditionFailed if the existing one differs; AccessRefused, TooMany, or what the new type raises.
        """
        arguments = arguments or {}
        if (type_class := self.broker.exchange_types.get(type_)) is None:
            raise self.broker.compat.unknown_exchange_type_error(type_)
        check_alternate(name, self.name, arguments)
        if (current := self.exchanges.get(name)) is not None:
            compat = self.broker.compat
            redeclaration.require_equivalent(
                current, type_, durable, auto_delete, internal, arguments, compat
            )
            return current
        if name.startswith(RESERVED) and not reserved:
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        may_create()
        if name in self.exchanges:  # made by another client while a server was asked for permissions
            return self.declare_exchange(name, type_, durable, auto_delete, internal, arguments, may_create)
        self.broker.node_limits.require_exchange(
            name, self.name, sum(len(v.exchanges) for v in self.broker.hosts())
        )
        refuse_faulty(arguments, f"exchange '{name}' in vhost '{self.name}'")
        with mistakes_refused(type_class, f"make exchange '{name}' in vhost '{self.name}'"):
            type_class.validate(arguments)
            exchange = Exchange(self, name, type_class, durable, auto_delete, internal, arguments)
        self.add_exchange(exchange)
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(exchange)
        self._happened("exchange.created", exchange.told())
        return exchange

    def add_exchange(self, exchange: Exchange) -> None:
        """Put an exchange in place without the checks of a declaration, as when it is restored at a start."""
        self.exchanges[exchange.name] = exchange
        self._apply_exchange_policy(exchange)
        if exchange.arguments:
            self.broker.notices.notice(self.name, "exchange", exchange.name, exchange.warnings())
        self.topology_changed()

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings on both sides (S058)."""
        exchange = self.exchange(name)
        if name.startswith(RESERVED):
            raise AccessRefused(f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed")
        if if_unused and exchange.bindings_by_identity:
            raise PreconditionFailed(f"exchange '{name}' in vhost '{self.name}' in use")
        self._drop_exchanges([exchange])

    def _drop_exchanges(self, exchanges: list[Exchange]) -> None:
        """Remove exchanges, and auto-delete ones that lose their last binding by that, however long the chain."""
        for exchange in exchanges:
            del self.exchanges[exchange.name]
            self.topology_changed()
            for binding in list(exchange.bindings):
                self._forget_incoming(binding)
            self._no_longer_kept(exchange)
            exchange.bindings_by_identity.clear()
            exchange.selecting = 0
            exchanges += self._drop_incoming(exchange)
            _tell(exchange, exchange.type.close)
            for decorator in exchange.decorators:
                told(exchange, partial(decorator.deleted, exchange))

    def _happened(self, name: str, facts: Table) -> None:
        self.broker.events.happened(name, self.name, facts)

    def _no_longer_kept(self, exchange: Exchange) -> None:
        """Report the deletion of an exchange and its outgoing bindings, and drop the messages that it holds."""
        for binding in exchange.bindings:
            self._happened("binding.deleted", binding.told())
        self._happened("exchange.deleted", {"name": exchange.name})
        exchange.gone()
        for guest in self.hearing:
            guest.exchange_deleted(exchange)
        if exchange.holding is not None:
            exchange.holding.drop(list(exchange.holding.held))
        if (catalogue := self.broker.catalogue) is not None:
            for binding in exchange.bindings:
                catalogue.forget(binding)
            catalogue.forget(exchange)

    # Bindings.

    def bind(
        self, source: Exchange, destination: Destination, key: str, arguments: Table | None = None
    ) -> Binding:
        """Bind a queue or exchange; binding again with the same key and arguments changes nothing (S056)."""
        binding = Binding(source, destination, key, arguments or {})
        if (current := source.bindings_by_identity.get(binding.identity)) is not None:
            return current
        self.broker.compat.check_binding_key(source.type.name, key)
        with mistakes_refused(type(source.type), f"bind {destination.kind} '{destination.name}'"):
            source.type.validate_binding(key, binding.arguments)
            if binding.arguments:
                binding.select(source.type.binding_selector(binding.arguments))
            self.add_binding(binding)
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(binding)
        self._happened("binding.created", binding.told())
        return binding

    def add_binding(self, binding: Binding) -> None:
        """Put a binding in place without other checks. If the source's type raises, nothing has changed."""
        source = binding.source
        source.bindings_by_identity[binding.identity] = binding
        self._incoming.setdefault(binding.end, {})[binding] = None
        try:
            source.type.bind(binding)
        except BaseException:
            del source.bindings_by_identity[binding.identity]
            self._forget_incoming(binding)
            raise
        source.selecting += binding.selector is not None
        self.topology_changed()
        for decorator in source.decorators:
            told(source, partial(decorator.bound, binding))
        if warnings := binding.warnings():
            self.broker.notices.notice(self.name, "binding from exchange", source.name, warnings)

    def unbind(
        self, source: Exchange, destination: Destination, key: str, arguments: Table | None = None
    ) -> bool:
        """Remove a binding. False: there was no such binding (S057)."""
        binding = source.bindings_by_identity.get(Binding(source, destination, key, arguments or {}).identity)
        if binding is None:
            return False
        self._forget_incoming(binding)
        if self._drop_binding(binding):
            self._drop_exchanges([source])
        return True

    def _drop_binding(self, binding: Binding) -> bool:
        """Remove a binding from its source. True: the source is auto-delete, has none left, and must go too (S045)."""
        source = binding.source
        del source.bindings_by_identity[binding.identity]
        source.selecting -= binding.selector is not None
        if self.broker.catalogue is not None:
            self.broker.catalogue.forget(binding)
        self._happened("binding.deleted", binding.told())
        _tell(source, lambda: source.type.unbind(binding))
        self.topology_changed()
        for decorator in source.decorators:
            told(source, partial(decorator.unbound, binding))
        is_there = self.exchanges.get(source.name) is source
        return source.auto_delete and not source.bindings_by_identity and is_there

    def _forget_incoming(self, binding: Binding) -> None:
        incoming = self._incoming[binding.end]
        del incoming[binding]
        if not incoming:
            del self._incoming[binding.end]

    def _drop_incoming(self, destination: Destination) -> list[Exchange]:
        """Remove the bindings that lead to a destination; return the exchanges that have to be deleted with them."""
        incoming = self._incoming.pop(destination, {})
        return [binding.source for binding in incoming if self._drop_binding(binding)]

    def bindings_to(self, destination: Destination) -> Collection[Binding]:
        """Return the bindings that lead to a queue or exchange, oldest first."""
        return self._incoming.get(destination, {}).keys()

    def bindings(self) -> Iterable[Binding]:
        """Return every explicit binding of the virtual host."""
        return (binding for exchange in self.exchanges.values() for binding in exchange.bindings)

    # Queues.

    def queue(self, name: str) -> Queue:
        """Return the queue of that name. Raises NotFound."""
        if (found := self.queues.get(name)) is None:
            raise no_queue(name, self.name)
        return found

    def destination_queue(self, key: str) -> Queue | None:
        """Return the queue to which the default exchange routes a key, if there is one."""
        return self.queues.get(key) or self.hidden_queues.get(key)

    def declare_queue(
        self,
        name: str,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        owner: Client | None = None,
        may_create: Callable[[], None] = lambda: None,
        generated: bool = False,
        selector: Selector | None = None,
        typed: bool = True,
    ) -> Queue:
        """Return the queue, creating it if there is none.

        `owner` is the client that alone may use an exclusive queue. `may_create` is called before a queue is created,
        and may raise. `generated`: the broker chose the name, so it may have the broker's own prefix. `selector`: a
        new queue keeps only the messages that match it. `typed`: it gets the default type if the arguments name none.
        Raises Locked if another client owns it, PreconditionFailed if the existing one differs or the arguments are
        wrong, AccessRefused for a reserved name, TooMany.
        """
        arguments, current = arguments or {}, self.queues.get(name)
        if typed and (current is None or default_type.ARGUMENT in current.arguments):
            default = self.default_queue_type
            arguments = default_type.typed(arguments, default, durable, exclusive, auto_delete)
        if current is not None:
            require_access(current, owner)
            if exclusive is not current.exclusive and self.broker.compat.locks_redeclared:
                raise locked(current)
            require_equivalent(current, durable, exclusive, auto_delete, arguments)
            current.used_at = self.broker.now
            return current
        if name.startswith(RESERVED) and not generated:
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        limits = parse_queue_arguments(name, self.name, durable, exclusive, auto_delete, arguments)
        self.broker.compat.check_transient_queue(durable, exclusive)
        self.broker.compat.check_queue_arguments(name, self.name, arguments)
        may_create()
        if name in self.queues:  # made by another client while a server was asked for permissions
            return self.declare_queue(
                name,
                durable,
                exclusive,
                auto_delete,
                arguments,
                owner,
                may_create,
                generated,
                selector,
                typed,
            )
        self.limits.require_queue(name, self.name, len(self.queues))
        terms = QueueTerms(
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            owner=owner if exclusive else None,
            arguments=arguments,
            selector=selector,
        )
        queue = new_queue(self, name, limits, terms)
        self.add_queue(queue)
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(queue)
        self._happened("queue.created", event_fields(queue))
        return queue

    def add_queue(self, queue: Queue) -> None:
        """Put a queue in place without the checks of a declaration, as when it is restored at a start."""
        self.queues[queue.name] = queue
        self.apply_queue_policy(queue)
        if queue.arguments:
            self.broker.notices.notice(self.name, "queue", queue.name, self.queue_warnings(queue))
        self.topology_changed()

    def queue_warnings(self, queue: Queue) -> list[str]:
        """Return sentences about the arguments of a queue that have no effect."""
        found = queue_warnings(queue.arguments, self.broker.queue_arguments) if queue.arguments else []
        if queue.limits.at_least_once is False:
            found = [*found, NOT_HELD]
        flows = queue.limits.overflow is Overflow.FLOW_TO_DISK
        return [*found, NO_DISK] if flows and self.broker.journal is None else found

    def pause_queue(self, queue: Queue, paused: bool) -> None:
        """Pause or resume a queue: paused, it delivers nothing to its consumers, also after a restart of the node."""
        if paused == queue.paused:
            return
        queue.pause(paused)
        notes = {name: value for name, value in queue.notes.items() if name != PAUSED}
        self.note(queue, {**notes, PAUSED: True} if paused else notes)
        self._happened("queue.paused" if paused else "queue.resumed", {"name": queue.name})

    def note(self, queue: Queue, notes: Table) -> None:
        """Keep notes of a queue's kind or of a front-end with a queue for as long as it lasts, across restarts."""
        if notes != queue.notes:
            queue.notes = notes
            if self.broker.catalogue is not None and not (queue.deleted or queue in self.ending):
                self.broker.catalogue.keep(queue)

    def delete_queue(self, queue: Queue, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue, its bindings and messages; return how many waited (X040). Raises PreconditionFailed.

        Where its messages go elsewhere, and some of them have to come from another machine first, the queue keeps them
        until they have come: its name is free at once, and it delivers nothing more.
        """
        if queue in self.ending:
            return 0
        if if_unused and queue.in_use:
            raise PreconditionFailed(f"{queue.described} in use")
        held = 0 if queue.dead_letters is None else queue.dead_letters.count
        if if_empty and (queue.ready or queue.returning or queue.delayed or queue.unreadable or held):
            raise PreconditionFailed(f"{queue.described} not empty")
        count = queue.ready
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
            self._happened("queue.deleted", {"name": queue.name})
        self.hidden_queues.pop(queue.name, None)
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        self.topology_changed()
        self._drop_exchanges(self._drop_incoming(queue))
        for guest in self.hearing:
            guest.queue_deleted(queue)
        self.ending.end(queue)
        return count

    def reserved(self, queue: Queue) -> int:
        """Return how many unsettled messages of a queue its guests have."""
        return sum([guest.reserved(queue) for guest in self.hearing])

    def add_hidden_queue(self, queue: Queue) -> None:
        """Make a queue reachable through the default exchange without listing it."""
        queue.hidden = True
        self.hidden_queues[queue.name] = queue
        self.topology_changed()

    # Policies.

    def apply_policies(self) -> None:
        """Make every exchange and queue obey the policies as they are now (S129)."""
        for _ in self.policy_steps():
            pass

    def policy_steps(self) -> Iterator[None]:
        """Apply the policies to one exchange or queue a step; those declared meanwhile obey at once anyway."""
        for exchange in list(self.exchanges.values()):
            self._apply_exchange_policy(exchange)
            yield
        for queue in [*self.queues.values(), *self.ending]:
            if not queue.deleted:
                self.apply_queue_policy(queue)
            yield
        self.topology_changed()

    def _apply_exchange_policy(self, exchange: Exchange) -> None:
        if exchange.name == "":
            return  # the default exchange can have no alternate (S145, S146)
        definition = self.broker.policies.for_exchange(self.name, exchange.name)
        exchange.alternate = effective_alternate(exchange.arguments, definition)
        exchange.reads_delays = True in (
            exchange.arguments.get("x-delayed-exchange"),
            definition.get("delayed-message"),
        )
        exchange.prepare()
        if self.broker.decorators:
            decorate(exchange, self.broker.decorators, definition)
        for guest in self.hearing:
            guest.exchange_changed(exchange, definition)

    def apply_queue_policy(self, queue: Queue) -> None:
        """Make a queue obey the policies as they are now."""
        definition = self.broker.policies.for_queue(self.name, queue.name, queue.type)
        limits = effective_limits(queue.declared_limits, definition)
        is_ending = queue in self.ending  # what has its name is another's then
        quorum = queue.type is QueueType.QUORUM
        obeyed = self.broker.compat.queue_limits(limits, quorum, self.broker.consumer_timeout_ms)
        if obeyed.at_least_once is False:
            self.broker.notices.notice(self.name, "queue", queue.name, [NOT_HELD])
        if obeyed.overflow is Overflow.FLOW_TO_DISK and self.broker.journal is None:
            self.broker.notices.notice(self.name, "queue", queue.name, [NO_DISK])
        credit = self.broker.flow_credit
        if credit is not None and queue.has_entries:
            obeyed = with_credit(obeyed, credit)
        queue.apply(shared(obeyed))
        if obeyed.slow_threshold is not None or queue.slow_consumers is not None:
            watch_consumers(queue)
        if not is_ending:
            for guest in self.hearing:
                guest.queue_changed(queue, definition)

    # The end.

    def close(self) -> None:
        """Delete everything in the virtual host, which is being deleted."""
        self.ending.closing = True
        for queue in self.ending:
            self.ending.end(queue)
        for queue in [*self.queues.values(), *self.hidden_queues.values()]:
            self.delete_queue(queue)
        for guest in self.guests:
            guest.close()
        for exchange in self.exchanges.values():
            self._no_longer_kept(exchange)
            _tell(exchange, exchange.type.close)
            for decorator in exchange.decorators:
                told(exchange, partial(decorator.deleted, exchange))


def generated_name(prefix: str) -> str:
    """Return a unique name: the prefix and 22 characters of base64url (S060, S097)."""
    return prefix + secrets.token_urlsafe(16)


def decorate_exchanges(host: VirtualHost) -> None:
    """Have the broker's decorators, which are others than before, look at every exchange."""
    for exchange in list(host.exchanges.values()):
        if exchange.name:
            definition = host.broker.policies.for_exchange(host.name, exchange.name)
            decorate(exchange, host.broker.decorators, definition)
    host.topology_changed()


def _tell(exchange: Exchange, tell: Callable[[], None]) -> None:
    """Tell an exchange type of a deletion, which continues if the type raises, so that nothing is half deleted."""
    try:
        tell()
    except PLUGIN_MISTAKES as error:
        exchange.route_errors += 1
        exchange.virtual_host.broker.report_route_error(exchange, error, "failed to hear of a deletion")
