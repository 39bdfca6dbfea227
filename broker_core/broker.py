"""The broker: virtual hosts, and the path of a message through them.

    publish ─> route (remembered) ─> Queue.push ─┐            once per message, nothing waits
    settle: dead letters ─> touched queues dispatch ─> publishers are told    once per batch of input

Between two calls of `settle` messages only pile up in queues; `settle` delivers them. One thread owns all of it. Time
comes from `clock` and stands still within a batch: `tick` reads it. With a journal, publishers of messages that must
be durable are told when these are on disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.alarms import Alarms
from leveret.arguments.row import Row
from leveret.clock import Clock
from leveret.config.compat import Compat
from leveret.config.file_objects import FileObjects
from leveret.config.global_parameters import Parameters
from leveret.delivery import UNLIMITED
from leveret.durability import LITTLE_OCTETS
from leveret.errors import NotFound, PreconditionFailed
from leveret.exchanges.answer import WrongAnswer, described, source_file
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, ExchangeType, Selected
from leveret.exchanges.routing import (
    Route,
    drops,
    give_anew,
    give_once,
    identity_at,
    is_duplicate,
    known_by_headers,
    route,
    walk,
)
from leveret.exchanges.standard import STANDARD
from leveret.guests import G, Guests
from leveret.limits import NodeLimits, QueueType, VirtualHostLimits
from leveret.message import Encoding, Message
from leveret.observability import event_exchange
from leveret.observability.retired_counters import RetiredCounters
from leveret.policy import Policies
from leveret.publishing.publish_rate import PublishRates
from leveret.publishing.publisher import Publisher as Publisher
from leveret.queues.dead_letters import bury
from leveret.queues.delays import due_ms_of
from leveret.queues.held_dead_letters import hold
from leveret.queues.queue import DELETED, Queue
from leveret.security.access import Access
from leveret.settling import Settling
from leveret.virtual_host import VirtualHost, decorate_exchanges

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.client import Client
    from leveret.exchanges.decorator import ExchangeDecorator
    from leveret.front_end import FrontEndInputs
    from leveret.interceptors.chain import Chain
    from leveret.observability.listing import Listing
    from leveret.operations import Operations
    from leveret.queues.pager import Pager

log: Final = logging.getLogger("leveret.broker")

# A connection's turn: how much of its input is processed before others are read from.
WORK_MAX: Final = 2000  # copies of messages, or as much other work: 2 to 6 ms
WALK: Final = 4  # copies that take as long as to find a route,
LOOKED_AT: Final = 4  # and bytes of properties that an exchange looks at in the time of one
SCANNED_AT: Final = 8 * LOOKED_AT  # the same of headers that are passed over, or whose octets are compared
TURN_S: Final = 0.001  # for what is not counted; a frame that has begun is finished


class Outcome(Enum):
    """The fate of a published message."""

    TAKEN = "taken"  # every matching queue has it, or an exchange took it itself
    UNROUTABLE = "unroutable"  # no queue matched
    REFUSED = "refused"  # at least one matching queue was full
    UNDELIVERABLE = "undeliverable"  # immediate, and no queue could deliver it at once


UNDELIVERABLE: Final = Outcome.UNDELIVERABLE


TAKEN: Final = Outcome.TAKEN
UNROUTABLE: Final = Outcome.UNROUTABLE
REFUSED: Final = Outcome.REFUSED


@mypyc_attr(allow_interpreted_subclasses=True)
class Broker(Settling):
    """The broker holds all state of one node that is not about sockets."""

    def __init__(
        self,
        clock: Clock | None = None,
        exchange_types: Mapping[str, type[ExchangeType]] | None = None,
        access: Access | None = None,
        policies: Policies | None = None,
        compat: Compat | None = None,
        node_limits: NodeLimits | None = None,
        alarms: Alarms | None = None,
        consumer_timeout_ms: int | None = 1_800_000,
        default_queue_type: QueueType | None = None,
        events_in: str = "",
        slow_call_s: float = 0.1,
    ) -> None:
        self.retired_counters = RetiredCounters()
        super().__init__(clock, self.retired_counters)
        self.exchange_types: Mapping[str, type[ExchangeType]] = (
            STANDARD if exchange_types is None else exchange_types
        )
        self.access = access or Access()
        self.access.now = self.clock.now
        self.policies = policies or Policies()
        self.parameters = Parameters()
        self.file_objects = FileObjects()
        self.notices = self.policies.notices
        self.queue_arguments: Mapping[str, Row] = {}  # those that protocols translate into ours
        self.access.events = self.policies.events = self.parameters.events = self.events
        self.events_in = events_in  # the virtual host with an exchange for events; empty: there is none
        self.compat = compat or Compat()
        self.node_limits = node_limits or NodeLimits()
        self.alarms = alarms or Alarms()
        self.consumer_timeout_ms = consumer_timeout_ms  # where neither queue nor consumer says otherwise
        self.slow_call_s = slow_call_s  # the longest call of a plug-in's code that is not reported
        # Of queues that name none, where the virtual host has none either.
        self.default_queue_type = default_queue_type
        self.interceptors: Chain | None = None  # see each published message first
        # Messages that may wait in a queue without limits before publishers wait.
        self.flow_credit: int | None = None
        self.virtual_hosts: dict[str, VirtualHost] = {}
        self.clients: dict[Client, None] = {}  # clients that have entered a virtual host
        self.connections_of: Counter[str] = Counter()  # the number of `clients`, by user
        self.channels_of: Counter[str] = Counter()  # by user, over all connections
        self.publish_rates = PublishRates(self)
        self.access.on_limits = self.publish_rates.changed_of_user
        self.access.on_deleted = self._user_deleted
        self.access.on_change = self._permissions_changed
        self.confirmed = self.returned = 0  # messages confirmed and messages returned to publishers
        self.operations: Operations | None = None  # the node, if the broker runs in one
        self.held_input: FrontEndInputs | None = None  # None: no input stands still in the middle of a call
        self.paging: Pager | None = None  # with a journal: moves messages out of memory, to be on disk only
        # by the protocol's name: makes the encoding of its messages
        self.encodings: Mapping[str, Callable[[], Encoding]] = {}
        self.decorators: tuple[ExchangeDecorator, ...] = ()  # of exchanges; see `decorate`
        # By the protocol's name: makes the ends of transfers on other brokers.
        self.remote_ends: Mapping[str, Callable[[], object]] = {}
        # By the protocol's name: returns what operators may list of it.
        self.listings: Mapping[str, Callable[[], Sequence[Listing]]] = {}
        # By the protocol's name: returns the exchange and the routing key of an address; see `Protocol.addressed`.
        self.addresses: Mapping[str, Callable[[str], tuple[str, str]]] = {}
        self.guests = Guests(self)

    def intercept(self, interceptors: Chain | None) -> None:
        """Have these interceptors, or none, see each message that is published from now on."""
        self.interceptors = interceptors
        for host in self.virtual_hosts.values():
            for exchange in host.exchanges.values():
                exchange.prepare()

    def decorate(self, decorators: tuple[ExchangeDecorator, ...]) -> None:
        """Have these decorators hear of what happens to exchanges from now on."""
        if decorators != self.decorators:
            self.decorators = decorators
            for host in self.virtual_hosts.values():
                decorate_exchanges(host)

    # Virtual hosts.

    def add_virtual_host(
        self, name: str, limits: VirtualHostLimits | None = None, kind: type[VirtualHost] = VirtualHost
    ) -> VirtualHost:
        """Return the virtual host of this name; create it, of this kind, or give the existing one these limits."""
        if (host := self.virtual_hosts.get(name)) is not None:
            if limits is not None:
                host.set_limits(limits)
            return host
        host = self.virtual_hosts[name] = kind(self, name, limits)
        if name == self.events_in:
            event_exchange.add_to(host)
        for guest in self.guests:
            guest.virtual_host_added(host)
        if self.catalogue is not None:
            self.catalogue.keep(host)
        self.events.happened("vhost.created", name, {"name": name})
        return host

    def guest(self, kind: type[G]) -> G:
        """Return the guest of this class, made on the first call."""
        return self.guests.of(kind)

    def _user_deleted(self, name: str) -> None:
        """Have clients and guests hear of it, so that nothing of the user's passes to the next of that name.

        The user's connections are closed, as by RabbitMQ.
        """
        for client in self.clients:
            client.user_deleted(name)
        for host in self.virtual_hosts.values():
            for guest in host.guests:
                guest.user_deleted(name)
        for guest in self.guests:
            guest.user_deleted(name)
        self.timers.at(self.now, partial(self._close_disowned, f"user '{name}' was deleted"))

    def _close_disowned(self, reason: str, now: float) -> None:
        if self.operations is not None:
            names = {client.name for client in self.clients if client.is_disowned}
            for connected in [each for each in self.operations.connections() if each.peer.name in names]:
                connected.shut_down(reason)

    def close(self) -> None:
        """Close the guests, and drop the waiting messages from memory; the store is not touched. May take seconds.

        Called when the node has ended, in the broker's thread: guests may look at the clock.
        """
        for guest in self.guests:
            guest.close()
        for host in self.virtual_hosts.values():
            for queue in (*host.queues.values(), *host.hidden_queues.values()):
                queue.let_go()

    def require_room(self, name: str) -> None:
        """Raise TooMany if this virtual host does not exist and the node's limit leaves no room to create it."""
        if name not in self.virtual_hosts:
            self.node_limits.require_virtual_host(name, len(self.virtual_hosts))

    def virtual_host(self, name: str) -> VirtualHost:
        """Return the virtual host of that name. Raises NotFound."""
        if (host := self.virtual_hosts.get(name)) is None:
            raise NotFound(f"vhost {name} not found")
        return host

    def _permissions_changed(self) -> None:
        """Have all that was checked of clients be checked anew."""
        for host in self.virtual_hosts.values():
            host.checks_revision += 1

    def delete_virtual_host(self, name: str) -> None:
        """Delete a virtual host with everything in it, and close the connections of its clients. Raises NotFound."""
        host = self.virtual_host(name)
        if self.operations is not None:
            self.operations.close_connections(f"vhost '{name}' is deleted", name)
        for guest in self.guests:
            guest.virtual_host_deleted(name)
        host.close()
        del self.virtual_hosts[name]
        self.access.forget_virtual_host(name)
        self.policies.forget_virtual_host(name)
        self.retired_counters.forget_virtual_host(name)
        if self.catalogue is not None:
            self.catalogue.forget(host)
        self.events.happened("vhost.deleted", name, {"name": name})

    def keep_in(self, catalogue: Catalogue) -> None:
        """Report every change to this catalogue from now on."""
        self.catalogue = self.access.catalogue = self.policies.catalogue = catalogue
        self.parameters.catalogue = catalogue

    def hosts(self) -> Iterable[VirtualHost]:
        return self.virtual_hosts.values()

    # The path of a message.

    def publish(self, exchange: Exchange, message: Message, is_prepared: bool = False) -> Outcome:
        """Route a message from `exchange` and put it into its queues. `is_prepared`: `prepare` has returned it."""
        exchange.published += 1
        if exchange.prepares and not is_prepared:
            prepared = self.prepare(exchange, message)
            if prepared is None:
                return REFUSED
            message = prepared
        if exchange.deduplication is not None:
            return self._publish_once(exchange, message)
        route = exchange.routes.get(message.key)
        facts = message.facts
        if (
            route is None
            or facts.cc
            or facts.bcc
            or exchange.routes_revision != exchange.virtual_host.revision
        ):
            route = self.route(exchange, message)
        if message.size > LITTLE_OCTETS and route.is_durable and self.lacks_room(message):
            return REFUSED
        if route.only is not None:
            return TAKEN if route.only.push(message) else REFUSED
        return self._outcome(exchange, route, route.give(message))

    def _outcome(self, exchange: Exchange, route: Route, taken: bool) -> Outcome:
        """Count a message that was given to a route; return what became of it."""
        self.work += len(route.queues)
        route.count(exchange)
        if route.unroutable:
            return UNROUTABLE
        return TAKEN if taken else REFUSED

    def lacks_room(self, message: Message) -> bool:
        """Return whether the disk has no room for a message, which would wait for it with all that makes room."""
        if self.journal is None or not message.facts.durable or self.journal.has_room_for(message.size):
            return False
        self.refused_by, self.refused_for = "", "the disk has no room for the message"
        return True

    def prepare(self, exchange: Exchange, message: Message) -> Message | None:
        """Return a published message as interceptors want it to be routed; None if one of them has refused it.

        A message that its headers put off will wait in the queues that get it. Called by `publish`, or by those that
        keep something of a message besides: they pass what this returns to `publish`.
        """
        try:
            return self.prepared(exchange, message)
        except PreconditionFailed as refusal:
            self.refused_by, self.refused_for = "", str(refusal)
            return None

    def prepared(self, exchange: Exchange, message: Message) -> Message:
        """Return what `prepare` does. Raises PreconditionFailed if an interceptor has refused the message."""
        if self.interceptors is not None:
            message = self.interceptors.incoming(exchange, message)
        if exchange.reads_delays:
            self.put_off(message)
        return message

    def put_off(self, message: Message) -> None:
        """Have a message wait in the queues that get it, if its headers say that it is for later."""
        if not message.facts.due_ms and (due_ms := due_ms_of(message.header, self.clock.wall() * 1000)):
            message.facts = message.facts.due_at(due_ms)

    def _publish_once(self, exchange: Exchange, message: Message) -> Outcome:
        """Publish a message from an exchange that drops duplicates, unless it is one."""
        identity = identity_at(exchange, message)
        if identity is not None and drops(exchange, identity):
            return TAKEN
        route = self.route(exchange, message)
        if message.size > LITTLE_OCTETS and route.is_durable and self.lacks_room(message):
            return REFUSED
        return self._outcome(exchange, route, give_once(exchange, identity, route, message))

    def publish_run(self, exchange: Exchange, messages: list[Message], copies_max: int = UNLIMITED) -> int:
        """Publish messages in order as long as each is simply `TAKEN`; return how many were, perhaps none.

        Their facts must be alike, their keys may differ. The rest is not touched: pass the next one to `publish`; those
        after it may be passed here again. Messages that go to several queues are taken until the batch has made more
        than `copies_max` copies.
        """
        facts, key = messages[0].facts, messages[0].key
        if (
            facts.cc
            or facts.bcc
            or exchange.prepares
            or exchange.routes_revision != exchange.virtual_host.revision
        ):
            return 0
        if exchange.by_headers:
            apart = exchange.deduplication is not None
            return 0 if apart else self._publish_scattered(exchange, messages, copies_max)
        for at, message in enumerate(messages):
            if message.key is not key:
                if exchange.deduplication is None:
                    return self._publish_scattered(exchange, messages, copies_max)
                messages = messages[:at]  # those with the first one's key
                break
        found = exchange.routes.get(key)
        if found is None:
            return 0
        if facts.durable and self.journal is not None:
            for each in messages:
                if each.size > LITTLE_OCTETS:
                    return 0  # it may be refused, while the disk is short of room
        known = exchange.deduplication
        if known is not None:
            identities = known.new_in(messages)
            messages = messages[: len(identities)]
            if not messages:
                return 0
        if found.only is not None:
            count = found.only.push_run(messages)
        else:
            copies = len(found.queues)
            if copies:
                messages = messages[: 1 + max(0, (copies_max - self.work) // copies)]
            count = found.give_run(messages)
            exchange.count_copies(copies, count)
            self.work += count * copies
        exchange.published += count
        if known is not None:
            known.remember_all(identities[:count], facts.durable and found.is_durable)
        return count

    def _publish_scattered(self, exchange: Exchange, messages: list[Message], copies_max: int) -> int:
        """Publish messages with any keys, as `publish_run` does: each queue gets its share at once.

        Messages whose route is not known, or for a queue that may refuse one, are left to `publish`.
        """
        shares: dict[Queue, list[Message]] = {}
        taken = copies = 0
        for message in messages:
            found = self.route(exchange, message) if exchange.by_headers else exchange.routes.get(message.key)
            if found is None or message.size > LITTLE_OCTETS:
                break
            queue = found.only
            if queue is not None and (share := shares.get(queue)) is not None:
                share.append(message)
                taken += 1
                if exchange.by_headers and self.work > copies_max:
                    break
                continue
            queues = found.queues if queue is not None else found.sharing()
            if not queues or False in [each in shares or each.takes_runs(message) for each in queues]:
                break
            for each in queues:
                shares.setdefault(each, []).append(message)
            taken += 1
            if queue is None:
                copies += len(queues)
                exchange.count_copies(len(queues))
                if self.work + copies > copies_max:
                    break
        for each, share in shares.items():
            pushed = each.push_run(share)
            assert pushed == len(share), "it takes all of a run"
        exchange.published += taken
        self.work += copies
        return taken

    def publish_if_room(self, exchange: Exchange, message: Message) -> Outcome | None:
        """Publish a message, unless a queue has no room for it: then return None, with nothing changed."""
        if exchange.prepares:
            prepared = self.prepare(exchange, message)
            if prepared is None:
                exchange.published += 1
                return REFUSED
            message = prepared
        route = self.route(exchange, message)
        if message.size > LITTLE_OCTETS and route.is_durable and self.lacks_room(message):
            return None
        if exchange.deduplication is None or not is_duplicate(exchange, message):
            for queue in route.queues:
                if not queue.has_room(1, message.size):
                    return None
        exchange.published += 1
        if exchange.deduplication is not None:
            return self._publish_once(exchange, message)
        if route.only is not None:
            return TAKEN if route.only.push(message) else REFUSED
        return self._outcome(exchange, route, route.give(message))

    def route(self, exchange: Exchange, message: Message) -> Route:
        """Return the route that `message` would take from `exchange` now. Nothing is delivered or counted."""
        is_copied = message.facts.cc or message.facts.bcc
        if not is_copied and exchange.routes_revision == exchange.virtual_host.revision:
            found = exchange.routes.get(message.key)
            if found is None and exchange.by_headers:
                found = known_by_headers(exchange, message)
                self.work += len(message.properties) // SCANNED_AT
            if found is not None:
                return found
        self.work += WALK + len(message.properties) // LOOKED_AT
        return walk(exchange, message) if is_copied else route(exchange, message)

    def publish_immediate(self, exchange: Exchange, message: Message) -> Outcome:
        """Publish a message, but only into queues that can deliver it to a consumer at once (S086, S142)."""
        exchange.published += 1
        if exchange.prepares:
            prepared = self.prepare(exchange, message)
            if prepared is None:
                return REFUSED
            message = prepared
        identity = None if exchange.deduplication is None else identity_at(exchange, message)
        if identity is not None and drops(exchange, identity):
            return TAKEN
        found = walk(exchange, message, wanted=lambda queue: queue.can_deliver_now(message))
        outcome = self._outcome(exchange, found, give_once(exchange, identity, found, message))
        is_undelivered = outcome is UNROUTABLE and not walk(exchange, message).unroutable
        return UNDELIVERABLE if is_undelivered else outcome

    def deliver(self, message: Message, destinations: Iterable[Destination]) -> None:
        """Put a message straight into queues, unless the selector of a binding keeps it from there.

        Used by exchange types that replay their history.
        """
        for destination in destinations:
            if isinstance(destination, Selected):
                if not destination.selector.matches(message):
                    continue
                destination = destination.end
            if isinstance(destination, Queue) and not destination.deleted:
                destination.push(message)

    def release_delayed(self, exchange: Exchange, message: Message) -> None:
        """Route and deliver a message that `exchange` had held back, alternates included."""
        exchange.count_copies(0, -1)  # as which it was counted
        give_anew(exchange, message)

    def settle(self) -> None:
        """Complete a batch: route dead letters, dispatch touched queues, run due timers, and tell publishers."""
        self.events.actor = ""  # events from here on are caused by the broker itself
        while True:
            while self.touched or self.dying:
                while self.dying:
                    bury(*self.dying.popleft())
                touched, self.touched = self.touched, []
                try:
                    for queue in touched:
                        queue.touched = False
                        queue.dispatch()
                except BaseException:  # a mistake of ours; the other queues wait for the next settle
                    self.touched += [q for q in touched if q.touched and q not in self.touched]
                    raise
            if not self.timers.run(self.now):
                break
        if self.paging is not None and self.now >= self.paging.due_at:
            self.paging.check(self.now)
        if self.journal is not None:
            publishers, self.publishers = self.publishers, []
            self.journal.settle(publishers)
        elif self.publishers:
            publishers, self.publishers = self.publishers, []
            for publisher in publishers:
                publisher.taken(publisher.mark())

    @property
    def is_behind(self) -> bool:
        """True if the disk has enough to do for now. Callers that can wait with more work should wait."""
        return self.journal is not None and self.journal.behind

    @property
    def is_stalled(self) -> bool:
        """Return whether commits wait for something that may come back by itself, such as a database."""
        return self.journal is not None and self.journal.stalled is not None

    def hold_answer(self) -> None:
        """Delay the answer to the current request until what it changed is on disk (a commit)."""
        if self.journal is not None and self.journal.dirty:
            self.journal.holds = True

    def tick(self) -> float:
        """Begin a new batch: read the clock and return its time in monotonic seconds."""
        self.work = 0
        if self.overfull:
            self.overfull.clear()
        self.now = self.clock.now()
        return self.now

    def is_turn_over(self) -> bool:
        """Return whether the connection whose input is being processed has had its turn: others come next."""
        return self.work > WORK_MAX or self.clock.now() - self.now > TURN_S

    # Dead letters.

    def dead_letter(self, queue: Queue, message: Message, reason: str) -> None:
        """Send a message that died in `queue` to the queue's dead-letter exchange, in the next settle.

        The queue's alternate exchange gets what the dead-letter exchange does not: rejected messages if there is no
        dead-letter exchange, and messages that waited when the queue was deleted. A queue that has dead letters
        delivered at least once holds them until their targets have taken them.
        """
        limits = queue.limits
        if limits.at_least_once and reason != DELETED:
            hold(queue, message, reason)
        elif limits.dead_letter_exchange is not None or limits.alternate_exchange is not None:
            self.dying.append((queue, message, reason))

    # Reports.

    def report_missing_alternate(self, exchange: Exchange, alternate: str) -> None:
        """Log that an alternate exchange does not exist, once for each exchange and alternate (S131)."""
        if exchange.warned_alternate != alternate and self.compat.warns_missing_alternate:
            exchange.warned_alternate = alternate
            host = exchange.virtual_host.name
            log.warning(
                "alternate exchange '%s' of exchange '%s' in vhost '%s' is missing",
                alternate,
                exchange.name,
                host,
            )

    def report_route_error(
        self,
        exchange: Exchange,
        error: BaseException,
        what: str = "failed to route; its alternate gets the messages",
    ) -> None:
        """Log that an exchange type has raised, the first time. The caller has counted it in `route_errors`."""
        if exchange.route_errors != 1:
            return
        if isinstance(error, WrongAnswer):  # its traceback is ours
            log.error("%s %s: %s (%s)", described(exchange), what, error, source_file(exchange))
        else:
            log.error("%s %s", described(exchange), what, exc_info=error)

    def report_slow_call(self, exchange: Exchange, method: str, took_s: float) -> None:
        """Log that nothing else could run while code of an exchange type did."""
        log.warning(
            "%s held the node up for %.0f ms in %s() (%s)",
            described(exchange),
            took_s * 1000,
            method,
            source_file(exchange),
        )
