"""The table of policy keys: those that mean the same as an argument, from its row, and those that have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from leveret.arguments.checks import count_fault, expression_fault, text_fault
from leveret.arguments.exchange_arguments import EXCHANGE_ARGUMENTS, ExchangeArgument
from leveret.arguments.merging import Merge, first
from leveret.arguments.queue_arguments import (
    CLASSIC,
    QUEUE_ARGUMENTS,
    SETTLING,
    QueueArgument,
    Read,
    nothing,
)
from leveret.arguments.row import Effect, Row, by_name
from leveret.limits import QueueType
from leveret.values import Value

ONE_NODE: Final = "there is one node, and no mirrors"


@attrs.frozen(kw_only=True)
class PolicyKey(Row):
    """A key of policies. `field`, `read` and `merge` are as those of the argument with the same meaning."""

    types: frozenset[QueueType]  # of the queues that have a use for it
    operator: bool = False
    field: str = ""
    read: Read = nothing
    merge: Merge = first


def of_queue_argument(row: QueueArgument) -> PolicyKey:
    """Return the policy key that means the same as an argument."""
    return PolicyKey(
        name=row.key,
        about=row.about,
        check=row.key_check or row.check,
        effect=row.effect,
        instead=row.instead,
        inert=row.inert,
        types=row.types if row.key_types is None else row.key_types,
        operator=row.operator,
        field=row.field,
        read=row.read,
        merge=row.merge,
    )


def of_exchange_argument(row: ExchangeArgument) -> PolicyKey:
    return PolicyKey(
        name=row.key,
        about=row.about,
        check=row.check,
        effect=row.effect,
        instead=row.instead,
        types=SETTLING,
    )


OF_QUEUES: Final = {row.key for row in QUEUE_ARGUMENTS.values()}  # some mean the same for exchanges
POLICY_KEYS: Final = by_name(
    *(of_queue_argument(row) for row in QUEUE_ARGUMENTS.values() if row.key),
    *(
        of_exchange_argument(row)
        for row in EXCHANGE_ARGUMENTS.values()
        if row.key and row.key not in OF_QUEUES
    ),
    PolicyKey(
        name="max-segment-size",
        about="The size of a quorum queue's files in RabbitMQ.",
        check=count_fault,
        types=SETTLING,
        effect=Effect.NO_EFFECT,
    ),
    *(
        PolicyKey(name=name, about=about, check=check, types=SETTLING)
        for name, about, check in (
            ("federation-upstream", "The [upstream](federation.md) from which messages come.", text_fault),
            (
                "federation-upstream-set",
                "The set of [upstreams](federation.md) from which messages come; `all` is that of all.",
                text_fault,
            ),
            (
                "federation-upstream-pattern",
                "Messages come from the [upstreams](federation.md) whose names match this expression.",
                expression_fault,
            ),
        )
    ),
    *(
        PolicyKey(name=name, about=about, types=CLASSIC, effect=Effect.NO_EFFECT, instead=ONE_NODE)
        for name, about in (
            ("ha-mode", "Which nodes mirror a queue."),
            ("ha-params", "The number or names of the nodes that mirror a queue."),
            ("ha-sync-mode", "How a new mirror gets the messages."),
            ("ha-sync-batch-size", "How many messages a mirror gets at a time."),
            ("ha-promote-on-shutdown", "When a mirror takes over from a node that is shut down."),
            ("ha-promote-on-failure", "When a mirror takes over from a node that fails."),
        )
    ),
)

OPERATOR_KEYS: Final = {name: key for name, key in POLICY_KEYS.items() if key.operator}
"""The keys that an operator policy may hold: RabbitMQ's list, numbers only."""


def upstreams_fault(definition: Mapping[str, Value]) -> str | None:
    """Return what is wrong with the keys of upstreams together: there may be one of them, as in RabbitMQ."""
    found = [key for key in definition if key.startswith("federation-upstream")]
    return f"there may be one of {' and '.join(found)}" if len(found) > 1 else None
