"""Subscriptions: sources that are exchanges. Each has a queue of its own, bound to the exchange; it may outlive a link.

    attach ──> created, or found ──link detached──> waits and expires as its source asked (termini.py)

A source asks to outlive its link with a durability, an expiry-policy or a timeout (part 3, section 3.5.3). Such a
subscription is known by the container and the link's name, and found again from any connection; a link that is closed
ends it. A durable one outlives the node as well, with which its link, session and connection have ended. A null source
asks for the subscription of that name. If it is in use, a new link takes it over (amqp:link:stolen), unless it is
`shared`: then several links get its messages in turn, and their names count up to the first `|`. A shared subscription
that is also `global` does not belong to its container. This is how JMS clients use all that.

Any other source stands for a subscription that ends with its link, and has a generated name (S219, S220).

A selector belongs to the subscription: messages that do not match it are not kept. A link that comes back with another
selector, exchange or key replaces the subscription, whose messages are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from leveret.errors import Failure
from leveret.protocols.amqp10.broker import addresses, node_lookup, sources
from leveret.protocols.amqp10.broker.registration import SUBSCRIPTION
from leveret.protocols.amqp10.broker.termini import Key, Terminus, termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.client import Client
    from leveret.protocols.amqp10.broker.kept_deliveries import Stay
    from leveret.protocols.amqp10.broker.link_consumer import LinkConsumer
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.protocols.amqp10.broker.sources import Terms
    from leveret.queues.queue import Queue
    from leveret.selectors.parser import Selector
    from leveret.values import Table
    from leveret.values import Value as Neutral

log: Final = logging.getLogger("leveret.amqp10")

TOPIC, SHARED, GLOBAL = "topic", "shared", "global"
CAPABILITIES: Final = (TOPIC, SHARED, GLOBAL)
SHARES: Final = "|"  # behind the subscription's name, in the name of a link that shares it


@attrs.frozen
class SubscriptionTerms:
    """The subscription that a source asks for."""

    exchange: str
    key: str
    selector: str | None
    durable: bool

    @classmethod
    def met_by(cls, queue: Queue) -> SubscriptionTerms | None:
        """Return the wish that one of our queues fulfils, or None if it has no binding."""
        binding = next(iter(queue.virtual_host.bindings_to(queue)), None)
        if binding is None:
            return None
        selector = None if queue.selector is None else queue.selector.text
        return cls(binding.source.name, binding.key, selector, queue.durable)


def attach(session: ServedSession, attach: p.Attach) -> Subscription | None:
    """Return the subscription of an attach, created or found, or None if the attach asks for none.

    If the attach fails, `abandon` must follow, else `serve`. Raises Failure or AmqpError.
    """
    source = attach.source
    if source is None:
        found = _known(session, _key(session, attach.name, attach.desired_capabilities, lasts=True))
        if found is not None:
            found.come_back(session.client)
        return found
    if not isinstance(source, p.Source) or source.dynamic:
        return None
    meant = node_lookup.source_at(session, source, _is_explicit(source))
    if meant.exchange is None:
        return None
    selector = sources.selector_of(source)
    wish = SubscriptionTerms(
        meant.exchange, meant.key, None if selector is None else selector.text, source.durable > 0
    )
    key = _key(session, attach.name, source.capabilities, _lasts(source))
    if not _lasts(source) and SHARED not in source.capabilities:
        local = {"x-no-local": True} if sources.wants_no_local(source) else {}
        return Subscription(_subscribed_queue(session.client, "", wish, selector, local), key, source)
    found = _known(session, key)
    if found is not None and SubscriptionTerms.met_by(found.queue) == wish:
        found.come_back(session.client, source)
        return found
    if found is not None:
        found.make_way(session.client, wish)
    return Subscription(_subscribed_queue(session.client, _queue_name(key), wish, selector), key, source)


def _is_explicit(source: p.Source) -> bool:
    """Return whether the source asks for a subscription, so that an exchange of version 2 is valid (S196)."""
    return source.durable > 0 or TOPIC in source.capabilities or SHARED in source.capabilities


def _lasts(source: p.Source) -> bool:
    """Return whether it asks to outlive its link. The default policy, session-end, does not count as asking."""
    lasting = (p.TERMINUS_EXPIRY_POLICY_CONNECTION_CLOSE, p.TERMINUS_EXPIRY_POLICY_NEVER)
    return source.durable > 0 or source.timeout > 0 or source.expiry_policy in lasting


def _key(session: ServedSession, link: str, capabilities: Sequence[str], lasts: bool) -> Key:
    if SHARED not in capabilities:
        return "", session.connection.container, link
    kind = SHARED if lasts else "volatile"
    if GLOBAL in capabilities:
        return f"{GLOBAL}.{kind}", "", link.partition(SHARES)[0]
    return kind, session.connection.container, link.partition(SHARES)[0]


def _queue_name(key: Key) -> str:
    """Return the queue's name for a key: unique, and short enough for all protocols."""
    kind, container, link = (addresses.encoded(each) for each in key)
    name = f"amq.sub.{kind}-{container}/{link}" if kind else f"amq.sub-{container}/{link}"
    return name if len(name) <= addresses.NAME_SIZE_MAX else f"amq.sub-{sha256(name.encode()).hexdigest()}"


