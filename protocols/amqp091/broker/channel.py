"""A channel of a 0-9-1 connection: the effect of each method on the broker, and its answer.

Methods come in through the table `METHODS`; publishes (`publishing.py`) and acks, the hot path, directly. Every refusal
of the core is raised as a `Failure`; the adapter turns it into the reply code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.arguments.warnings import consumer_warnings
from leveret.config.compat import GlobalQos, PrefetchSize, RecoverToConsumer
from leveret.delivery import UNLIMITED, Delivery, Window, weight
from leveret.errors import NotAllowed, NotAtHand, PreconditionFailed, Unsupported
from leveret.limits import QueueLimits, QueueType
from leveret.protocols.amqp091.broker import declarations
from leveret.protocols.amqp091.broker.ack_timeouts import LateTags, Timeouts
from leveret.protocols.amqp091.broker.argument_rows import CONSUMER_ROWS
from leveret.protocols.amqp091.broker.consumer import ChannelConsumer
from leveret.protocols.amqp091.broker.core_values import table
from leveret.protocols.amqp091.broker.declarations import queue_name
from leveret.protocols.amqp091.broker.encoding import REPLY_TO, cut, rendered
from leveret.protocols.amqp091.broker.publishing import Publishing, name_of
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import Method
from leveret.protocols.shared.machine.numbered_table import NumberedTable
from leveret.queues.queue import Queue
from leveret.queues.volatile import own_terms, reply_name
from leveret.queues.work_queue import WorkQueue
from leveret.selectors.no_local import from_others
from leveret.values import Value
from leveret.virtual_host import generated_name

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.adapter import Adapter091

CLASSIC: Final = QueueType.CLASSIC
REFUSE: Final = RecoverToConsumer.REFUSE
PREFETCH_SIZE_REFUSE: Final = PrefetchSize.REFUSE
CHANNEL: Final = GlobalQos.CHANNEL
STREAM: Final = QueueType.STREAM

RENEWALS: Final = 8  # that take as long as the copy of a message


@mypyc_attr(allow_interpreted_subclasses=True)
class Channel:
    """The broker's side of an open channel."""

    __slots__ = (
        "_tx_unsettled",
        "asked_to_flow",
        "broker",
        "client",
        "connection",
        "consumers",
        "current_queue",
        "delivered_settled",
        "ended",
        "fetched",
        "fetched_settled",
        "flowing",
        "frame_max",
        "given_back",
        "global_qos",
        "last_tag",
        "late",
        "number",
        "octets",
        "outbox",
        "prefetch",
        "prefetch_octets",
        "publishing",
        "reply_consumer",
        "resending",
        "shared_octets",
        "shared_prefetch",
        "sharing",
        "sized",
        "timeouts",
        "unsettled",
        "window",
    )

    def __init__(self, connection: Adapter091, number: int) -> None:
        self.connection = connection
        self.number = number
        self.broker = connection.broker
        self.client = connection.client
        self.outbox = connection.outbox
        self.frame_max = connection.wire.frame_max
        self.window = Window()  # credit shared by the channel's consumers (qos global)
        self.sharing = False  # whether there is such a limit
        self.global_qos = False  # whether the client has set `global` for it
        self.consumers: dict[str, ChannelConsumer] = {}
        self.unsettled: NumberedTable[Delivery] = NumberedTable()  # by delivery tag
        self.last_tag = 0
        self.current_queue = ""  # the last queue declared here
        # Tags of consumers that end while the queue's deletion is not answered.
        self.ended: list[str] | None = None
        self.flowing = True  # the client permits deliveries (channel.flow)
        self.asked_to_flow = True  # the `active` of our last channel.flow to the client
        self.reply_consumer: ChannelConsumer | None = None
        self.timeouts = Timeouts(self)
        self.late = LateTags()  # deliveries that were taken back because they were late
        self.publishing = Publishing(self)
        self.prefetch = 0  # of consumers started later
        self.shared_prefetch = 0  # of all consumers together; 0 is no limit
        self.sized = False  # there is a prefetch in bytes
        self.prefetch_octets = 0  # in bytes, of consumers started later; 0 is no limit
        self.shared_octets = 0  # in bytes, of all consumers together
        self.octets = 0  # of the unsettled deliveries to consumers, if `sized`
        self.resending: deque[Delivery] = deque()  # deliveries that consumers get again (basic.recover)
        # Counts for management.
        self.delivered_settled = 0  # deliveries that need no answer
        self.given_back = 0  # deliveries that were answered, but not accepted
        self.fetched = self.fetched_settled = 0  # basic.get: all deliveries, and those that need no answer
        self._tx_unsettled: dict[int, Delivery] = {}  # deliveries that were answered in the transaction

    @property
    def answered_in_tx(self) -> int:
        """The number of deliveries that the open transaction has answers to."""
        return len(self._tx_unsettled)

    def ack(self, tags: list[int]) -> None:
        """Accept the deliveries with these tags (basic.ack). Raises PreconditionFailed for an unknown tag, after those
        before it."""
        if self.publishing.tx is not None:
            self._answer(tags, Delivery.accept)
            return
        taken = self.unsettled.take(tags)
        done, unknown = len(taken), -1
        while done < len(tags):
            if not self._is_late(tags[done]):
                unknown = tags[done]
                break
            more = self.unsettled.take(tags[done + 1 :])
            taken += more
            done += 1 + len(more)
        if self.sized:
            self.weigh(taken, -1)
        at, count = 0, len(taken)
        while at < count:  # mostly once: a consumer takes from one queue
            queue, consumer, start = taken[at].queue, taken[at].consumer, at
            while at < count and taken[at].consumer is consumer and taken[at].queue is queue:
                at += 1
            queue.accept_run(taken if at - start == count else taken[start:at])
            if consumer is not None:
                consumer.credit += at - start
                consumer.window.credit += at - start
                if self.sharing or not consumer.able:
                    self._wake(consumer)
        if unknown >= 0:
            raise unknown_tag(unknown)

    def _answer(self, tags: list[int], outcome: Callable[[Delivery], None]) -> None:
        """Settle deliveries, in order of delivery (S106, S107)."""
        tx = self.publishing.tx
        for tag in tags:
            delivery = self.unsettled.pop(tag)
            if delivery is None:
                if not self._is_late(tag):
                    raise unknown_tag(tag)
            elif tx is None:
                self._settle(delivery, outcome)
            else:
                self._tx_unsettled[tag] = delivery
                tx.settle(partial(self._settle, delivery, outcome))

    def tags(self, tag: int, multiple: bool) -> list[int]:
        """Return the tags that an answer settles: this one, or all up to it (0: all there are).

        Raises PreconditionFailed if `multiple` and no delivery with this tag is unsettled, or was taken back for being
        late.
        """
        if not multiple:
            return [tag]
        if tag and self.unsettled.get(tag) is None and tag not in self.late.by_tag:
            raise unknown_tag(tag)
        tag = tag or self.last_tag
        if self.late.by_tag:
            self._answered_late(tag, True)
        return self.unsettled.up_to(tag)

    def _is_late(self, tag: int) -> bool:
        """Return whether the delivery with this tag was taken back for being late. Its answer has come now."""
        if tag not in self.late.by_tag:
            return False
        self._answered_late(tag, False)
        return True

    def _answered_late(self, tag: int, multiple: bool) -> None:
        """Ignore the answer to a late delivery, or to all up to a tag, apart from the credit, which it gives back."""
        for consumer in self.late.answered(tag, multiple):
            consumer.credit += 1
            consumer.window.credit += 1
            self._wake(consumer)

    def _settle(self, delivery: Delivery, outcome: Callable[[Delivery], None]) -> None:
        consumer = delivery.consumer
        if self.sized:
            self.weigh([delivery], -1)
        self.given_back += outcome is not Delivery.accept
        outcome(delivery)
        if consumer is not None:
            consumer.credit += 1
            consumer.window.credit += 1
            self._wake(consumer)

    def _wake(self, consumer: object) -> None:
        """Wake a consumer whose credit came back, or all consumers of the channel if they share it."""
        if self.sharing:
            self.wake_all()
        elif isinstance(consumer, ChannelConsumer):
            consumer.wake()

    def weigh(self, deliveries: list[Delivery], sign: int) -> None:
        """Add the bytes of deliveries to those that their consumers, and the channel, have to answer, or subtract
        them."""
        for delivery in deliveries:
            consumer = delivery.consumer
            if isinstance(consumer, ChannelConsumer):
                octets = sign * weight(delivery.message)
                consumer.octets += octets
                self.octets += octets

    def fits(self, consumer: ChannelConsumer) -> bool:
        """Return whether the next message may be sent to a consumer in advance, of a channel that is `sized`.

        A message beyond the prefetch is sent only while the client has none (AMQP 0-9-1, basic.qos, prefetch-size).
        """
        head, own, shared = consumer.queue.head_message(), consumer.prefetch_octets, self.shared_octets
        size = 0 if head is None else head.size
        return not (
            (own and consumer.octets and consumer.octets + size > own)
            or (shared and self.octets and self.octets + size > shared)
        )

    def wake_all(self) -> None:
        """Wake the idle consumers, the least recently served first, because shared credit may suffice for only one."""
        if self.resending:
            self._resend()
        idle = [consumer for consumer in self.consumers.values() if not consumer.able]
        for consumer in sorted(idle, key=lambda consumer: consumer.last_tag):
            consumer.wake()

    def renew(self, tags: str) -> bool:
        """Begin the time for answers anew, of the unsettled delivery with this tag or of `all`.

        Return whether there is one."""
        if tags == "all":
            renewed = list(self.unsettled.values())
        else:
            found = self.unsettled.get(int(tags)) if tags.isascii() and tags.isdecimal() else None
            renewed = [] if found is None else [found]
        for delivery in renewed:
            delivery.queue.renew(delivery)
        self.broker.work += len(renewed) // RENEWALS
        return bool(renewed)

    def nack(self, method: m.BasicNack) -> None:
        outcome = Delivery.hand_back if method.requeue else Delivery.reject
        self._answer(self.tags(method.delivery_tag, method.multiple), outcome)

    def reject(self, method: m.BasicReject) -> None:
        self._answer([method.delivery_tag], Delivery.release if method.requeue else Delivery.reject)

    def put_back(self, requeue: bool) -> None:
        """Requeue every unsettled delivery, or send it to its consumer again (basic.recover)."""
        if not requeue:
            self._recover_to_consumers()
            return
        for delivery in self.unsettled.take(self.tags(0, True)):
            self._settle(delivery, Delivery.release)

    def _recover_to_consumers(self) -> None:
        """Send every unsettled delivery to its consumer again, as redelivered and with a new tag; requeue those whose
        consumer has gone, or that were fetched (AMQP 0-9-1, basic.recover)."""
        if self.broker.compat.recover_to_consumer is REFUSE:
            raise Unsupported("requeue=false")
        for delivery in self.unsettled.take(self.tags(0, True)):
            consumer = delivery.consumer
            if isinstance(consumer, ChannelConsumer) and consumer.attached:
                delivery.redelivered = True
                self.resending.append(delivery)
                self.given_back += 1  # by its old tag
            else:
                self._settle(delivery, Delivery.release)
        self._resend()

    def _resend(self) -> None:
        """Send deliveries again, as far as there is room; the others follow when the client has read (`wake_all`)."""
        again = self.resending
        while again and self.flowing and self.outbox.room() > 0:
            delivery = again.popleft()
            consumer = delivery.consumer
            if isinstance(consumer, ChannelConsumer) and consumer.attached:
                if self.sized:
                    self.weigh([delivery], -1)  # `deliver` adds it again
                consumer.queue.bring((delivery,))
                consumer.deliver([delivery])
            else:
                self._settle(delivery, Delivery.release)

    def qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size and self.broker.compat.prefetch_size is PREFETCH_SIZE_REFUSE:
            raise Unsupported(f"prefetch_size!=0 ({method.prefetch_size})")
        if method.prefetch_size and not self.sized:
            self.sized = True
            self.weigh([*self.unsettled.values(), *self.resending, *self._tx_unsettled.values()], 1)
        shared = method.global_ or self.connection.shares_prefetch
        if shared and self.broker.compat.qos_global is CHANNEL:
            held = (*self.unsettled.values(), *self._tx_unsettled.values())
            given = sum(delivery.consumer is not None for delivery in held) + self.late.charged()
            self.window.credit = method.prefetch_count - given if method.prefetch_count else UNLIMITED
            self.shared_prefetch, self.shared_octets = method.prefetch_count, method.prefetch_size
            self.sharing = method.prefetch_count > 0 or method.prefetch_size > 0
            self.global_qos = self.sharing and method.global_
            self.wake_all()
        else:
            self.prefetch = method.prefetch_count
            self.prefetch_octets = method.prefetch_size
        self.send(m.BasicQosOk())

    def consume(self, method: m.BasicConsume) -> None:
        tag = method.consumer_tag or generated_name("amq.ctag-")
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        self.broker.node_limits.require_consumer(len(self.consumers))
        if name_of(method.queue) == REPLY_TO:
            self._consume_replies(method, tag)
            return
        queue = self.client.readable_queue(queue_name(self, method.queue))
        if self.global_qos:
            require_shared_credit(queue)
        consumer = ChannelConsumer(
            self,
            queue,
            tag,
            method.no_ack,
            self.prefetch,
            integer_argument(method.arguments, "x-priority") or 0,
            method.exclusive,
            table(method.arguments),
        )
        consumer.prefetch_octets = 0 if method.no_ack else self.prefetch_octets
        timeout_ms = integer_argument(method.arguments, "x-consumer-timeout")
        consumer.timeout_s = None if timeout_ms is None else timeout_ms / 1000
        if method.no_local:
            self._serve_no_local(consumer)
        self.client.consume(consumer)
        if method.arguments:
            consumer.warnings = (*consumer.warnings, *consumer_warnings(method.arguments, CONSUMER_ROWS))
        if consumer.warnings:
            self.broker.notices.notice(
                self.client.host.name, "consumer of queue", queue.name, consumer.warnings
            )
        self.consumers[tag] = consumer
        if not method.no_wait:
            self.send(m.BasicConsumeOk(tag))

    def _serve_no_local(self, consumer: ChannelConsumer) -> None:
        """Keep from a consumer what its connection publishes, or warn that nothing does. Raises Unsupported."""
        queue = consumer.queue
        if not self.broker.compat.no_local:
            consumer.warnings = ("no-local has no effect, unless the row no_local of [compat] is true",)
        elif queue.type is STREAM:
            raise Unsupported(f"no-local not supported by stream {queue.described}")
        else:
            consumer.selector = from_others(self.client.peer)

    def _consume_replies(self, method: m.BasicConsume, tag: str) -> None:
        """Consume direct replies: a hidden queue with this consumer alone (S093, S094)."""
        if self.reply_consumer is not None:
            raise PreconditionFailed("reply consumer already set")
        if not method.no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        host = self.client.host
        queue = WorkQueue(host, reply_name(), QueueLimits(), own_terms(self.client))
        host.add_hidden_queue(queue)
        consumer = ChannelConsumer(self, queue, tag, True, 0, 0, True, method.arguments)
        queue.add_consumer(consumer)
        self.consumers[tag] = self.reply_consumer = consumer
        if not method.no_wait:
            self.send(m.BasicConsumeOk(tag))

    def cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.pop(method.consumer_tag, None)
        if consumer is not None:
            self._detach(consumer)
        if not method.no_wait:
            self.send(m.BasicCancelOk(method.consumer_tag))

    def _detach(self, consumer: ChannelConsumer) -> None:
        if consumer is self.reply_consumer:
            self.reply_consumer = None
        consumer.queue.remove_consumer(consumer)

    def consumer_cancelled(self, consumer: ChannelConsumer) -> None:
        """Forget a consumer that the broker has ended, and notify a client with that capability (S077, S116)."""
        if self.consumers.pop(consumer.tag, None) is None:
            return
        if consumer is self.reply_consumer:
            self.reply_consumer = None
        if not self.connection.wire.has_capability("consumer_cancel_notify"):
            return
        if self.ended is None:
            self.send(m.BasicCancel(consumer.tag, True))
        else:
            self.ended.append(consumer.tag)

    def tell_ended(self) -> None:
        """Notify the client of the consumers in `ended`, and of later ones at once."""
        tags, self.ended = self.ended or [], None
        for tag in tags:
            self.send(m.BasicCancel(tag, True))

    def take_back(self, late: dict[int, Delivery]) -> None:
        """Requeue deliveries that were not answered in time, by tag. Their credit comes back with the late answers."""
        self.given_back += len(late)
        if self.sized:
            self.weigh(list(late.values()), -1)
        for tag, delivery in late.items():
            self.unsettled.pop(tag)
            self.late.add(tag, delivery.consumer)
            delivery.queue.release(delivery)
            if self.sized:
                self._wake(delivery.consumer)

    def cancel_late(self, consumer: ChannelConsumer) -> None:
        """End a consumer that has not answered in time: requeue its deliveries, and ignore its later answers (X028)."""
        for tag, delivery in self.unsettled.items():
            if delivery.consumer is consumer:
                self.unsettled.pop(tag)
                self.late.add(tag, None)
                self._settle(delivery, Delivery.release)
        consumer.queue.remove_consumer(consumer)
        self.consumer_cancelled(consumer)

    def end_slow(self, consumer: ChannelConsumer, why: str) -> None:
        """Cancel a consumer that is too slow, or close the channel if its client cannot be told of that."""
        if self.connection.wire.has_capability("consumer_cancel_notify"):
            self.cancel_late(consumer)
        else:
            self.connection.wire.fail_channel(self.number, wire.AmqpError(m.PRECONDITION_FAILED, why))

    def recheck_consumers(self) -> None:
        """End the consumers that may not read any more, after permissions or credentials changed (X008)."""
        for consumer in list(self.consumers.values()):
            if not consumer.queue.hidden and not self.client.may_still_read(consumer.queue):
                consumer.queue.remove_consumer(consumer)
                self.consumer_cancelled(consumer)

    def get(self, method: m.BasicGet) -> None:
        queue = self.client.readable_queue(queue_name(self, method.queue))
        try:
            delivery = self.client.get(queue, method.no_ack)
        except NotAtHand:
            self.connection.put_off()
            return
        if delivery is None:
            self.send(m.BasicGetEmpty())
            return
        self.last_tag += 1
        self.fetched += 1
        self.fetched_settled += method.no_ack
        if not method.no_ack:
            self.unsettled.add(self.last_tag, delivery)
            self.timeouts.watch(delivery)
        message = delivery.message
        properties, body = rendered(message, delivery.counted_attempts)
        exchange, key = cut(message.exchange), cut(message.key)
        head = m.BasicGetOk(self.last_tag, delivery.redelivered, exchange, key, queue.ready)
        self.send_content(head, properties, body)

    def flow(self, method: m.ChannelFlow) -> None:
        """Pause or resume the deliveries of this channel (S031, S032)."""
        if not method.active and not self.broker.compat.channel_flow:
            raise Unsupported("active=false")
        self.flowing = method.active
        self.send(m.ChannelFlowOk(method.active))
        if method.active:
            self.wake_all()

    def tx_commit(self, method: m.TxCommit) -> None:
        """Commit the transaction (S122-S125, X029).

        Raises PreconditionFailed if queues refused some messages, or if there is no room for them on the disk; then it
        is rolled back, as its channel ends.
        """
        if not self.publishing.transaction().fits_on_disk(self.broker):
            raise PreconditionFailed("the disk has no room for the transaction")
        refused = self.publishing.commit()
        self._tx_unsettled.clear()
        if refused:
            raise PreconditionFailed("partial tx completion")
        self.send(m.TxCommitOk())

    def tx_rollback(self, method: m.TxRollback) -> None:
        self.publishing.roll_back()
        self._restore_answered()
        self.send(m.TxRollbackOk())

    def _restore_answered(self) -> None:
        """Restore the deliveries that were answered in the transaction as unsettled, in order of delivery (S124)."""
        if self._tx_unsettled:
            self.unsettled.put_back(self._tx_unsettled)
            for delivery in self._tx_unsettled.values():
                self.timeouts.watch(delivery)
            self._tx_unsettled.clear()

    def end_consumer(self) -> bool:
        """End a consumer, as the channel ends: the others get nothing more. Return whether there was one."""
        self.timeouts.stop()
        self.flowing = False
        if not self.consumers:
            return False
        _, consumer = self.consumers.popitem()
        self._detach(consumer)
        return True

    def close(self) -> None:
        """End the consumers, and requeue the unacknowledged deliveries, marked as redelivered (S110, S126)."""
        self.timeouts.end()
        for consumer in list(self.consumers.values()):
            self._detach(consumer)
        self.consumers.clear()
        self._restore_answered()
        for delivery in chain(self.unsettled.values(), self.resending):
            delivery.queue.release(delivery)
        self.unsettled.clear()
        self.resending.clear()
        self.publishing.close()

    def send_content(self, method: Method, properties: bytes, body: bytes) -> None:
        """Send a method with a content, at once."""
        pieces = self.outbox.open()
        self.outbox.wrote(
            wire.append_content(pieces, self.number, method.encode(), properties, body, self.frame_max)
        )

    def send(self, method: Method) -> None:
        self.connection.wire.send(self.number, method)


