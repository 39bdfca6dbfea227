"""The topology of a virtual host as JSON that loses nothing: what a recording says at its start and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.durable.store.typed_json import written_table, written_text
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.policy import Policy
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost


def topology_json(host: VirtualHost) -> dict[str, Json]:
    """Return exchanges (but the default one), listed queues, bindings and policies, each in their order."""
    policies = host.broker.policies
    return {
        "exchanges": [exchange_json(each) for each in host.exchanges.values() if each.name],
        "queues": [queue_json(each) for each in host.queues.values()],
        "bindings": [binding_json(each) for each in host.bindings()],
        "policies": [policy_json(each) for each in policies.list(host.name)],
        "operator_policies": [policy_json(each) for each in policies.list_operator(host.name)],
    }


def exchange_json(exchange: Exchange) -> dict[str, Json]:
    return {
        "name": written_text(exchange.name),
        "type": written_text(exchange.type.name),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": written_table(exchange.arguments),
    }


def queue_json(queue: Queue) -> dict[str, Json]:
    return {
        "name": written_text(queue.name),
        "type": queue.type.value,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "paused": queue.paused,
        "selector": None if queue.selector is None else written_text(queue.selector.text),
        "arguments": written_table(queue.arguments),
    }


def binding_json(binding: Binding) -> dict[str, Json]:
    return {
        "source": written_text(binding.source.name),
        "to": binding.end.kind,
        "destination": written_text(binding.end.name),
        "key": written_text(binding.key),
        "arguments": written_table(binding.arguments),
    }


def policy_json(policy: Policy) -> dict[str, Json]:
    return {
        "name": written_text(policy.name),
        "pattern": written_text(policy.pattern),
        "apply_to": policy.apply_to.value,
        "priority": policy.priority,
        "definition": written_table(policy.definition),
    }
