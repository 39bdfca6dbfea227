"""The counters of queues, exchanges, connections and channels as rows, in RabbitMQ's terms.

Sums of other counters, such as all deliveries, are computed where they are reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.observability.connection_stats import ChannelFacts
    from leveret.operations import Connected
    from leveret.queues.queue import Queue

LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
DELIVERIES: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
QUEUE: Final = (*LENGTHS, "publish", *DELIVERIES, "get_empty", "redeliver", "ack", "dedup_queue")
EXCHANGE: Final = ("publish_in", "publish_out", "drop_unroutable", "dedup_exchange")
CONNECTION: Final = ("recv_oct", "send_oct")
CHANNEL: Final = ("publish", "confirm", "return_unroutable", *DELIVERIES, "ack")
HOST: Final = (*LENGTHS, "publish", *DELIVERIES, "get_empty", "redeliver", "ack", "drop_unroutable")
CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_created",
    "queue_deleted",
)
TOTAL: Final = (*HOST, "confirm", "return_unroutable", *CHURN)
NODE: Final = ("mem_used", "fd_used", "sockets_used", "disk_free", "processor_ms")


def queue_counts(queue: Queue) -> tuple[int, ...]:
    """Return the columns of `QUEUE`."""
    return (
        queue.ready,
        queue.unsettled,
        queue.published,
        queue.delivered - queue.delivered_settled - queue.fetched,
        queue.delivered_settled,
        queue.fetched - queue.fetched_settled,
        queue.fetched_settled,
        queue.fetched_none,
        queue.redelivered,
        queue.accepted - queue.delivered_settled - queue.fetched_settled,
        queue.repeated,
    )


def exchange_counts(exchange: Exchange) -> tuple[int, ...]:
    """Return the columns of `EXCHANGE`."""
    return exchange.published, exchange.routed, exchange.unroutable, exchange.repeated


def connection_counts(connected: Connected) -> tuple[int, ...]:
    """Return the columns of `CONNECTION`."""
    return connected.octets_received, connected.octets_sent


def channel_counts(facts: ChannelFacts) -> tuple[int, ...]:
    """Return the columns of `CHANNEL`."""
    return (
        facts.published,
        facts.confirmed,
        facts.returned,
        facts.delivered - facts.delivered_settled,
        facts.delivered_settled,
        facts.fetched - facts.fetched_settled,
        facts.fetched_settled,
        facts.accepted,
    )
