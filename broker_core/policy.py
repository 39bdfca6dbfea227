"""Policies: operators' definitions for queues and exchanges whose names match a pattern, and the limits they result in.

One policy holds for each queue or exchange: of those that match, the one with the highest priority, and of equals the
one whose name comes first. Policies do not add up. One operator policy, chosen the same way, is laid over it; it may
only hold numbers that bound a queue. Where both set a key the lower number holds, otherwise the one that sets it.

`effective_limits` merges this definition with the arguments that the client gave: of two numbers the lower one holds;
where there is no lower (exchanges, keys, overflow) the argument holds. All of this happens when something changes,
never per message. A key that a queue's type has no use for is ignored; the rest of the policy holds. The default
exchange has no policy, whatever the pattern (S145, S146).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from broker_core.errors import PreconditionFailed
from broker_core.limits import (
    Check,
    Overflow,
    QueueLimits,
    QueueType,
    age_fault,
    age_ms,
    count_fault,
    expiry_fault,
    one_of,
    overflow_fault,
    text,
    text_fault,
    ttl_fault,
    whole,
    whole_fault,
)
from broker_core.observability.events import Events
from broker_core.selectors.expressions import Expression
from broker_core.values import Table, Value

if TYPE_CHECKING:
    from broker_core.durable_objects import Catalogue

REPETITIONS: Final = re.compile(r"\)?(?:[*+{]|(?<!\()\?)")
Definition: TypeAlias = Table
"""Policy keys such as `message-ttl` and their values."""


class ApplyTo(Enum):
    """The kinds of things a policy applies to, in the words of RabbitMQ's definition files."""

    ALL = "all"
    QUEUES = "queues"
    EXCHANGES = "exchanges"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    STREAMS = "streams"


REACH: Final[dict[ApplyTo, frozenset[QueueType]]] = {
    ApplyTo.ALL: frozenset(QueueType),
    ApplyTo.QUEUES: frozenset(QueueType),
    ApplyTo.EXCHANGES: frozenset(),
    ApplyTo.CLASSIC_QUEUES: frozenset({QueueType.CLASSIC}),
    ApplyTo.QUORUM_QUEUES: frozenset({QueueType.QUORUM}),
    ApplyTo.STREAMS: frozenset({QueueType.STREAM}),
}

# The keys of definitions. Ignored keys are checked, kept and listed; they mean nothing on a single node.

KEYS: Final[dict[str, Check]] = {
    "message-ttl": ttl_fault,
    "expires": expiry_fault,
    "max-length": count_fault,
    "max-length-bytes": count_fault,
    "overflow": overflow_fault,
    "dead-letter-exchange": text_fault,
    "dead-letter-routing-key": text_fault,
    "delivery-limit": whole_fault,
    "consumer-timeout": count_fault,
    "max-age": age_fault,
    "stream-max-segment-size-bytes": count_fault,
    "alternate-exchange": text_fault,
}


def anything(value: Value) -> str | None:
    return None


IGNORED_KEYS: Final[dict[str, Check]] = {
    "queue-mode": one_of("default", "lazy"),
    "queue-version": whole_fault,
    "queue-master-locator": text_fault,
    "queue-leader-locator": text_fault,
    "dead-letter-strategy": one_of("at-most-once", "at-least-once"),
    "max-in-memory-length": count_fault,
    "max-in-memory-bytes": count_fault,
    "initial-cluster-size": count_fault,
    "target-group-size": count_fault,
    "max-segment-size": count_fault,
    "stream-filter-size-bytes": count_fault,
    "federation-upstream": anything,
    "federation-upstream-set": anything,
    "ha-mode": anything,
    "ha-params": anything,
    "ha-sync-mode": anything,
    "ha-sync-batch-size": anything,
    "ha-promote-on-shutdown": anything,
    "ha-promote-on-failure": anything,
}

OPERATOR_KEYS: Final = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "delivery-limit",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "target-group-size",
)
"""The keys that an operator policy may hold: RabbitMQ's list, numbers only."""

STREAM_KEYS: Final = ("max-length-bytes", "max-age", "stream-max-segment-size-bytes")
"""The keys that bound a stream and its segments; the other keys are for queues that settle deliveries."""


@attrs.frozen(slots=False)  # cached_property needs a dictionary
class Policy:
    """A policy or operator policy: a pattern that is searched for in names, and a definition for those that match."""

    name: str
    virtual_host: str
    pattern: str
    definition: Definition
    priority: int = 0
    apply_to: ApplyTo = ApplyTo.ALL

    @cached_property
    def found_in(self) -> Callable[[str], object]:
        """The function that searches for the pattern in a name: a fast one where possible, else that of `re`."""
        return quick(self.pattern) or re.compile(self.pattern).search

    def reaches_queue(self, virtual_host: str, name: str, type_: QueueType) -> bool:
        return type_ in REACH[self.apply_to] and self._names(virtual_host, name)

    def reaches_exchange(self, virtual_host: str, name: str) -> bool:
        reaches = self.apply_to in (ApplyTo.ALL, ApplyTo.EXCHANGES)
        return reaches and name != "" and self._names(virtual_host, name)

    def _names(self, virtual_host: str, name: str) -> bool:
        return virtual_host == self.virtual_host and bool(self.found_in(name))


