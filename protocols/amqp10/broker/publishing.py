"""Links on which the peer publishes: a target to an exchange and a key, messages to the broker, outcomes back.

    attach ─> TargetAddress (addresses.py) ─> PublishTarget: checked ─┐
    message ─> Projection (projection.py): facts, properties, ... ────┴─> Broker.publish ─> answered once it has settled

This is the hot path. The checks of publishing are made once for each address, and the result is cached as long as
neither topology nor permissions change. The sections in front of a message's body are read once for messages that begin
alike, or differ in values that the broker does not look at.

A message without a target is the sender's mistake: on a link with an address of its own the message is released and the
link ends; on the anonymous terminus the message is rejected and the link goes on, unless the message is settled and
only the end of the link can report the error (S203, S204, S206, S208). A message that its sender may not publish is
rejected in the same way on any link: the others, and the session, go on (S182).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.broker import TAKEN, UNROUTABLE, WORK_MAX
from leveret.config.compat import OrphanedSender
from leveret.errors import AccessRefused, Failure, PreconditionFailed, no_queue
from leveret.exchanges.exchange_type import Exchange
from leveret.message import Facts, Message
from leveret.protocols.amqp10.broker import addresses, dynamic_queues, node_lookup, resumption, sources
from leveret.protocols.amqp10.broker.encoding import ENCODING, expiry_of
from leveret.protocols.amqp10.broker.errors import refusal
from leveret.protocols.amqp10.broker.projection import Projection
from leveret.protocols.amqp10.broker.transactions import ACCEPTED, RELEASED, rejected
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import LINK, AmqpError
from leveret.protocols.amqp10.codec.types import Described, Symbol, Value
from leveret.protocols.amqp10.machine.contract import IncomingOwner
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.publishing.publish_targets import (
    UNCHECKED,
    PublishTarget,
    checked_target,
    current_target,
    targets_of,
)
from leveret.queues.queue import Queue, Watcher, unwatch, watch

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.client import Client
    from leveret.protocols.amqp10.broker.session import ServedSession


DETACH: Final = OrphanedSender.DETACH

DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"  # the capability by which JMS clients ask for delivery times
MISDIRECTED: Final = frozenset((p.NOT_FOUND, p.PRECONDITION_FAILED, p.INVALID_FIELD))
CAPABILITIES: Final = ("queue", "topic")  # of our targets, for senders that ask for them
ORPHAN_PAUSE_S: Final = 0.02  # from a queue's deletion to the end of the links that publish to it


def attach(session: ServedSession, link: IncomingLink, attach: p.Attach) -> IncomingOwner:
    """Serve a sender. Raises Failure or AmqpError."""
    target = p.Target() if attach.target is None else attach.target
    if not isinstance(target, p.Target):
        raise AmqpError(p.NOT_IMPLEMENTED, "no target of that kind")
    if isinstance(attach.source, p.Source):
        sources.outcomes_of(attach.source)  # X057
    if target.dynamic:
        return _attach_to_new_queue(session, link, attach.source, target)
    addressed: Addressed | None = None
    if target.address is None:
        owner: Publishing = Anonymous(session, link)
    else:
        found = node_lookup.target_at(session, target)
        owner = addressed = Addressed(session, link, found)
        _require_queue(session.client, found, target.durable)
    kept = resumption.kept_for(session, attach)
    resumption.tell_durability(session, link, target)
    target.capabilities = [name for name in target.capabilities if name in CAPABILITIES]
    wished = [wish for wish in attach.desired_capabilities if wish == DELAYED_DELIVERY]
    states = resumption.states_of(kept, attach)
    try:
        link.attach(attach.source, target, offered_capabilities=wished, unsettled=states)
    except AmqpError:
        resumption.forget(session, link.name)
        raise
    if addressed is not None:
        addressed.watch_queue()
    return resumption.serve(session, link, owner, target, kept)


def _require_queue(client: Client, target: addresses.TargetAddress, durability: int) -> None:
    """Require the target's queue, or declare it if the address asks for that (S184, S215, S216)."""
    if target.queue is None:
        return
    if target.declares:
        dynamic_queues.declared_queue(client, target.queue, durability)
    elif client.host.destination_queue(target.queue) is None:
        raise no_queue(target.queue, client.host.name)


