"""Super streams group several streams, the partitions, behind a direct exchange, in RabbitMQ's layout.

    events ──"0"──> events-0        the routing key is the number of the partition
           ──"1"──> events-1

The publisher chooses the partition, so that related messages stay in order; a consumer reads each of them.
"""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import whole
from leveret.errors import NotFound, PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.queues.stream import StreamQueue
from leveret.virtual_host import VirtualHost

SUPER: Final = "x-super-stream"  # argument of the exchange
ORDER: Final = "x-stream-partition-order"  # argument of its bindings
PARTITIONS_MAX: Final = 1000


def add_super_stream(host: VirtualHost, name: str, partitions: int) -> list[str]:
    """Create a super stream and return the names of its partitions. Raises PreconditionFailed if one of the names is
    taken, and what declarations raise; then nothing is created.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise PreconditionFailed(f"a super stream has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
    names = [f"{name}-{number}" for number in range(partitions)]
    if not name or name in host.exchanges:
        raise PreconditionFailed(f"there is an exchange '{name}' in vhost '{host.name}' already")
    for each in names:
        if each in host.queues:
            raise PreconditionFailed(f"there is a queue '{each}' in vhost '{host.name}' already")
    try:
        exchange = host.declare_exchange(name, "direct", durable=True, arguments={SUPER: True})
        for number, each in enumerate(names):
            queue = host.declare_queue(each, durable=True, arguments={"x-queue-type": "stream"})
            host.bind(exchange, queue, str(number), {ORDER: number})
    except BaseException:
        _remove(host, name, [each for each in names if each in host.queues])
        raise
    return names


def delete_super_stream(host: VirtualHost, name: str) -> list[str]:
    """Delete a super stream with its partitions and all their messages; return their names. Raises NotFound."""
    exchange = host.exchanges.get(name)
    if exchange is None or exchange.arguments.get(SUPER) is not True:
        raise NotFound(f"no super stream '{name}' in vhost '{host.name}'")
    names = [queue.name for queue in partitions_of(exchange)]
    _remove(host, name, names)
    return names


def _remove(host: VirtualHost, name: str, queues: list[str]) -> None:
    for each in queues:
        host.delete_queue(host.queues[each])
    if name in host.exchanges:
        host.delete_exchange(name)


def partitions_of(exchange: Exchange) -> list[StreamQueue]:
    """Return the streams of a super stream, each once and in order; none if the exchange is no super stream."""
    if exchange.arguments.get(SUPER) is not True:
        return []
    ordered = sorted(exchange.bindings, key=lambda binding: whole(binding.arguments.get(ORDER)) or 0)
    return list(dict.fromkeys(b.end for b in ordered if isinstance(b.end, StreamQueue)))
