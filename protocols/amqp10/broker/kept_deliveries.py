"""Resumption of receivers (AMQP 1.0 part 2, section 2.6.13): deliveries that a lost link leaves unsettled stay its own.

    link lost ──> kept for its receiver for a time, as the source's expiry-policy says (termini.py) ──> requeued
    attached again, with the receiver's `unsettled` map ──> compared with ours ──> resumed, before anything new

| the receiver says of a kept delivery | the delivery                                                              |
|--------------------------------------|---------------------------------------------------------------------------|
| nothing                              | gets the default outcome: it has not arrived, or what settled it was lost |
| nothing, in an incomplete map        | is kept until the link is attached again                                  |
| null                                 | is sent again as a whole, with `resume`                                   |
| received, up to a place              | is sent from there on, with `resume`                                      |
| a state in a transaction             | is sent again as a whole: that transaction is over                        |
| an outcome                           | gets that outcome, and is resumed as settled, without its message         |

What the receiver alone lists has been settled by us, or was requeued: our map leaves it out, so that it is forgotten.

A receiver asks for all this by an expiry-policy `connection-close` or `never`, or a timeout; the default policy,
`session-end`, does not count as asking. The time is limited (`link_timeout_max_s`), and so are number and bytes of what
is kept. A source tells what is granted. All of this outlives the node if the source asks for a timeout, and for the
durability `unsettled-state` (recorded_deliveries.py). Else messages that were unsettled are requeued at the next start,
and the source tells no such durability (part 3, section 3.5.5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import attrs

from leveret.features.unsettled_maps.unsettled_map import (
    LinkNames,
    UnsettledMap,
    can_be_kept,
    unsettled_map,
    unsettled_maps_of,
)
from leveret.limits import QueueType
from leveret.protocols.amqp10.broker import outcomes
from leveret.protocols.amqp10.broker.encoding import pieces
from leveret.protocols.amqp10.broker.recorded_deliveries import RecordedDeliveries
from leveret.protocols.amqp10.broker.termini import Key, Terminus, key_of, termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.sections import MalformedError, offset_of
from leveret.protocols.amqp10.codec.types import DecodeError, Value, encode
from leveret.protocols.amqp10.codec.wire import cut
from leveret.queues.queue import Watcher, unwatch, watch

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.delivery import Delivery
    from leveret.protocols.amqp10.broker.link_consumer import LinkConsumer, QueueSource
    from leveret.protocols.amqp10.broker.outcomes import Outcome
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.protocols.amqp10.broker.subscriptions import Subscription
    from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
    from leveret.queues.queue import Queue
    from leveret.values import Table

DELIVERIES_MAX: Final = 1024  # of a link that are kept, the oldest; the others are requeued
RECEIVERS_MAX: Final = 1000  # of a virtual host that something is kept for; beyond that, the oldest expires
OCTETS_MAX: Final = 64 * 1024 * 1024  # bytes of all kept messages of a virtual host; beyond that, likewise
RECEIVER: Final = "receiver"  # the role in the names of a link whose deliveries are on disk

State: TypeAlias = "p.DeliveryState | None"


class Fate(Enum):
    """The end that a kept delivery comes to when its receiver attaches again."""

    FORGOTTEN = auto()
    KEPT = auto()
    SENT_AGAIN = auto()
    CONTINUED = auto()
    SETTLED = auto()


def fate(listed: bool, state: State, lists_all: bool) -> Fate:
    """Return what becomes of a kept delivery, by the receiver's map. Raises AmqpError for a state that says nothing."""
    if not listed:
        return Fate.FORGOTTEN if lists_all else Fate.KEPT
    if state is None or isinstance(state, p.TransactionalState):
        return Fate.SENT_AGAIN
    if isinstance(state, p.Received):
        return Fate.CONTINUED
    try:
        outcomes.outcome_in(state)
    except AmqpError as error:
        raise AmqpError(p.INVALID_FIELD, f"Attach refused: unsettled: {error.description}") from None
    return Fate.SETTLED


def state_of(value: Value) -> State:
    """Return the state that stands in an `unsettled` map. Raises AmqpError."""
    if value is None:
        return None
    octets = encode(value)
    try:
        state, _ = p.decode(octets, 0, len(octets))
    except (DecodeError, AmqpError):
        state = None
    if not isinstance(state, outcomes.Outcome | p.Received | p.TransactionalState):
        raise AmqpError(
            p.INVALID_FIELD, f"Attach refused: unsettled: {value!r:.100} is no state of a delivery"
        )
    return state


@attrs.frozen
class Stay:
    """The time that a link's unsettled deliveries stay with it when it is lost."""

    policy: str
    timeout_s: int
    longest_s: int  # whatever the policy waits for
    durable: bool = False  # they stay over a restart of the node