def _attach_to_new_queue(
    session: ServedSession, link: IncomingLink, source: p.Source | Described | None, target: p.Target
) -> Addressed:
    """Serve a sender to a dynamic target (S211, X062)."""
    dynamic_queues.require_temporary_queue(target.capabilities, "target")
    client = session.client
    target_at(client, "", "")  # before the queue is created
    queue = dynamic_queues.dynamic_queue(client, session.connection.container, link.name)
    owner = Addressed(session, link, addresses.TargetAddress("", queue.name, queue=queue.name), queue)
    try:
        link.attach(source, _temporary(queue))
    except AmqpError:
        client.host.delete_queue(queue)
        raise
    owner.watch_queue()
    return owner


def _temporary(queue: Queue) -> p.Target:
    return p.Target(
        address=addresses.queue_address(queue.name),
        expiry_policy=p.TERMINUS_EXPIRY_POLICY_LINK_DETACH,
        dynamic=True,
        dynamic_node_properties={"lifetime-policy": p.DeleteOnClose()},
        capabilities=[dynamic_queues.TEMPORARY_QUEUE],
    )


def target_at(client: Client, exchange: str, key: str) -> PublishTarget:
    """Check that the client may publish there; return the target. Raises Failure, or AmqpError if it is internal
    (S198)."""
    host = client.host
    source = host.exchanges.get(exchange)
    if source is not None and source.internal:
        why = f"forbidden to publish to internal exchange '{exchange}' in vhost '{host.name}'"
        raise AmqpError(p.UNAUTHORIZED_ACCESS, why)
    return checked_target(client, exchange, key)


