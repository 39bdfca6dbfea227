"""The methods of the exchange and queue classes of 0-9-1 on a channel, with their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.config.compat import NoCurrentQueue
from leveret.errors import AccessRefused, NotFound
from leveret.protocols.amqp091.broker.encoding import REPLY_TO
from leveret.protocols.amqp091.broker.publishing import name_of
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import AmqpError

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.channel import Channel


def exchange_declare(channel: Channel, method: m.ExchangeDeclare) -> None:
    name = name_of(method.exchange)
    if method.passive:
        channel.client.find_exchange(name)
    else:
        channel.client.declare_exchange(
            name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
        )
    if not method.no_wait:
        channel.send(m.ExchangeDeclareOk())


def exchange_delete(channel: Channel, method: m.ExchangeDelete) -> None:
    channel.client.delete_exchange(name_of(method.exchange), method.if_unused)
    if not method.no_wait:
        channel.send(m.ExchangeDeleteOk())


def exchange_bind(channel: Channel, method: m.ExchangeBind) -> None:
    source, destination = name_of(method.source), name_of(method.destination)
    channel.client.bind(source, destination, True, method.routing_key, method.arguments)
    if not method.no_wait:
        channel.send(m.ExchangeBindOk())


def exchange_unbind(channel: Channel, method: m.ExchangeUnbind) -> None:
    source, destination = name_of(method.source), name_of(method.destination)
    channel.client.unbind(source, destination, True, method.routing_key, method.arguments)
    if not method.no_wait:
        channel.send(m.ExchangeUnbindOk())


def queue_declare(channel: Channel, method: m.QueueDeclare) -> None:
    name = name_of(method.queue)
    if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
        _declare_reply_queue(channel, name, method.no_wait)
        return
    if method.passive:
        queue = channel.client.find_queue(queue_name(channel, method.queue))
    else:
        queue = channel.client.declare_queue(
            name, method.durable, method.exclusive, method.auto_delete, method.arguments
        )
    channel.current_queue = queue.name
    if not method.no_wait:
        active = sum(not consumer.suspended for consumer in queue.consumers)  # S071
        channel.send(m.QueueDeclareOk(queue.name, queue.ready, active))


def _declare_reply_queue(channel: Channel, name: str, nowait: bool) -> None:
    """Answer a declaration of a direct reply-to queue, with which clients check whether the requester still waits for
    the reply. Raises NotFound if it does not."""
    if name != REPLY_TO and name not in channel.client.host.hidden_queues:
        raise NotFound(f"no queue '{name}' in vhost '{channel.client.host.name}'")
    channel.current_queue = name
    if not nowait:
        channel.send(m.QueueDeclareOk(name, 0, 1))


def queue_bind(channel: Channel, method: m.QueueBind) -> None:
    queue, key = _bound(channel, method.queue, method.routing_key)
    channel.client.bind(name_of(method.exchange), queue, False, key, method.arguments)
    if not method.no_wait:
        channel.send(m.QueueBindOk())


def queue_unbind(channel: Channel, method: m.QueueUnbind) -> None:
    queue, key = _bound(channel, method.queue, method.routing_key)
    channel.client.unbind(name_of(method.exchange), queue, False, key, method.arguments)
    channel.send(m.QueueUnbindOk())


def _bound(channel: Channel, queue: str, key: str) -> tuple[str, str]:
    """Return the queue and key of a binding: without a queue name, the current queue; then, without a key, its name is
    the key too (S063)."""
    name = queue_name(channel, queue)
    if name == REPLY_TO or name.startswith(f"{REPLY_TO}."):
        raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
    return name, name if not queue and not key else key


def queue_purge(channel: Channel, method: m.QueuePurge) -> None:
    count = channel.client.purge(queue_name(channel, method.queue))
    if not method.no_wait:
        channel.send(m.QueuePurgeOk(count))


def queue_delete(channel: Channel, method: m.QueueDelete) -> None:
    """Delete a queue. Its consumers on this channel hear of it after the answer, as clients expect it (S077)."""
    name = queue_name(channel, method.queue)
    channel.ended = []
    try:
        count = channel.client.delete_queue(name, method.if_unused, method.if_empty)
        if not method.no_wait:
            channel.send(m.QueueDeleteOk(count))
    finally:
        channel.tell_ended()


def queue_name(channel: Channel, given: str) -> str:
    """Return the queue name: the given one, or that of the queue declared last on this channel (S062). Raises NotFound
    or AmqpError if there is none."""
    name = name_of(given)
    if name:
        return name
    if not channel.current_queue:
        if channel.broker.compat.no_current_queue is NoCurrentQueue.SYNTAX_ERROR:
            raise AmqpError(m.SYNTAX_ERROR, "no previously declared queue")
        raise NotFound("no previously declared queue")
    return channel.current_queue
