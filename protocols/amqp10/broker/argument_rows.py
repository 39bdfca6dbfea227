"""The tables of what clients of 1.0 can ask for by name: properties of links, filters, capabilities, annotations.

A filter that is not applied is absent from the answer to the attach (part 3, section 3.5.8), by which a receiver can
tell; the log tells as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from leveret.arguments.row import Effect, Row, Section, by_name
from leveret.arguments.warnings import unknown, without_effect
from leveret.protocols.amqp10.codec.types import Described, Value

EVERY: Final = "every message is delivered"

PROPERTY_ROWS: Final = by_name(
    Row(name="rabbitmq:priority", about="Receivers of a higher priority get messages first."),
    Row(name="priority", about="The same, as Artemis has it."),
    Row(name="rabbitmq:consumer-timeout", about="Deliveries have to be settled within so many milliseconds."),
    Row(name="exclusive", about="The receiver is the only consumer of its queue."),
)

FILTER_ROWS: Final = by_name(
    Row(name="apache.org:selector-filter:string", about="A condition on messages."),
    Row(name="jms-selector", about="The same, under the name that some clients use without a descriptor."),
    Row(name="sql-filter", about="The same as `amqp:sql-filter`, where it has no descriptor."),
    Row(name="rabbitmq:stream-offset-spec", about="The message of a stream to begin with."),
    Row(name="rabbitmq:stream-filter", about="Only messages of a stream with these filter values."),
    Row(name="rabbitmq:stream-match-unfiltered", about="Also messages of a stream without a filter value."),
    Row(
        name="leveret:stream-group",
        about="The group of receivers of a stream, of which one at a time is active.",
    ),
    Row(name="amqp:properties-filter", about="Only messages with these properties."),
    Row(name="amqp:application-properties-filter", about="Only messages with these application properties."),
    Row(name="amqp:sql-filter", about="Only messages that meet a condition in SQL."),
    Row(name="apache.org:no-local-filter:list", about="No messages from the receiver's own connection."),
    Row(name="no-local", about="The same, under the name that some clients use without a descriptor."),
    Row(
        name="apache.org:xquery-filter:string",
        about="Only messages whose bodies match an XQuery.",
        effect=Effect.NO_EFFECT,
        instead=EVERY,
    ),
)

CAPABILITY_ROWS: Final = by_name(
    Row(name="queue", about="The terminus is a queue."),
    Row(name="topic", about="The subscription outlives its link."),
    Row(name="shared", about="Several links share a subscription."),
    Row(name="global", about="A shared subscription is not of one container alone."),
    Row(name="temporary-queue", about="A dynamic node is a queue that goes with its connection."),
    Row(name="rabbitmq:volatile-queue", about="A dynamic source gets direct replies, and keeps none."),
    Row(name="ANONYMOUS-RELAY", about="A sender without an address names the target of each message."),
    Row(name="SHARED-SUBS", about="Subscriptions can be shared."),
    Row(name="DELAYED_DELIVERY", about="Messages can be delivered later; see the annotations."),
    Row(name="amqp:local-transactions", about="A coordinator has transactions of its own node."),
    Row(name="amqp:multi-txns-per-ssn", about="A session takes part in several transactions."),
    Row(name="amqp:multi-ssns-per-txn", about="Several sessions take part in a transaction."),
    Row(
        name="amqp:distributed-transactions",
        about="A coordinator has transactions of several nodes.",
        effect=Effect.REFUSED,
        instead="use AMQP 0-10, whose class dtx has them",
    ),
    Row(
        name="amqp:promotable-transactions",
        about="A transaction can become one of several nodes.",
        effect=Effect.REFUSED,
        instead="use AMQP 0-10, whose class dtx has them",
    ),
    Row(name="LINK_PAIR_V1_0", about="Links for requests and answers are paired, for management."),
)

ANNOTATION_ROWS: Final = by_name(
    Row(name="x-cc", about="Further routing keys."),
    Row(name="x-stream-filter-value", about="The filter value of a message in a stream."),
    Row(name="x-basic-type", about="The property `type` of AMQP 0-9-1."),
    Row(name="x-opt-delivery-delay", about="The message is delivered so many milliseconds later."),
    Row(
        name="x-opt-delivery-time", about="The message is delivered at this time, in milliseconds since 1970."
    ),
)


def filter_warnings(arguments: Mapping[str, Value], applied: Mapping[str, Value]) -> Iterator[str]:
    """Yield the warnings of filters that a receiver asks for and does not get."""
    for name, value in arguments.items():
        if name in applied:
            continue
        kind = (
            value.descriptor if isinstance(value, Described) and isinstance(value.descriptor, str) else name
        )
        row = FILTER_ROWS.get(str(kind))
        if row is None:
            yield f"filter {unknown(str(kind), FILTER_ROWS)}"
        elif row.effect is Effect.NO_EFFECT:
            yield f"filter {without_effect(row)}"
        else:
            yield f"filter {kind} has no effect on this queue"


def sections() -> tuple[Section, ...]:
    return (
        Section(
            "Properties of receivers (AMQP 1.0)",
            "Properties of an attach; those that our attach repeats have effect.",
            tuple(PROPERTY_ROWS.values()),
        ),
        Section(
            "Filters (AMQP 1.0)",
            "Filters of a source; those that our attach repeats are applied.",
            tuple(FILTER_ROWS.values()),
        ),
        Section(
            "Capabilities (AMQP 1.0)", "Of connections, sources and targets.", tuple(CAPABILITY_ROWS.values())
        ),
        Section(
            "Annotations of messages (AMQP 1.0)",
            "Annotations that the broker reads; others are kept.",
            tuple(ANNOTATION_ROWS.values()),
        ),
    )