class Publishing(IncomingOwner):
    """A link that publishes. The subclasses find the target of each message."""

    __slots__ = (
        "_accepted",
        "_answers",
        "_client",
        "_default_priority",
        "_farewell",
        "_host",
        "_known",
        "_marked",
        "_peer",
        "_session",
        "_target",
        "_varies",
        "broker",
        "link",
    )
    is_anonymous: ClassVar[bool]  # an error of a message without a target does not end the link

    def __init__(
        self, session: ServedSession, link: IncomingLink, target: PublishTarget, varies: bool
    ) -> None:
        self.link = link
        self.broker = session.broker
        self._session = session
        self._client = session.client
        self._peer = session.client.peer  # the other end of the connection, for receivers with no-local
        self._host = session.client.host
        self._target = target  # of the last message
        self._known: Projection | None = None  # of the last message that was projected
        self._varies = varies  # each message has a target of its own
        self._default_priority = self.broker.compat.default_priority
        self._farewell: AmqpError | None = None  # ends the link when everything is answered
        self._accepted: list[int] = []  # deliveries to accept when the broker has settled
        self._answers: list[tuple[int, p.DeliveryState]] = []  # answers with another outcome
        # Accepted deliveries and answers, for each mark.
        self._marked: deque[tuple[list[int], list[tuple[int, p.DeliveryState]]]] = deque()

    @abstractmethod
    def _target_now(self, to: str | None, subject: str | None) -> PublishTarget:
        """Return the target of a message under the present topology and permissions. Raises Failure or AmqpError."""

    @abstractmethod
    def _misdirected(self, delivery_id: int, tag: bytes, settled: bool, error: AmqpError) -> None:
        """Handle a message without a target."""

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        try:
            known = self._project(payload)
            target = self._target_of(known)
            facts = known.facts
            if known.delay_ms:
                facts = facts.due_at(known.delay_ms + int(self.broker.clock.wall() * 1000))
            if known.expires and (expiry_ms := expiry_of(known.properties)) is not None:
                facts = known.facts.expiring(max(0, expiry_ms - int(self.broker.clock.wall() * 1000)))
            message = Message(
                ENCODING, target.exchange.name, target.key, known.properties, payload[known.body_at :], facts
            )
            message.peer = self._peer
            if state is not None and isinstance(state, p.TransactionalState):
                self._publish_in_tx(delivery_id, settled, state, target.exchange, message)
                return
            outcome = self.broker.publish(target.exchange, message)
        except (AmqpError, Failure) as failure:
            self._refused(delivery_id, tag, settled, state, failure)
            return
        if self.broker.work > WORK_MAX:
            self._session.connection.wire.halted = True
        if settled:  # X067
            return
        if outcome is not TAKEN:
            unwanted = outcome is UNROUTABLE
            self._session.returned += unwanted
            self.broker.returned += unwanted
            self._answer_later(delivery_id, RELEASED if unwanted else refused_by(self.broker))
            return
        if facts.durable:
            self._session.persistent = True
        if not self._accepted and not self._answers:
            self._session.published(self)
        self._accepted.append(delivery_id)

    def on_run(self, delivery_ids: list[int], payloads: list[bytes], settled: bool) -> int:
        count, persistent = 0, False
        while count < len(payloads):
            try:
                known = self._project(payloads[count])
                taken = self._publish_run(self._target_of(known), known, payloads, count)
            except (AmqpError, Failure):
                break
            if not taken:
                break
            count += taken
            persistent = persistent or known.facts.durable
            if self.broker.work > WORK_MAX:
                self._session.connection.wire.halted = True
                break
        if settled or not count:
            return count
        if persistent:
            self._session.persistent = True
        if not self._accepted and not self._answers:
            self._session.published(self)
        self._accepted += delivery_ids if count == len(delivery_ids) else delivery_ids[:count]
        return count

    def _publish_run(
        self, target: PublishTarget, first: Projection, payloads: list[bytes], begin: int
    ) -> int:
        """Publish messages from number `begin` on, which is projected as `first`, while queues treat them alike, they
        are simply taken, and WORK_MAX permits.

        Returns how many were taken. Raises Failure.
        """
        if first.delay_ms or first.expires:
            return 0  # each has a time of its own
        exchange, name, key, peer = target.exchange, target.exchange.name, target.key, self._peer
        messages: list[Message] = []
        known = first
        for at in range(begin, len(payloads)):
            payload = payloads[at]
            properties = known.properties if at == begin else known.properties_of(payload)
            if properties is None:
                found = self._next_of(first, known, payload)
                if found is None:
                    break
                if self._varies and (found.to != known.to or found.subject != known.subject):
                    other = self._target_with_route(exchange, found)
                    if other is None:
                        break
                    key = other.key
                known, properties = found, found.properties
            message = Message(ENCODING, name, key, properties, payload[known.body_at :], known.facts)
            message.peer = peer
            messages.append(message)
        self._known = known if known.may_hold else None
        return self.broker.publish_run(exchange, messages, WORK_MAX)

    def _next_of(self, first: Projection, last: Projection, payload: bytes) -> Projection | None:
        """Return the projection of a message, or None if it has to be published apart from the first of its run."""
        try:
            known = Projection(payload, None, self._default_priority)
        except AmqpError:
            return None  # it is found again, and answered, when it is taken by itself
        known.learn_form(last)
        facts = known.facts
        if facts is not first.facts and not (
            facts.is_like(first.facts)
            and facts.user_id == first.facts.user_id
            and not (known.delay_ms or known.expires)
        ):
            return None
        return known

    def _target_with_route(self, exchange: Exchange, known: Projection) -> PublishTarget | None:
        """Return the target of a message, if that is this exchange with a key whose route is known."""
        try:
            target = self._target_now(known.to, known.subject)
        except (AmqpError, Failure):
            return None  # it is found again, and answered, when it is taken by itself
        has_route = exchange.by_headers or target.key in exchange.routes
        return target if target.exchange is exchange and has_route else None

    def _project(self, payload: bytes) -> Projection:
        """Return the projection of a message. Raises AmqpError."""
        last = self._known
        if last is None:
            known = Projection(payload, None, self._default_priority)
        else:
            properties = last.properties_of(payload)
            if properties is last.properties:
                return last
            if properties is not None:
                known = Projection(payload, last)
            else:
                known = Projection(payload, None, self._default_priority)
                known.learn_form(last)
        self._known = known if known.may_hold else None
        return known

    def _target_of(self, known: Projection) -> PublishTarget:
        """Return the target of a message, with every check done. Raises Failure or AmqpError."""
        target = self._target
        if self._varies or target.revision != self._host.checks_revision:
            target = self._target = self._target_now(known.to, known.subject)
        if known.facts.user_id is not None or known.facts.cc:
            self._check_facts(target, known.facts)
        return target

    def _check_facts(self, target: PublishTarget, facts: Facts) -> None:
        if facts.user_id is not None:
            try:
                self._client.require_user_id(facts.user_id)
            except PreconditionFailed as failure:  # X061
                raise AmqpError(p.UNAUTHORIZED_ACCESS, str(failure)) from None
        if target.guarded:
            self._client.check_topics(target.exchange, facts.cc)

    def _publish_in_tx(
        self,
        delivery_id: int,
        settled: bool,
        state: p.TransactionalState,
        exchange: Exchange,
        message: Message,
    ) -> None:
        outcome = self._session.transactions.publish(state, exchange, message)
        if not settled:
            self.link.answer(delivery_id, outcome)

    def _refused(
        self,
        delivery_id: int,
        tag: bytes,
        settled: bool,
        state: p.DeliveryState | None,
        failure: AmqpError | Failure,
    ) -> None:
        scope = self._session.link_errors_end
        error = refusal(failure, scope) if isinstance(failure, Failure) else failure
        is_denied = isinstance(failure, AccessRefused) and scope is LINK
        if not (is_denied or error.condition in MISDIRECTED):
            raise self._last_word(error)
        if is_denied or isinstance(state, p.TransactionalState):
            self.on_unsupported(delivery_id, tag, settled, state, error)
            if not (is_denied or self.is_anonymous):
                raise self._last_word(error)
        else:
            self._misdirected(delivery_id, tag, settled, error)

    def on_unsupported(
        self, delivery_id: int, tag: bytes, settled: bool, state: p.DeliveryState | None, error: AmqpError
    ) -> None:
        """Reject a message, also one of a transaction."""
        if not isinstance(state, p.TransactionalState):
            self._reject(delivery_id, tag, settled, error)
            return
        outcome = self._session.transactions.refuse(state, error, settled)
        if not settled:
            self.link.answer(delivery_id, outcome)

    def _reject(self, delivery_id: int, tag: bytes, settled: bool, error: AmqpError) -> None:
        """Reject a message, or end the link if it is settled (S182, S201-S204)."""
        if not settled:
            self._answer_later(delivery_id, rejected(error))
            return
        error.info = {"delivery-tag": tag}
        raise self._last_word(error)

    def _last_word(self, error: AmqpError) -> AmqpError:
        """Return the error, which ends the link or more; earlier messages that are safe are answered first."""
        self.broker.settle()
        return error

    def _answer_later(self, delivery_id: int, state: p.DeliveryState) -> None:
        if not self._accepted and not self._answers:
            self._session.published(self)
        self._answers.append((delivery_id, state))

    def mark(self) -> None:
        """Called after the broker has settled. One `answer` follows for each mark, when earlier messages are safe."""
        self._marked.append((self._accepted, self._answers))
        self._accepted, self._answers = [], []

    def answer(self) -> None:
        """Answer the messages before the next mark (S226). The link ignores that if it has ended."""
        accepted, answers = self._marked.popleft()
        if accepted:
            self._session.confirmed += len(accepted)
            self.broker.confirmed += len(accepted)
            self.link.accept_all(accepted)
        for delivery_id, state in answers:
            self.link.answer(delivery_id, state)
        if self._farewell is not None:
            self.end_when_answered(self._farewell)

    def end_when_answered(self, error: AmqpError) -> None:
        """End the link for an error that is not of its messages: those that it has published are answered first."""
        self._farewell = error
        if not (self._accepted or self._answers or self._marked):
            self.link.detach(error)

    def has_accepted(self, delivery_id: int) -> bool:
        """Return whether the last message was this one, and will be accepted."""
        return bool(self._accepted) and self._accepted[-1] == delivery_id

    def untold(self) -> list[tuple[int, p.DeliveryState]]:
        """Return the answers that are still to be sent."""
        told = []
        for accepted, answers in (*self._marked, (self._accepted, self._answers)):
            told += [*((delivery_id, ACCEPTED) for delivery_id in accepted), *answers]
        return told

    def on_detached(self, closed: bool) -> None:
        """Called when the link has ended, which ignores later answers."""