def granted(
    session: ServedSession, link: OutgoingLink, origin: QueueSource | Subscription, takes: bool
) -> Stay | None:
    """Return how long the deliveries of a source stay, or None if it does not ask for that, or cannot have it.

    `takes`: its messages are taken from the queue, and unsettled until they are answered.
    """
    source, queue = origin.source, origin.queue
    longest_s = session.connection.config.protocols.amqp10.link_timeout_max_s
    policy, timeout_s = str(source.expiry_policy), int(source.timeout)
    lasting = (p.TERMINUS_EXPIRY_POLICY_CONNECTION_CLOSE, p.TERMINUS_EXPIRY_POLICY_NEVER)
    if not (longest_s and takes and (timeout_s or policy in lasting)):
        return None
    if source.dynamic or queue.hidden or queue.type is QueueType.STREAM or "shared" in source.capabilities:
        return None
    if policy == p.TERMINUS_EXPIRY_POLICY_NEVER:
        policy, timeout_s = p.TERMINUS_EXPIRY_POLICY_LINK_DETACH, longest_s
    timeout_s = min(timeout_s, longest_s)
    durable = bool(timeout_s) and _outlives(session, link, origin)
    return Stay(policy, timeout_s, longest_s, durable)


def _outlives(session: ServedSession, link: OutgoingLink, origin: QueueSource | Subscription) -> bool:
    """Return whether the deliveries of a source, which has a timeout, stay over a restart of the node.

    JMS clients ask for that with each durable subscription and do not resume: it has to be asked for with mode second
    there. A queue with groups could not give several messages of one group to the receiver at the start.
    """
    source, queue = origin.source, origin.queue
    asks = source.durable == p.TERMINUS_DURABILITY_UNSETTLED_STATE
    if link.rcv_settle_mode != p.RECEIVER_SETTLE_MODE_SECOND and origin.is_subscription:
        return False
    is_kept = bool(queue.number) and queue.limits.group_key is None
    return asks and is_kept and can_be_kept(session.client.host, _names(session, link.name))


def _names(session: ServedSession, link: str) -> LinkNames:
    return RECEIVER, *key_of(session, link)


class KeptReceiver(Terminus):
    """The deliveries of a link that its receiver had not settled. `unsettled` is what of them is on disk."""

    __slots__ = ("_longest", "_octets", "_outcome", "_stay", "_unsettled", "_watch", "deliveries", "queue")

    def __init__(
        self,
        key: Key,
        queue: Queue,
        stay: Stay,
        outcome: Outcome,
        deliveries: dict[bytes, Delivery],
        unsettled: UnsettledMap | None,
    ) -> None:
        super().__init__(termini_of(queue.virtual_host), key)
        self.policy, self.timeout_s = stay.policy, stay.timeout_s
        self.queue = queue
        self.deliveries = deliveries  # by tag, in the order of sending
        self._stay = stay
        self._outcome = outcome  # for those that nobody comes back for
        self._unsettled = unsettled
        self._octets = sum(each.message.size for each in deliveries.values())
        self._longest: Timer | None = None
        self._watch = DeletionWatch(self)
        watch(self.queue, self._watch)
        self._enter()

    def _enter(self) -> None:
        termini = self._termini
        termini.receivers[self.key] = self
        termini.octets_kept += self._octets
        while len(termini.receivers) > RECEIVERS_MAX or termini.octets_kept > OCTETS_MAX:
            next(iter(termini.receivers.values())).expire()

    @property
    def has_gone(self) -> bool:
        return self._termini.receivers.get(self.key) is not self

    def leave(self, session: ServedSession) -> None:
        if not self.has_gone:
            broker = self._termini.broker
            self._longest = broker.timers.at(broker.now + self._stay.longest_s, lambda now: self.expire())
            super().leave(session)

    def stay(self) -> None:
        super().stay()
        self._termini.broker.timers.cancel(self._longest)
        self._longest = None

    def forget(self) -> None:
        """Keep nothing any more: the deliveries are another's now."""
        if not self.has_gone:
            self.stay()
            unwatch(self.queue, self._watch)
            del self._termini.receivers[self.key]
            self._termini.octets_kept -= self._octets

    def expire(self) -> None:
        if not self.has_gone:
            self.forget()
            outcomes.apply([*self.deliveries.values()], self._outcome, None)
            if self._unsettled is not None:
                self._unsettled.end()