def _subscribed_queue(
    client: Client,
    name: str,
    wish: SubscriptionTerms,
    selector: Selector | None,
    arguments: Table | None = None,
) -> Queue:
    """Declare and bind a new queue; a queue without a name is for this connection alone."""
    queue = client.declare_queue(
        name, wish.durable, exclusive=not name, arguments=arguments, ours=True, selector=selector
    )
    try:
        client.bind(wish.exchange, queue.name, False, wish.key, {})
    except Failure:
        client.host.delete_queue(queue)
        raise
    return queue


def _known(session: ServedSession, key: Key) -> Subscription | None:
    """Return the subscription of this key, also if only its queue is left, or None."""
    host = session.client.host
    known = termini_of(host).sources.get(key)
    if isinstance(known, Subscription) and not known.has_gone:
        return known
    queue = host.queues.get(_queue_name(key))
    wish = None if queue is None else SubscriptionTerms.met_by(queue)
    if queue is None or wish is None:
        return None
    source = p.Source(
        address=addresses.exchange_address(wish.exchange, wish.key),
        durable=p.TERMINUS_DURABILITY_UNSETTLED_STATE,
        expiry_policy=p.TERMINUS_EXPIRY_POLICY_NEVER,
        capabilities=[TOPIC],
    )
    return Subscription(queue, key, source, is_new=False)


def restore(broker: Broker) -> None:
    """Restore subscriptions from the notes on their queues, and start the time-outs of those that expire."""
    for host in broker.hosts():
        for queue in list(host.queues.values()):
            if SUBSCRIPTION not in queue.notes:
                continue
            try:
                key, source = _noted(queue.notes[SUBSCRIPTION])
            except (AmqpError, ValueError) as error:
                log.error("the notes of the subscription of %s cannot be read: %s", queue.described, error)
            else:
                Subscription(queue, key, source, is_new=False).outlive_all()


def _noted(notes: Neutral) -> tuple[Key, p.Source]:
    """Parse the notes on a subscription. Raises AmqpError or ValueError if they are malformed."""
    if isinstance(notes, Mapping):
        key, octets = notes.get("key"), notes.get("source")
        if isinstance(key, list) and isinstance(octets, bytes):
            kind, container, link = key
            source, _ = p.decode(octets, 0, len(octets))
            if isinstance(source, p.Source):
                return (str(kind), str(container), str(link)), source
    raise ValueError("there is no key and no source")


