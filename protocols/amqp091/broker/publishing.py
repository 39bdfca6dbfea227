"""Publishing on a 0-9-1 channel: raw basic.publish arguments to a checked target, messages to the broker, and confirms.

This is the hot path. The checks of a publish are made once for each distinct method, and the result is cached as long
as neither topology nor permissions change.

A publish to the exchange `amq.leveret.renew`, which no list shows, is no message: its routing key is the tag of a
delivery of the channel, or `all`, and the time in which that has to be acknowledged begins anew. It is confirmed, and
returned as unroutable, if mandatory, where no such delivery waits for an answer. It is never part of a transaction.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.broker import REFUSED, TAKEN, UNROUTABLE, WORK_MAX, Outcome
from leveret.errors import PreconditionFailed, Unsupported
from leveret.exchanges.exchange_type import Exchange
from leveret.message import NO_FACTS, Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING, REPLY_TO, plain_facts, project, rendered
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import confirm_frame
from leveret.publishing.publish_targets import UNCHECKED, PublishTarget, current_target, targets_of
from leveret.transaction import Transaction

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.channel import Channel
    from leveret.protocols.amqp091.machine.contract import Run

# the flags of basic.publish
MANDATORY: Final = 1
IMMEDIATE: Final = 2
RENEWS: Final = 256  # a flag of ours: the exchange is RENEWAL
APART: Final = IMMEDIATE | RENEWS  # publishes that are not simply routed
RENEWAL: Final = "amq.leveret.renew"
RENEWAL_NAME: Final = RENEWAL.encode()
NO_PUBLISH: Final = b""  # differs from every publish
ACK: Final = m.BasicAck.method_id
NACK: Final = m.BasicNack.method_id
READ_AGAIN_MAX: Final = 2  # times the messages of a run


class Publishing:
    """The publishing side of a channel: plain, with confirms, or in a transaction. It is a `Publisher`."""

    __slots__ = (
        "_announced",
        "_channel",
        "_flags",
        "_host",
        "_key",
        "_last_facts",
        "_last_properties",
        "_last_publish",
        "_marked",
        "_nacked",
        "_peer",
        "_read_in_vain",
        "_returns",
        "_target",
        "_targets",
        "broker",
        "client",
        "confirmed",
        "confirming",
        "persistent",
        "published",
        "published_before",
        "refused",
        "returned",
        "tx",
    )

    def __init__(self, channel: Channel) -> None:
        self.broker = channel.broker
        self.client = channel.client
        self._host = channel.client.host
        self.published = 0  # messages; in confirm mode also the last sequence number
        self.published_before = 0  # in plain mode, before confirms were selected
        self.refused = self.returned = 0  # nacked messages, and returned messages
        self.confirming = False
        self.persistent = False
        self.tx: Transaction | None = None
        self._channel: Channel | None = channel  # None once it has ended
        self.confirmed = 0  # the last sequence number that was confirmed
        self._marked = 0  # the last sequence number that was given to the broker to confirm
        self._nacked: deque[int] = deque()  # not sent yet
        self._announced = False  # on the broker's list of publishers for this settle
        self._targets = targets_of(self.client, "amqp091")
        # The other end of the connection, for consumers with no-local; kept in memory only.
        self._peer: object = self.client.peer if self.broker.compat.no_local else None
        self._last_publish = NO_PUBLISH  # the last arguments; the next three hold their values
        # The last ones: the reader passes equal ones as one object.
        self._last_properties: bytes | None = None
        self._last_facts = NO_FACTS  # theirs
        self._read_in_vain = 0  # messages of a read that were to be taken together, and were not
        self._target = PublishTarget(self._host.default_exchange, False, UNCHECKED)
        self._key = ""
        self._flags = 0
        self._returns: list[tuple[Message, int]] = []  # of the transaction

    def publish(self, publish: bytes, properties: bytes, body: bytes) -> None:
        """Publish the message of a basic.publish; `publish` holds the method's raw arguments. Raises Failure."""
        target = self._target
        if publish is not self._last_publish or target.revision != self._host.checks_revision:
            target = self._aim(publish)
        exchange = target.exchange
        if properties is self._last_properties:
            facts = self._last_facts
        else:
            facts, visible = project(properties)
            if visible is properties:
                self._last_properties, self._last_facts = properties, facts
            properties = visible
        if facts.user_id is not None or facts.reply_to == REPLY_TO or facts.cc or facts.bcc:
            properties = self._check_facts(target, facts, properties)
        message = Message(ENCODING, exchange.name, self._key, properties, body, facts)
        message.peer = self._peer
        self.published += 1
        if self.tx is not None:
            self._publish_in_tx(self.tx, exchange, message)
            return
        if self._flags & APART:
            outcome = self._publish_apart(exchange, message)
        else:
            outcome = self.broker.publish(exchange, message)
        if outcome is not TAKEN:
            self._not_taken(outcome, message)
        elif facts.durable:
            self.persistent = True
        if self.confirming and not self._announced:
            self._announced = True
            self.broker.publishers.append(self)

    def check(self, publish: bytes) -> None:
        """Check the method of a message whose body is still to come, as `publish` does. Raises Failure."""
        self._aim(publish)

    def publish_run(self, run: Run, first: int) -> int:
        """Publish messages of a run from number `first` on as `publish` would, as long as each is simply taken. Returns
        how many were; it raises nothing.

        They go together as long as they are for one exchange, and what the core reads of their properties is alike.
        Messages that need a check each are left for `publish`, and so are those that may be refused. What is read and
        not taken is read again in the next call: that is done in proportion to the number of messages, and no more once
        nothing of it was taken.
        """
        if first == 0:
            self._read_in_vain = 0
        if self.tx is not None or self._read_in_vain >= READ_AGAIN_MAX * len(run.bodies):
            return 0
        publish, target = run.publishes[first if run.differ else 0], self._target
        if publish is not self._last_publish:
            known = current_target(self._targets, self.client, exchange_in(publish)[1:])
            if known is None or known.guarded:
                return 0
            target = known
        elif target.revision != self._host.checks_revision or self._flags & APART:
            return 0
        messages = self._like_messages(run, first, target)
        if not messages:
            return 0
        if self._peer is not None:
            for each in messages:
                each.peer = self._peer
        taken = self.broker.publish_run(target.exchange, messages, WORK_MAX)
        self._read_in_vain += len(messages) - taken if taken else READ_AGAIN_MAX * len(run.bodies)
        if taken:
            self.published += taken
            self.persistent = self.persistent or messages[0].facts.durable
            if self.confirming and not self._announced:
                self._announced = True
                self.broker.publishers.append(self)
        return taken

    def _like_messages(self, run: Run, first: int, target: PublishTarget) -> list[Message]:
        """Return the messages from number `first` on that are for one target, with facts that are alike and keys whose
        routes are known."""
        messages: list[Message] = []
        exchange, publish, key = target.exchange, self._last_publish, self._key
        routes, like = exchange.routes, NO_FACTS
        begin = first if run.differ else 0
        prefix = exchange_in(run.publishes[begin]) if run.differ else b""
        key_at = 2 + len(prefix)
        for at in range(begin, len(run.bodies)):
            if run.publishes[at] is not publish:
                publish = run.publishes[at]
                size = len(publish)
                if (
                    (target.guarded or size <= key_at or publish[2:key_at] != prefix)
                    or key_at + 2 + publish[key_at] != size
                    or publish[size - 1] & IMMEDIATE
                ):
                    break
                key = publish[key_at + 1 : size - 1].decode("utf-8", "surrogateescape")
                if key not in routes and not exchange.by_headers:
                    break
            octets = run.properties[at]
            if octets is self._last_properties:
                facts: Facts | None = self._last_facts
            else:
                try:
                    facts = plain_facts(octets)
                except PreconditionFailed:
                    break
            if (
                facts is None
                or (facts.user_id is not None or facts.reply_to == REPLY_TO)
                or (facts.cc or facts.bcc)
            ):
                break
            if not run.differ:
                bodies = run.bodies if first == 0 else run.bodies[first:]
                return [Message(ENCODING, exchange.name, key, octets, body, facts) for body in bodies]
            if at == first:
                like = facts
            elif facts is not like and not facts.is_like(like):
                break
            messages.append(Message(ENCODING, exchange.name, key, octets, run.bodies[at], facts))
        return messages

    def _aim(self, publish: bytes) -> PublishTarget:
        """Read raw publish arguments. Raises MalformedError, or the errors of the checks (S046, S047, S087, S088).

        The arguments are two reserved bytes, exchange and key as short strings, and a byte of flags. Nothing is cached
        per key, so that many keys cost no more than one.
        """
        size = len(publish)
        key_at = 3 + publish[2] if size > 2 else size
        flags_at = key_at + 1 + publish[key_at] if key_at < size else size
        if flags_at != size - 1:
            m.BasicPublish.decode(publish, 0, size)
            raise AssertionError("these arguments cannot be read")
        flags = publish[flags_at]
        if flags & IMMEDIATE and not self.broker.compat.immediate:
            raise Unsupported("immediate=true")
        name = publish[3:key_at]
        if name == RENEWAL_NAME:
            return self._aim_at_renewal(publish, publish[key_at + 1 : flags_at], flags)
        target = current_target(self._targets, self.client, name)
        if target is None:
            target = self._targets.check(self.client, name, name_of(name.decode("utf-8", "surrogateescape")))
        key = publish[key_at + 1 : flags_at].decode("utf-8", "surrogateescape")
        if target.guarded:
            self.client.check_topics(target.exchange, (key,))
        self._last_publish, self._target, self._key, self._flags = publish, target, key, flags
        return target

    def _aim_at_renewal(self, publish: bytes, key: bytes, flags: int) -> PublishTarget:
        """Return a target for `RENEWAL`. It needs no permission: the deliveries are the channel's own."""
        target = PublishTarget(
            self._host.default_exchange, False, self._host.checks_revision, self.client.user.scopes
        )
        self._last_publish, self._target = publish, target
        self._key, self._flags = key.decode("utf-8", "surrogateescape"), flags & ~IMMEDIATE | RENEWS
        return target

    def _publish_apart(self, exchange: Exchange, message: Message) -> Outcome:
        if not self._flags & RENEWS:
            return self.broker.publish_immediate(exchange, message)
        message.exchange = RENEWAL
        return TAKEN if self._channel is not None and self._channel.renew(message.key) else UNROUTABLE

    def _check_facts(self, target: PublishTarget, facts: Facts, properties: bytes) -> bytes:
        if facts.user_id is not None:
            self.client.require_user_id(facts.user_id)
        if target.guarded:
            self.client.check_topics(target.exchange, (*facts.cc, *facts.bcc))
        if facts.reply_to == REPLY_TO:
            if self._channel is None or (replies := self._channel.reply_consumer) is None:
                raise PreconditionFailed("fast reply consumer does not exist")
            return wire.edit_properties(properties, {"reply_to": replies.queue.name})
        return properties

    def _not_taken(self, outcome: Outcome, message: Message) -> None:
        if outcome is REFUSED:
            if self.confirming:
                self._nacked.append(self.published)
        elif (code := return_code(outcome, self._flags)) is not None:
            self._return(message, code)

    def _publish_in_tx(self, tx: Transaction, exchange: Exchange, message: Message) -> None:
        flags = self._flags
        if flags & RENEWS:
            if self._publish_apart(exchange, message) is not TAKEN and flags & MANDATORY:
                self._return(message, m.NO_ROUTE)
        elif flags & IMMEDIATE:
            tx.hold(lambda: self._publish_immediate(exchange, message, flags), message.size)
        elif flags & MANDATORY:
            tx.publish(self.broker, exchange, message, partial(self._returns.append, (message, m.NO_ROUTE)))
        else:
            tx.publish(self.broker, exchange, message)

    def _publish_immediate(self, exchange: Exchange, message: Message, flags: int) -> bool:
        """Publish at the commit, when consumers are chosen. Returns False if a queue refused the message."""
        outcome = self.broker.publish_immediate(exchange, message)
        if outcome not in (TAKEN, REFUSED) and (code := return_code(outcome, flags)) is not None:
            self._returns.append((message, code))
        return outcome is not REFUSED

    def _return(self, message: Message, code: int) -> None:
        text = "NO_ROUTE" if code == m.NO_ROUTE else "NO_CONSUMERS"
        self.returned += 1
        self.broker.returned += 1
        method = m.BasicReturn(code, text, message.exchange, message.key)
        if self.confirming:
            self._confirm_those_before()
        if self._channel is not None:
            self._channel.send_content(method, *rendered(message))

    def _confirm_those_before(self) -> None:
        """Confirm what was published before a message that is returned, unless that waits for the disk: a client
        that reads in order takes a return to be of the next message that is confirmed."""
        journal = self.broker.journal
        if journal is None or (self.confirmed == self._marked and not journal.dirty):
            self.taken(self.published - 1)
            self._marked = self.confirmed

    def mark(self) -> int:
        self._announced = self.persistent = False
        self._marked = self.published
        return self.published

    def taken(self, mark: int) -> None:
        """Confirm everything up to `mark`: runs of acks, and the nacks between them (S119, S120)."""
        channel, nacked = self._channel, self._nacked
        if channel is None:
            return
        while nacked and nacked[0] <= mark:
            refused = nacked.popleft()
            self._ack_through(channel, refused - 1)
            channel.outbox.write(confirm_frame(channel.number, NACK, refused, False))
            self.confirmed = refused
            self.refused += 1
        self._ack_through(channel, mark)

    def _ack_through(self, channel: Channel, sequence: int) -> None:
        """Ack the unconfirmed messages."""
        count = sequence - self.confirmed
        if count > 0:
            channel.outbox.write(confirm_frame(channel.number, ACK, sequence, count > 1))
            self.broker.confirmed += count
            self.confirmed = sequence

    def select_confirms(self) -> None:
        """Select confirm mode; the next publish has number 1 (S117). Raises PreconditionFailed after tx.select
        (S118)."""
        if self.tx is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if not self.confirming:
            self.confirming = True
            self.persistent = False
            self.published_before, self.published = self.published, 0

    def select_tx(self) -> None:
        """Select transactions. Raises PreconditionFailed in confirm mode (S118)."""
        if self.confirming:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.tx is None:
            self.tx = Transaction()

    def transaction(self) -> Transaction:
        """Return the transaction. Raises PreconditionFailed if there is none (S121)."""
        if self.tx is None:
            raise PreconditionFailed("channel is not transactional")
        return self.tx

    def commit(self) -> int:
        """Commit the publishes and answers, and send the returns (S125). Returns how many messages were refused."""
        refused = self.transaction().commit()
        self.broker.hold_answer()
        for message, code in self._returns:
            self._return(message, code)
        self._returns.clear()
        return refused

    def roll_back(self) -> None:
        self.transaction().rollback()
        self._returns.clear()

    def close(self) -> None:
        """Confirm and send nothing any more, because a later channel may have the same number.

        The channel is forgotten: in a cycle with this, it would wait for the collector.
        """
        self._nacked.clear()
        self.confirmed = self.published
        self._channel = None


def return_code(outcome: Outcome, flags: int) -> int | None:
    """Return the reply code for a message that no queue has taken, or None if it is not returned."""
    if outcome is UNROUTABLE and flags & MANDATORY:
        return m.NO_ROUTE
    return m.NO_CONSUMERS if flags & IMMEDIATE else None


def exchange_in(publish: bytes) -> bytes:
    """Return the name of the exchange in raw publish arguments, with its length before it; empty if it is cut short."""
    return publish[2 : 3 + publish[2]] if len(publish) > 2 else b""


def name_of(given: str) -> str:
    """Return a name without line ends, other bytes kept; routing keys keep line ends too (S042)."""
    return given.replace("\r", "").replace("\n", "") if "\n" in given or "\r" in given else given
