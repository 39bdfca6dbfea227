"""The table of queue arguments: what clients can ask for in a declaration, by type of queue.

To add one, add a row and, if it becomes a limit, a field of `QueueLimits`. The row says how the value is checked and
read, which policy key means the same, how both are merged, and what people should know. Arguments that are not in the
table are kept and have no effect; those of another type of queue are refused, so that no user relies on a limit that is
not kept. The order is that of checks and comparisons.

Delivery limits, consumer timeouts and dead-letter strategies are for every queue that settles deliveries; RabbitMQ has
them for quorum queues only (docs/compatibility.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from leveret.arguments import deduplication_settings as deduplication
from leveret.arguments.checks import (
    Check,
    age_fault,
    age_ms,
    between,
    count_fault,
    expiry_fault,
    header_fault,
    multiplier_fault,
    one_of,
    or_void,
    overflow_fault,
    percent_fault,
    priority_fault,
    retry_type_fault,
    share_fault,
    text,
    text_fault,
    truth_fault,
    ttl_fault,
    whole,
    whole_fault,
)
from leveret.arguments.merging import Limit, Merge, either, first, lower, lower_above_zero, said_first
from leveret.arguments.row import Effect, Row, by_name
from leveret.limits import PRIORITY_MAX, SLOW_POLICIES, Overflow, QueueType
from leveret.values import Table, Value

Read: TypeAlias = Callable[[Value, Table], Limit]
"""Return the limit that a value means, with all arguments at hand; a value of the wrong type means none."""

Fits: TypeAlias = Callable[[Value, Table], str | None]
"""Return why a value that is fine alone does not fit the other arguments, or None."""

OFFSET_MAX: Final = (1 << 62) - 1  # of the first message of a stream: RabbitMQ's bound
CLASSIC: Final = frozenset({QueueType.CLASSIC})
QUORUM: Final = frozenset({QueueType.QUORUM})
STREAM: Final = frozenset({QueueType.STREAM})
SETTLING: Final = CLASSIC | QUORUM
REPLICATED: Final = QUORUM | STREAM
EVERY: Final = frozenset(QueueType)
SLOW_THRESHOLD_MAX: Final = 1_000_000_000  # messages a minute
SLOW_CHECK_PERIOD_MS_MAX: Final = 86_400_000
AT_LEAST_ONCE: Final = "at-least-once"  # a strategy of dead-lettering


def fitting(value: Value, arguments: Table) -> str | None:
    return None


def nothing(value: Value, arguments: Table) -> Limit:
    return None


@attrs.frozen(kw_only=True)
class QueueArgument(Row):
    """An argument of queues, and the policy key of the same meaning.

    `field` is the field of `QueueLimits` that `read` gives a value for; empty: it is no limit. `absent` is the value
    that absence and void mean on redeclaration. `example` is a value that changes something.
    """

    types: frozenset[QueueType]
    example: Value
    fits: Fits = fitting
    absent: Value = None
    field: str = ""
    read: Read = nothing
    key: str = ""  # of policies
    key_check: Check | None = None  # None: as the argument
    key_types: frozenset[QueueType] | None = None  # None: as the argument
    merge: Merge = first
    operator: bool = False  # an operator policy may hold the key: a number that bounds a queue
    compared: bool = True  # a declaration again with another value is refused


def number(value: Value, arguments: Table) -> int | None:
    return whole(value)


def positive(value: Value, arguments: Table) -> int | None:
    return whole(value) or None


def amount(value: Value, arguments: Table) -> int:
    return whole(value) or 0


def string(value: Value, arguments: Table) -> str | None:
    return text(value)


def truth(value: Value, arguments: Table) -> bool:
    return value is True


def answer(value: Value, arguments: Table) -> bool | None:
    return None if value is None else value is True


def count_or_digits(value: Value, arguments: Table) -> int | None:
    return deduplication.count_in(value)


def age(value: Value, arguments: Table) -> int | None:
    return age_ms(value)


def is_at_least_once(value: Value, arguments: Table) -> bool | None:
    """Return whether a dead-letter strategy is `at-least-once`; None if there is none."""
    word = text(value)
    return None if word is None else word == AT_LEAST_ONCE


def overflow_of(value: Value, arguments: Table) -> Overflow:
    """Return the way of overflow that a word names. Raises ValueError for an unknown one."""
    word = text(value)
    return Overflow.DROP_HEAD if word is None else Overflow(word)


def shares_of(value: Value, arguments: Table) -> tuple[int, ...]:
    """Return the share of each priority level, 0 (no limit) where none is given. Empty if no level has a limit."""
    levels = min(whole(arguments.get("x-max-priority")) or 0, PRIORITY_MAX) + 1
    listed = value if isinstance(value, list) else [value] * levels
    shares = [whole(each) or 0 for each in listed[:levels]]
    return (*shares, *[0] * (levels - len(shares))) if any(shares) else ()


def key_misfit(value: Value, arguments: Table) -> str | None:
    return (
        None if "x-dead-letter-exchange" in arguments else "routing key but no dead letter exchange defined"
    )


def group_misfit(value: Value, arguments: Table) -> str | None:
    both = "x-last-value-key" in arguments
    return "a queue keeps last values or message groups, but not both" if both else None


def retry_misfit(value: Value, arguments: Table) -> str | None:
    """Return what is wrong with the longest wait of a retry, beside the shortest."""
    return bounds_fault(arguments.get("x-delayed-retry-min"), value)


def bounds_fault(shortest: Value, longest: Value) -> str | None:
    low, high = whole(shortest), whole(longest)
    if low is None or high is None or low <= high:
        return None
    return f"{high} is below the minimum delay {low}"


def share_misfit(value: Value, arguments: Table) -> str | None:
    if "x-last-value-key" in arguments or "x-message-group-key" in arguments:
        return "levels do not share in a queue with last values or message groups"
    levels = (whole(arguments.get("x-max-priority")) or 0) + 1
    if levels == 1:
        return "without x-max-priority there are no levels to share"
    if isinstance(value, list) and len(value) > levels:
        return f"there are {levels} levels, not {len(value)}"
    return None


QUEUE_ARGUMENTS: Final = by_name(
    QueueArgument(
        name="x-queue-type",
        about="The type of the queue.",
        check=or_void(one_of(*(kind.value for kind in QueueType))),
        types=EVERY,
        absent=QueueType.CLASSIC.value,
        example="quorum",
    ),
    QueueArgument(
        name="x-expires",
        about="After so many milliseconds without consumers and use the queue is deleted.",
        check=expiry_fault,
        types=SETTLING,
        example=60_000,
        field="expires_ms",
        read=number,
        key="expires",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-message-ttl",
        about="Messages expire after so many milliseconds in the queue.",
        check=ttl_fault,
        types=SETTLING,
        example=60_000,
        field="message_ttl_ms",
        read=number,
        key="message-ttl",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-dead-letter-exchange",
        about="The exchange to which dead letters go.",
        check=text_fault,
        types=SETTLING,
        example="dead",
        field="dead_letter_exchange",
        read=string,
        key="dead-letter-exchange",
    ),
    QueueArgument(
        name="x-dead-letter-routing-key",
        about="The routing key of dead letters; without it they keep their own.",
        check=text_fault,
        types=SETTLING,
        example="late",
        fits=key_misfit,
        field="dead_letter_key",
        read=string,
        key="dead-letter-routing-key",
    ),
    QueueArgument(
        name="x-dead-letter-strategy",
        about="With `at-least-once`, dead letters are held until their targets take them; it needs `reject-publish`.",
        check=one_of("at-most-once", AT_LEAST_ONCE),
        types=SETTLING,
        example=AT_LEAST_ONCE,
        field="at_least_once",
        read=is_at_least_once,
        key="dead-letter-strategy",
    ),
    QueueArgument(
        name="x-max-length",
        about="At most so many messages wait.",
        check=count_fault,
        types=SETTLING,
        example=1000,
        field="max_length",
        read=number,
        key="max-length",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-max-length-bytes",
        about="The bodies of waiting messages, or a stream, have at most so many bytes.",
        check=count_fault,
        types=EVERY,
        example=1_000_000,
        field="max_bytes",
        read=number,
        key="max-length-bytes",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-overflow",
        about="How a full queue treats one more message.",
        check=overflow_fault,
        types=SETTLING,
        example="reject-publish",
        field="overflow",
        read=overflow_of,
        key="overflow",
    ),
    QueueArgument(
        name="x-flow-resume-percent",
        about="With `producer-flow-control`, publishers go on at so many percent of the limit; else at 80.",
        check=percent_fault,
        types=SETTLING,
        example=50,
        field="flow_resume_percent",
        read=number,
        key="flow-resume-percent",
        merge=lower,
    ),
    QueueArgument(
        name="x-delivery-limit",
        about="A message that came back more often than this is a dead letter; a negative number is no limit.",
        check=whole_fault,
        types=SETTLING,
        example=5,
        field="delivery_limit",
        read=number,
        key="delivery-limit",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-consumer-timeout",
        about="A delivery has to be settled within so many milliseconds; 0 is no limit.",
        check=count_fault,
        types=EVERY,
        example=60_000,
        field="consumer_timeout_ms",
        read=number,
        key="consumer-timeout",
        key_types=SETTLING,
        merge=lower_above_zero,
    ),
    QueueArgument(
        name="x-slow-consumer-threshold",
        about="A consumer is slow that takes fewer messages than this in a minute, while others wait.",
        check=between(1, SLOW_THRESHOLD_MAX),
        types=EVERY,
        example=60,
        field="slow_threshold",
        read=number,
        key="slow-consumer-threshold",
    ),
    QueueArgument(
        name="x-slow-consumer-check-period",
        about="How often slow consumers are looked for, in milliseconds; a minute by default.",
        check=between(100, SLOW_CHECK_PERIOD_MS_MAX),
        types=EVERY,
        example=5000,
        field="slow_check_period_ms",
        read=number,
        key="slow-consumer-check-period",
    ),
    QueueArgument(
        name="x-slow-consumer-policy",
        about="What happens to slow consumers: notify (an event, the log and a mark), or close, which ends them, too.",
        check=one_of(*SLOW_POLICIES),
        types=EVERY,
        example="close",
        field="slow_policy",
        read=string,
        key="slow-consumer-policy",
    ),
    QueueArgument(
        name="x-delayed-message",
        about="Messages whose headers say so (x-delay, x-opt-delivery-time) wait in the queue until they are due.",
        check=truth_fault,
        types=SETTLING,
        example=True,
        field="delayed_message",
        read=truth,
        key="delayed-message",
        merge=either,
    ),
    QueueArgument(
        name="x-delayed-retry-type",
        about="Which messages wait before they are delivered again: those of failed or of returned deliveries, or all.",
        check=retry_type_fault,
        types=SETTLING,
        example="failed",
        field="retry_type",
        read=string,
        key="delayed-retry-type",
        merge=said_first,
    ),
    QueueArgument(
        name="x-delayed-retry-min",
        about="They wait so many milliseconds after the first attempt, and longer after each further one.",
        check=expiry_fault,
        types=SETTLING,
        example=1000,
        field="retry_min_ms",
        read=number,
        key="delayed-retry-min",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-delayed-retry-max",
        about="They never wait longer than so many milliseconds.",
        check=expiry_fault,
        types=SETTLING,
        example=60_000,
        fits=retry_misfit,
        field="retry_max_ms",
        read=number,
        key="delayed-retry-max",
        merge=lower,
        operator=True,
    ),
    QueueArgument(
        name="x-delayed-retry-multiplier",
        about="The wait is multiplied by this for each further attempt, instead of growing by the minimum.",
        check=multiplier_fault,
        types=SETTLING,
        example=2,
        field="retry_multiplier",
        read=number,
        key="delayed-retry-multiplier",
        merge=lower,
    ),
    QueueArgument(
        name="x-max-priority",
        about="Messages have priorities from 0 to this one.",
        check=priority_fault,
        types=CLASSIC,
        example=9,
        field="max_priority",
        read=positive,  # 0 means no priorities
    ),
    QueueArgument(
        name="x-priority-base",
        about="Priorities up to this one are treated as one level.",
        check=priority_fault,
        types=CLASSIC,
        example=4,
        field="priority_base",
        read=amount,
    ),
    QueueArgument(
        name="x-fair-share",
        about="How many messages of a level are delivered in a row while lower levels wait.",
        check=share_fault,
        types=CLASSIC,
        example=3,
        fits=share_misfit,
        field="fair_share",
        read=shares_of,
    ),
    QueueArgument(
        name="x-single-active-consumer",
        about="One consumer at a time gets messages; another takes over when it goes.",
        check=truth_fault,
        types=SETTLING,
        example=True,
        field="single_active",
        read=truth,
    ),
    QueueArgument(
        name="x-alternate-exchange",
        about="The exchange that gets rejected messages, and those left when the queue is deleted.",
        check=text_fault,
        types=SETTLING,
        example="rest",
        field="alternate_exchange",
        read=string,
        compared=False,  # RabbitMQ does not know it, and its clients declare again without
    ),
    QueueArgument(
        name="x-last-value-key",
        about="Of messages with one value of this header only the newest waits.",
        check=text_fault,
        types=CLASSIC,
        example="symbol",
        field="last_value_key",
        read=string,
    ),
    QueueArgument(
        name="x-message-group-key",
        about="Messages with one value of this header go to one consumer at a time, in order.",
        check=text_fault,
        types=CLASSIC,
        example="order",
        fits=group_misfit,
        field="group_key",
        read=string,
    ),
    QueueArgument(
        name="x-sequence-header",
        about="The queue writes each message's number into this header.",
        check=header_fault,
        types=CLASSIC,
        example="number",
        field="sequence_header",
        read=string,
    ),
    QueueArgument(
        name="x-no-local",
        about="Messages from the connection of the owner or the exclusive consumer are not taken.",
        check=truth_fault,
        types=CLASSIC,
        example=True,
        field="no_local",
        read=truth,
    ),
    QueueArgument(
        name="x-auto-delete-delay",
        about="An auto-delete queue is deleted so many milliseconds after its last consumer has gone.",
        check=ttl_fault,
        types=SETTLING,
        example=60_000,
        field="auto_delete_delay_ms",
        read=amount,
    ),
    QueueArgument(
        name="x-max-age",
        about="Messages of a stream are kept for this long, such as `7D`.",
        check=age_fault,
        types=STREAM,
        example="7D",
        field="max_age_ms",
        read=age,
        key="max-age",
        merge=lower,
    ),
    QueueArgument(
        name="x-stream-max-segment-size-bytes",
        about="The size of a stream's files.",
        check=count_fault,
        types=STREAM,
        example=1_000_000,
        field="max_segment_bytes",
        read=positive,
        key="stream-max-segment-size-bytes",
    ),
    QueueArgument(
        name="x-stream-initial-offset",
        about="The offset of a stream's first message, for a stream that is made anew beside offsets that are kept.",
        check=between(0, OFFSET_MAX),
        types=STREAM,
        example=1000,
        field="initial_offset",
        read=amount,
    ),
    QueueArgument(
        name="x-stream-filter-size-bytes",
        about="The size of the Bloom filter that each block of a stream has of its messages' filter values.",
        check=between(16, 255),
        types=STREAM,
        example=64,
        field="filter_bytes",
        read=number,
        key="stream-filter-size-bytes",
    ),
    QueueArgument(
        name=deduplication.DEDUPLICATES,
        about="Messages whose id was taken before are confirmed, and dropped.",
        check=deduplication.truth_fault,
        types=SETTLING,
        example=True,
        field="deduplicates",
        read=answer,
        key=deduplication.DEDUPLICATES,
    ),
    QueueArgument(
        name=deduplication.HEADER,
        about="The header that has a message's id, by which duplicates are told.",
        check=deduplication.name_fault,
        types=SETTLING,
        example="order",
        field="id_header",
        read=string,
        key=deduplication.HEADER,
    ),
    QueueArgument(
        name=deduplication.SIZE,
        about="How many ids are known at most, to tell duplicates.",
        check=deduplication.count_fault,
        types=SETTLING,
        example=1000,
        field="cache_size",
        read=count_or_digits,
        key=deduplication.SIZE,
    ),
    QueueArgument(
        name=deduplication.TTL,
        about="For how many milliseconds an id is known, to tell duplicates.",
        check=deduplication.count_fault,
        types=SETTLING,
        example=60_000,
        field="cache_ttl_ms",
        read=count_or_digits,
        key=deduplication.TTL,
    ),
    QueueArgument(
        name=deduplication.PERSISTENCE,
        about="Whether the ids, by which duplicates are told, are on disk.",
        check=deduplication.persistence_fault,
        types=SETTLING,
        example="memory",
        field="cache_persistence",
        read=string,
        key=deduplication.PERSISTENCE,
    ),
    # Checked, and compared on redeclaration, but without effect on a single node.
    QueueArgument(
        name="x-queue-mode",
        about="Whether messages wait on disk.",
        check=one_of("default", "lazy"),
        types=CLASSIC,
        effect=Effect.NO_EFFECT,
        instead="every queue pages waiting messages out when memory is needed",
        inert=("default",),
        example="lazy",
        key="queue-mode",
    ),
    QueueArgument(
        name="x-queue-version",
        about="The storage format of classic queues in RabbitMQ.",
        check=between(1, 2),
        types=CLASSIC,
        effect=Effect.NO_EFFECT,
        instead="there is one format",
        example=2,
        key="queue-version",
        key_check=whole_fault,
    ),
    QueueArgument(
        name="x-queue-master-locator",
        about="The node of a cluster on which a mirrored queue is led.",
        check=text_fault,
        types=CLASSIC,
        effect=Effect.NO_EFFECT,
        instead="there is one node",
        example="min-masters",
        key="queue-master-locator",
    ),
    QueueArgument(
        name="x-queue-leader-locator",
        about="The node of a cluster on which a queue is led.",
        check=one_of("client-local", "balanced", "random", "least-leaders"),
        types=EVERY,
        effect=Effect.NO_EFFECT,
        instead="there is one node",
        example="balanced",
        key="queue-leader-locator",
        key_check=text_fault,
    ),
    QueueArgument(
        name="x-max-in-memory-length",
        about="How many messages of a quorum queue may be in memory.",
        check=count_fault,
        types=QUORUM,
        effect=Effect.NO_EFFECT,
        instead="every queue pages waiting messages out when memory is needed",
        example=1000,
        key="max-in-memory-length",
        operator=True,
    ),
    QueueArgument(
        name="x-max-in-memory-bytes",
        about="How many bytes of a quorum queue's messages may be in memory.",
        check=count_fault,
        types=QUORUM,
        effect=Effect.NO_EFFECT,
        instead="every queue pages waiting messages out when memory is needed",
        example=1_000_000,
        key="max-in-memory-bytes",
        operator=True,
    ),
    QueueArgument(
        name="x-quorum-initial-group-size",
        about="How many replicas a quorum queue starts with.",
        check=between(1),
        types=QUORUM,
        effect=Effect.NO_EFFECT,
        instead="there is one node, and no replicas",
        example=3,
    ),
    QueueArgument(
        name="x-quorum-target-group-size",
        about="How many replicas a quorum queue should have.",
        check=between(1),
        types=QUORUM,
        effect=Effect.NO_EFFECT,
        instead="there is one node, and no replicas",
        example=3,
        key="target-group-size",
        key_check=count_fault,
        operator=True,
    ),
    QueueArgument(
        name="x-initial-cluster-size",
        about="How many replicas a stream starts with.",
        check=between(1),
        types=REPLICATED,
        effect=Effect.NO_EFFECT,
        instead="there is one node, and no replicas",
        example=3,
        key="initial-cluster-size",
        key_check=count_fault,
    ),
    QueueArgument(
        name="x-internal-purpose",
        about="What a broker has declared the queue for: those of [federation](federation.md) are not federated.",
        check=text_fault,
        types=EVERY,
        example="federation",
    ),
)
