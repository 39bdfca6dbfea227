"""`[compat]`: choices where specifications and brokers differ, one row each, and profiles that set rows together.

A row is a key of `Compat`; its default is the side we advise, and a profile is a table of the rows in which it differs
from that. The methods make the decisions, so that the rest of the core asks "may I?" and not "which profile?". The
documentation is printed from the rows, like that of all settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

import attrs

from leveret.arguments.queue_declaration import queue_type
from leveret.config.records import Record, RecordOf, key
from leveret.config.types import (
    MANY,
    MIB,
    Flag,
    Limit,
    Octets,
    Place,
    Problem,
    RefusedValue,
    SingleValue,
    Whole,
    printed,
)
from leveret.errors import Failure, NotAllowed, PreconditionFailed, Unsupported
from leveret.limits import Overflow, QueueLimits, QueueType
from leveret.values import Table
from leveret.version import VERSION

NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{0,127}")  # AMQP 0-9-1, domain exchange-name
UNREADABLE: Final = re.compile("[\r\n\ud800-\udfff]")
# AMQP 0-9-1, class basic: "priorities 0-4 and 5-9 are treated as two distinct levels".
LOW_PRIORITY_MAX: Final = 4


class UnknownExchangeType(Unsupported):
    """Raised for an unknown exchange type in the strict profile: the connection has to close (503 in AMQP 0-9-1)."""


class Retired(Unsupported):
    """Raised for a feature that the profile has given up (541 in AMQP 0-9-1)."""


class UnknownType(Enum):
    PRECONDITION_FAILED = "precondition-failed"
    COMMAND_INVALID = "command-invalid"


class OtherType(Enum):
    PRECONDITION_FAILED = "precondition-failed"
    NOT_ALLOWED = "not-allowed"


class OnMissing(Enum):
    OK = "ok"
    NOT_FOUND = "not-found"


class NoCurrentQueue(Enum):
    NOT_FOUND = "not-found"
    SYNTAX_ERROR = "syntax-error"


class UnknownVirtualHost(Enum):
    NOT_ALLOWED = "not-allowed"
    INVALID_PATH = "invalid-path"


class GlobalQos(Enum):
    CHANNEL = "channel"
    CONSUMER = "consumer"


class MissingAlternate(Enum):
    LOG = "log"
    SILENT = "silent"


class FlowMechanism(Enum):
    BLOCK = "block"
    CHANNEL_FLOW = "channel-flow"


class TransientQueues(Enum):
    ALLOW = "allow"
    REFUSE = "refuse"


class QuorumPriorities(Enum):
    NONE = "none"
    TWO_LEVELS = "two-levels"
    STRICT = "strict"


class Product(Enum):
    LEVERET = "leveret"
    RABBITMQ_3 = "rabbitmq-3.13"
    RABBITMQ_4 = "rabbitmq-4"
    RABBITMQ_4_0 = "rabbitmq-4.0"
    RABBITMQ_4_1 = "rabbitmq-4.1"
    RABBITMQ_4_2 = "rabbitmq-4.2"
    RABBITMQ_4_3 = "rabbitmq-4.3"
    RABBITMQ_4_4 = "rabbitmq-4.4"


class OtherExclusive(Enum):
    RESOURCE_LOCKED = "resource-locked"
    PRECONDITION_FAILED = "precondition-failed"


class SecretOfPassword(Enum):
    ACCEPT = "accept"
    CHECK = "check"


class NamelessToken(Enum):
    UNKNOWN = "unknown"
    REFUSE = "refuse"


class WithoutSasl(Enum):
    ANONYMOUS = "anonymous"
    REFUSE = "refuse"


class OfferExternal(Enum):
    CONFIGURED = "configured"
    CERTIFICATE = "certificate"


class RefusedOpen(Enum):
    DROP = "drop"
    CLOSE = "close"


class OrphanedSender(Enum):
    DETACH = "detach"
    RELEASE = "release"


class UndeliverableHere(Enum):
    REQUEUE = "requeue"
    DEAD_LETTER = "dead-letter"


class LinkErrors(Enum):
    LINK = "link"
    SESSION = "session"


class PrefetchSize(Enum):
    REFUSE = "refuse"
    SERVE = "serve"


class RecoverToConsumer(Enum):
    REFUSE = "refuse"
    SERVE = "serve"


class Names(Enum):
    ANY = "any"
    TEXT = "text"
    SPECIFICATION = "specification"


class BindDefault(Enum):
    REFUSE = "refuse"
    ALLOW = "allow"


class PersistentOverflow(Enum):
    DROP = "drop"
    KEEP = "keep"


class PlainPriorities(Enum):
    ONE = "one"
    TWO = "two"


class TimeoutScope(Enum):
    EVERY_QUEUE = "every-queue"
    QUORUM_QUEUES = "quorum-queues"


E = TypeVar("E", bound=Enum)


class TimeoutResponse(Enum):
    REQUEUE = "requeue"
    CLOSE_CHANNEL = "close-channel"
    NOTIFY_CONSUMER = "notify-consumer"


class Choice(SingleValue[E], Generic[E]):
    """A word of a closed set."""

    def __init__(self, words: type[E]) -> None:
        self.words = words
        self.accepted = " or ".join(printed(word.value) for word in words)

    def convert(self, value: object) -> E:
        found = next((word for word in self.words if value in (word, word.value)), None)
        if found is None:
            raise ValueError
        return found

    def from_text(self, text: str) -> object:
        return text

    def shown(self, value: object) -> str:
        return printed(value.value if isinstance(value, Enum) else value)


class Fraction(SingleValue[float]):
    accepted = "a number from 0.0 to 1.0"

    def convert(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        raise ValueError


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Compat(Record):
    """The choices where specifications and brokers differ."""

    frame_min_size: int = key(
        Whole(256, 1 << 20),
        "The smallest frame-max that a 0-9-1 client may ask for. The specification says 4096, RabbitMQ 4 8192.",
        4096,
    )
    unknown_exchange_type: UnknownType = key(
        Choice(UnknownType),
        "Declaring an exchange of an unknown type closes the channel (406) or the connection (503).",
        UnknownType.PRECONDITION_FAILED,
    )
    redeclare_other_type: OtherType = key(
        Choice(OtherType),
        "Declaring an exchange again with another type closes the channel (406) or the connection (530).",
        OtherType.PRECONDITION_FAILED,
    )
    delete_missing: OnMissing = key(
        Choice(OnMissing),
        "Deleting or unbinding what does not exist is fine, or an error (404).",
        OnMissing.OK,
    )
    no_current_queue: NoCurrentQueue = key(
        Choice(NoCurrentQueue),
        "An empty queue name without a queue declared before it: 404 or 502.",
        NoCurrentQueue.NOT_FOUND,
    )
    unknown_virtual_host: UnknownVirtualHost = key(
        Choice(UnknownVirtualHost),
        "Opening a virtual host that does not exist: 530 or 402.",
        UnknownVirtualHost.NOT_ALLOWED,
    )
    immediate: bool = key(Flag(), "Serve the `immediate` flag of a publish, rather than refusing it.", True)
    channel_flow: bool = key(
        Flag(), "Let clients pause their channel's deliveries, rather than refusing that.", True
    )
    qos_global: GlobalQos = key(
        Choice(GlobalQos),
        "`global` prefetch is shared by a channel's consumers, or applies to each of them.",
        GlobalQos.CHANNEL,
    )
    missing_alternate: MissingAlternate = key(
        Choice(MissingAlternate),
        "Log once that an alternate exchange is missing, or say nothing. The latter where it is missing on purpose.",
        MissingAlternate.LOG,
    )
    memory_watermark: float = key(
        Fraction(), "The memory alarm's fraction of the memory, if `memory.watermark` is not set.", 0.4
    )
    flow_mechanism: FlowMechanism = key(
        Choice(FlowMechanism),
        "Hold publishers back during an alarm by not reading from them, or by asking their channels to pause.",
        FlowMechanism.BLOCK,
    )
    dead_letter_on_delete: bool = key(
        Flag(),
        "Dead-letter the messages of a queue that is deleted. True where none may be lost with its queue.",
        False,
    )
    republished_deaths: bool = key(
        Flag(),
        "Count further deaths of a message on from the `x-death` that a client publishes with it. True for programs "
        "that publish dead letters again, and count their deaths.",
        False,
    )
    default_delivery_limit: int | None = key(
        Limit(0, MANY),
        "The delivery limit of queues that set none, quorum queues aside. A number where messages that no consumer "
        "can take must not come back for ever.",
        None,
    )
    quorum_delivery_limit: int | None = key(
        Limit(0, MANY),
        "The delivery limit of quorum queues that set none. More, or none, for consumers that give messages back on "
        "purpose.",
        20,
    )
    quorum_priorities: QuorumPriorities = key(
        Choice(QuorumPriorities),
        "Priorities of messages in quorum queues: none, two levels (5 and more has two thirds of the deliveries), or "
        "32 levels, the highest first.",
        QuorumPriorities.STRICT,
    )
    transient_queues: TransientQueues = key(
        Choice(TransientQueues),
        "Queues that are neither durable nor exclusive: allowed, or refused.",
        TransientQueues.ALLOW,
    )
    consumer_timeout: TimeoutScope = key(
        Choice(TimeoutScope), "The queues that have a consumer timeout.", TimeoutScope.EVERY_QUEUE
    )
    consumer_timeout_response: TimeoutResponse = key(
        Choice(TimeoutResponse),
        "A consumer timeout requeues only the late delivery, closes the channel, or cancels the consumer if the "
        "client supports that.",
        TimeoutResponse.REQUEUE,
    )
    single_active_takeover: bool = key(
        Flag(),
        "In quorum queues, a single active consumer gives way to one of a higher priority, once it has answered "
        "everything.",
        False,
    )
    topic_wildcards_max: int | None = key(
        Limit(0, MANY),
        "The most `#` that a topic binding key may have. A number where users that are not trusted bind: routing "
        "takes longer with each.",
        None,
    )
    address_v1: bool = key(
        Flag(),
        "AMQP 1.0 links may name addresses of version 1, if `protocols.amqp10.addresses.v1` is not set.",
        False,
    )
    message_size_max: int = key(
        Octets(0, 512 * MIB), "The largest message body, if `limits.message_size_max` is not set.", 16 * MIB
    )
    redeclare_exclusive: OtherExclusive = key(
        Choice(OtherExclusive),
        "Declaring a queue again that is exclusive, as one that is not, or the other way round: 405 or 406.",
        OtherExclusive.RESOURCE_LOCKED,
    )
    update_secret: SecretOfPassword = key(
        Choice(SecretOfPassword),
        "A new secret for a connection whose user has a password, which does not expire: accepted without a look "
        "at it, as it changes nothing, or checked.",
        SecretOfPassword.ACCEPT,
    )
    nameless_token: NamelessToken = key(
        Choice(NamelessToken),
        "A token without a user's name: the user is called `unknown`, or the token is refused.",
        NamelessToken.UNKNOWN,
    )
    external: OfferExternal = key(
        Choice(OfferExternal),
        "EXTERNAL is offered to clients with a certificate where `mechanisms` names it, or also where it does not.",
        OfferExternal.CONFIGURED,
    )
    without_sasl: WithoutSasl = key(
        Choice(WithoutSasl),
        "AMQP 1.0 that begins without SASL: the client is the anonymous user, where ANONYMOUS is offered, or is "
        "refused.",
        WithoutSasl.ANONYMOUS,
    )
    refused_open: RefusedOpen = key(
        Choice(RefusedOpen),
        "An AMQP 1.0 open that is refused (no such virtual host, no permission, too many connections): the "
        "connection is dropped, or answered and closed with the error. RabbitMQ's client for Python takes a "
        "close for an interruption, and tries for ever.",
        RefusedOpen.DROP,
    )
    orphaned_sender: OrphanedSender = key(
        Choice(OrphanedSender),
        "An AMQP 1.0 sender whose queue is deleted: detached, or kept, with its messages released.",
        OrphanedSender.DETACH,
    )
    link_errors: LinkErrors = key(
        Choice(LinkErrors),
        "An AMQP 1.0 attach or message without permission, and a message that is too large for its receiver: refused, "
        "rejected, or the end of the link; or the end of the session.",
        LinkErrors.LINK,
    )
    default_priority: int = key(
        Whole(0, 9),
        "The priority of an AMQP 1.0 message that gives none, where a queue has levels: 4, as 1.0 says, or 0, which is "
        "that of AMQP 0-9-1.",
        4,
    )
    undeliverable_here: UndeliverableHere = key(
        Choice(UndeliverableHere),
        "What an AMQP 1.0 receiver gives back as `modified` with `undeliverable-here`: requeued for other receivers, "
        "or dead-lettered.",
        UndeliverableHere.REQUEUE,
    )
    first_delivery_pause_ms: int = key(
        Whole(0, 1000),
        "Milliseconds from the answer to an AMQP 1.0 receiver's attach to its first delivery. RabbitMQ's client for "
        "Python handles deliveries that come along with the answer before its caller has the consumer.",
        0,
    )
    prefetch_size: PrefetchSize = key(
        Choice(PrefetchSize),
        "A prefetch in bytes (`basic.qos`): refused, or served: a message beyond it is sent only while the client has "
        "no other.",
        PrefetchSize.REFUSE,
    )
    recover_to_consumer: RecoverToConsumer = key(
        Choice(RecoverToConsumer),
        "`basic.recover` without `requeue`: refused, or the messages are sent again to the consumers that had them.",
        RecoverToConsumer.REFUSE,
    )
    plain_priorities: PlainPriorities = key(
        Choice(PlainPriorities),
        "The levels of priority of classic queues that set no `x-max-priority`: one, or two, 0 to 4 and from 5 on.",
        PlainPriorities.ONE,
    )
    no_local: bool = key(
        Flag(),
        "Keep from a 0-9-1 consumer with `no-local` what its own connection publishes, rather than ignoring the flag.",
        False,
    )
    names: Names = key(
        Choice(Names),
        "The names of new exchanges and queues: any bytes, UTF-8 without line breaks, or up to 127 letters, digits, "
        "`-`, `_`, `.` and `:`. The latter two where names have to suit other brokers, or programs that print them.",
        Names.TEXT,
    )
    bind_default: BindDefault = key(
        Choice(BindDefault),
        "Binding a queue to the default exchange: refused (403), or done.",
        BindDefault.REFUSE,
    )
    persistent_overflow: PersistentOverflow = key(
        Choice(PersistentOverflow),
        "Persistent messages of a queue that drops what is over its limit: dropped like others, or kept.",
        PersistentOverflow.DROP,
    )
    tell_host: bool = key(
        Flag(), "Tell AMQP clients the address that they have connected to, in the server properties.", False
    )
    product: Product = key(
        Choice(Product),
        "The product's name in AMQP 0-9-1 and 1.0: some clients refuse a broker that is not RabbitMQ.",
        Product.LEVERET,
    )

    @property
    def product_and_version(self) -> tuple[str, str]:
        """The product and version that the node announces (S005, X050)."""
        return INTRODUCTIONS[self.product]

    def unknown_exchange_type_error(self, name: str) -> Failure:
        """Return the error for an unknown exchange type (S038)."""
        strict = self.unknown_exchange_type is UnknownType.COMMAND_INVALID
        return (UnknownExchangeType if strict else PreconditionFailed)(f"unknown exchange type '{name}'")

    def redeclare_error(self, argument: str, error: PreconditionFailed) -> Failure:
        """Return the error to raise when an exchange is declared again with another `argument` (S039)."""
        strict = argument == "type" and self.redeclare_other_type is OtherType.NOT_ALLOWED
        return NotAllowed(str(error)) if strict else error

    @property
    def locks_redeclared(self) -> bool:
        """True if a queue that is declared again with another `exclusive` counts as locked (S066)."""
        return self.redeclare_exclusive is OtherExclusive.RESOURCE_LOCKED

    @property
    def dead_letters_undeliverable(self) -> bool:
        """True if a message that is undeliverable at one AMQP 1.0 receiver is not for others, either (S227)."""
        return self.undeliverable_here is UndeliverableHere.DEAD_LETTER

    @property
    def delete_missing_ok(self) -> bool:
        """True if deleting or unbinding what does not exist succeeds (S043, S057, S075)."""
        return self.delete_missing is OnMissing.OK

    @property
    def warns_missing_alternate(self) -> bool:
        """True if a missing alternate exchange is logged (S131)."""
        return self.missing_alternate is MissingAlternate.LOG

    def checks_secret(self, expires: bool) -> bool:
        """Return whether a fresh secret is checked, of a user whose credentials expire or do not (X008)."""
        return expires or self.update_secret is SecretOfPassword.CHECK

    def check_name(self, kind: str, name: str) -> None:
        """Raise PreconditionFailed if a new exchange or queue may not have this name (S042).

        A name that is no UTF-8 cannot be told in JSON, and one with line breaks cannot be named over AMQP 0-9-1.
        Source: AMQP 0-9-1, the domains exchange-name and queue-name, and the rules of declare.
        """
        if self.names is Names.TEXT and UNREADABLE.search(name):
            shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:127]
            raise PreconditionFailed(f"the name of {kind} {shown!r} is not UTF-8 without line breaks")
        if self.names is Names.SPECIFICATION and not NAME.fullmatch(name):
            raise PreconditionFailed(
                f"the name of {kind} '{name[:127]}' is not one of up to 127 letters, digits, '-', '_', '.' and ':'"
            )

    def check_binding_key(self, exchange_type: str, binding_key: str) -> None:
        """Raise PreconditionFailed if a topic binding key has too many `#` (X012)."""
        most = self.topic_wildcards_max
        if most is None or exchange_type != "topic":
            return
        if (count := binding_key.split(".").count("#")) > most:
            raise PreconditionFailed(
                f"Topic binding key '{binding_key}' uses {count} '#' wildcards, at most {most} are allowed"
            )

    def check_transient_queue(self, durable: bool, exclusive: bool) -> None:
        """Raise Retired if the queue is neither durable nor exclusive and the profile refuses that (S070)."""
        if durable or exclusive or self.transient_queues is TransientQueues.ALLOW:
            return
        raise Retired(
            "Feature `transient_nonexcl_queues` is deprecated. By default, this feature is not permitted anymore."
        )

    def check_queue_arguments(self, name: str, virtual_host: str, arguments: Table) -> None:
        """Raise PreconditionFailed if a consumer timeout is set on a queue that has none in this profile."""
        type_ = queue_type(arguments)
        if "x-consumer-timeout" in arguments and not self._knows_timeout(type_ is QueueType.QUORUM):
            queue = f"queue '{name}' in vhost '{virtual_host}' of queue type {type_.module}"
            raise PreconditionFailed(f"invalid arg 'x-consumer-timeout' for {queue}")

    def queue_limits(
        self, limits: QueueLimits, quorum: bool, consumer_timeout_ms: int | None = None
    ) -> QueueLimits:
        """Return the limits that a queue obeys: defaults where none is set, and None where there is no limit.

        `consumer_timeout_ms` is the node's default.
        """
        default = self.quorum_delivery_limit if quorum else self.default_delivery_limit
        is_plain = limits.max_priority is None and not (quorum or limits.last_value_key or limits.group_key)
        two = is_plain and self.plain_priorities is PlainPriorities.TWO
        timeout = settled(limits.consumer_timeout_ms, consumer_timeout_ms, least=1)
        return attrs.evolve(
            limits,
            delivery_limit=settled(limits.delivery_limit, default, least=0),
            consumer_timeout_ms=timeout if self._knows_timeout(quorum) else None,
            consumer_timeout_asked=limits.consumer_timeout_ms is not None,
            at_least_once=may_hold(limits) if limits.at_least_once else None,
            max_priority=1 if two else limits.max_priority,
            priority_base=LOW_PRIORITY_MAX if two else limits.priority_base,
            keeps_persistent=self.persistent_overflow is PersistentOverflow.KEEP,
            counts_republished=self.republished_deaths,
        )

    def _knows_timeout(self, quorum: bool) -> bool:
        return quorum or self.consumer_timeout is TimeoutScope.EVERY_QUEUE


def may_hold(limits: QueueLimits) -> bool:
    """Return whether a queue can hold dead letters: it has an exchange for them, and is bounded by its publishers."""
    return limits.dead_letter_exchange is not None and limits.overflow is Overflow.REJECT_PUBLISH


def settled(value: int | None, default: int | None, least: int) -> int | None:
    """Return the value that was set, or the default. Values below `least` mean `unlimited`, which is None."""
    if value is None:
        return default
    return value if value >= least else None


INTRODUCTIONS: Final = {
    Product.LEVERET: ("Leveret", VERSION),
    Product.RABBITMQ_3: ("RabbitMQ", "3.13.7"),
    Product.RABBITMQ_4: ("RabbitMQ", "4.4.0"),
    Product.RABBITMQ_4_0: ("RabbitMQ", "4.0.9"),
    Product.RABBITMQ_4_1: ("RabbitMQ", "4.1.8"),
    Product.RABBITMQ_4_2: ("RabbitMQ", "4.2.9"),
    Product.RABBITMQ_4_3: ("RabbitMQ", "4.3.5"),
    Product.RABBITMQ_4_4: ("RabbitMQ", "4.4.0"),
}

EVERY_4: Final[Mapping[str, object]] = {
    "immediate": False,
    "channel_flow": False,
    "names": "any",
    "missing_alternate": "silent",
    "memory_watermark": 0.6,
    "without_sasl": "refuse",
    "first_delivery_pause_ms": 20,
    "link_errors": "session",
    "default_priority": 0,
    "undeliverable_here": "dead-letter",
    "single_active_takeover": True,
}
BEFORE_4_3: Final[Mapping[str, object]] = {
    **EVERY_4,
    "quorum_priorities": "two-levels",
    "consumer_timeout_response": "close-channel",
    "address_v1": True,
}
FROM_4_3: Final[Mapping[str, object]] = {
    **EVERY_4,
    "frame_min_size": 8192,
    "qos_global": "consumer",
    "transient_queues": "refuse",
    "consumer_timeout": "quorum-queues",
    "consumer_timeout_response": "notify-consumer",
    "topic_wildcards_max": 2,
}

PROFILES: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "spec": {
        "unknown_exchange_type": "command-invalid",
        "redeclare_other_type": "not-allowed",
        "delete_missing": "not-found",
        "no_current_queue": "syntax-error",
        "unknown_virtual_host": "invalid-path",
        "flow_mechanism": "channel-flow",
        "redeclare_exclusive": "precondition-failed",
        "refused_open": "close",
        "prefetch_size": "serve",
        "recover_to_consumer": "serve",
        "plain_priorities": "two",
        "no_local": True,
        "names": "specification",
        "bind_default": "allow",
        "persistent_overflow": "keep",
        "tell_host": True,
        "dead_letter_on_delete": True,
        "default_delivery_limit": 5,
        "quorum_delivery_limit": 5,
    },
    "rabbitmq-3.13": {
        "immediate": False,
        "channel_flow": False,
        "names": "any",
        "missing_alternate": "silent",
        "republished_deaths": True,
        "quorum_delivery_limit": "unlimited",
        "quorum_priorities": "none",
        "consumer_timeout_response": "close-channel",
        "address_v1": True,
        "message_size_max": 128 * MIB,
        "orphaned_sender": "release",
        "link_errors": "session",
        "default_priority": 0,
        "product": "rabbitmq-3.13",
    },
    "rabbitmq-4.0": {**BEFORE_4_3, "product": "rabbitmq-4.0"},
    "rabbitmq-4.1": {**BEFORE_4_3, "frame_min_size": 8192, "product": "rabbitmq-4.1"},
    "rabbitmq-4.2": {**BEFORE_4_3, "frame_min_size": 8192, "product": "rabbitmq-4.2"},
    "rabbitmq-4.3": {**FROM_4_3, "product": "rabbitmq-4.3"},
    "rabbitmq-4.4": {**FROM_4_3, "product": "rabbitmq-4.4"},
    "rabbitmq-4": {**FROM_4_3, "product": "rabbitmq-4"},
}


ROWS: Final = RecordOf(Compat)


def compat(profile: str = "default", **rows: object) -> Compat:
    """Return a profile with single rows changed. Raises ValueError, which lists all problems and what is accepted."""
    if profile not in PROFILES:
        raise ValueError(f"profile: found {printed(profile)}, accepted: {', '.join(PROFILES)}")
    problems: list[Problem] = []
    read: Compat | RefusedValue = ROWS.read({**PROFILES[profile], **rows}, Place(problems, "compat"))
    if problems or not isinstance(read, Compat):
        raise ValueError("; ".join(map(str, problems)))
    return read