class Subscription(Terminus):
    """A queue that is bound to an exchange, and the links that are served from it."""

    __slots__ = ("is_new", "links", "queue", "source")
    is_subscription: ClassVar[bool] = True

    def __init__(self, queue: Queue, key: Key, source: p.Source, is_new: bool = True) -> None:
        super().__init__(termini_of(queue.virtual_host), key)
        self.queue = queue
        self.is_new = is_new  # no link has been served from it
        self.links: dict[LinkConsumer, None] = {}
        self._ask(source)
        if not queue.exclusive:
            self._termini.keep_source(self)

    def _ask(self, source: p.Source) -> None:
        self.source = source  # as last requested
        self.policy, self.timeout_s = p.TERMINUS_EXPIRY_POLICY_LINK_DETACH, 0
        if _lasts(source):
            self.policy, self.timeout_s = str(source.expiry_policy), int(source.timeout)

    def adapted(self, terms: Terms) -> Terms:
        """Return a link's terms without filters and browsing, which are matters of the subscription."""
        return sources.of_subscription(terms, self.source, self.queue.exclusive)

    def told(self, terms: Terms, stay: Stay | None) -> p.Source:
        """Return the source for our attach. It outlives the node; the states of its deliveries do if these stay."""
        told = sources.actual(self.source, terms, self.queue)
        told.distribution_mode = p.STD_DIST_MODE_COPY
        told.capabilities = [name for name in self.source.capabilities if name in CAPABILITIES]
        if stay is None or not stay.durable:
            told.durable = min(told.durable, p.TERMINUS_DURABILITY_CONFIGURATION)
        told.expiry_policy, told.timeout = self.policy, self.timeout_s
        return told

    def serve(self, consumer: LinkConsumer) -> None:
        """Add a link, which gets messages from now on."""
        self.source = sources.kept(self.source)
        self.source.capabilities = [name for name in self.source.capabilities if name in CAPABILITIES]
        self.is_new = False
        self.links[consumer] = None
        if self.queue.number:  # it is kept in the store
            noted: Table = {"key": list(self.key), "source": self.source.encode()}
            self.queue.virtual_host.note(self.queue, {**self.queue.notes, SUBSCRIPTION: noted})

    def abandon(self, session: ServedSession) -> None:
        """End or keep the subscription after a failed attach."""
        if self.is_new:
            self.expire()
        elif not self.links:
            self.leave(session)

    def left(self, consumer: LinkConsumer, closed: bool) -> None:
        """Remove a link that has ended. `closed`: its peer will not resume it."""
        if self.links.pop(consumer, self) is self or self.links:
            return  # it was taken over, or others are left
        if closed or self.has_gone:
            self.expire()
        else:
            self.leave(consumer.session)

    def come_back(self, client: Client, source: p.Source | None = None) -> None:
        """Reuse the subscription for a new link, with this source or as it was. Raises Failure."""
        queue, wish = self.queue, SubscriptionTerms.met_by(self.queue)
        assert wish is not None
        client.readable_queue(queue.name)
        # A client that comes back needs the permissions for creating it, because it may also end it.
        client.declare_queue(queue.name, queue.durable, arguments=queue.arguments, ours=True)
        client.bind(wish.exchange, queue.name, False, wish.key, {})
        if source is not None:
            self._ask(source)
        self.stay()
        if not self.is_private:
            return
        links, self.links = self.links, {}
        for consumer in links:
            consumer.link.detach(
                AmqpError(p.LINK_STOLEN, f"link '{consumer.link.name}' was attached elsewhere")
            )

    def make_way(self, client: Client, wish: SubscriptionTerms) -> None:
        """Delete this subscription in favour of another one of the same name. Raises Failure or AmqpError.

        It stays as it is if the client is not permitted to have the other one.
        """
        client.require_readable(self.queue.name)
        client.bindings(wish.exchange, self.queue.name, False, wish.key)
        if self.links and not self.is_private:
            why = f"subscription '{self.key[2]}' is shared by others with another address or selector"
            raise AmqpError(p.RESOURCE_LOCKED, why)
        client.delete_queue(self.queue.name)
        self.expire()

    @property
    def is_private(self) -> bool:
        """True if it is not shared: one link at a time is served from it."""
        return not self.key[0]

    @property
    def has_gone(self) -> bool:
        return self.queue.deleted

    def expire(self) -> None:
        self.stay()
        self._termini.forget_source(self)
        if not self.queue.deleted:
            self.queue.virtual_host.delete_queue(self.queue)
