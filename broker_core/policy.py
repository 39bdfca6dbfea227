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

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from leveret.arguments.checks import text, whole
from leveret.arguments.merging import Limit, lower
from leveret.arguments.names import meant
from leveret.arguments.policy_keys import OPERATOR_KEYS, POLICY_KEYS, PolicyKey, upstreams_fault
from leveret.arguments.queue_arguments import bounds_fault
from leveret.arguments.warnings import Notices, policy_warnings
from leveret.catalogue import OPERATOR_POLICY, POLICY, Named
from leveret.errors import PreconditionFailed
from leveret.limits import QueueLimits, QueueType
from leveret.observability.events import Events
from leveret.selectors.expressions import Expression
from leveret.selectors.pcre_translation import compiled, refusal_of
from leveret.values import Table, Value

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue

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
        return quick(self.pattern) or compiled(self.pattern).search

    def reaches_queue(self, virtual_host: str, name: str, type_: QueueType) -> bool:
        return type_ in REACH[self.apply_to] and self._names(virtual_host, name)

    def reaches_exchange(self, virtual_host: str, name: str) -> bool:
        reaches = self.apply_to in (ApplyTo.ALL, ApplyTo.EXCHANGES)
        return reaches and name != "" and self._names(virtual_host, name)

    def warnings(self) -> list[str]:
        """Return sentences about the keys that have no effect."""
        return policy_warnings(self.definition)

    def _names(self, virtual_host: str, name: str) -> bool:
        return virtual_host == self.virtual_host and bool(self.found_in(name))


class Policies:
    """The policies and operator policies of all virtual hosts."""

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None  # told of changes, to keep them
        self.events = Events()
        self.notices = Notices()
        self._policies: dict[tuple[str, str], Policy] = {}
        self._operator: dict[tuple[str, str], Policy] = {}

    def set(self, policy: Policy) -> None:
        """Add a policy, or replace the one of this name. Raises PreconditionFailed if it is invalid."""
        check(policy)
        self._policies[policy.virtual_host, policy.name] = policy
        if self.catalogue is not None:
            self.catalogue.keep(Named((POLICY, policy.virtual_host, policy.name), policy))
        self._tell_of(policy, operator=False)
        self.notices.notice(policy.virtual_host, "policy", policy.name, policy.warnings())

    def set_operator(self, policy: Policy) -> None:
        """Add or replace an operator policy. Raises PreconditionFailed if it is invalid."""
        check_operator(policy)
        self._operator[policy.virtual_host, policy.name] = policy
        if self.catalogue is not None:
            names = OPERATOR_POLICY, policy.virtual_host, policy.name
            self.catalogue.keep(Named(names, policy))
        self._tell_of(policy, operator=True)
        self.notices.notice(policy.virtual_host, "operator policy", policy.name, policy.warnings())

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
        if (policy := policies.pop((virtual_host, name), None)) is None:
            return False
        if self.catalogue is not None:
            kind = OPERATOR_POLICY if policies is self._operator else POLICY
            self.catalogue.forget(Named((kind, virtual_host, name), policy))
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
        definition = merged(policy.definition if policy else {}, operator.definition if operator else {})
        return {key: value for key, value in definition.items() if is_for(key, type_)}

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


def check(policy: Policy) -> None:
    """Raise PreconditionFailed if a policy is invalid."""
    refuse_invalid(policy, "policy", POLICY_KEYS)


def check_operator(policy: Policy) -> None:
    """Raise PreconditionFailed if an operator policy is invalid."""
    refuse_invalid(policy, "operator policy", OPERATOR_KEYS)


def refuse_invalid(policy: Policy, kind: str, known: Mapping[str, PolicyKey]) -> None:
    """Raise PreconditionFailed, saying which policy is wrong and where."""
    if (fault := policy_fault(policy, known)) is not None:
        raise PreconditionFailed(f"invalid {kind} '{policy.name}' in vhost '{policy.virtual_host}': {fault}")


