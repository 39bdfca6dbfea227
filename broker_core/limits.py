"""Limits: queue arguments are checked and become the limits of a queue; quotas bound virtual hosts, users and the node.

A client's `x-` arguments are checked against one table (`ARGUMENTS`) and become a frozen `QueueLimits`. A policy
(`policy.py`) is checked by the same functions, and both together give the limits that a queue obeys. A check is a
function from a value to the description of a fault, or None if the value is fine.

Arguments that RabbitMQ does not know are ignored; arguments known for another type of queue only are refused, so that
no user relies on a limit that is not kept. The quotas are at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

import attrs

from broker_core.errors import InvalidProperty, LimitReached, PreconditionFailed, TooMany
from broker_core.values import Table, Timestamp, Value, described, frozen, printed, type_name

TTL_MAX_MS: Final = 315_360_000_000  # ten years, RabbitMQ's bound
PRIORITY_MAX: Final = 255
NAME_MAX: Final = 255  # bytes of a header's name


class QueueType(Enum):
    """The type of a queue, as `x-queue-type` names it."""

    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"

    @property
    def module(self) -> str:
        """The type's name in RabbitMQ's error texts (X021)."""
        return f"rabbit_{self.value}_queue"


class Overflow(Enum):
    """The ways in which a full queue treats one more message (S082)."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"
    SELF_DESTRUCT = "self-destruct"  # the queue is deleted with all its messages


@attrs.frozen
class QueueLimits:
    """The limits that a queue obeys; None where there is no limit.

    Times are in milliseconds, lengths in messages, sizes in bytes of body. As parsed from arguments, `delivery_limit`
    may be negative and `consumer_timeout_ms` 0, by which a client asks for no limit whatever the default is.
    `Compat.queue_limits` replaces these, so that a queue sees None or a limit.
    """

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    overflow_asked: bool = False  # by argument: a policy does not change it
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    delivery_limit: int | None = None
    consumer_timeout_ms: int | None = None
    max_priority: int | None = None
    single_active: bool = False
    max_age_ms: int | None = None  # streams
    max_segment_bytes: int | None = None  # streams
    alternate_exchange: str | None = None  # gets rejected messages, and those left when the queue is deleted
    last_value_key: str | None = None  # the header: of messages with one value, only the newest waits
    group_key: str | None = None  # the header that names a message's group
    auto_delete_delay_ms: int = 0  # from the detaching of the last consumer to the deletion
    priority_base: int = 0  # priorities up to this one are treated as one level
    sequence_header: str | None = None  # the header in which each message gets its number
    no_local: bool = False  # ignore messages from the connection of the owner or the exclusive consumer
    fair_share: tuple[int, ...] = ()  # by level of priority: how many in a row while others wait; 0: no limit


KINDS_MAX: Final = 256
known: Final[dict[QueueLimits, QueueLimits]] = {}

# Checks: functions from a value to the description of a fault, or None.

Check: TypeAlias = Callable[[Value], str | None]


def text_fault(value: Value) -> str | None:
    return None if isinstance(value, str | bytes) else f"unacceptable type '{type_name(value)}'"


def whole_fault(value: Value) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool | Timestamp)
    return None if whole else f"unacceptable type '{type_name(value)}'"


def truth_fault(value: Value) -> str | None:
    return None if isinstance(value, bool) else f"unacceptable type '{type_name(value)}'"


def between(low: int, high: int | None = None) -> Check:
    """Return a check that a value is a whole number from `low` up to `high`."""

    def fault(value: Value) -> str | None:
        if (wrong := whole_fault(value)) is not None:
            return wrong
        return range_fault(whole(value) or 0, low, high)

    return fault


def range_fault(number: int, low: int, high: int | None) -> str | None:
    if number < 0 <= low:
        return f"{number} is negative"
    if number < low:
        return f"{number} is below the minimum {low}"
    if high is not None and number > high:
        return f"{number} is above the maximum {high}"
    return None