def flow_ok(channel: Channel, method: m.ChannelFlowOk) -> None:
    """Ignore the client's answer to our own channel.flow: nothing is left to do."""


def cancel_ok(channel: Channel, method: m.BasicCancelOk) -> None:
    """Ignore the answer that some clients give to our basic.cancel, which is sent with no-wait."""


def access_request(channel: Channel, method: m.AccessRequest) -> None:
    """Grant any access.request, for clients from the time of 0-8 (X011)."""
    channel.send(m.AccessRequestOk(1))


def confirm_select(channel: Channel, method: m.ConfirmSelect) -> None:
    channel.publishing.select_confirms()
    if not method.no_wait:
        channel.send(m.ConfirmSelectOk())


def tx_select(channel: Channel, method: m.TxSelect) -> None:
    channel.publishing.select_tx()
    channel.send(m.TxSelectOk())


def recover(channel: Channel, method: m.BasicRecover) -> None:
    channel.put_back(method.requeue)
    channel.send(m.BasicRecoverOk())


def recover_async(channel: Channel, method: m.BasicRecoverAsync) -> None:
    channel.put_back(method.requeue)


METHODS: Final[dict[type[Method], Callable[..., None]]] = {
    m.ChannelFlow: Channel.flow,
    m.ChannelFlowOk: flow_ok,
    m.AccessRequest: access_request,
    m.ExchangeDeclare: declarations.exchange_declare,
    m.ExchangeDelete: declarations.exchange_delete,
    m.ExchangeBind: declarations.exchange_bind,
    m.ExchangeUnbind: declarations.exchange_unbind,
    m.QueueDeclare: declarations.queue_declare,
    m.QueueBind: declarations.queue_bind,
    m.QueueUnbind: declarations.queue_unbind,
    m.QueuePurge: declarations.queue_purge,
    m.QueueDelete: declarations.queue_delete,
    m.BasicQos: Channel.qos,
    m.BasicConsume: Channel.consume,
    m.BasicCancel: Channel.cancel,
    m.BasicCancelOk: cancel_ok,
    m.BasicGet: Channel.get,
    m.BasicReject: Channel.reject,
    m.BasicNack: Channel.nack,
    m.BasicRecover: recover,
    m.BasicRecoverAsync: recover_async,
    m.ConfirmSelect: confirm_select,
    m.TxSelect: tx_select,
    m.TxCommit: Channel.tx_commit,
    m.TxRollback: Channel.tx_rollback,
}


def unknown_tag(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")


def integer_argument(arguments: wire.FieldTable, name: str) -> int | None:
    """Return an argument of basic.consume, or None if it is absent. Raises PreconditionFailed if it is no integer."""
    if name not in arguments:
        return None
    value: Value = arguments[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise PreconditionFailed(f"invalid arg '{name}': expected a whole number, found '{value}'")
    return value


def require_shared_credit(queue: Queue) -> None:
    """Raise Unsupported unless consumers may share their credit here (global qos): classic queues only (X027)."""
    if queue.type is not CLASSIC:
        raise Unsupported(f"{queue.described} does not support global qos")
