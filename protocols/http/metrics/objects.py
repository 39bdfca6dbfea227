"""Define the metrics of each queue, exchange, connection and channel: tables of families and the columns they show.

They have RabbitMQ's names, of 3.10 or later, for what RabbitMQ measures as well; others begin with `leveret_`. A family
belongs to a group, by which `/metrics/detailed` selects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs

from leveret.observability import counts
from leveret.observability.metric import COUNTER, GAUGE
from leveret.protocols.http.metrics.exposition import TOTAL, Family
from leveret.queues.stream import StreamQueue

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Exchange
    from leveret.observability.connection_stats import ChannelFacts
    from leveret.operations import Connected
    from leveret.queues.queue import Queue

T = TypeVar("T")
Numbers = Sequence[float]


@attrs.frozen
class Measure:
    """A family, and the column of the readings that it shows."""

    group: str
    column: str
    family: Family


@attrs.frozen
class Subject(Generic[T]):
    """A kind of object: the function that reads one, the columns that it returns, and the families that show them."""

    columns: tuple[str, ...]
    read: Callable[[T], Numbers]
    measures: tuple[Measure, ...]

    def of(self, groups: frozenset[str] | None) -> list[tuple[int, Family]]:
        """Return the families of these groups, or all if None, each with the index of its column."""
        return [
            (self.columns.index(each.column), each.family)
            for each in self.measures
            if groups is None or each.group in groups
        ]


def gauge(group: str, name: str, column: str, text: str) -> Measure:
    return Measure(group, column, Family(name, GAUGE, text))


def counter(group: str, name: str, column: str, text: str) -> Measure:
    return Measure(group, column, Family(name + TOTAL, COUNTER, text))


# Queues.

COARSE: Final = "queue_coarse_metrics"
QUEUE: Final = "queue_metrics"
DELIVERY: Final = "queue_delivery_metrics"


def read_queue(queue: Queue) -> Numbers:
    read = counts.queue_counts(queue)
    held = queue.dead_letters
    dead = (0, 0, 0) if held is None else (held.count, held.octets, held.confirmed)
    return (
        *read,
        read[0] + read[1] + queue.delayed + queue.unreadable,
        len(queue.consumers),
        queue.ready_bytes,
        queue.unsettled_bytes,
        queue.ready_bytes + queue.unsettled_bytes,
        queue.refused,
        *dead,
        queue.delayed,
        queue.unreadable,
        ids_of(queue),
        *((0, 0) if (watch := queue.slow_consumers) is None else (len(watch.slow), watch.found)),
    )


def ids_of(owner: Queue | Exchange) -> int:
    """Return how many ids a queue or an exchange knows, by which it drops duplicates."""
    return 0 if owner.deduplication is None else owner.deduplication.entries


QUEUES: Final = Subject(
    (
        *counts.QUEUE,
        "messages",
        "consumers",
        "ready_bytes",
        "unacked_bytes",
        "bytes",
        "refused",
        "dlx",
        "dlx_bytes",
        "dlx_confirmed",
        "delayed",
        "unreadable",
        "ids",
        "slow",
        "slow_found",
    ),
    read_queue,
    (
        gauge(COARSE, "rabbitmq_queue_messages_ready", "messages_ready", "Messages that wait in queues."),
        gauge(
            COARSE,
            "rabbitmq_queue_messages_unacked",
            "messages_unacknowledged",
            "Messages that consumers have not acknowledged yet.",
        ),
        gauge(
            COARSE,
            "rabbitmq_queue_messages",
            "messages",
            "Messages in queues: waiting, for later, with consumers, or unreadable.",
        ),
        gauge(
            QUEUE,
            "leveret_queue_messages_delayed",
            "delayed",
            "Messages that wait for a time before they are ready.",
        ),
        gauge(
            QUEUE,
            "leveret_queue_messages_unreadable",
            "unreadable",
            "Messages that cannot be read from the store, in which they stay.",
        ),
        gauge("queue_consumer_count", "rabbitmq_queue_consumers", "consumers", "Consumers of queues."),
        gauge(
            QUEUE, "leveret_queue_slow_consumers", "slow", "Consumers that take less than their queues ask."
        ),
        counter(
            QUEUE, "leveret_queue_slow_consumers_found", "slow_found", "How often a consumer became slow."
        ),
        gauge(
            QUEUE,
            "rabbitmq_queue_messages_ready_bytes",
            "ready_bytes",
            "Bytes of the bodies of waiting messages.",
        ),
        gauge(
            QUEUE,
            "rabbitmq_queue_messages_unacked_bytes",
            "unacked_bytes",
            "Bytes of the bodies of messages that consumers have not acknowledged yet.",
        ),
        gauge(QUEUE, "rabbitmq_queue_messages_bytes", "bytes", "Bytes of the bodies of both."),
        counter(QUEUE, "rabbitmq_queue_messages_published", "publish", "Messages that queues have taken in."),
        counter(
            QUEUE,
            "leveret_queue_messages_refused",
            "refused",
            "Messages that queues had no room for, since each was declared.",
        ),
        gauge(
            QUEUE,
            "leveret_queue_messages_dlx",
            "dlx",
            "Dead letters that queues hold until their targets take them.",
        ),
        gauge(
            QUEUE, "leveret_queue_message_bytes_dlx", "dlx_bytes", "Bytes of the bodies of such dead letters."
        ),
        counter(
            QUEUE,
            "leveret_queue_messages_dead_lettered_confirmed",
            "dlx_confirmed",
            "Dead letters that all their targets have taken, of queues that deliver them at least once.",
        ),
        counter(
            QUEUE,
            "leveret_queue_messages_deduplicated",
            "dedup_queue",
            "Duplicates that queues have dropped, by the ids of messages.",
        ),
        gauge(QUEUE, "leveret_queue_deduplication_ids", "ids", "Ids by which queues drop duplicates."),
        counter(
            DELIVERY,
            "rabbitmq_queue_messages_delivered_ack",
            "deliver",
            "Messages delivered to consumers that acknowledge.",
        ),
        counter(
            DELIVERY,
            "rabbitmq_queue_messages_delivered",
            "deliver_no_ack",
            "Messages delivered to consumers that do not acknowledge.",
        ),
        counter(
            DELIVERY, "rabbitmq_queue_get_ack", "get", "Messages fetched one by one, to be acknowledged."
        ),
        counter(
            DELIVERY, "rabbitmq_queue_get", "get_no_ack", "Messages fetched one by one, settled at once."
        ),
        counter(
            DELIVERY,
            "rabbitmq_queue_get_empty",
            "get_empty",
            "Fetches from empty queues.",
        ),
        counter(
            DELIVERY, "rabbitmq_queue_messages_redelivered", "redeliver", "Messages delivered once more."
        ),
        counter(DELIVERY, "rabbitmq_queue_messages_acked", "ack", "Deliveries that consumers have accepted."),
    ),
)

STREAM: Final = "stream_metrics"


def read_stream(stream: StreamQueue) -> Numbers:
    log = stream.log
    lag = max((log.committed - at for at in stream.cursors.values()), default=0)
    return log.first, log.committed, log.octets, lag


STREAMS: Final = Subject(
    ("first", "next", "octets", "lag"),
    read_stream,
    (
        gauge(STREAM, "leveret_stream_first_offset", "first", "Offset of the oldest message in a stream."),
        gauge(STREAM, "leveret_stream_next_offset", "next", "Offset of the message that comes next."),
        gauge(STREAM, "leveret_stream_bytes", "octets", "Bytes that a stream takes up."),
        gauge(STREAM, "leveret_stream_reader_lag", "lag", "Messages that the slowest reader is behind."),
    ),
)

# Exchanges.

EXCHANGE: Final = "exchange_metrics"


DEDUPLICATED: Final = "Duplicates that exchanges have dropped, by the ids of messages."
IDS: Final = "Ids by which exchanges drop duplicates."


def read_exchange(exchange: Exchange) -> Numbers:
    return *counts.exchange_counts(exchange), exchange.route_errors, exchange.slow_calls, ids_of(exchange)


EXCHANGES: Final = Subject(
    (*counts.EXCHANGE, "errors", "slow_calls", "ids"),
    read_exchange,
    (
        counter(
            EXCHANGE,
            "rabbitmq_exchange_messages_published",
            "publish_in",
            "Messages published to exchanges, dead letters too.",
        ),
        counter(
            EXCHANGE,
            "leveret_exchange_messages_routed",
            "publish_out",
            "Messages that exchanges have put into queues, counted in each.",
        ),
        counter(
            EXCHANGE,
            "leveret_exchange_messages_unroutable",
            "drop_unroutable",
            "Messages that found no queue.",
        ),
        counter(
            EXCHANGE,
            "leveret_exchange_errors",
            "errors",
            "Failures of exchange types, each since it was loaded.",
        ),
        counter(
            EXCHANGE,
            "leveret_exchange_slow_calls",
            "slow_calls",
            "Calls of exchange types that held the node up, each since it was loaded.",
        ),
        counter(
            EXCHANGE,
            "leveret_exchange_messages_deduplicated",
            "dedup_exchange",
            DEDUPLICATED,
        ),
        gauge(EXCHANGE, "leveret_exchange_deduplication_ids", "ids", IDS),
    ),
)

# Connections and channels.

TRAFFIC: Final = ("octets_received", "octets_sent", "reads", "writes")
CONNECTION_COARSE: Final = "connection_coarse_metrics"
CONNECTION: Final = "connection_metrics"

read_connection: Callable[[Connected], Numbers] = attrgetter(*TRAFFIC, "octets_waiting")

CONNECTIONS: Final = Subject(
    (*TRAFFIC, "octets_waiting"),
    read_connection,
    (
        counter(
            CONNECTION_COARSE,
            "rabbitmq_connection_incoming_bytes",
            "octets_received",
            "Bytes received, without TLS.",
        ),
        counter(
            CONNECTION_COARSE,
            "rabbitmq_connection_outgoing_bytes",
            "octets_sent",
            "Bytes sent, without TLS.",
        ),
        counter(CONNECTION, "rabbitmq_connection_incoming_packets", "reads", "Reads from the socket."),
        counter(CONNECTION, "rabbitmq_connection_outgoing_packets", "writes", "Writes to the socket."),
        gauge(
            CONNECTION, "leveret_connection_pending_bytes", "octets_waiting", "Bytes that wait to be sent."
        ),
    ),
)

CHANNEL: Final = "channel_metrics"
CHANNEL_EXCHANGE: Final = "channel_exchange_metrics"
CHANNEL_QUEUE: Final = "channel_queue_metrics"
STATE: Final = (
    "consumers",
    "unsettled",
    "unconfirmed",
    "uncommitted",
    "uncommitted_outcomes",
    "prefetch",
    "shared_prefetch",
)

read_state: Callable[[ChannelFacts], tuple[int, ...]] = attrgetter(*STATE)


def read_channel(channel: ChannelFacts) -> Numbers:
    return *counts.channel_counts(channel), *read_state(channel)


CHANNELS: Final = Subject(
    (*counts.CHANNEL, *STATE),
    read_channel,
    (
        gauge(CHANNEL, "rabbitmq_channel_consumers", "consumers", "Consumers on a channel."),
        gauge(
            CHANNEL,
            "rabbitmq_channel_messages_unacked",
            "unsettled",
            "Deliveries on a channel that are not acknowledged.",
        ),
        gauge(
            CHANNEL,
            "rabbitmq_channel_messages_unconfirmed",
            "unconfirmed",
            "Publishes on a channel that are not confirmed.",
        ),
        gauge(
            CHANNEL,
            "rabbitmq_channel_messages_uncommitted",
            "uncommitted",
            "Publishes in the open transaction of a channel.",
        ),
        gauge(
            CHANNEL,
            "rabbitmq_channel_acks_uncommitted",
            "uncommitted_outcomes",
            "Acknowledgements in the open transaction of a channel.",
        ),
        gauge(
            CHANNEL,
            "rabbitmq_consumer_prefetch",
            "prefetch",
            "Deliveries that each consumer of a channel may have unacknowledged, 0: any number.",
        ),
        gauge(
            CHANNEL,
            "rabbitmq_channel_prefetch",
            "shared_prefetch",
            "Deliveries that all consumers of a channel may have unacknowledged, 0: any number.",
        ),
        counter(
            CHANNEL_EXCHANGE,
            "rabbitmq_channel_messages_published",
            "publish",
            "Messages published on a channel.",
        ),
        counter(
            CHANNEL_EXCHANGE,
            "rabbitmq_channel_messages_confirmed",
            "confirm",
            "Publishes on a channel that were confirmed.",
        ),
        counter(
            CHANNEL_EXCHANGE,
            "rabbitmq_channel_messages_unroutable_returned",
            "return_unroutable",
            "Messages returned on a channel because no queue took them.",
        ),
        counter(
            CHANNEL_QUEUE,
            "rabbitmq_channel_messages_delivered_ack",
            "deliver",
            "Messages delivered on a channel, to be acknowledged.",
        ),
        counter(
            CHANNEL_QUEUE,
            "rabbitmq_channel_messages_delivered",
            "deliver_no_ack",
            "Messages delivered on a channel, settled at once.",
        ),
        counter(
            CHANNEL_QUEUE,
            "rabbitmq_channel_get_ack",
            "get",
            "Messages fetched on a channel, to be acknowledged.",
        ),
        counter(
            CHANNEL_QUEUE,
            "rabbitmq_channel_get",
            "get_no_ack",
            "Messages fetched on a channel, settled at once.",
        ),
        counter(CHANNEL_QUEUE, "rabbitmq_channel_messages_acked", "ack", "Deliveries accepted on a channel."),
    ),
)

STATUS: Final = ("vhost_status", Family("rabbitmq_cluster_vhost_status", GAUGE, "1 for each virtual host."))
NAMES: Final = (
    "exchange_names",
    Family("rabbitmq_cluster_exchange_name", GAUGE, "1 for each exchange, with its type."),
)
BINDINGS: Final = (
    "exchange_bindings",
    Family("rabbitmq_cluster_exchange_bindings", GAUGE, "Bindings with the exchange as source."),
)
