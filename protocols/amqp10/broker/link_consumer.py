"""Links on which the peer consumes: a source to a queue, its messages to transfers, outcomes back to the queue.

    attach ─> Source (addresses.py), Terms (sources.py) ─> LinkConsumer ─> our attach, with the actual terms
    flow ───> credit ─> the queue dispatches ─> deliver ─> pieces of bytes ─> OutgoingLink.send
    disposition ─> the queue accepts, releases, rejects (outcomes.py); or a transaction holds that (transactions.py)

The hot path is `deliver` and the accepted outcome. Credit counts deliveries, settled or not; only flows grant it again,
whatever the outcome of the deliveries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from leveret.arguments.warnings import WARNINGS_MAX
from leveret.delivery import UNLIMITED, Consumer, Delivery, Held, Window
from leveret.errors import AccessRefused, Failure
from leveret.limits import QueueType
from leveret.observability.connection_stats import ConsumerFacts
from leveret.protocols.amqp10.broker import (
    dynamic_queues,
    kept_deliveries,
    node_lookup,
    outcomes,
    sources,
    subscriptions,
)
from leveret.protocols.amqp10.broker.ack_timeouts import Timeouts
from leveret.protocols.amqp10.broker.argument_rows import filter_warnings
from leveret.protocols.amqp10.broker.encoding import bare, is_like, split_pieces
from leveret.protocols.amqp10.broker.kept_deliveries import KeptReceiver, Resumption, Stay
from leveret.protocols.amqp10.broker.outcomes import Retiring
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.protocols.amqp10.machine.contract import OutgoingOwner
from leveret.protocols.amqp10.machine.link import size_exceeded
from leveret.protocols.amqp10.machine.outgoing_link import OutgoingLink
from leveret.queues.queue import Queue
from leveret.queues.reader_groups import GROUP
from leveret.queues.volatile import volatile_queue

if TYPE_CHECKING:
    from leveret.message import Message
    from leveret.protocols.amqp10.broker.outcomes import Outcome
    from leveret.protocols.amqp10.broker.recorded_deliveries import RecordedDeliveries
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.protocols.amqp10.broker.sources import Terms
    from leveret.protocols.amqp10.broker.subscriptions import Subscription

QUORUM: Final = QueueType.QUORUM

ONE: Final = 1  # byte of room: a single message is taken, however large
ACTIVE: Final = "rabbitmq:active"  # a property of the link's state
FAILED: Final = p.Modified(delivery_failed=True)
SHOWN: Final = object()  # the token of a delivery that a browser has seen: it stays the queue's
log: Final = logging.getLogger("leveret.amqp10")


def attach(session: ServedSession, link: OutgoingLink, attach: p.Attach) -> OutgoingOwner:
    """Serve a receiver. Raises Failure or AmqpError."""
    session.broker.node_limits.require_consumer(len(session.consumers))
    origin = _origin(session, link, attach)
    kept: KeptReceiver | None = None
    try:
        kept = kept_deliveries.claimed(session, attach, origin.queue)
        consumer = _consume(session, link, attach, origin, kept)
    except (AmqpError, Failure):
        if kept is not None:
            kept.leave(session)
        origin.abandon(session)
        raise
    session.consumers[consumer] = None
    if pause_ms := session.broker.compat.first_delivery_pause_ms:
        consumer.pause(pause_ms / 1000)
    origin.serve(consumer)
    return Hearing(consumer)


def _origin(session: ServedSession, link: OutgoingLink, attach: p.Attach) -> QueueSource | Subscription:
    source = attach.source
    if isinstance(source, p.Source):
        sources.outcomes_of(source)  # before anything is created
    subscription = subscriptions.attach(session, attach)
    if subscription is not None:
        return subscription
    if not isinstance(source, p.Source):  # X059
        raise AmqpError(p.INVALID_FIELD, "Attach refused: source_required")
    return QueueSource(_queue(session, link, source), source)


def _queue(session: ServedSession, link: OutgoingLink, source: p.Source) -> Queue:
    """Return the queue of a source, and declare it if the source asks for that (S185, S211, S221)."""
    client = session.client
    if source.dynamic:
        if dynamic_queues.wants_replies(source, link.settled):
            return volatile_queue(client)
        dynamic_queues.require_temporary_queue(source.capabilities, "source")
        return dynamic_queues.dynamic_queue(client, session.connection.container, link.name)
    found = node_lookup.source_at(session, source)
    if found.declares:
        client.require_readable(found.queue)  # before anything is created
        dynamic_queues.declared_queue(client, found.queue, source.durable, found.temporary)
    return client.readable_queue(found.queue)


def _consume(
    session: ServedSession,
    link: OutgoingLink,
    attach: p.Attach,
    origin: QueueSource | Subscription,
    kept: KeptReceiver | None,
) -> LinkConsumer:
    queue = origin.queue if origin.queue.hidden else session.client.readable_queue(origin.queue.name)
    terms = origin.adapted(sources.terms(attach, origin.source, queue, session.client.peer))
    takes = not (link.settled or terms.browses)
    if kept is not None and not takes:
        kept.expire()
        kept = None
    stay = kept_deliveries.granted(session, link, origin, takes)
    plan = None if kept is None else kept_deliveries.compared(kept, attach)
    consumer = LinkConsumer(session, link, origin, terms, stay)
    if stay is not None or kept is not None:
        link.tag_prefix = kept_deliveries.next_tag_prefix(session)
    if origin.source.filter:
        consumer.warnings = tuple(filter_warnings(origin.source.filter, terms.filters))[:WARNINGS_MAX]
        host = session.client.host.name
        session.broker.notices.notice(host, "receiver on queue", queue.name, consumer.warnings)
    try:
        session.client.consume(consumer)
    except AccessRefused as failure:  # S099: permissions are not the cause, but another consumer
        raise AmqpError(p.RESOURCE_LOCKED, str(failure)) from None
    try:
        states = None if plan is None else plan.listed
        link.attach(origin.told(terms, stay), attach.target, terms.properties or None, unsettled=states)
    except AmqpError:
        queue.remove_consumer(consumer)
        raise
    kept_deliveries.serve(consumer, stay, kept)
    if kept is not None and plan is not None:
        consumer.resume(Resumption(consumer, kept, plan))
    return consumer


class QueueSource:
    """A queue as a link's source. `Subscription` has the same interface."""

    __slots__ = ("queue", "source")
    is_subscription: ClassVar[bool] = False
    is_private: ClassVar[bool] = False  # other links may read from it

    def __init__(self, queue: Queue, source: p.Source) -> None:
        self.queue = queue
        self.source = source

    def adapted(self, terms: Terms) -> Terms:
        """Return the terms as this source grants them, unchanged."""
        return terms

    def told(self, terms: Terms, stay: Stay | None) -> p.Source:
        """Return the source for our attach. It ends with its link, or when its unsettled deliveries do not stay."""
        told = sources.actual(self.source, terms, self.queue)
        if self.queue.hidden:  # the terms of direct replies, even if others would do, too
            told.capabilities = [Symbol(dynamic_queues.VOLATILE_QUEUE)]
        told.durable = p.TERMINUS_DURABILITY_NONE
        told.expiry_policy, told.timeout = p.TERMINUS_EXPIRY_POLICY_LINK_DETACH, 0
        if stay is not None:
            if stay.durable:
                told.durable = p.TERMINUS_DURABILITY_UNSETTLED_STATE
            told.expiry_policy, told.timeout = stay.policy, stay.timeout_s
        return told

    def serve(self, consumer: LinkConsumer) -> None:
        """Reduce the source to what an attached link needs, because sources may be large and links many."""
        self.source = p.Source(dynamic=self.source.dynamic)

    def abandon(self, session: ServedSession) -> None:
        """Delete a dynamic queue again after a failed attach."""
        self._forget()

    def left(self, consumer: LinkConsumer, closed: bool) -> None:
        """Delete a dynamic queue after its link has ended."""
        self._forget()

    def _forget(self) -> None:
        """Delete the queue if it was created for the link (S211)."""
        if self.source.dynamic and not self.queue.deleted:
            self.queue.virtual_host.delete_queue(self.queue)