def policy_fault(policy: Policy, known: Mapping[str, PolicyKey]) -> str | None:
    if (why := refusal_of(policy.pattern)) is not None:
        return f"pattern '{policy.pattern}' is not a regular expression ({why})"
    if not policy.definition:
        return "the definition is empty"
    wrong = next((f for key, value in policy.definition.items() if (f := key_fault(key, value, known))), None)
    return wrong or retry_fault(policy.definition) or upstreams_fault(policy.definition)


def retry_fault(definition: Definition) -> str | None:
    """Return what is wrong with the keys of a delayed retry together, as RabbitMQ checks them."""
    shortest = definition.get("delayed-retry-min")
    word = text(definition.get("delayed-retry-type"))
    if word not in (None, "disabled") and shortest is None:
        return f"delayed-retry-min is required when delayed-retry-type is {word}"
    fault = bounds_fault(shortest, definition.get("delayed-retry-max"))
    return None if fault is None else f"delayed-retry-max: {fault}"


def key_fault(key: str, value: Value, known: Mapping[str, PolicyKey]) -> str | None:
    if key not in known:
        close = meant(key, known) or f": {', '.join(known)}"
        return f"'{key}' is not one of the keys{close}"
    fault = known[key].check(value)
    return None if fault is None else f"{key}: {fault}"


def listed(policies: dict[tuple[str, str], Policy], virtual_host: str | None) -> list[Policy]:
    chosen = [p for p in policies.values() if virtual_host is None or p.virtual_host == virtual_host]
    return sorted(chosen, key=lambda policy: (policy.virtual_host, policy.name))


def foremost(policies: Iterable[Policy]) -> Policy | None:
    """Return the policy of highest priority; of equals, the first by name: the order of setting never matters."""
    return min(policies, key=lambda policy: (-policy.priority, policy.name), default=None)


def is_for(key: str, type_: QueueType) -> bool:
    """Return whether queues of a type have a use for a key."""
    row = POLICY_KEYS.get(key)
    return row is not None and type_ in row.types


def merged(definition: Definition, operator: Definition) -> Definition:
    """Return a definition merged with an operator's: the lower of two numbers, or the only one that is set.

    Of two minimums of a delayed retry the higher one holds, as in RabbitMQ.
    """
    both = {key: lower(whole(value), whole(definition.get(key))) for key, value in operator.items()}
    if (shortest := whole(operator.get("delayed-retry-min"))) is not None:
        both["delayed-retry-min"] = max(shortest, whole(definition.get("delayed-retry-min")) or 0)
    return {**definition, **both}


def effective_limits(limits: QueueLimits, definition: Definition) -> QueueLimits:
    """Return the limits that result from a queue's arguments and the definition of its policies (S128, X031).

    Of two numbers the lower holds; of two exchanges, keys, strategies, overflows or sizes of segments the argument's.
    """
    if not definition:
        return limits
    held: dict[str, Limit] = {}
    for name, value in definition.items():
        key = POLICY_KEYS.get(name)
        if key is not None and key.field:
            held[key.field] = key.merge(limit_asked(limits, key.field), key.read(value, definition))
    found = {field: limit for field, limit in held.items() if limit is not None}
    return attrs.evolve(limits, **found)  # type: ignore[arg-type]  # a key reads into its field


def limit_asked(limits: QueueLimits, field: str) -> Limit:
    """Return a limit that a queue's arguments ask for; None if they do not."""
    if field == "overflow" and not limits.overflow_asked:
        return None
    limit: Limit = getattr(limits, field)
    return limit


def effective_alternate(arguments: Table, definition: Definition) -> str | None:
    """Return the alternate exchange in force: by argument, else by policy (S128)."""
    word = text(arguments.get("alternate-exchange"))
    return text(definition.get("alternate-exchange")) if word is None else word
