"""One subscription of a session: takes messages from a queue, as credit in messages and bytes allows, and sends
transfers.

    subscribe ──> no credit, window mode ──flow──> deliveries ──flush, stop, set-flow-mode──> no credit

A message is delivered if there is credit of both units for it: one message, and as many bytes as its header and body
have. Credit that was given without a limit (0xFFFFFFFF) is never used up.

    credit mode     used credit has to be given again
    window mode     it comes back when the peer completes the transfer, unless the credit was reset in the meantime

A message with more bytes than are left waits, and with it those after it, until the credit changes; meanwhile the queue
has it back for others. But where none of the credit is used, the message is sent and uses up all of it, because it
would wait for ever. To know this, messages are taken one at a time as long as bytes are limited, which no client we
know of does.

A message that is not acquired is only shown (`Consumer.browses`): `unsettled.py` knows how it may still be acquired.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.broker import Publisher
from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Consumer, Delivery, Held, Window
from leveret.limits import QueueType
from leveret.message import Message
from leveret.observability.connection_stats import ConsumerFacts
from leveret.protocols.amqp010.broker.encoding import ENCODING, rendered
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.queues.queue import Queue
from leveret.values import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.protocols.amqp010.codec.sequences import Id
    from leveret.selectors.parser import Selector

STREAM: Final = QueueType.STREAM

log: Final = logging.getLogger("leveret.amqp010")

INFINITE: Final = 0xFFFF_FFFF  # credit without a limit, on the wire
NO_END: Final = UNLIMITED >> 1  # unlimited credit never falls below this
PATIENCE_S: Final = 1.0  # after a message that was too large, before the queue is tried again
PAUSED: Final = 0
ONE: Final = 1  # byte of room: a single message is taken, however large
NOTHING: Final = Message(ENCODING, "", "", b"no header", b"")  # unlike any message


class Grant:
    """The credit that a completed transfer gives back, unless it has been reset."""

    __slots__ = ("octets", "subscription")

    def __init__(self, subscription: Subscription) -> None:
        self.subscription: Subscription | None = subscription  # None: the credit was reset
        self.octets: dict[Id, int] = {}  # bytes of its transfers, where bytes are limited


class Subscription(Consumer, Publisher):
    """The subscription that one message.subscribe has made."""

    __slots__ = (
        "_blocked",
        "_command",
        "_flush_id",
        "_flushing",
        "_grant",
        "_held_back",
        "_octets",
        "_sent_settled",
        "_settles",
        "_shown",
        "_used",
        "_windowed",
        "destination",
        "mode",
        "session",
    )

    def __init__(
        self,
        session: ServedSession,
        queue: Queue,
        command: c.MessageSubscribe,
        priority: int,
        selector: Selector | None,
        arguments: Table,
    ) -> None:
        accept_mode = command.accept_mode or c.ACCEPT_MODE_EXPLICIT
        acquire_mode = command.acquire_mode or c.ACQUIRE_MODE_PRE_ACQUIRED
        settled, browses = accept_mode == c.ACCEPT_MODE_NONE, acquire_mode == c.ACQUIRE_MODE_NOT_ACQUIRED
        super().__init__(
            queue, settled, 0, Window(), priority, command.exclusive, arguments, selector, browses
        )
        self.session = session
        self.peer = session.client.peer
        self.destination = command.destination or ""
        self.mode = c.FLOW_MODE_WINDOW
        self._command = c.MessageTransfer(self.destination, accept_mode, acquire_mode).encode()
        self._settles = settled  # transfers need no accept
        self._shown = browses and queue.type is not STREAM  # shown messages may still be acquired
        self._octets = 0  # credit in bytes
        self._used = 0  # bytes of the credit that are used
        self._grant = Grant(self)
        self._windowed = False  # transfers are remembered, because their credit comes back
        self._blocked = False  # the next message is too large
        self._held_back: list[Delivery] = []  # too large for the credit; a shown one waits here for more
        self._sent_settled: list[Delivery] = []  # deliveries to be accepted here, as the peer will not
        self._flushing = False  # on the broker's list to be called when it has settled
        self._flush_id: Id | None = None  # the flush command that may be complete then

    # Calls of the queue.

    @property
    def suspended(self) -> bool:
        return not self.session.session.attached

    def facts(self) -> ConsumerFacts:
        """Return its statistics. The peer changes the credit as it likes, so there is no limit to report."""
        session = self.session
        connection = session.client.name if session.session.attached else ""
        return ConsumerFacts(tag=self.destination, connection=connection, channel=session.session.channel)

    def unanswered(self) -> Held:
        return self.session.unsettled.table

    def room(self) -> int:
        if self._octets <= 0 or self._blocked:
            return PAUSED
        room = self.session.session.room()
        if self.bounds and not self.settled and room > 0:
            return ONE if self.may_take_more() else PAUSED
        return min(room, ONE) if self._octets < NO_END else room

    def deliver(self, deliveries: list[Delivery]) -> None:
        session = self.session
        if self._octets < NO_END:
            self._deliver_measured(deliveries)
            return
        sent, contents = self._rendered(deliveries)
        session.delivered += len(sent)
        if self._settles:
            session.delivered_settled += len(sent)
        first = session.session.send_transfers(self._command, contents)
        if self._windowed:
            session.windowed.add_all(first, [self._grant] * len(sent))
            self._bound_windowed()
        if not self._settles and not self.browses:
            session.unsettled.add_all(first, sent)
            if sent:
                session.timeouts.watch(sent[0])
        if self._shown:
            for id, delivery in zip(consecutive(first, len(sent)), sent, strict=True):
                session.browsed.add(id, delivery.queue, delivery.position, self._settles)
        self._was_served()

    def _rendered(
        self, deliveries: list[Delivery]
    ) -> tuple[list[Delivery], list[tuple[bytes, bytes | None]]]:
        """Return headers and bodies, and the deliveries that have them.

        Most messages look like the one before. Comparing takes a fifth of the 1.3 us of rendering.
        """
        contents: list[tuple[bytes, bytes | None]] = []
        refused: set[Delivery] = set()
        last, header = NOTHING, b""
        for delivery in deliveries:
            message = delivery.message
            plain = (
                message.encoding is ENCODING
                and message.notes is None
                and message.facts.ttl_ms is None
                and not delivery.redelivered
                and message.body
            )
            if (
                plain
                and message.properties == last.properties
                and message.key == last.key
                and message.exchange == last.exchange
            ):
                contents.append((header, message.body))
                continue
            try:
                contents.append(rendered(message, delivery.redelivered, ttl_left_ms(delivery)))
            except Exception:  # a fault of another protocol's encoding: other messages still go
                self._refuse(delivery)
                refused.add(delivery)
                continue
            if plain:
                last, (header, _) = message, contents[-1]
        if refused:
            deliveries = [delivery for delivery in deliveries if delivery not in refused]
        return deliveries, contents

    def _deliver_measured(self, deliveries: list[Delivery]) -> None:
        """Deliver while credit in bytes is limited. `room` has asked for one message."""
        for at, delivery in enumerate(deliveries):
            try:
                header, body = rendered(delivery.message, delivery.redelivered, ttl_left_ms(delivery))
            except Exception:
                self._refuse(delivery)
                continue
            size = len(header) + len(body or b"")
            if size > self._octets and self._used:
                self._hold_back(deliveries[at:])
                break
            charge = min(size, self._octets)
            self._used += charge
            self._octets -= charge
            self._sent(delivery, self.session.session.send_transfers(self._command, [(header, body)]), charge)
        self._was_served()

    def _sent(self, delivery: Delivery, id: Id, charge: int) -> None:
        session = self.session
        session.delivered += 1
        session.delivered_settled += self._settles
        if self._windowed:
            session.windowed.add(id, self._grant)
            self._grant.octets[id] = charge
            self._bound_windowed()
        if self._shown:
            session.browsed.add(id, delivery.queue, delivery.position, self._settles)
        elif not self.browses and not self._settles:
            session.unsettled.add(id, delivery)
            session.timeouts.watch(delivery)
        elif not self.browses:
            self._sent_settled.append(delivery)
            self._act_soon()

    def _bound_windowed(self) -> None:
        session = self.session
        if len(session.windowed.table) > session.windowed_max:
            session.fail_soon(too_many(len(session.windowed.table)))

    def _was_served(self) -> None:
        """Move this subscription to the end, so that the one served longest ago comes first in the next round."""
        subscriptions = self.session.subscriptions
        if len(subscriptions) > 1 and self.destination in subscriptions:
            del subscriptions[self.destination]
            subscriptions[self.destination] = self

    def _refuse(self, delivery: Delivery) -> None:
        """Reject a message that cannot be read, which would come back for ever otherwise."""
        log.exception("cannot deliver a message of %s to '%s'", delivery.queue.described, self.destination)
        self.credit += 1
        if not self.settled and not self.browses:
            delivery.reject()

    def _hold_back(self, deliveries: list[Delivery]) -> None:
        self._blocked = True
        self._held_back += deliveries
        if not self.browses and self.queue.type is not STREAM:
            self._act_soon()

    def _act_soon(self) -> None:
        """Call `_act` after the queue has dispatched, but before the broker has settled."""
        broker = self.session.broker
        broker.timers.at(broker.now, self._act)

    def _act(self, now: float) -> None:
        """Accept deliveries that need no accept of the peer; give back too large ones, and look again later."""
        settled, self._sent_settled = self._sent_settled, []
        for delivery in settled:
            delivery.queue.accept(delivery)
        if self._keeps:
            return
        if self._give_back():
            self.session.broker.timers.at(now + PATIENCE_S, self._look_again)

    @property
    def _keeps(self) -> bool:
        """True if held-back messages wait here, because they are behind this reader's place in the queue."""
        return self.browses or self.queue.type is STREAM

    def _give_back(self) -> bool:
        """Release the held-back deliveries and return whether there were any."""
        held_back, self._held_back = self._held_back, []
        self.credit += len(held_back)
        for delivery in held_back:
            if not self.browses:
                delivery.queue.release(delivery, failed=False, redelivered=False)
        return bool(held_back)

    def _look_again(self, now: float) -> None:
        """Try again: another consumer may have taken the message that was too large."""
        if self._blocked and self.attached:
            self._unblock()

    def _unblock(self) -> None:
        """Resume after more credit, or with another message."""
        self._blocked = False
        if self._held_back and self._keeps and self.credit >= 0 and self._octets > 0:
            held_back, self._held_back = self._held_back, []
            self._deliver_measured(held_back)
        self.wake()

    def cancelled(self) -> None:
        """End the session because its queue is gone, unless this session has deleted it."""
        self.finish_flush()
        if not isinstance(self.session.executing, c.QueueDelete):
            why = f"{self.queue.described} was deleted"
            self.session.fail_soon(SessionError(c.ERROR_CODE_RESOURCE_DELETED, why))

    def end_as_slow(self, why: str) -> None:
        """End the session: the protocol has no other way to tell of a subscription's end."""
        self.session.fail_soon(SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, why))

    # Credit.

    def set_mode(self, mode: int) -> None:
        self.mode = mode
        self.reset_credit()

    def add_credit(self, unit: int, value: int) -> None:
        if unit == c.CREDIT_UNIT_MESSAGE:
            self.credit = UNLIMITED if value == INFINITE else min(self.credit + value, UNLIMITED)
        else:
            self._octets = UNLIMITED if value == INFINITE else min(self._octets + value, UNLIMITED)
        unmeasured = self._octets >= NO_END
        if not self.browses:
            self.settled = self._settles and unmeasured  # else it is known only later whether it was sent
        self._windowed = self.mode == c.FLOW_MODE_WINDOW and (self.credit < NO_END or not unmeasured)
        self._unblock()

    def credit_back(self, messages: int, octets: int) -> None:
        """Return credit of this window for transfers that the peer has completed."""
        self.credit += messages
        if octets:
            self._used -= octets
            self._octets = min(self._octets + octets, UNLIMITED)
        self._unblock()

    def reset_credit(self) -> None:
        """Drop all credit; none of it comes back later."""
        self._grant.subscription = None
        self._grant = Grant(self)
        self.credit = -len(self._held_back)  # these need credit when they are sent
        self._octets = self._used = 0

    # Flushing.

    def flush(self, id: Id) -> None:
        """Deliver the messages there are, as far as the credit goes; then drop the credit and complete the command."""
        self.finish_flush()
        self._flush_id = id
        self.wake()
        self._look_after()

    def _look_after(self) -> None:
        """Have `taken` called when the broker has settled."""
        if not self._flushing:
            self._flushing = True
            self.session.broker.publishers.append(self)

    def mark(self) -> int:
        """Return 0: a subscription publishes nothing, so it never waits for the disk."""
        self._flushing = False
        return 0

    def taken(self, mark: int) -> None:
        """Complete the flush, as the broker has settled, unless the queue still seeks messages or the line is full."""
        if self._flush_id is None:
            return
        if (
            self.attached
            and self.credit > 0
            and self._octets > 0
            and not self._blocked
            and self._has_to_wait()
        ):
            self._look_after()
            return
        self.finish_flush()
        self.session.session.settle()

    def _has_to_wait(self) -> bool:
        if self.queue.seeks_for(self):
            return True
        session = self.session.session
        return session.attached and session.room() <= 0 and self.queue.available_to(self) > 0

    def finish_flush(self) -> None:
        """Complete a flush, even if more could be delivered: the peer has gone on to the next command."""
        id, self._flush_id = self._flush_id, None
        if id is not None and not self.session.ended:
            self.reset_credit()
            self.session.complete(id)

    # The end.

    def end(self) -> None:
        """Stop deliveries. Transfers that were sent stay with the session."""
        self._flush_id = None
        self._grant.subscription = None
        self.queue.remove_consumer(self)
        settled, self._sent_settled = self._sent_settled, []
        for delivery in settled:
            delivery.queue.accept(delivery)
        self._give_back()


def too_many(count: int) -> SessionError:
    return SessionError(
        c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, f"{count} transfers in windows were sent and not completed"
    )


def consecutive(first: Id, count: int) -> Sequence[Id]:
    """Return `count` ids from `first` on."""
    if first + count <= 1 << 32:
        return range(first, first + count)
    return [(first + n) & 0xFFFF_FFFF for n in range(count)]


def ttl_left_ms(delivery: Delivery) -> int | None:
    """Return how long a message has left to live in ms; None if its publisher has set no limit."""
    ttl_ms = delivery.message.facts.ttl_ms
    if ttl_ms is None or delivery.expires_at == NEVER:
        return ttl_ms
    return max(1, int(1000 * (delivery.expires_at - delivery.queue.virtual_host.broker.now)))
