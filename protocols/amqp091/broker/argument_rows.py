"""The tables of what clients of 0-9-1 can ask for by name besides declarations: arguments of consumers, headers."""

from __future__ import annotations

from typing import Final

from leveret.arguments.checks import whole_fault
from leveret.arguments.row import Effect, Row, Section, by_name

CONSUMER_ROWS: Final = by_name(
    Row(name="x-priority", about="Consumers of a higher priority get messages first.", check=whole_fault),
    Row(
        name="x-consumer-timeout",
        about="Deliveries have to be acknowledged within so many milliseconds; 0 is no limit.",
        check=whole_fault,
    ),
    Row(name="x-stream-offset", about="The message of a stream to begin with."),
    Row(name="x-stream-filter", about="Only messages of a stream with these filter values."),
    Row(name="x-stream-group", about="The group of consumers of a stream, of which one at a time is active."),
    Row(name="x-stream-match-unfiltered", about="Also messages of a stream without a filter value."),
    Row(
        name="x-cancel-on-ha-failover",
        about="The consumer is cancelled when another mirror takes over.",
        effect=Effect.NO_EFFECT,
        instead="there is one node, and no mirrors",
        inert=(False,),
    ),
    Row(
        name="x-credit",
        about="Credit as in AMQP 1.0, an extension of old versions of RabbitMQ.",
        effect=Effect.NO_EFFECT,
        instead="use basic.qos, or AMQP 1.0",
    ),
)

HEADER_ROWS: Final = by_name(
    Row(name="x-stream-filter-value", about="The filter value of a message in a stream."),
    Row(
        name="x-delay",
        about="The message waits so many milliseconds, in exchanges and queues that are asked to.",
    ),
    Row(name="x-opt-delivery-delay", about="The same as `x-delay`."),
    Row(name="x-opt-delivery-time", about="The message waits until this time, in milliseconds since 1970."),
    Row(name="CC", about="Further routing keys."),
    Row(name="BCC", about="Further routing keys, which receivers do not see."),
    Row(
        name="x-producer",
        about="The name of a producer whose messages to a stream are numbered; see `x-sequence`.",
    ),
    Row(
        name="x-sequence",
        about="The number of a message in its producer's sequence: a stream takes each once.",
    ),
)


def sections() -> tuple[Section, ...]:
    return (
        Section(
            "Arguments of consumers (AMQP 0-9-1)",
            "Arguments of `basic.consume`.",
            tuple(CONSUMER_ROWS.values()),
        ),
        Section(
            "Headers (AMQP 0-9-1)",
            "Headers that the broker reads, besides those that bindings and queue arguments name.",
            tuple(HEADER_ROWS.values()),
        ),
    )