class LinkConsumer(Consumer, Retiring):
    """A consumer for a link from a queue. While its peer drains, it is a `Publisher`."""

    persistent: bool = False  # it publishes nothing

    __slots__ = (
        "_active",
        "_draining",
        "_pauses",
        "_stay",
        "_unsendable",
        "default_outcome",
        "final_outcome",
        "link",
        "origin",
        "record",
        "resumption",
        "session",
        "timeouts",
    )

    def __init__(
        self,
        session: ServedSession,
        link: OutgoingLink,
        origin: QueueSource | Subscription,
        terms: Terms,
        stay: Stay | None = None,
    ) -> None:
        super().__init__(
            origin.queue,
            link.settled,
            0,
            Window(0),
            terms.priority,
            terms.exclusive,
            terms.arguments,
            terms.selector,
            terms.browses,
        )
        self.session = session
        self.link = link
        self.origin = origin
        self.default_outcome = sources.default_outcome_of(origin.source)
        # That of deliveries that were kept until the receiver had lost its claim to them.
        self.final_outcome: Outcome = (
            FAILED if origin.source.default_outcome is None else self.default_outcome
        )
        self.resumption: Resumption | None = None  # of deliveries of an earlier link
        self.record: RecordedDeliveries | None = None  # if its deliveries outlive the node
        self._stay = stay  # what becomes of unsettled deliveries when the link is lost
        self.timeout_s = terms.timeout_s  # the limit for answers, if the receiver asked for its own
        self.timeouts = Timeouts(self)
        self._active: bool | None = None  # what the peer knows, once it has granted credit
        self._draining = False  # to be notified when the broker has settled
        self._pauses = 0  # the first delivery has to wait a moment, or for those that are resumed
        self._unsendable: list[Delivery] = []  # because of which the link is about to end

    def facts(self) -> ConsumerFacts:
        """Return the facts of the consumer. It has no prefetch: its credit is what the peer grants."""
        session = self.session
        return ConsumerFacts(tag=self.link.name, connection=session.client.name, channel=session.wire.channel)

    def unanswered(self) -> Held:
        return self.link.unsettled

    def room(self) -> int:
        """Return the room for deliveries, and copy the session's window, which is the number of transfers the peer
        accepts."""
        if self.bounds:
            return ONE if self._line_room() > 0 and self.may_take_more() else 0
        return self._line_room()

    def _line_room(self) -> int:
        if self._pauses:
            return 0
        transfers = self.session.wire.sending.room()
        if self.record is not None:
            transfers = min(transfers, self.record.room)
        self.window.credit = transfers
        return self.session.outbox.room() if transfers > 0 else 0

    def pause(self, pause_s: float) -> None:
        """Deliver nothing for a moment, so that the client has read the answer to its attach by then."""
        self._pauses += 1
        broker = self.session.broker
        broker.timers.at(broker.now + pause_s, self._go_on)

    def _go_on(self, now: float) -> None:
        self._pauses -= 1
        self.wake()

    def resume(self, resumption: Resumption) -> None:
        """Deliver nothing new before what was unsettled on an earlier link."""
        if not resumption.go_on():
            self.resumption = resumption
            self._pauses += 1

    def _go_on_resuming(self, resumption: Resumption) -> None:
        if resumption.go_on():
            self.resumption = None
            self._pauses -= 1

    def keep_nothing(self) -> None:
        """Have unsettled deliveries requeued when the link ends, however it does."""
        kept_deliveries.keep(self, (), self._stay, closed=True)
        self._stay = None

    def is_recorded(self) -> None:
        """Called when the deliveries that waited for the disk have been sent."""
        self._pauses -= 1
        self.credit = self.link.credit
        self.wake()

    def deliver(self, deliveries: list[Delivery]) -> None:
        if self.record is not None:
            if not self.record.waits:
                self._pauses += 1
            self.record.hold(deliveries)
            return
        link, settled = self.link, self.settled
        if settled:
            self.session.delivered_settled += len(deliveries)
        keep = not self.browses
        size_max = link.message_size_max or UNLIMITED
        tokens: list[object] = []
        begins: list[bytes] = []
        bares: list[bytes] = []
        bodies: list[bytes] = []
        last: Message | None = None
        begin = middle = b""
        for delivery in deliveries:
            message = delivery.message
            fresh = not (delivery.redelivered or delivery.attempts)
            if fresh and last is not None and is_like(message, last):
                body = message.body
                if message.properties is not last.properties:
                    middle = bare(message)
                    last = message
            else:
                try:
                    begin, middle, body = split_pieces(message, delivery)
                except Exception:  # the fault of another protocol's encoding: deliver the others
                    self.refuse(delivery)
                    continue
                # What is left to live of one is not what is left of another.
                last = message if fresh and message.facts.ttl_ms is None else None
            size = len(begin) + len(middle) + len(body)
            if size > size_max:
                self.cannot_send(delivery, size)
                continue
            tokens.append(delivery if keep else SHOWN)
            begins.append(begin)
            bares.append(middle)
            bodies.append(body)
        if tokens:
            link.send_all(tokens, begins, bares, bodies, settled)
        if keep and not settled:
            self.timeouts.watch(deliveries[0])
        consumers = self.session.consumers
        del consumers[self]
        consumers[self] = None  # the least recently served comes first when there is room again

    def refuse(self, delivery: Delivery) -> None:
        """Reject a message that cannot be read, or it would be redelivered for ever."""
        log.exception("cannot deliver a message of %s to '%s'", delivery.queue.described, self.link.name)
        self.credit += 1
        self.window.credit += 1
        if self.record is not None:
            self.record.forget((delivery,))
        if not self.settled and not self.browses:
            delivery.reject()

    def is_too_large(self, size: int) -> bool:
        """Return whether the peer takes no message of so many bytes."""
        return size > (self.link.message_size_max or UNLIMITED)

    def cannot_send(self, delivery: Delivery, size: int) -> None:
        """End the link for a message beyond the peer's max-message-size (S172), but after the queue's dispatch.

        The message has not been sent: it goes back as it was, also if it is not to be answered.
        """
        if not self._unsendable:
            broker, link = self.session.broker, self.link
            error = size_exceeded(size, link.message_size_max, self.session.link_errors_end)
            broker.timers.at(broker.now, lambda now: link.fail(error))
        self._unsendable.append(delivery)

    def cancelled(self) -> None:
        """Detach the link after its queue was deleted (S179), or its user may not read it any more."""
        self.keep_nothing()
        self.link.detach(AmqpError(p.RESOURCE_DELETED, f"{self.queue.described} was deleted"))

    def end_as_slow(self, why: str) -> None:
        self.link.detach(AmqpError(p.LINK_DETACH_FORCED, why))

    def elected(self) -> None:
        if self._active is False:
            self._tell_active(True)

    def passed_over(self) -> None:
        if self._active:
            self._tell_active(False)

    def _tell_active(self, active: bool) -> None:
        """Tell a consumer of a quorum queue, or of a group, if it is the active one (RabbitMQ's documentation of link
        state)."""
        self._active = active
        self.link.say({ACTIVE: active})

    def on_credit(self, link: OutgoingLink) -> None:
        told = self.queue.type is QUORUM or GROUP in self.arguments
        if self._active is None and link.credit and told:
            self._tell_active(self.queue.serves(self))
        if self.resumption is not None:
            self._go_on_resuming(self.resumption)
        self.credit = link.credit
        link.available = self.queue.available_to(self)
        self.wake()
        if link.drain and not self._draining:
            self._look_again()

    def _look_again(self) -> None:
        """Have `taken` called when the broker has settled."""
        self._draining = True
        self.session.broker.publishers.append(self)

    def mark(self) -> int:
        """Return 0: it publishes nothing, so it never waits for the disk."""
        self._draining = False
        return 0

    def taken(self, mark: int) -> None:
        """Finish a drain after the broker has settled: all messages are sent (S180), unless there was no room."""
        link = self.link
        if link.ended or not link.drain:
            return
        link.available = self.queue.available_to(self)
        if self.record is not None and self.record.waits:
            self._look_again()
            return
        if self.resumption is not None and self.resumption.is_endless:
            link.available = 0
        elif self.record is not None and not self.record.room:
            pass  # it gets no more before it has settled some
        elif self.credit > 0 and (self.queue.seeks_for(self) or (link.available and self._line_room() <= 0)):
            self._look_again()
            return
        link.drained()
        self.credit = link.credit

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        if self.browses:  # browsed deliveries are not acquired
            tokens = []
        elif isinstance(state, p.TransactionalState):
            self.session.transactions.settle(self, ids, tokens, state, settled)
            return
        elif self.session.transactions.hold_outcomes:
            ids, tokens = self.session.transactions.plainly(ids, tokens, state, settled)
        if state is None or isinstance(state, p.Received):
            if settled:
                self.retire(tokens, self.default_outcome)
            elif state is not None:
                self._renew(cast("list[Delivery]", tokens))
            return
        try:
            outcome = outcomes.outcome_in(state)
        except AmqpError:
            if settled:  # the link has forgotten them
                self.retire(tokens, self.default_outcome)
            raise
        self.retire(tokens, outcome)
        if self.record is not None:
            self.wake()
        if not settled:  # X070
            if self.record is not None:
                self.session.broker.hold_answer()
            self.link.settle(ids, outcome)

    def _renew(self, deliveries: list[Delivery]) -> None:
        """Begin the time for answers anew: the peer has received these and is at work (AMQP 1.0, part 3.4.1)."""
        for delivery in deliveries:
            delivery.queue.renew(delivery)

    def outcome_in(self, state: p.DeliveryState) -> Outcome:
        return outcomes.outcome_in(state)

    def retire(self, tokens: list[object], outcome: Outcome) -> None:
        if tokens:
            if self.record is not None:
                self.record.forget(tokens)
            if type(outcome) is p.Accepted:
                self.session.accepted += len(tokens)
            outcomes.apply(cast("list[Delivery]", tokens), outcome, self)

    def avoid(self, deliveries: list[Delivery]) -> bool:
        if not self.attached:
            return True
        if self.queue.hidden or self.origin.is_private:
            return False
        for delivery in deliveries:
            self.queue.avoid(delivery, self)
        return True

    def on_detached(self, tokens: list[object], closed: bool) -> None:
        """Remove the consumer. Unsettled deliveries get the default outcome; usually they are released (S178)."""
        self.timeouts.end()
        self.session.consumers.pop(self, None)
        self.queue.remove_consumer(self)
        if not self.browses:
            left = self.session.transactions.left(tokens)
            if self.record is not None:
                left += self.record.take_waiting()
            if self._stay is not None or self.resumption is not None:
                left = kept_deliveries.keep(self, left, self._stay, closed)
            self.retire(left, self.default_outcome)
            if self.record is not None:
                self.record.forget(self._unsendable)
            for delivery in self._unsendable:
                delivery.queue.unsend(delivery, self.settled)
            if self.record is not None:
                kept_deliveries.end_unless_kept(self.record.unsettled)
        self.origin.left(self, closed)


class Hearing(OutgoingOwner):
    """The machine's view of a consumer. It is an object of its own, because one compiled class cannot be both."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: LinkConsumer) -> None:
        self._consumer = consumer

    def on_credit(self, link: OutgoingLink) -> None:
        self._consumer.on_credit(link)

    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        self._consumer.on_outcomes(ids, tokens, state, settled)

    def on_detached(self, tokens: list[object], closed: bool) -> None:
        self._consumer.on_detached(tokens, closed)
