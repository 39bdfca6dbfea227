"""Warnings of definitions: what a file asks for and has no effect here, each once, with where it was met first.

Called after the definitions were applied, because what an exchange's arguments mean is known to its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from leveret.arguments.definitions import DEFINITIONS
from leveret.arguments.names import shown
from leveret.arguments.row import Effect
from leveret.arguments.warnings import (
    component_warnings,
    queue_warnings,
    tag_warnings,
    unknown,
    without_effect,
)
from leveret.broker import Broker
from leveret.server.definitions.reader import BindingDefinition, Definitions, ExchangeDefinition, Tolerant

DIFFERENT_MAX: Final = 100
SECTIONS: Final = (
    "vhosts", "users", "permissions", "topic_permissions", "parameters", "global_parameters", "policies", "queues",
    "exchanges", "bindings",
)  # fmt: skip


class Warnings:
    """Gathers equal warnings: where the first was met, and how many more there were."""

    def __init__(self) -> None:
        self._met: dict[str, tuple[str, int]] = {}
        self._more = 0

    def add(self, where: str, warnings: Iterable[str]) -> None:
        for warning in warnings:
            if warning in self._met:
                first, more = self._met[warning]
                self._met[warning] = first, more + 1
            elif len(self._met) < DIFFERENT_MAX:
                self._met[warning] = where, 0
            else:
                self._more += 1

    def sentences(self) -> list[str]:
        lines = [
            f"{where}: {warning}{f' ({more} more like it)' if more else ''}"
            for warning, (where, more) in self._met.items()
        ]
        return [*lines, f"there are {self._more} more warnings"] if self._more else lines


def steps(definitions: Definitions, broker: Broker, found: Warnings) -> Iterator[None]:
    """Look for warnings item by item, and add them to `found`."""
    found.add("definitions", of_keys("", definitions))
    for section in SECTIONS:
        items: Sequence[Tolerant] = getattr(definitions, section)
        for index, each in enumerate(items):
            found.add(f"{section}[{index}]", of_keys(f"{section}.", each))
            yield
    for user in definitions.users:
        found.add(f"user '{shown(user.name)}'", tag_warnings(user.tags))
        yield
    for parameter in definitions.parameters:
        where = f"parameter '{shown(parameter.name)}' in vhost '{shown(parameter.vhost)}'"
        found.add(where, component_warnings(parameter.component))
        operator = parameter.component == "operator_policy"
        if (
            operator
            and (policy := named_operator_policy(broker, parameter.vhost, parameter.name)) is not None
        ):
            found.add(where, policy)
        yield
    for each in definitions.policies:
        found.add(f"policy '{shown(each.name)}' in vhost '{shown(each.vhost)}'", each.policy.warnings())
        yield
    for exchange in definitions.exchanges:
        where = f"exchange '{shown(exchange.name)}' in vhost '{shown(exchange.vhost)}'"
        found.add(where, of_exchange(broker, exchange))
        yield
    for queue in definitions.queues:
        where = f"queue '{shown(queue.name)}' in vhost '{shown(queue.vhost)}'"
        found.add(where, queue_warnings(queue.arguments, broker.queue_arguments))
        yield
    for binding in definitions.bindings:
        where = f"binding from exchange '{shown(binding.source)}' in vhost '{shown(binding.vhost)}'"
        found.add(where, of_binding(broker, binding))
        yield


def of_keys(prefix: str, record: Tolerant) -> Iterator[str]:
    """Yield the warnings of keys that a record does not know."""
    for key, value in record.others.items():
        row = DEFINITIONS.get(prefix + key)
        if row is None:
            yield unknown(prefix + key, DEFINITIONS)
        elif row.effect is not Effect.IMPLEMENTED and value not in row.inert:
            yield without_effect(row)


def named_operator_policy(broker: Broker, host: str, name: str) -> list[str] | None:
    policies = broker.policies.list_operator(host)
    return next((each.warnings() for each in policies if each.name == name), None)


def of_exchange(broker: Broker, each: ExchangeDefinition) -> list[str]:
    host = broker.virtual_hosts.get(each.vhost)
    exchange = None if host is None else host.exchanges.get(each.name)
    return [] if exchange is None or not each.arguments else exchange.type.warnings(each.arguments)


def of_binding(broker: Broker, each: BindingDefinition) -> list[str]:
    host = broker.virtual_hosts.get(each.vhost)
    source = None if host is None else host.exchanges.get(each.source)
    return [] if source is None or not each.arguments else source.type.binding_warnings(each.arguments)