def one_of(*accepted: str) -> Check:
    """Return a check that a value is one of the accepted words."""

    def fault(value: Value) -> str | None:
        if (wrong := text_fault(value)) is not None:
            return wrong
        return None if text(value) in accepted else f"'{printed(value)}' is not one of {', '.join(accepted)}"

    return fault


def header_fault(value: Value) -> str | None:
    if (wrong := text_fault(value)) is not None:
        return wrong
    octets = len((text(value) or "").encode("utf-8", "surrogateescape"))
    return None if 0 < octets <= NAME_MAX else f"a header's name has 1 to {NAME_MAX} octets, not {octets}"


def age_fault(value: Value) -> str | None:
    if (wrong := text_fault(value)) is not None:
        return wrong
    return (
        None
        if age_ms(value) is not None
        else f"'{printed(value)}' is not an age such as 7D (units Y M D h m s)"
    )


def share_fault(value: Value) -> str | None:
    """Check a share: a number for all levels, or a list with one for each, the lowest level first."""
    listed = value if isinstance(value, list) else [value]
    if len(listed) > PRIORITY_MAX + 1:
        return f"there are no more than {PRIORITY_MAX + 1} levels"
    return next((fault for each in listed if (fault := count_fault(each)) is not None), None)


def text(value: Value) -> str | None:
    """Return an argument as a string, or None if it is not one; bytes that are not UTF-8 become surrogate escapes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None


def whole(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def age_ms(value: Value) -> int | None:
    """Return an age such as `7D` in milliseconds, or None if it is not an age. As in RabbitMQ, a month has 30 days."""
    match = re.fullmatch(r"([0-9]{1,10})([YMDhms])", text(value) or "")
    return None if match is None else int(match[1]) * _AGE_UNITS_MS[match[2]]


_AGE_UNITS_MS: Final = {
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "D": 86_400_000,
    "M": 30 * 86_400_000,
    "Y": 365 * 86_400_000,
}

# The types that know an argument. Delivery limits and consumer timeouts are for every queue that settles
# deliveries; RabbitMQ has them for quorum queues only (docs/compatibility.md).

_CLASSIC: Final = frozenset({QueueType.CLASSIC})
_QUORUM: Final = frozenset({QueueType.QUORUM})
_STREAM: Final = frozenset({QueueType.STREAM})
_SETTLING: Final = _CLASSIC | _QUORUM
_REPLICATED: Final = _QUORUM | _STREAM
_EVERY: Final = frozenset(QueueType)

count_fault: Final = between(0)
ttl_fault: Final = between(0, TTL_MAX_MS)
expiry_fault: Final = between(1, TTL_MAX_MS)
priority_fault: Final = between(0, PRIORITY_MAX)
overflow_fault: Final = one_of(*(overflow.value for overflow in Overflow))

ARGUMENTS: Final[dict[str, tuple[Check, frozenset[QueueType]]]] = {
    "x-queue-type": (one_of(*(kind.value for kind in QueueType)), _EVERY),
    "x-expires": (expiry_fault, _SETTLING),
    "x-message-ttl": (ttl_fault, _SETTLING),
    "x-dead-letter-exchange": (text_fault, _SETTLING),
    "x-dead-letter-routing-key": (text_fault, _SETTLING),
    "x-max-length": (count_fault, _SETTLING),
    "x-max-length-bytes": (count_fault, _EVERY),
    "x-overflow": (overflow_fault, _SETTLING),
    "x-delivery-limit": (whole_fault, _SETTLING),
    "x-consumer-timeout": (count_fault, _EVERY),
    "x-max-priority": (priority_fault, _CLASSIC),
    "x-priority-base": (priority_fault, _CLASSIC),
    "x-fair-share": (share_fault, _CLASSIC),
    "x-single-active-consumer": (truth_fault, _SETTLING),
    "x-alternate-exchange": (text_fault, _SETTLING),
    "x-last-value-key": (text_fault, _CLASSIC),
    "x-message-group-key": (text_fault, _CLASSIC),
    "x-sequence-header": (header_fault, _CLASSIC),
    "x-no-local": (truth_fault, _CLASSIC),
    "x-auto-delete-delay": (ttl_fault, _SETTLING),
    "x-max-age": (age_fault, _STREAM),
    "x-stream-max-segment-size-bytes": (count_fault, _STREAM),
    # The arguments below are checked, and compared on redeclaration, but have no effect on a single node.
    "x-queue-mode": (one_of("default", "lazy"), _CLASSIC),
    "x-queue-version": (between(1, 2), _CLASSIC),
    "x-queue-master-locator": (text_fault, _CLASSIC),
    "x-queue-leader-locator": (one_of("client-local", "balanced", "random", "least-leaders"), _EVERY),
    "x-dead-letter-strategy": (one_of("at-most-once", "at-least-once"), _QUORUM),
    "x-max-in-memory-length": (count_fault, _QUORUM),
    "x-max-in-memory-bytes": (count_fault, _QUORUM),
    "x-quorum-initial-group-size": (between(1), _QUORUM),
    "x-quorum-target-group-size": (between(1), _QUORUM),
    "x-initial-cluster-size": (between(1), _REPLICATED),
    "x-stream-filter-size-bytes": (between(16, 255), _STREAM),
}

CHECKED_ARGUMENTS: Final = tuple(ARGUMENTS)
"""The arguments that must be equal when a queue is declared again (S065), in the order they are compared."""


def parse_queue_arguments(
    name: str, virtual_host: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table
) -> QueueLimits:
    """Return the limits that a declaration asks for (S078, S079, X021-X023).

    Raises PreconditionFailed if an argument, or a property of the queue, does not fit.
    """
    queue = f"queue '{name}' in vhost '{virtual_host}'"
    refuse_untexted_exchange(arguments, queue)
    refuse_faulty(arguments, queue)
    type_ = queue_type(arguments)
    refuse_foreign(arguments, type_, queue)
    refuse_properties(type_, durable, exclusive, auto_delete, queue)
    return shared(limits_of(arguments))


def shared(limits: QueueLimits) -> QueueLimits:
    """Return one shared instance of equal limits, to save 0.4 KiB a queue. At most `KINDS_MAX` kinds are remembered."""
    if len(known) >= KINDS_MAX:
        known.clear()
    return known.setdefault(limits, limits)


def queue_type(arguments: Table) -> QueueType:
    """Return the queue type that checked arguments ask for; absent and void both mean classic (X017)."""
    asked = arguments.get("x-queue-type")
    return QueueType.CLASSIC if asked is None else QueueType(text(asked))


def limits_of(arguments: Table) -> QueueLimits:
    """Return the limits that checked arguments ask for."""
    overflow = text(arguments.get("x-overflow"))
    return QueueLimits(
        message_ttl_ms=whole(arguments.get("x-message-ttl")),
        expires_ms=whole(arguments.get("x-expires")),
        max_length=whole(arguments.get("x-max-length")),
        max_bytes=whole(arguments.get("x-max-length-bytes")),
        overflow=Overflow.DROP_HEAD if overflow is None else Overflow(overflow),
        overflow_asked=overflow is not None,
        dead_letter_exchange=text(arguments.get("x-dead-letter-exchange")),
        dead_letter_key=text(arguments.get("x-dead-letter-routing-key")),
        delivery_limit=whole(arguments.get("x-delivery-limit")),
        consumer_timeout_ms=whole(arguments.get("x-consumer-timeout")),
        max_priority=whole(arguments.get("x-max-priority")) or None,  # 0 means no priorities
        single_active=arguments.get("x-single-active-consumer") is True,
        max_age_ms=age_ms(arguments.get("x-max-age")),
        max_segment_bytes=whole(arguments.get("x-stream-max-segment-size-bytes")) or None,
        alternate_exchange=text(arguments.get("x-alternate-exchange")),
        last_value_key=text(arguments.get("x-last-value-key")),
        group_key=text(arguments.get("x-message-group-key")),
        auto_delete_delay_ms=whole(arguments.get("x-auto-delete-delay")) or 0,
        priority_base=whole(arguments.get("x-priority-base")) or 0,
        sequence_header=text(arguments.get("x-sequence-header")),
        no_local=arguments.get("x-no-local") is True,
        fair_share=shares_of(arguments),
    )


def shares_of(arguments: Table) -> tuple[int, ...]:
    """Return the share of each priority level, 0 (no limit) where none is given. Empty if no level has a limit."""
    asked = arguments.get("x-fair-share")
    levels = min(whole(arguments.get("x-max-priority")) or 0, PRIORITY_MAX) + 1
    listed = asked if isinstance(asked, list) else [asked] * levels
    shares = [whole(each) or 0 for each in listed[:levels]]
    return (*shares, *[0] * (levels - len(shares))) if any(shares) else ()


def refuse_untexted_exchange(arguments: Table, queue: str) -> None:
    """Refuse a dead letter exchange that is no string: it has its own error text, given before all others (S079)."""
    argument = "x-dead-letter-exchange"
    if argument in arguments and text_fault(arguments[argument]) is not None:
        kind = type_name(arguments[argument])
        raise PreconditionFailed(f"invalid type '{kind}' for arg '{argument}' in {queue}")


def refuse_faulty(arguments: Table, queue: str) -> None:
    for argument, (check, _) in ARGUMENTS.items():
        if argument in arguments and (fault := fault_of(argument, arguments, check)) is not None:
            raise PreconditionFailed(f"invalid arg '{argument}' for {queue}: {fault}")


def fault_of(argument: str, arguments: Table, check: Check) -> str | None:
    value = arguments[argument]
    if argument == "x-queue-type" and value is None:
        return None
    if argument == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in arguments:
        return check(value) or "routing key but no dead letter exchange defined"
    if argument == "x-message-group-key" and "x-last-value-key" in arguments:
        return check(value) or "a queue keeps last values or message groups, but not both"
    if argument == "x-fair-share":
        return check(value) or share_misfit(value, arguments)
    return check(value)


def share_misfit(value: Value, arguments: Table) -> str | None:
    if "x-last-value-key" in arguments or "x-message-group-key" in arguments:
        return "levels do not share in a queue with last values or message groups"
    levels = (whole(arguments.get("x-max-priority")) or 0) + 1
    if levels == 1:
        return "without x-max-priority there are no levels to share"
    if isinstance(value, list) and len(value) > levels:
        return f"there are {levels} levels, not {len(value)}"
    return None


def refuse_foreign(arguments: Table, type_: QueueType, queue: str) -> None:
    for argument, (_, types) in ARGUMENTS.items():
        if argument in arguments and type_ not in types:
            raise PreconditionFailed(f"invalid arg '{argument}' for {queue} of queue type {type_.module}")


def refuse_properties(
    type_: QueueType, durable: bool, exclusive: bool, auto_delete: bool, queue: str
) -> None:
    """Refuse properties by which a quorum queue or stream would not outlive connections and restarts."""
    if type_ is QueueType.CLASSIC:
        return
    if not durable:
        raise InvalidProperty(f"invalid property 'non-durable' for {queue}")
    if exclusive:
        raise InvalidProperty(f"invalid property 'exclusive-owner' for {queue}")
    if auto_delete and type_ is QueueType.STREAM:
        raise InvalidProperty(f"invalid property 'auto-delete' for {queue}")


def inequivalent_argument(current: Table, new: Table) -> tuple[str, str, str] | None:
    """Return the first checked argument that differs in meaning: name, description of new and current value (S065).

    Whole numbers are compared by value, whatever their width on the wire; no queue type means `classic` (X017).
    """
    for argument in CHECKED_ARGUMENTS:
        old, asked = current.get(argument), new.get(argument)
        if meaning(argument, old) != meaning(argument, asked):
            return argument, described(asked), described(old)
    return None


def meaning(argument: str, value: Value) -> object:
    if argument == "x-queue-type" and value is None:
        return QueueType.CLASSIC.value
    return frozen(text(value) if isinstance(value, bytes) else value)


# Quotas: None or a negative number means no limit, 0 refuses all (S016).


def used_up(limit: int | None, count: int) -> bool:
    """True if `count` things leave no room for one more."""
    return limit is not None and 0 <= limit <= count


@attrs.frozen
class VirtualHostLimits:
    """The quotas of one virtual host."""

    max_connections: int | None = None
    max_queues: int | None = None

    def require_connection(self, virtual_host: str, user: str, open_now: int) -> None:
        """Raise LimitReached if there is no room for one more connection (S016)."""
        if used_up(self.max_connections, open_now):
            refused = f"access to vhost '{virtual_host}' refused for user '{user}'"
            raise LimitReached(f"{refused}: connection limit ({self.max_connections}) is reached")

    def require_queue(self, name: str, virtual_host: str, held: int) -> None:
        """Raise TooMany if there is no room for one more queue (X020)."""
        if used_up(self.max_queues, held):
            refused = f"cannot declare queue '{name}' in vhost '{virtual_host}'"
            raise TooMany(f"{refused}: queue limit in vhost '{virtual_host}' ({self.max_queues}) is reached")


@attrs.frozen
class UserLimits:
    """The quotas of one user, over all connections."""

    max_connections: int | None = None
    max_channels: int | None = None

    def require_connection(self, user: str, open_now: int) -> None:
        """Raise LimitReached if there is no room for one more connection (X005)."""
        if used_up(self.max_connections, open_now):
            limit = self.max_connections
            raise LimitReached(
                f"connection refused for user '{user}': user connection limit ({limit}) is reached"
            )

    def require_channel(self, user: str, open_now: int) -> None:
        """Raise LimitReached if there is no room for one more channel."""
        if used_up(self.max_channels, open_now):
            opened = f"number of channels opened for user '{user}'"
            raise LimitReached(
                f"{opened} has reached the maximum allowed user limit of ({self.max_channels})"
            )


@attrs.frozen
class NodeLimits:
    """The quotas of the whole node."""

    max_connections: int | None = None
    max_exchanges: int | None = None
    max_consumers_per_channel: int | None = None
    max_channels: int | None = None
    max_virtual_hosts: int | None = None

    def require_connection(self, open_now: int) -> None:
        """Raise LimitReached if there is no room for one more connection (X005)."""
        if used_up(self.max_connections, open_now):
            raise LimitReached(
                f"connection refused: node connection limit ({self.max_connections}) is reached"
            )

    def require_channel(self, open_now: int) -> None:
        """Raise LimitReached if there is no room for one more channel."""
        if used_up(self.max_channels, open_now):
            raise LimitReached(
                f"number of channels opened on the node has reached the maximum allowed limit of ({self.max_channels})"
            )

    def require_virtual_host(self, name: str, held: int) -> None:
        """Raise TooMany if there is no room for one more virtual host."""
        if used_up(self.max_virtual_hosts, held):
            raise TooMany(f"cannot create vhost '{name}': vhost limit of {self.max_virtual_hosts} is reached")

    def require_exchange(self, name: str, virtual_host: str, held: int) -> None:
        """Raise TooMany if there is no room for one more exchange (X016)."""
        if used_up(self.max_exchanges, held):
            refused = f"cannot declare exchange '{name}' in vhost '{virtual_host}'"
            raise TooMany(f"{refused}: exchange limit of {self.max_exchanges} is reached")

    def require_consumer(self, on_channel: int) -> None:
        """Raise LimitReached if there is no room for one more consumer (X025)."""
        if used_up(self.max_consumers_per_channel, on_channel):
            raise LimitReached(f"reached maximum ({self.max_consumers_per_channel}) of consumers per channel")
