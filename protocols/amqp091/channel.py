"""One channel of a 0-9-1 connection: what each method does to the broker, and what it answers.

Methods come in through `METHODS`, a table; publishes and acks, the hot path, directly. Everything that the core refuses
is raised as a `Failure`; the adapter turns it into the reply code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from broker_core.broker import REFUSED, UNROUTABLE, Outcome, Publisher
from broker_core.compat import GlobalQos, NoCurrentQueue
from broker_core.delivery import UNLIMITED, Delivery, Window
from broker_core.errors import AccessRefused, NotAllowed, NotFound, PreconditionFailed, Unsupported
from broker_core.exchange import Exchange
from broker_core.limits import QueueLimits
from broker_core.message import Facts, Message
from broker_core.topology import generated_name
from broker_core.transaction import Transaction
from broker_core.values import Value
from broker_core.work_queue import WorkQueue
from protocols.amqp091 import methods as m
from protocols.amqp091 import wire
from protocols.amqp091.consumer import ChannelConsumer
from protocols.amqp091.encoding import ENCODING, project, remembered, rendered, table
from protocols.amqp091.timeouts import Timeouts
from protocols.amqp091.wire import AmqpError, Method

if TYPE_CHECKING:
    from broker_core.client import Client
    from protocols.amqp091.adapter import Connection091

REPLY_TO: Final = "amq.rabbitmq.reply-to"
TARGETS_MAX: Final = 32_768  # remembered publish targets per virtual host and user


class Target:
    """Where raw basic.publish arguments lead, with every check done; good while the revisions stand."""

    __slots__ = ("access_revision", "exchange", "immediate", "key", "mandatory", "plain", "revision")

    def __init__(self, exchange: Exchange, publish: m.BasicPublish, key: str, access_revision: int) -> None:
        self.exchange = exchange
        self.key = key
        self.mandatory = publish.mandatory
        self.immediate = publish.immediate
        self.plain = not publish.immediate
        self.revision = exchange.virtual_host.revision
        self.access_revision = access_revision


def targets_of(client: Client) -> dict[bytes, Target]:
    """The publish targets known for this client's user in its virtual host, by raw basic.publish arguments.

    What one channel has found out holds for every channel of that user there.
    """
    known = client.host.remembered.setdefault(("amqp091", client.user.name), {})
    return cast("dict[bytes, Target]", known)


class Channel(Publisher):
    """The broker's side of one open channel."""

    __slots__ = (
        "_announced",
        "_confirmed",
        "_global",
        "_last_publish",
        "_last_target",
        "_late_tags",
        "_nacked",
        "_prefetch",
        "_returns",
        "_targets",
        "_tx_unsettled",
        "asked_to_flow",
        "broker",
        "client",
        "confirming",
        "connection",
        "consumers",
        "current_queue",
        "flowing",
        "frame_max",
        "last_tag",
        "number",
        "outbox",
        "published",
        "reply_consumer",
        "sharing",
        "timeouts",
        "tx",
        "unsettled",
        "window",
    )

    def __init__(self, connection: Connection091, number: int) -> None:
        self.connection = connection
        self.number = number
        self.broker = connection.broker
        self.client = connection.client
        self.outbox = connection.outbox
        self.frame_max = connection.wire.frame_max
        self.window = Window()  # credit shared by the channel's consumers (qos global)
        self.sharing = False  # there is such a limit
        self._global = False  # and the client has said `global`
        self.consumers: dict[str, ChannelConsumer] = {}
        self.unsettled: dict[int, Delivery] = {}  # by delivery tag, ascending
        self.last_tag = 0
        self.current_queue = ""  # the last one declared here
        self.flowing = True  # the client lets deliveries come (channel.flow)
        self.published = 0  # messages; in confirm mode also the last sequence number
        self.confirming = False
        self.tx: Transaction | None = None
        self.asked_to_flow = True  # our last channel.flow to the client
        self.reply_consumer: ChannelConsumer | None = None
        self.timeouts = Timeouts(self)
        self._prefetch = 0  # for consumers started later
        self._confirmed = 0
        self._nacked: list[int] = []
        self._announced = False  # on the broker's list of publishers for this settle
        self._targets = targets_of(self.client)
        self._last_publish = b""
        self._last_target: Target | None = None
        self._late_tags: set[int] = set()  # of deliveries taken back because they were not answered in time
        self._returns: list[tuple[Message, int]] = []  # of the transaction
        self._tx_unsettled: dict[int, Delivery] = {}  # answered in the transaction

    # ---- publishing ------------------------------------------------------------------------------------------------

    def publish(self, publish: bytes, properties: bytes, body: bytes) -> None:
        """basic.publish with its content; `publish` are the method's raw arguments."""
        target = self._last_target if publish is self._last_publish else None
        if (
            target is None
            or target.revision != target.exchange.virtual_host.revision
            or target.access_revision != self.broker.access.revision
        ):
            target = self._target(publish)
        facts = remembered.get(properties)
        if facts is None:
            facts, properties = project(properties)
        if facts.user_id is not None or facts.reply_to is not None or facts.cc or facts.bcc:
            properties = self._check_facts(target, facts, properties)
        message = Message(ENCODING, target.exchange.name, target.key, properties, body, facts)
        self.published += 1
        if self.tx is not None:
            self._publish_in_tx(self.tx, target, message)
            return
        if target.plain:
            outcome = self.broker.publish(target.exchange, message)
        else:
            outcome = self.broker.publish_immediate(target.exchange, message)
        if outcome is not Outcome.TAKEN:
            self._not_taken(outcome, target, message)
        if self.confirming and not self._announced:
            self._announced = True
            self.broker.publishers.append(self)

    def _target(self, publish: bytes) -> Target:
        """The checked target of raw publish arguments. Raises what the checks raise (S046, S047, S087, S088)."""
        found = self._targets.get(publish)
        access_revision = self.broker.access.revision
        if (
            found is None
            or found.revision != found.exchange.virtual_host.revision
            or found.access_revision != access_revision
        ):
            method = m.BasicPublish.decode(publish, 0, len(publish))
            if method.immediate and not self.broker.compat.immediate:
                raise Unsupported("immediate=true")
            key = method.routing_key
            exchange = self.client.publish_target(name_of(method.exchange), key)
            found = Target(exchange, method, key, access_revision)
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            self._targets[publish] = found
        self._last_publish, self._last_target = publish, found
        return found

    def _check_facts(self, target: Target, facts: Facts, properties: bytes) -> bytes:
        if facts.user_id is not None:
            self.client.require_user_id(facts.user_id)
        if facts.cc or facts.bcc:
            self.client.publish_target(target.exchange.name, target.key, (*facts.cc, *facts.bcc))
        if facts.reply_to == REPLY_TO:
            if self.reply_consumer is None:
                raise PreconditionFailed("fast reply consumer does not exist")
            return wire.edit_properties(properties, {"reply_to": self.reply_consumer.queue.name})
        return properties

    def _not_taken(self, outcome: Outcome, target: Target, message: Message) -> None:
        if outcome is REFUSED:
            if self.confirming:
                self._nacked.append(self.published)
        elif (code := return_code(outcome, target)) is not None:
            self._return(message, code)

    def _publish_in_tx(self, tx: Transaction, target: Target, message: Message) -> None:
        if target.immediate:
            tx.hold(lambda: self._publish_immediate(target, message), message.size)
        elif not tx.publish(self.broker, target.exchange, message) and target.mandatory:
            self._returns.append((message, m.NO_ROUTE))

    def _publish_immediate(self, target: Target, message: Message) -> bool:
        """At commit: who could take it is known only now. False: a queue refused it."""
        outcome = self.broker.publish_immediate(target.exchange, message)
        if outcome not in (Outcome.TAKEN, REFUSED) and (code := return_code(outcome, target)) is not None:
            self._returns.append((message, code))
        return outcome is not REFUSED

    def _return(self, message: Message, code: int) -> None:
        text = "NO_ROUTE" if code == m.NO_ROUTE else "NO_CONSUMERS"
        method = m.BasicReturn(code, text, message.exchange, message.key)
        self._send_content(method, rendered(message), message.body)

    def _send_content(self, method: Method, properties: bytes, body: bytes) -> None:
        pieces = self.outbox.open()
        self.outbox.wrote(
            wire.append_content(pieces, self.number, method.encode(), properties, body, self.frame_max)
        )

    def taken(self) -> None:
        """Confirm everything published so far: runs of acks, and the nacks between them (S119, S120)."""
        self._announced = False
        for refused in self._nacked:
            self._confirm_through(refused - 1)
            self.send(m.BasicNack(refused, False, False))
            self._confirmed = refused
        self._nacked.clear()
        self._confirm_through(self.published)

    def _confirm_through(self, sequence: int) -> None:
        if sequence > self._confirmed:
            self.send(m.BasicAck(sequence, sequence > self._confirmed + 1))
            self._confirmed = sequence

    # ---- answering deliveries --------------------------------------------------------------------------------------

    def ack(self, tag: int, multiple: bool) -> None:
        """basic.ack."""
        if self.tx is not None:
            self._answer(tag, multiple, Delivery.accept)
            return
        pop = self.unsettled.pop
        for each in (tag,) if tag in self.unsettled and not multiple else self._tags(tag, multiple):
            delivery = pop(each)
            delivery.queue.accept(delivery)
            consumer = delivery.consumer
            if consumer is not None:
                consumer.credit += 1
                consumer.window.credit += 1
                if self.sharing or not consumer.able:
                    self._wake(consumer)

    def _answer(self, tag: int, multiple: bool, outcome: Callable[[Delivery], None]) -> None:
        """Settle one delivery, or all up to one (0: all there are), in order of delivery (S106, S107)."""
        tags = self._tags(tag, multiple)
        if self.tx is None:
            for each in tags:
                self._settle(self.unsettled.pop(each), outcome)
            return
        for each in tags:
            delivery = self._tx_unsettled[each] = self.unsettled.pop(each)
            self.tx.settle(lambda delivery=delivery: self._settle(delivery, outcome))  # type: ignore[misc]

    def _tags(self, tag: int, multiple: bool) -> list[int]:
        if multiple and tag == 0:
            return list(self.unsettled)
        if tag not in self.unsettled and tag not in self._late_tags:
            raise unknown_tag(tag)
        if not multiple:
            return [tag] if tag in self.unsettled else []
        tags = []
        for each in self.unsettled:
            if each > tag:
                break
            tags.append(each)
        return tags

    def _settle(self, delivery: Delivery, outcome: Callable[[Delivery], None]) -> None:
        consumer = delivery.consumer
        outcome(delivery)
        if consumer is not None:
            consumer.credit += 1
            consumer.window.credit += 1
            self._wake(consumer)

    def _wake(self, consumer: object) -> None:
        """Credit came back: to one consumer, or to all of the channel if they share it."""
        if self.sharing:
            self.wake_all()
        elif isinstance(consumer, ChannelConsumer):
            consumer.wake()

    def wake_all(self) -> None:
        for consumer in self.consumers.values():
            consumer.wake()

    def nack(self, method: m.BasicNack) -> None:
        outcome = Delivery.release if method.requeue else Delivery.reject
        self._answer(method.delivery_tag, method.multiple, outcome)

    def reject(self, method: m.BasicReject) -> None:
        self._answer(method.delivery_tag, False, Delivery.release if method.requeue else Delivery.reject)

    def recover(self, method: m.BasicRecover) -> None:
        self._recover(method.requeue)
        self.send(m.BasicRecoverOk())

    def recover_async(self, method: m.BasicRecoverAsync) -> None:
        self._recover(method.requeue)

    def _recover(self, requeue: bool) -> None:
        if not requeue:
            raise Unsupported("requeue=false")
        for tag in list(self.unsettled):
            self._settle(self.unsettled.pop(tag), Delivery.release)

    # ---- consuming -------------------------------------------------------------------------------------------------

    def qos(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise Unsupported(f"prefetch_size!=0 ({method.prefetch_size})")
        shared = method.global_ or self.connection.shares_prefetch
        if shared and self.broker.compat.qos_global is GlobalQos.CHANNEL:
            held = (*self.unsettled.values(), *self._tx_unsettled.values())
            given = sum(delivery.consumer is not None for delivery in held)
            self.window.credit = method.prefetch_count - given if method.prefetch_count else UNLIMITED
            self.sharing = method.prefetch_count > 0
            self._global = self.sharing and method.global_
            self.wake_all()
        else:
            self._prefetch = method.prefetch_count
        self.send(m.BasicQosOk())

    def consume(self, method: m.BasicConsume) -> None:
        tag = method.consumer_tag or generated_name("amq.ctag-")
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        self.broker.node_limits.require_consumer(len(self.consumers))
        if name_of(method.queue) == REPLY_TO:
            self._consume_replies(method, tag)
            return
        queue = self.client.readable_queue(self._queue_name(method.queue))
        if self._global:
            queue.require_shared_credit()
        consumer = ChannelConsumer(
            self,
            queue,
            tag,
            method.no_ack,
            self._prefetch,
            integer_argument(method.arguments, "x-priority") or 0,
            method.exclusive,
            table(method.arguments),
        )
        timeout_ms = integer_argument(method.arguments, "x-consumer-timeout")
        consumer.timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self.client.consume(consumer)
        self.consumers[tag] = consumer
        if not method.no_wait:
            self.send(m.BasicConsumeOk(tag))

    def _consume_replies(self, method: m.BasicConsume, tag: str) -> None:
        """Direct reply-to: a hidden queue with this one consumer (S093, S094)."""
        if self.reply_consumer is not None:
            raise PreconditionFailed("reply consumer already set")
        if not method.no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        host = self.client.host
        queue = WorkQueue(
            host, generated_name(f"{REPLY_TO}."), QueueLimits(), owner=self.client, auto_delete=True
        )
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

    def cancel_ok(self, method: m.BasicCancelOk) -> None:
        """Our basic.cancel wants no answer, but some clients give one."""

    def _detach(self, consumer: ChannelConsumer) -> None:
        if consumer is self.reply_consumer:
            self.reply_consumer = None
        consumer.queue.remove_consumer(consumer)

    def consumer_cancelled(self, consumer: ChannelConsumer) -> None:
        """The broker has ended a consumer; clients that want to know are told (S077, S116)."""
        if self.consumers.pop(consumer.tag, None) is None:
            return
        if consumer is self.reply_consumer:
            self.reply_consumer = None
        if self.connection.wire.has_capability("consumer_cancel_notify"):
            self.send(m.BasicCancel(consumer.tag, True))

    def cancel_late(self, consumer: ChannelConsumer) -> None:
        """It has not answered in time: what it had goes back, and its answers will come too late (X028)."""
        for tag in [tag for tag, delivery in self.unsettled.items() if delivery.consumer is consumer]:
            self._late_tags.add(tag)
            self._settle(self.unsettled.pop(tag), Delivery.release)
        consumer.queue.remove_consumer(consumer)
        self.consumer_cancelled(consumer)

    def recheck_consumers(self) -> None:
        """Permissions or credentials changed: consumers that may no longer read are ended (X008)."""
        for consumer in list(self.consumers.values()):
            if not consumer.queue.hidden and not self.client.may_still_read(consumer.queue):
                consumer.queue.remove_consumer(consumer)
                self.consumer_cancelled(consumer)

    def get(self, method: m.BasicGet) -> None:
        queue = self.client.readable_queue(self._queue_name(method.queue))
        delivery = self.client.get(queue, method.no_ack)
        if delivery is None:
            self.send(m.BasicGetEmpty())
            return
        self.last_tag += 1
        if not method.no_ack:
            self.unsettled[self.last_tag] = delivery
            self.timeouts.watch(delivery)
        message = delivery.message
        head = m.BasicGetOk(self.last_tag, delivery.redelivered, message.exchange, message.key, queue.ready)
        self._send_content(head, rendered(message, delivery.attempts), message.body)

    def flow(self, method: m.ChannelFlow) -> None:
        """S031, S032: pause or resume the deliveries of this channel."""
        if not method.active and not self.broker.compat.channel_flow:
            raise Unsupported("active=false")
        self.flowing = method.active
        self.send(m.ChannelFlowOk(method.active))
        if method.active:
            self.wake_all()

    def flow_ok(self, method: m.ChannelFlowOk) -> None:
        """The client's answer to our own channel.flow; nothing is left to do."""

    # ---- exchanges and queues --------------------------------------------------------------------------------------

    def exchange_declare(self, method: m.ExchangeDeclare) -> None:
        name = name_of(method.exchange)
        if method.passive:
            self.client.find_exchange(name)
        else:
            self.client.declare_exchange(
                name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
            )
        if not method.no_wait:
            self.send(m.ExchangeDeclareOk())

    def exchange_delete(self, method: m.ExchangeDelete) -> None:
        self.client.delete_exchange(name_of(method.exchange), method.if_unused)
        if not method.no_wait:
            self.send(m.ExchangeDeleteOk())

    def exchange_bind(self, method: m.ExchangeBind) -> None:
        source, destination = name_of(method.source), name_of(method.destination)
        self.client.bind(source, destination, True, method.routing_key, method.arguments)
        if not method.no_wait:
            self.send(m.ExchangeBindOk())

    def exchange_unbind(self, method: m.ExchangeUnbind) -> None:
        source, destination = name_of(method.source), name_of(method.destination)
        self.client.unbind(source, destination, True, method.routing_key, method.arguments)
        if not method.no_wait:
            self.send(m.ExchangeUnbindOk())

    def queue_declare(self, method: m.QueueDeclare) -> None:
        name = name_of(method.queue)
        if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
            self._declare_reply_queue(name, method.no_wait)
            return
        if method.passive:
            queue = self.client.find_queue(self._queue_name(method.queue))
        else:
            queue = self.client.declare_queue(
                name, method.durable, method.exclusive, method.auto_delete, method.arguments
            )
        self.current_queue = queue.name
        if not method.no_wait:
            self.send(m.QueueDeclareOk(queue.name, queue.ready, queue.active_consumers))

    def _declare_reply_queue(self, name: str, nowait: bool) -> None:
        """Asking for a direct reply-to queue tells whether somebody still waits for the reply."""
        if name != REPLY_TO and name not in self.client.host.hidden_queues:
            raise NotFound(f"no queue '{name}' in vhost '{self.client.host.name}'")
        self.current_queue = name
        if not nowait:
            self.send(m.QueueDeclareOk(name, 0, 1))

    def queue_bind(self, method: m.QueueBind) -> None:
        queue, key = self._bound(method.queue, method.routing_key)
        self.client.bind(name_of(method.exchange), queue, False, key, method.arguments)
        if not method.no_wait:
            self.send(m.QueueBindOk())

    def queue_unbind(self, method: m.QueueUnbind) -> None:
        queue, key = self._bound(method.queue, method.routing_key)
        self.client.unbind(name_of(method.exchange), queue, False, key, method.arguments)
        self.send(m.QueueUnbindOk())

    def _bound(self, queue: str, key: str) -> tuple[str, str]:
        """S063: without a queue name, the current queue; then, without a key, its name is the key too."""
        name = self._queue_name(queue)
        if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
            raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
        return name, name if not queue and not key else key

    def queue_purge(self, method: m.QueuePurge) -> None:
        count = self.client.purge(self._queue_name(method.queue))
        if not method.no_wait:
            self.send(m.QueuePurgeOk(count))

    def queue_delete(self, method: m.QueueDelete) -> None:
        name = self._queue_name(method.queue)
        count = self.client.delete_queue(name, method.if_unused, method.if_empty)
        if not method.no_wait:
            self.send(m.QueueDeleteOk(count))

    def _queue_name(self, given: str) -> str:
        """The queue meant: the one named, or the one declared last on this channel (S062)."""
        name = name_of(given)
        if name:
            return name
        if not self.current_queue:
            if self.broker.compat.no_current_queue is NoCurrentQueue.SYNTAX_ERROR:
                raise AmqpError(m.SYNTAX_ERROR, "no previously declared queue")
            raise NotFound("no previously declared queue")
        return self.current_queue

    # ---- confirms and transactions ---------------------------------------------------------------------------------

    def confirm_select(self, method: m.ConfirmSelect) -> None:
        if self.tx is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if not self.confirming:
            self.confirming = True
            self.published = 0  # the first publish from here on has number 1 (S117)
        if not method.no_wait:
            self.send(m.ConfirmSelectOk())

    def tx_select(self, method: m.TxSelect) -> None:
        if self.confirming:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.tx is None:
            self.tx = Transaction()
        self.send(m.TxSelectOk())

    def tx_commit(self, method: m.TxCommit) -> None:
        """S122-S125, X029."""
        refused = self._transaction().commit()
        self._tx_unsettled.clear()
        for message, code in self._returns:
            self._return(message, code)
        self._returns.clear()
        if refused:
            raise PreconditionFailed("partial tx completion")
        self.send(m.TxCommitOk())

    def tx_rollback(self, method: m.TxRollback) -> None:
        self._transaction().rollback()
        self._returns.clear()
        self._restore_answered()
        self.send(m.TxRollbackOk())

    def _transaction(self) -> Transaction:
        if self.tx is None:
            raise PreconditionFailed("channel is not transactional")
        return self.tx

    def _restore_answered(self) -> None:
        """What was answered in the transaction is unanswered again, in order of delivery (S124)."""
        if self._tx_unsettled:
            self.unsettled = dict(sorted({**self.unsettled, **self._tx_unsettled}.items()))
            self._tx_unsettled.clear()

    def access_request(self, method: m.AccessRequest) -> None:
        """For clients of 0-8 days (X011)."""
        self.send(m.AccessRequestOk(1))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Consumers go; what was not acknowledged goes back, marked as redelivered (S110, S126)."""
        self.timeouts.stop()
        for consumer in list(self.consumers.values()):
            self._detach(consumer)
        self.consumers.clear()
        self._restore_answered()
        for delivery in self.unsettled.values():
            delivery.queue.release(delivery)
        self.unsettled.clear()
        self._nacked.clear()
        # Nobody is left to be told, least of all the next channel of this number.
        self._confirmed = self.published

    def send(self, method: Method) -> None:
        self.connection.wire.send(self.number, method)


METHODS: Final[dict[type[Method], Callable[..., None]]] = {
    m.ChannelFlow: Channel.flow,
    m.ChannelFlowOk: Channel.flow_ok,
    m.AccessRequest: Channel.access_request,
    m.ExchangeDeclare: Channel.exchange_declare,
    m.ExchangeDelete: Channel.exchange_delete,
    m.ExchangeBind: Channel.exchange_bind,
    m.ExchangeUnbind: Channel.exchange_unbind,
    m.QueueDeclare: Channel.queue_declare,
    m.QueueBind: Channel.queue_bind,
    m.QueueUnbind: Channel.queue_unbind,
    m.QueuePurge: Channel.queue_purge,
    m.QueueDelete: Channel.queue_delete,
    m.BasicQos: Channel.qos,
    m.BasicConsume: Channel.consume,
    m.BasicCancel: Channel.cancel,
    m.BasicCancelOk: Channel.cancel_ok,
    m.BasicGet: Channel.get,
    m.BasicReject: Channel.reject,
    m.BasicNack: Channel.nack,
    m.BasicRecover: Channel.recover,
    m.BasicRecoverAsync: Channel.recover_async,
    m.ConfirmSelect: Channel.confirm_select,
    m.TxSelect: Channel.tx_select,
    m.TxCommit: Channel.tx_commit,
    m.TxRollback: Channel.tx_rollback,
}


def return_code(outcome: Outcome, target: Target) -> int | None:
    """Why a message that no queue has taken goes back to its publisher; None: it does not."""
    if outcome is UNROUTABLE and target.mandatory:
        return m.NO_ROUTE
    return m.NO_CONSUMERS if target.immediate else None


def unknown_tag(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")


def name_of(given: str) -> str:
    """Names keep their octets but for line ends; routing keys keep those too (S042)."""
    return given.replace("\r", "").replace("\n", "") if "\n" in given or "\r" in given else given


def integer_argument(arguments: wire.FieldTable, name: str) -> int | None:
    """An argument of basic.consume that must be a whole number."""
    value: Value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise PreconditionFailed(f"invalid arg '{name}': expected a whole number, found '{value}'")
    return value