class Policies:
    """The policies and operator policies of all virtual hosts."""

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None  # told of changes, to keep them
        self.events = Events()
        self._policies: dict[tuple[str, str], Policy] = {}
        self._operator: dict[tuple[str, str], Policy] = {}

    def set(self, policy: Policy) -> None:
        """Add a policy, or replace the one of this name. Raises PreconditionFailed if it is invalid."""
        refuse_invalid(policy, "policy", {**KEYS, **IGNORED_KEYS})
        self._policies[policy.virtual_host, policy.name] = policy
        if self.catalogue is not None:
            self.catalogue.keep_policy(policy, operator=False)
        self._tell_of(policy, operator=False)

    def set_operator(self, policy: Policy) -> None:
        """Add or replace an operator policy. Raises PreconditionFailed if it is invalid."""
        known = {**KEYS, **IGNORED_KEYS}
        refuse_invalid(policy, "operator policy", {key: known[key] for key in OPERATOR_KEYS})
        self._operator[policy.virtual_host, policy.name] = policy
        if self.catalogue is not None:
            self.catalogue.keep_policy(policy, operator=True)
        self._tell_of(policy, operator=True)

    def _tell_of(self, policy: Policy, operator: bool) -> None:
        facts: Table = {
            "name": policy.name,
            "vhost": policy.virtual_host,
            "pattern": policy.pattern,
            "apply-to": policy.apply_to.value,
            "priority": policy.priority,
            "definition": policy.definition,
            "operator": operator,
        }
        self.events.happened("policy.set", policy.virtual_host, facts)

    def clear(self, virtual_host: str, name: str) -> bool:
        """Remove a policy. False if there was none."""
        return self._cleared(self._policies, virtual_host, name)

    def clear_operator(self, virtual_host: str, name: str) -> bool:
        return self._cleared(self._operator, virtual_host, name)

    def _cleared(self, policies: dict[tuple[str, str], Policy], virtual_host: str, name: str) -> bool:
        if policies.pop((virtual_host, name), None) is None:
            return False
        if self.catalogue is not None:
            self.catalogue.forget_policy(virtual_host, name, operator=policies is self._operator)
        facts: Table = {"name": name, "vhost": virtual_host, "operator": policies is self._operator}
        self.events.happened("policy.cleared", virtual_host, facts)
        return True

    def forget_virtual_host(self, virtual_host: str) -> None:
        """Remove the policies of a virtual host that has been deleted."""
        for policy in self.list(virtual_host):
            self.clear(virtual_host, policy.name)
        for policy in self.list_operator(virtual_host):
            self.clear_operator(virtual_host, policy.name)

    def list(self, virtual_host: str | None = None) -> Sequence[Policy]:
        """Return the policies of one virtual host, or all, in order of name."""
        return listed(self._policies, virtual_host)

    def list_operator(self, virtual_host: str | None = None) -> Sequence[Policy]:
        return listed(self._operator, virtual_host)

    def queue_policies(
        self, virtual_host: str, name: str, type_: QueueType
    ) -> tuple[Policy | None, Policy | None]:
        """Return the policy and the operator policy that hold for a queue."""
        return (
            foremost(p for p in self._policies.values() if p.reaches_queue(virtual_host, name, type_)),
            foremost(p for p in self._operator.values() if p.reaches_queue(virtual_host, name, type_)),
        )

    def exchange_policy(self, virtual_host: str, name: str) -> Policy | None:
        """Return the policy that holds for an exchange. Operator policies do not apply to exchanges."""
        return foremost(p for p in self._policies.values() if p.reaches_exchange(virtual_host, name))

    def for_queue(self, virtual_host: str, name: str, type_: QueueType) -> Definition:
        """Return the merged definition of policy and operator policy for a queue; empty if none matches."""
        policy, operator = self.queue_policies(virtual_host, name, type_)
        said = merged(policy.definition if policy else {}, operator.definition if operator else {})
        if type_ is QueueType.STREAM:
            return {key: value for key, value in said.items() if key in STREAM_KEYS}
        return said

    def for_exchange(self, virtual_host: str, name: str) -> Definition:
        """Return the definition of an exchange's policy; always empty for the default exchange (S145)."""
        policy = self.exchange_policy(virtual_host, name)
        return policy.definition if policy else {}


