"""A connected client in one virtual host: every operation it may use, with its permissions checked on the way.

Every protocol goes through here, so that a permission is checked in one place, by one rule, with one error text (S087,
S098, S147). A client also owns what ends with its connection: its exclusive queues.

| verb                          | permission                                                    |
|-------------------------------|---------------------------------------------------------------|
| declare, delete, pause queue  | configure on the thing                                        |
| declare exchange, alternate   | also read on the exchange, write on the alternate             |
| declare queue, dead letters   | also read on the queue, write on the dead-letter exchange     |
| passive declare               | any of the three (S041)                                       |
| bind, unbind, list bindings   | write on the destination, read on the source (and on a topic) |
| publish                       | write on the exchange (and on a topic)                        |
| consume, get, purge           | read on the queue                                             |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from leveret.arguments.checks import text
from leveret.arguments.queue_declaration import refuse_void_type
from leveret.arguments.server_names import prefix_in, without_prefix
from leveret.config.compat import BindDefault
from leveret.delivery import Unanswered
from leveret.errors import AccessRefused, Locked, NotAllowed, NotFound, PreconditionFailed, Unsupported
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange
from leveret.limits import NAME_MAX, QueueType
from leveret.queues.queue import Queue, require_access
from leveret.security.authority import CONFIGURE, READ, WRITE, Authority
from leveret.security.users import User
from leveret.settling import Overlong
from leveret.values import Table
from leveret.virtual_host import generated_name

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.delivery import Consumer, Delivery
    from leveret.publishing.publish_rate import Meter
    from leveret.selectors.parser import Selector


def nothing() -> None:
    """Do nothing: a client that waits for no rate."""


class Client(Authority):
    """One user on one connection in one virtual host."""

    def __init__(self, broker: Broker, user: User, name: str = "") -> None:
        super().__init__(broker, user)
        self.name = name  # of the connection, for operators
        self.peer = object()  # stands for the other end of the connection
        self.meter: Meter | None = None  # counts what it publishes, where a rate is limited
        self.resumed: Callable[[], None] = nothing  # called when its meter, or a queue, lets it publish again
        self.waits_for: dict[Overlong, None] = {}  # queues that it has published to, and that are too long
        # by its consumers that began under such a limit, of its whole connection
        self.unanswered = Unanswered(0)
        self.exclusive_queues: dict[Queue, None] = {}
        self._entered = False

    # Coming and going.

    def part(self) -> Client:
        """Return a client for a session, which may outlast its connection: same user, but its own exclusive queues."""
        part = Client(self.broker, self.user, self.name)
        part.host = self.host
        part.peer = self.peer
        part.client_id = self.client_id
        part.unanswered = self.unanswered
        return part

    def enter(self, virtual_host: str) -> None:
        """Open a virtual host (S014-S016).

        Raises NotAllowed if it does not exist or the user has no permission in it, LimitReached if a limit is used up.
        """
        broker, user = self.broker, self.user
        try:
            host = broker.virtual_host(virtual_host)
        except NotFound as failure:
            raise NotAllowed(str(failure)) from None
        self.require_entry(user, virtual_host)
        broker.node_limits.require_connection(sum(h.connections for h in broker.hosts()))
        host.limits.require_connection(virtual_host, user.name, host.connections)
        user.limits.require_connection(user.name, broker.connections_of[user.name])
        self.host = host
        self._entered = True
        host.connections += 1
        broker.clients[self] = None
        broker.connections_of[user.name] += 1
        broker.publish_rates.join(self)
        self.happened("connection.created", {"name": self.name, "user": user.name, "vhost": virtual_host})

    def wait_for_overfull(self) -> None:
        """Wait for the queues that got too long by what this client has just published."""
        for each in self.broker.overfull:
            each.clients[self] = None
            self.waits_for[each] = None
        self.broker.overfull.clear()

    def released(self, overfull: Overlong) -> None:
        """Called by a queue that is shorter now, or has been deleted."""
        self.waits_for.pop(overfull, None)
        if not self.waits_for:
            self.resumed()

    def wait_no_longer(self) -> None:
        """Give up waiting for queues."""
        for each in self.waits_for:
            each.clients.pop(self, None)
        self.waits_for.clear()

    def abandon_queue(self) -> bool:
        """Give up one of the owned queues, as `leave` does with all. Return whether there was one."""
        if not self.exclusive_queues:
            return False
        self.acts()
        self.disown(next(reversed(self.exclusive_queues)))
        return True

    def leave(self) -> None:
        """Called when the connection or session has ended: delete exclusive queues (S067), give up other owned ones."""
        if self._entered:
            self._entered = False
            self.host.connections -= 1
            del self.broker.clients[self]
            self.wait_no_longer()
            self.broker.publish_rates.leave(self)
            count_down(self.broker.connections_of, self.user.name)
            self.happened("connection.closed", {"name": self.name, "user": self.user.name})
        for queue in list(self.exclusive_queues):
            self.disown(queue)

    def own(self, queue: Queue) -> None:
        """Own a queue exclusively as long as this client lasts; it stays afterwards, unless it was declared exclusive.

        Raises Locked if another client owns it, or it has consumers.
        """
        require_access(queue, self)
        if queue.owner is None and queue.consumers:
            raise Locked(f"cannot obtain exclusive access to {queue.described}: it has consumers")
        queue.owner = self
        self.exclusive_queues[queue] = None
        queue.auto_delete = queue.auto_delete and not queue.exclusive  # deleted with its owner, no sooner
        queue.taken_up()

    def disown(self, queue: Queue) -> None:
        """Give up ownership. A queue that was declared exclusive is deleted, at once or after its auto-delete delay."""
        if queue.exclusive and not queue.limits.auto_delete_delay_ms:
            self.host.delete_queue(queue)
            return
        del self.exclusive_queues[queue]
        queue.owner = None
        queue.auto_delete = queue.auto_delete or queue.exclusive
        queue.left_alone()

    def open_channel(self) -> None:
        """Count one more channel (session, ...). Raises LimitReached if the user has too many."""
        broker = self.broker
        self.user.limits.require_channel(self.user.name, broker.channels_of[self.user.name])
        if broker.node_limits.max_channels is not None:
            broker.node_limits.require_channel(broker.channels_of.total())
        self.broker.channels_of[self.user.name] += 1
        self.happened("channel.created", {"connection_name": self.name, "user": self.user.name})

    def close_channel(self) -> None:
        count_down(self.broker.channels_of, self.user.name)
        self.happened("channel.closed", {"connection_name": self.name, "user": self.user.name})

    # Exchanges.

    def declare_exchange(
        self,
        name: str,
        type_: str,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> Exchange:
        """Declare an exchange (S035-S041, S147, S148)."""
        self.acts()
        _not_default(name)
        _require_short(name)
        if name not in self.host.exchanges:
            self.broker.compat.check_name("exchange", name)
        self.check(CONFIGURE, "exchange", name)
        alternate = text((arguments or {}).get("alternate-exchange"))

        def may_create() -> None:
            self.check_target("exchange", name, alternate)

        return self.host.declare_exchange(name, type_, durable, auto_delete, internal, arguments, may_create)

    def find_exchange(self, name: str) -> Exchange:
        """Return an exchange for a passive declaration. Raises NotFound (S041)."""
        _not_default(name)
        self.check_any("exchange", name)
        return self.host.exchange(name)

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange; a missing one is fine, unless the profile says otherwise (S043)."""
        self.acts()
        _not_default(name)
        self.check(CONFIGURE, "exchange", name)
        if name in self.host.exchanges or not self.broker.compat.delete_missing_ok:
            self.host.delete_exchange(name, if_unused)

    def known_exchange(self, name: str) -> Exchange | None:
        """Return the exchange, or None if there is none. Raises AccessRefused if the user has no permission on it."""
        self.check_any("exchange", name)
        return self.host.exchanges.get(name)

    # Bindings.

    def bind(self, source: str, destination: str, is_exchange: bool, key: str, arguments: Table) -> None:
        """Bind a queue, or an exchange, to an exchange (S054, S056, S073)."""
        self.acts()
        _require_short(key)
        origin, target = self._ends(source, destination, is_exchange, key)
        self.host.bind(origin, target, key, arguments)

    def unbind(self, source: str, destination: str, is_exchange: bool, key: str, arguments: Table) -> None:
        """Remove a binding; a missing one is fine, unless the profile says otherwise (S057)."""
        self.acts()
        lenient = self.broker.compat.delete_missing_ok
        try:
            origin, target = self._ends(source, destination, is_exchange, key)
        except NotFound:
            if lenient:
                return
            raise
        if not self.host.unbind(origin, target, key, arguments) and not lenient:
            raise NotFound(f"no binding {key} between exchange '{source}' and '{destination}'")

    def bindings(self, source: str, destination: str, is_exchange: bool, key: str) -> list[Binding]:
        """Return the bindings between two ends with a key; needs the permissions that making them needs (X084)."""
        origin, target = self._ends(source, destination, is_exchange, key)
        found = self.host.bindings_to(target)
        return [binding for binding in found if binding.source is origin and binding.key == key]

    def _ends(
        self, source: str, destination: str, is_exchange: bool, key: str
    ) -> tuple[Exchange, Destination]:
        if is_exchange or self.broker.compat.bind_default is BindDefault.REFUSE:
            _not_default(source)
        if is_exchange:
            _not_default(destination)
        self.check(WRITE, "exchange" if is_exchange else "queue", destination)
        self.check(READ, "exchange", source)
        target = self._destination(destination, is_exchange)
        origin = self.host.exchange(source)
        if origin.type.name == "topic":
            self.check_topic(READ, origin, key)
            # Others may have deleted either while a server was asked about the key.
            target, origin = self._destination(destination, is_exchange), self.host.exchange(source)
        return origin, target

    def _destination(self, name: str, is_exchange: bool) -> Destination:
        return self.host.exchange(name) if is_exchange else self.own_queue(name)

    # Queues.

    def own_queue(self, name: str) -> Queue:
        """Return a queue, permissions aside. Raises NotFound, or Locked if another client owns it (S066)."""
        queue = self.host.queue(name)
        require_access(queue, self)
        return queue

    def declare_queue(
        self,
        name: str,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        prefix: str = "amq.gen-",
        ours: bool = False,
        selector: Selector | None = None,
    ) -> Queue:
        """Declare a queue; an empty name asks for a generated one, which begins with `prefix` (S060-S066, S079), or as
        the argument `x-name-prefix` says.

        `ours`: the broker chose the name, though it is not a generated one, and the queue serves the broker: the
        default type of queues is not for it. `selector`: see `VirtualHost.declare_queue`.
        """
        self.acts()
        given = arguments or {}
        arguments = without_prefix(given)
        targets = [text(arguments.get(each)) for each in ("x-dead-letter-exchange", "x-alternate-exchange")]
        generated = ours or name == ""
        refuse_void_type(given, f"queue '{name}' in vhost '{self.host.name}'")
        if name not in self.host.queues:
            self.broker.compat.check_name("queue", name)
        name = name or generated_name(prefix_in(given, prefix))
        _require_short(name)
        self.check(CONFIGURE, "queue", name)

        def may_create() -> None:
            for target in targets:
                self.check_target("queue", name, target)

        queue = self.host.declare_queue(
            name, durable, exclusive, auto_delete, arguments, self, may_create, generated, selector, not ours
        )
        if queue.owner is self:
            self.exclusive_queues[queue] = None
        return queue

    def find_queue(self, name: str) -> Queue:
        """Return a queue for a passive declaration, which counts as use. Raises NotFound (S064)."""
        self.check_any("queue", name)
        queue = self.own_queue(name)
        queue.used_at = self.broker.now
        return queue

    def known_queue(self, name: str) -> Queue | None:
        """Return the queue, whichever client owns it, or None if it does not exist. For reading only."""
        self.check_any("queue", name)
        return self.host.queues.get(name)

    def purge(self, name: str) -> int:
        """Drop waiting messages (S074) and return how many there were."""
        self.check(READ, "queue", name)
        return self.own_queue(name).purge()

    def drop_delayed(self, name: str, positions: Iterable[int] | None) -> int:
        """Drop messages that wait for a time, by their positions, or all of a queue; return how many there were."""
        self.check(READ, "queue", name)
        later = self.own_queue(name).later
        return later.purge() if positions is None else later.drop(positions)

    def hasten(self, name: str, positions: Iterable[int]) -> int:
        """Make messages that wait for a time ready now, by their positions; return how many there were."""
        self.check(READ, "queue", name)
        return self.own_queue(name).later.hasten(positions)

    def pause_queue(self, name: str, paused: bool) -> None:
        """Pause or resume the deliveries of a queue to consumers."""
        self.acts()
        self.check(CONFIGURE, "queue", name)
        self.host.pause_queue(self.own_queue(name), paused)

    def reread_queue(self, name: str) -> int:
        """Have messages of a queue read again that could not be read, and return how many."""
        self.acts()
        self.check(CONFIGURE, "queue", name)
        return self.own_queue(name).reread()

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and return how many messages waited; a missing one is fine in most profiles (S075, S076)."""
        self.acts()
        self.check(CONFIGURE, "queue", name)
        if name not in self.host.queues and self.broker.compat.delete_missing_ok:
            return 0
        queue = self.own_queue(name)
        if queue.type is QueueType.QUORUM and (if_unused or if_empty):
            flag = "if-unused" if if_unused else "if-empty"
            raise Unsupported(
                f"cannot delete {queue.described}. "
                f"queue.delete operations with {flag} flag set are not supported by quorum queues"
            )
        return self.host.delete_queue(queue, if_unused, if_empty)

    # Messages.

    def publish_target(self, exchange: str, keys: Iterable[str] = ()) -> Exchange:
        """Return an exchange after every check that publishing to it with these keys needs (S046, S047, S087, S088)."""
        self.check(WRITE, "exchange", exchange)
        target = self.host.exchange(exchange)
        require_not_internal(target)
        self.check_topics(target, keys)
        return target

    def readable_queue(self, name: str) -> Queue:
        """Return a queue that this client may take messages from (S066, S098)."""
        self.check(READ, "queue", name)
        return self.own_queue(name)

    def consume(self, consumer: Consumer) -> None:
        """Attach a consumer to its queue, which came from `readable_queue` (S099).

        The node's limits on unanswered bytes are those of this moment.
        """
        self.acts()
        if not (consumer.settled or consumer.browses):
            self._bound(consumer)
        consumer.queue.add_consumer(consumer)

    def _bound(self, consumer: Consumer) -> None:
        limits, paging = self.broker.node_limits, self.broker.paging
        if paging is not None:
            paging.came(consumer)
        if limits.max_unacknowledged is not None:
            consumer.bounds.append(Unanswered(limits.max_unacknowledged))
        if limits.max_unacknowledged_per_connection is not None:
            self.unanswered.octets_max = limits.max_unacknowledged_per_connection
            consumer.bounds.append(self.unanswered)

    def get(self, queue: Queue, settled: bool, paused_too: bool = False) -> Delivery | None:
        """Fetch one message, or return None if the queue has none (S083, S112), or is paused: then it seems empty.

        `paused_too`: fetch from a paused queue as well, for an operator. Raises NotAtHand if the message is on its way
        here: the caller asks again in a moment.
        """
        if queue.limits.single_active:
            raise Locked(
                f"cannot obtain access to locked {queue.described}. basic.get operations are not supported by "
                "classic queues with single active consumer"
            )
        delivery = queue.take_one(settled) if not queue.paused or paused_too else None
        if delivery is None:
            queue.count_fetched_none()
        return delivery


def require_not_internal(exchange: Exchange) -> None:
    """Raise AccessRefused for an internal exchange: clients may not publish to it (S047)."""
    if exchange.internal:
        host = exchange.virtual_host.name
        raise AccessRefused(f"cannot publish to internal exchange '{exchange.name}' in vhost '{host}'")


def count_down(counter: Counter[str], name: str) -> None:
    """Count a name down, and forget it at 0, since users come and go."""
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


def _not_default(name: str) -> None:
    if name == "":
        raise AccessRefused("operation not permitted on the default exchange")


def _require_short(name: str) -> None:
    """Raise PreconditionFailed for a name or key that is too long for some protocol."""
    if len(name) > NAME_MAX // 4 and len(name.encode("utf-8", "surrogateescape")) > NAME_MAX:
        raise PreconditionFailed(f"'{name[:40]}...' has more than {NAME_MAX} octets")
