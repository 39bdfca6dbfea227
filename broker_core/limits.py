"""Limits: what a queue obeys, as frozen records; quotas bound virtual hosts, users and the node.

A client's `x-` arguments (`arguments/queue_arguments.py`) and policies (`policy.py`) become a `QueueLimits`. The quotas
are at the end.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from leveret.errors import LimitReached, TooMany

FLOW_RESUME_PERCENT: Final = 80  # where nothing else is asked for
TTL_MAX_MS: Final = 315_360_000_000  # ten years, RabbitMQ's bound
PRIORITY_MAX: Final = 255
RETRY_TYPES: Final = ("disabled", "all", "failed", "returned")
MULTIPLIER_MAX: Final = (1 << 31) - 1  # of a delayed retry, LavinMQ's bound
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


CLOSE: Final = "close"
SLOW_POLICIES: Final = ("notify", CLOSE)  # what a queue does with slow consumers (queues/slow_consumers.py)


class Overflow(Enum):
    """The ways in which a full queue treats one more message (S082)."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"
    SELF_DESTRUCT = "self-destruct"  # the queue is deleted with all its messages
    FLOW_TO_DISK = "flow-to-disk"  # it is taken, and what is over the limit is on disk only
    # It is taken, and its publisher is not read from for a while.
    PRODUCER_FLOW_CONTROL = "producer-flow-control"


@attrs.frozen
class QueueLimits:
    """The limits that a queue obeys; None where there is no limit.

    Times are in milliseconds, lengths in messages, sizes in bytes of body. As parsed from arguments, `delivery_limit`
    may be negative and `consumer_timeout_ms` 0, by which a client asks for no limit whatever the default is, and
    `at_least_once` may lack what it needs. `Compat.queue_limits` replaces these: a queue sees what holds.
    """

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    overflow_asked: bool = False  # by argument: a policy does not change it
    flow_resume_percent: int | None = None  # of its limits: where publishers that had to wait go on
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    at_least_once: bool | None = None  # of dead letters; None: it is not asked for, False: it cannot be done
    delivery_limit: int | None = None
    consumer_timeout_ms: int | None = None
    consumer_timeout_asked: bool = True  # False: it is the node's default
    slow_threshold: int | None = None  # messages that a consumer has to take in a minute, while some wait
    slow_check_period_ms: int | None = None  # how often that is looked at
    slow_policy: str | None = None  # what happens then: a word of `SLOW_POLICIES`
    max_priority: int | None = None
    single_active: bool = False
    max_age_ms: int | None = None  # streams
    max_segment_bytes: int | None = None  # streams
    initial_offset: int = 0  # streams: of the first message
    filter_bytes: int | None = None  # streams: of the Bloom filter of a block
    alternate_exchange: str | None = None  # gets rejected messages, and those left when the queue is deleted
    last_value_key: str | None = None  # the header: of messages with one value, only the newest waits
    group_key: str | None = None  # the header that names a message's group
    auto_delete_delay_ms: int = 0  # from the detaching of the last consumer to the deletion
    priority_base: int = 0  # priorities up to this one are treated as one level
    sequence_header: str | None = None  # the header in which each message gets its number
    no_local: bool = False  # ignore messages from the connection of the owner or the exclusive consumer
    delayed_message: bool = False  # headers of messages may say that these are for later
    retry_type: str | None = None  # which messages wait that a consumer gave back: a word of `RETRY_TYPES`
    retry_min_ms: int | None = None  # how long, after the first attempt
    retry_max_ms: int | None = None
    retry_multiplier: int | None = None  # of the wait, for each further attempt; None: it grows linearly
    keeps_persistent: bool = False  # overflow drops no persistent messages
    counts_republished: bool = False  # deaths that a client publishes again count on
    deduplicates: bool | None = None  # drop duplicates (arguments/deduplication_settings.py)
    id_header: str | None = None  # the header with the id by which duplicates are told
    cache_size: int | None = None  # how many ids are known
    cache_ttl_ms: int | None = None  # and for how long
    cache_persistence: str | None = None  # on disk, or in memory
    fair_share: tuple[int, ...] = ()  # by level of priority: how many in a row while others wait; 0: no limit


def ttl_ms_in(value: object) -> int | None:
    """Return the milliseconds of an expiration, a number written as a text; None if it is none, or above the bound."""
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()):
        return None
    digits = value.lstrip("0") or "0"
    if len(digits) > len(str(TTL_MAX_MS)):  # a number of thousands of digits is not even read
        return None
    return found if (found := int(digits)) <= TTL_MAX_MS else None


def with_credit(limits: QueueLimits, credit: int) -> QueueLimits:
    """Return the limits of a queue; if it has none of length or size, its publishers wait beyond so many messages."""
    if limits.max_length is not None or limits.max_bytes is not None:
        return limits
    return attrs.evolve(limits, max_length=credit, overflow=Overflow.PRODUCER_FLOW_CONTROL)


# Quotas: None or a negative number means no limit, 0 refuses all (S016).


def used_up(limit: int | None, count: int) -> bool:
    """True if `count` things leave no room for one more."""
    return limit is not None and 0 <= limit <= count


@attrs.frozen
class VirtualHostLimits:
    """The quotas of one virtual host."""

    max_connections: int | None = None
    max_queues: int | None = None
    max_publish_rate: int | None = None  # messages a second, of all connections together (`publish_rate.py`)

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
    max_publish_rate: int | None = None  # messages a second, of all connections together (`publish_rate.py`)

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
    # Bytes that one consumer has not answered, where it need not grant credit.
    max_unacknowledged: int | None = None
    max_unacknowledged_per_connection: int | None = None  # and all such consumers of one connection

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