def quick(pattern: str) -> Callable[[str], bool] | None:
    """Return a search for the pattern that no pattern can make slow, or None if this one needs `re`."""
    try:
        return Expression(pattern).found_in
    except ValueError:
        return None


def may_take_long(pattern: str) -> bool:
    """True if searching some name for a pattern may take long: it needs `re`, and repetitions let that backtrack.

    One repetition, as in `^(?!amq\\.).*`, is fine unless it repeats a group.
    """
    repetitions = REPETITIONS.findall(pattern)
    many = len(repetitions) > 1 or any(each.startswith(")") for each in repetitions)
    return many and quick(pattern) is None


def refuse_invalid(policy: Policy, kind: str, known: dict[str, Check]) -> None:
    """Raise PreconditionFailed, saying which policy is wrong and where."""
    if (fault := policy_fault(policy, known)) is not None:
        raise PreconditionFailed(f"invalid {kind} '{policy.name}' in vhost '{policy.virtual_host}': {fault}")


def policy_fault(policy: Policy, known: dict[str, Check]) -> str | None:
    try:
        re.compile(policy.pattern)
    except re.error as error:
        return f"pattern '{policy.pattern}' is not a regular expression ({error})"
    if not policy.definition:
        return "the definition is empty"
    return next((f for key, value in policy.definition.items() if (f := key_fault(key, value, known))), None)


def key_fault(key: str, value: Value, known: dict[str, Check]) -> str | None:
    if key not in known:
        return f"'{key}' is not one of {', '.join(known)}"
    fault = known[key](value)
    return None if fault is None else f"{key}: {fault}"


def listed(policies: dict[tuple[str, str], Policy], virtual_host: str | None) -> list[Policy]:
    chosen = [p for p in policies.values() if virtual_host is None or p.virtual_host == virtual_host]
    return sorted(chosen, key=lambda policy: (policy.virtual_host, policy.name))


def foremost(policies: Iterable[Policy]) -> Policy | None:
    """Return the policy of highest priority; of equals, the first by name: the order of setting never matters."""
    return min(policies, key=lambda policy: (-policy.priority, policy.name), default=None)


def merged(definition: Definition, operator: Definition) -> Definition:
    """Return a definition merged with an operator's: the lower of two numbers, or the only one that is set."""
    both = {key: lower(whole(value), whole(definition.get(key))) for key, value in operator.items()}
    return {**definition, **both}


def lower(one: int | None, other: int | None, unlimited_below: int = 0) -> int | None:
    """Return the stricter of two limits; None does not count, and numbers below `unlimited_below` mean no limit."""
    said = [number for number in (one, other) if number is not None]
    return min(said, key=lambda number: math.inf if number < unlimited_below else number, default=None)


def effective_limits(asked: QueueLimits, definition: Definition) -> QueueLimits:
    """Return the limits that result from a queue's arguments and the definition of its policies (S128, X031).

    Of two numbers the lower holds; of two exchanges, keys, overflows or sizes of segments the argument's.
    """
    if not definition:
        return asked
    timeout_ms = whole(definition.get("consumer-timeout"))
    segment_bytes = whole(definition.get("stream-max-segment-size-bytes"))
    return attrs.evolve(
        asked,
        message_ttl_ms=lower(asked.message_ttl_ms, whole(definition.get("message-ttl"))),
        expires_ms=lower(asked.expires_ms, whole(definition.get("expires"))),
        max_length=lower(asked.max_length, whole(definition.get("max-length"))),
        max_bytes=lower(asked.max_bytes, whole(definition.get("max-length-bytes"))),
        max_age_ms=lower(asked.max_age_ms, age_ms(definition.get("max-age"))),
        max_segment_bytes=asked.max_segment_bytes or segment_bytes or None,
        overflow=effective_overflow(asked, definition),
        dead_letter_exchange=first(asked.dead_letter_exchange, definition.get("dead-letter-exchange")),
        dead_letter_key=first(asked.dead_letter_key, definition.get("dead-letter-routing-key")),
        delivery_limit=lower(asked.delivery_limit, whole(definition.get("delivery-limit"))),
        consumer_timeout_ms=lower(asked.consumer_timeout_ms, timeout_ms, unlimited_below=1),
    )


def effective_alternate(arguments: Table, definition: Definition) -> str | None:
    """Return the alternate exchange in force: by argument, else by policy (S128)."""
    return first(text(arguments.get("alternate-exchange")), definition.get("alternate-exchange"))


def effective_overflow(asked: QueueLimits, definition: Definition) -> Overflow:
    said = text(definition.get("overflow"))
    return asked.overflow if asked.overflow_asked or said is None else Overflow(said)


def first(asked: str | None, said: Value) -> str | None:
    """Return the argument if there is one (the empty string names the default exchange), else the policy's value."""
    return text(said) if asked is None else asked