def restore(unsettled: UnsettledMap, key: Key) -> None:
    """Take the deliveries that a receiver had before a restart off their queue again, and keep them for it.

    Raises ValueError, AmqpError or DecodeError if what is on disk is damaged.
    """
    notes, terms = unsettled.notes, unsettled.terms
    policy, timeout_s, octets = terms.get("policy"), terms.get("timeout"), terms.get("outcome")
    queue = unsettled.host.queues.get(str(terms.get("queue")))
    if not isinstance(policy, str) or not isinstance(timeout_s, int) or not isinstance(octets, bytes):
        raise ValueError("its terms are missing")
    outcome, _ = p.decode(octets, 0, len(octets))
    if not isinstance(outcome, outcomes.Outcome):
        raise ValueError("its outcome is none")
    taken = [] if queue is None else queue.take_stored(sorted(notes.values()))
    found = {delivery.position: delivery for delivery in taken}
    deliveries = {tag: found[position] for tag, position in sorted(notes.items()) if position in found}
    for tag in notes.keys() - deliveries.keys():  # damaged, or replaced by a newer value
        unsettled.unnote(tag)
    if queue is None or not deliveries:
        unsettled.end()
        return
    stay = Stay(policy, timeout_s, timeout_s, durable=True)
    KeptReceiver(key, queue, stay, outcome, deliveries, unsettled).outlive_all()


class DeletionWatch(Watcher):
    """Tells what is kept of a queue that the queue has been deleted."""

    __slots__ = ("_kept",)

    def __init__(self, kept: KeptReceiver) -> None:
        self._kept = kept

    def queue_deleted(self) -> None:
        self._kept.expire()


def next_tag_prefix(session: ServedSession) -> bytes:
    """Return the prefix for the delivery tags of a link whose deliveries may be resumed."""
    return termini_of(session.client.host).next_tag_prefix()


def claimed(session: ServedSession, attach: p.Attach, queue: Queue) -> KeptReceiver | None:
    """Return what is kept for a receiver that comes back to this queue, or None.

    If it lists what it has not settled and its old link is still there, that has lost its connection, and is stolen; so
    is any whose deliveries outlive the node.
    If the attach fails, `leave` must follow, else `Resumption`.
    """
    termini, key = termini_of(session.client.host), key_of(session, attach.name)
    is_back = attach.unsettled is not None or (RECEIVER, *key) in unsettled_maps_of(session.client.host)
    if is_back and (before := termini.served.get(key)) is not None:
        before.detach(AmqpError(p.LINK_STOLEN, f"link '{attach.name}' was attached elsewhere"))
    kept = termini.receivers.get(key)
    if not isinstance(kept, KeptReceiver):
        return None
    if kept.queue is not queue:
        kept.expire()
        return None
    kept.stay()
    return kept


@attrs.frozen
class Plan:
    """The fates of the kept deliveries, by their tags."""

    fates: Mapping[bytes, tuple[Fate, State]]
    lists_all: bool  # the receiver's map is complete

    @property
    def listed(self) -> dict[bytes, State]:
        """The `unsettled` map for our attach. We know no state of these deliveries."""
        named = (Fate.SENT_AGAIN, Fate.CONTINUED, Fate.SETTLED)
        return {tag: None for tag, (kind, _) in self.fates.items() if kind in named}


def compared(kept: KeptReceiver, attach: p.Attach) -> Plan:
    """Compare what is kept with the receiver's map. Raises AmqpError."""
    says, lists_all = attach.unsettled or {}, not attach.incomplete_unsettled
    fates: dict[bytes, tuple[Fate, State]] = {}
    for tag, delivery in kept.deliveries.items():
        state = state_of(says.get(tag))
        kind = fate(tag in says, state, lists_all)
        if isinstance(state, p.Received):
            _place(delivery, state)
        fates[tag] = kind, state
    return Plan(fates, lists_all)


def _place(delivery: Delivery, state: p.Received) -> tuple[bytes, bytes, int]:
    """Return a message in two pieces, and from where on its receiver needs it. Raises AmqpError."""
    delivery.queue.bring((delivery,))
    begin, body = pieces(delivery.message, delivery)
    try:
        at = offset_of(begin + body, int(state.section_number), int(state.section_offset))
    except MalformedError as error:
        raise AmqpError(p.INVALID_FIELD, f"Attach refused: unsettled: {error.description}") from None
    return begin, body, at