class Addressed(Publishing):
    """A link to one exchange, with one key or with each message's subject (S183, S184, S213-S217)."""

    __slots__ = ("_address", "_queue", "_watch")
    is_anonymous = False

    def __init__(
        self,
        session: ServedSession,
        link: IncomingLink,
        address: addresses.TargetAddress,
        queue: Queue | None = None,
    ) -> None:
        target = target_at(session.client, address.exchange, address.key)
        super().__init__(session, link, target, address.by_subject)
        self._address = address
        self._queue = queue  # created for this link, and deleted with it (S211)
        self._watch: QueueWatch | None = None

    def _target_now(self, to: str | None, subject: str | None) -> PublishTarget:
        address = self._address
        if not address.by_subject:
            return target_at(self._client, address.exchange, address.key)
        target, key = self._target, subject or ""
        is_current = target.is_current(self._client)
        if is_current and target.key == key:
            return target
        if len(key) > addresses.NAME_SIZE_MAX or len(key.encode()) > addresses.NAME_SIZE_MAX:
            why = f"a subject that is a routing key has more than {addresses.NAME_SIZE_MAX} octets"
            raise AmqpError(p.INVALID_FIELD, why)
        if is_current and not target.guarded:
            return PublishTarget(target.exchange, False, target.revision, target.scopes, key)
        return target_at(self._client, address.exchange, key)

    def _misdirected(self, delivery_id: int, tag: bytes, settled: bool, error: AmqpError) -> None:
        """End the link and release the message (S206, S208)."""
        error = self._last_word(error)
        if not settled:
            self.link.answer(delivery_id, RELEASED)
        raise error

    def watch_queue(self) -> None:
        """End the link when the queue that it names is deleted, if the profile says so."""
        name = self._address.queue
        queue = None if name is None else self._host.queues.get(name)
        if queue is not None and self.broker.compat.orphaned_sender is DETACH:
            self._watch = QueueWatch(self, queue)
            watch(queue, self._watch)

    def on_detached(self, closed: bool) -> None:
        super().on_detached(closed)
        if self._watch is not None:
            unwatch(self._watch.queue, self._watch)
            self._watch = None
        if self._queue is not None and not self._queue.deleted:
            self._host.delete_queue(self._queue)


class QueueWatch(Watcher):
    """Tells a link that its queue has been deleted. It is an object of its own, as one compiled class cannot be
    both."""

    __slots__ = ("_link", "queue")

    def __init__(self, link: Addressed, queue: Queue) -> None:
        self._link = link
        self.queue = queue

    def queue_deleted(self) -> None:
        """End the link a little later: the client that has asked for this gets its answer first, as from RabbitMQ.

        Clients that wait for one thing at a time, such as RabbitMQ's for Python, take a detach that is read together
        with the answer for its failure.
        """
        broker = self._link.broker
        error = AmqpError(p.RESOURCE_DELETED, f"{self.queue.described} was deleted")
        broker.timers.at(broker.now + ORPHAN_PAUSE_S, lambda now: self._link.end_when_answered(error))


class Anonymous(Publishing):
    """A link to the anonymous terminus, whose messages carry their own targets (S199-S205)."""

    __slots__ = ("_targets",)
    is_anonymous = True

    def __init__(self, session: ServedSession, link: IncomingLink) -> None:
        client = session.client
        nowhere = PublishTarget(client.host.default_exchange, False, UNCHECKED)
        super().__init__(session, link, nowhere, varies=True)
        self._targets = targets_of(client, "amqp10")

    def _target_now(self, to: str | None, subject: str | None) -> PublishTarget:
        if to is None:
            raise AmqpError(p.PRECONDITION_FAILED, "anonymous terminus requires 'to' address to be set")
        target = current_target(self._targets, self._client, to)
        if target is None:
            address = node_lookup.to(self._session, to)
            target = self._targets.remember(to, target_at(self._client, address.exchange, address.key))
        return target

    def _misdirected(self, delivery_id: int, tag: bytes, settled: bool, error: AmqpError) -> None:
        self._reject(delivery_id, tag, settled, error)


def refused_by(broker: Broker) -> p.Rejected:
    """Return the rejected outcome for the message that a full queue (X066) or an interceptor has just refused."""
    queue = broker.refused_by
    if not queue:
        return rejected(AmqpError(p.PRECONDITION_FAILED, broker.refused_for))
    info: dict[str, Value] = {"queue": queue, "reason": Symbol("maxlen")}
    return rejected(
        AmqpError(p.RESOURCE_LIMIT_EXCEEDED, f"queue '{queue}' exceeded maximum length", info=info)
    )