class Resumption:
    """Deliveries that a receiver's link resumes, as its credit allows, before it gets new messages."""

    __slots__ = ("_consumer", "_is_last", "_steps", "behind")

    def __init__(self, consumer: LinkConsumer, kept: KeptReceiver, plan: Plan) -> None:
        """Begin after our attach has been sent: settle what the maps settle."""
        self._consumer = consumer
        self._steps: deque[tuple[bytes, Delivery | None, State]] = deque()
        self.behind: dict[bytes, Delivery] = {}  # for the next time that the link is attached
        kept.forget()
        told = consumer.link.told_unsettled
        for tag, delivery in kept.deliveries.items():
            kind, state = plan.fates[tag]
            if kind is Fate.FORGOTTEN:
                consumer.retire([delivery], consumer.default_outcome)
            elif kind is Fate.SETTLED:
                consumer.retire([delivery], cast("Outcome", state))
                if tag in told:
                    self._steps.append((tag, None, None))
            elif tag in told:
                self._steps.append((tag, delivery, state))
            else:
                self.behind[tag] = delivery
        # Nothing new may be sent to a receiver that could not list all (part 2, section 2.7.3), and nothing is sent
        # where we could not: the link is attached again for the others.
        self._is_last = plan.lists_all and consumer.link.tells_all

    def go_on(self) -> bool:
        """Resume as many deliveries as the link has credit for. Return whether new ones may follow."""
        link = self._consumer.link
        while self._steps and link.credit > 0 and not link.ended:
            tag, delivery, state = self._steps.popleft()
            if delivery is None:
                link.resume(None, tag, [], 0, True)
            else:
                self._resume(tag, delivery, state)
        return self._is_last and not self._steps

    @property
    def is_endless(self) -> bool:
        """True if nothing new will follow on this link."""
        return not (self._is_last or self._steps)

    def _resume(self, tag: bytes, delivery: Delivery, state: State) -> None:
        consumer = self._consumer
        try:
            begin, body, at = _place(
                delivery,
                state if isinstance(state, p.Received) else p.Received(section_number=0, section_offset=0),
            )
        except Exception:  # the fault of another protocol's encoding
            consumer.link.resume(None, tag, [], 0, True, aborted=True)
            consumer.refuse(delivery)
            return
        size = len(begin) + len(body)
        if consumer.is_too_large(size):
            consumer.cannot_send(delivery, size)
            return
        delivery.consumer = consumer
        delivery.given_at = consumer.session.broker.now
        consumer.link.resume(delivery, tag, cut([begin, body], at, size), size - at, False)
        consumer.timeouts.watch(delivery)

    def rest(self) -> dict[bytes, Delivery]:
        """Return the deliveries that have not been resumed."""
        steps = {tag: delivery for tag, delivery, _ in self._steps if delivery is not None}
        return steps | self.behind


def serve(consumer: LinkConsumer, stay: Stay | None, kept: KeptReceiver | None) -> None:
    """Note a link whose deliveries will be kept, also on disk if its source was granted that."""
    session, link = consumer.session, consumer.link
    host, names = session.client.host, _names(session, link.name)
    if stay is not None:
        termini_of(host).served[key_of(session, link.name)] = link
    if stay is not None and stay.durable:
        terms: Table = {
            "policy": stay.policy,
            "timeout": stay.timeout_s,
            "queue": consumer.queue.name,
            "outcome": consumer.final_outcome.encode(),
        }
        unsettled = unsettled_map(host, names, terms)
        deliveries = {} if kept is None else kept.deliveries
        prefix = next_tag_prefix(session)
        while any(tag.startswith(prefix) for tag in deliveries):  # the clock was set back since
            prefix = next_tag_prefix(session)
        consumer.record = RecordedDeliveries(consumer, unsettled, deliveries, prefix)
        if (journal := session.broker.journal) is not None:
            # What our map leaves out has been settled: our attach waits until that is on disk.
            journal.holds = True
    elif (before := unsettled_maps_of(host).get(names)) is not None:
        before.end()


def end_unless_kept(unsettled: UnsettledMap) -> None:
    """Remove from the store what is there of a link that has ended, unless it leaves deliveries, or is followed."""
    termini, (_, *key) = termini_of(unsettled.host), unsettled.names
    name = cast("Key", tuple(key))
    if name not in termini.receivers and name not in termini.served:
        unsettled.end()


def keep(consumer: LinkConsumer, tokens: Sequence[object], stay: Stay | None, closed: bool) -> list[object]:
    """Keep what an ended link leaves unsettled, if its source was granted that. Return the deliveries to release."""
    rest = {} if consumer.resumption is None else consumer.resumption.rest()
    if stay is None:
        return [*tokens, *rest.values()]
    session, link = consumer.session, consumer.link
    termini, key = termini_of(session.client.host), key_of(session, link.name)
    if termini.served.get(key) is link:
        del termini.served[key]
    if closed or consumer.queue.deleted or session.client.is_disowned:
        return [*tokens, *rest.values()]
    free = dict.fromkeys(tokens)
    sent = {tag: cast("Delivery", token) for token, tag in link.left() if token in free}
    found = list((sent | rest).items())
    released: list[object] = [delivery for _, delivery in found[DELIVERIES_MAX:]]
    kept = dict(found[:DELIVERIES_MAX])
    names = dict.fromkeys(cast("object", each) for each in sent.values())
    released += [token for token in tokens if token not in names]
    if kept:
        if (before := termini.receivers.get(key)) is not None:
            before.expire()
        unsettled = None if consumer.record is None else consumer.record.unsettled
        KeptReceiver(key, consumer.queue, stay, consumer.final_outcome, kept, unsettled).leave(session)
    return released
