"""Exports a broker's objects as a definitions file in RabbitMQ's format, which `reader.py` reads.

Sections are produced one after the other, and their items on demand, so that a large export can be made in portions.
Objects that are declared meanwhile may be in it or not. Items are in an order that an import and another export keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.features.parameters.components import parameters_of
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.policy import Policy
from leveret.security.passwords import SHA256
from leveret.security.users import Permissions, TopicPermissions, User
from leveret.values import Json, Table, as_json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost

Item: TypeAlias = dict[str, Json]
Sections: TypeAlias = Iterator[tuple[str, Iterable[Item]]]

RESERVED: Final = "amq."
VIRTUAL_HOST_LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"


def everything(broker: Broker, secrets: bool = False) -> Sections:
    """Yield the name of each section and its items. `secrets`: URIs have their passwords, in place of a mark."""
    access, hosts = broker.access, by_name(broker)
    yield "users", map(user_json, access.users())
    yield "vhosts", map(described_json, hosts)
    yield "permissions", (permission_json(*each) for each in access.permissions())
    yield "topic_permissions", (topic_permission_json(*each) for each in access.topic_permissions())
    yield "parameters", (each for host in hosts for each in parameters(broker, host, secrets))
    yield "global_parameters", (global_parameter_json(*each) for each in broker.parameters.all())
    yield "policies", (policy_json(each) for host in hosts for each in broker.policies.list(host.name))
    yield "queues", (each for host in hosts for each in queues(host))
    yield "exchanges", (each for host in hosts for each in exchanges(host))
    yield "bindings", (each for host in hosts for each in bindings(host))


def of_virtual_host(broker: Broker, host: VirtualHost, secrets: bool = False) -> Sections:
    """Yield the sections of one virtual host; the items do not name it."""
    sections: tuple[tuple[str, Iterable[Item]], ...] = (
        ("parameters", parameters(broker, host, secrets)),
        ("policies", map(policy_json, broker.policies.list(host.name))),
        ("queues", queues(host)),
        ("exchanges", exchanges(host)),
        ("bindings", bindings(host)),
    )
    for name, items in sections:
        yield name, ({key: value for key, value in each.items() if key != "vhost"} for each in items)


def by_name(broker: Broker) -> list[VirtualHost]:
    return sorted(broker.hosts(), key=lambda host: host.name)


def user_json(user: User) -> Item:
    """Return a user. The hash is empty if there is no password, which disables login by password."""
    kept = user.password
    return {
        "name": user.name,
        "password_hash": "" if kept is None else kept.text,
        "hashing_algorithm": SHA256 if kept is None else kept.algorithm,
        "tags": list(user.tags),
        "limits": user_limits_json(user.limits),
    }


def user_limits_json(limits: UserLimits) -> Item:
    return said(
        {
            "max-connections": limits.max_connections,
            "max-channels": limits.max_channels,
            "max-publish-rate": limits.max_publish_rate,
        }
    )


def permission_json(user: str, virtual_host: str, permissions: Permissions) -> Item:
    return {
        "user": user,
        "vhost": virtual_host,
        "configure": permissions.configure,
        "write": permissions.write,
        "read": permissions.read,
    }


def topic_permission_json(user: str, virtual_host: str, exchange: str, permissions: TopicPermissions) -> Item:
    return {
        "user": user,
        "vhost": virtual_host,
        "exchange": exchange,
        "write": permissions.write,
        "read": permissions.read,
    }


def described_json(host: VirtualHost) -> Item:
    """Return a virtual host with its description, tags and default type of queues, if there is one."""
    metadata: Item = {"description": host.description.text, "tags": list(host.description.tags)}
    if (default := host.default_queue_type) is not None:
        metadata["default_queue_type"] = default.value
    return {"name": host.name, **metadata, "metadata": metadata, "tracing": host.tracing}


def limits_json(limits: VirtualHostLimits) -> Item:
    return said(
        {
            "max-connections": limits.max_connections,
            "max-queues": limits.max_queues,
            "max-publish-rate": limits.max_publish_rate,
        }
    )


def parameters(broker: Broker, host: VirtualHost, secrets: bool = False) -> list[Item]:
    """Return RabbitMQ's "parameters" of a virtual host: limits, operator policies, shovels, and those of federation."""
    found = []
    if limits := limits_json(host.limits):
        found.append(parameter_json(limits, host, VIRTUAL_HOST_LIMITS, "limits"))
    for policy in broker.policies.list_operator(host.name):
        value = policy_json(policy)
        del value["vhost"], value["name"]
        found.append(parameter_json(value, host, OPERATOR_POLICY, policy.name))
    for component, each in parameters_of(broker, host.name):
        found.append(parameter_json(each.value if secrets else each.shown, host, component, each.name))
    return found


def parameter_json(value: Json, host: VirtualHost, component: str, name: str) -> Item:
    return {"value": value, "vhost": host.name, "component": component, "name": name}


def global_parameter_json(name: str, value: Json) -> Item:
    return {"name": name, "value": value}


def policy_json(policy: Policy) -> Item:
    return {
        "vhost": policy.virtual_host,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to.value,
        "definition": as_json(policy.definition),
        "priority": policy.priority,
    }


def said(limits: dict[str, int | None]) -> Item:
    return {name: limit for name, limit in limits.items() if limit is not None}


def queues(host: VirtualHost) -> Iterator[Item]:
    """Yield the queues but for exclusive ones."""
    for queue in sorted(host.queues.values(), key=lambda each: each.name):
        if not (queue.exclusive or queue.deleted):
            yield queue_json(queue)


def queue_json(queue: Queue) -> Item:
    of_subscription = {} if queue.selector is None else {"selector": queue.selector.text}
    return {
        "name": queue.name,
        "vhost": queue.virtual_host.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": as_json({**_own_type(queue), **queue.arguments}),
        **of_subscription,
    }


def _own_type(queue: Queue) -> Table:
    """Return the type of a queue as an argument where an import would else give it the default type."""
    return {} if queue.virtual_host.default_queue_type is None else {"x-queue-type": queue.type.value}


def exchanges(host: VirtualHost) -> Iterator[Item]:
    """Yield the exchanges but for predeclared ones."""
    for exchange in sorted(host.exchanges.values(), key=lambda each: each.name):
        if exchange.name and not exchange.name.startswith(RESERVED):
            yield exchange_json(exchange)


def exchange_json(exchange: Exchange) -> Item:
    return {
        "name": exchange.name,
        "vhost": exchange.virtual_host.name,
        "type": exchange.type.name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": as_json(exchange.arguments),
    }


def bindings(host: VirtualHost) -> Iterator[Item]:
    """Yield the bindings by source, in their order, but for those to exclusive queues."""
    for exchange in sorted(host.exchanges.values(), key=lambda each: each.name):
        for binding in list(exchange.bindings):
            if not belongs_to_connection(binding):
                yield binding_json(binding)


def belongs_to_connection(binding: Binding) -> bool:
    destination = binding.end
    return not destination.is_exchange and getattr(destination, "exclusive", False)


def binding_json(binding: Binding) -> Item:
    return {
        "source": binding.source.name,
        "vhost": binding.source.virtual_host.name,
        "destination": binding.end.name,
        "destination_type": "exchange" if binding.end.is_exchange else "queue",
        "routing_key": binding.key,
        "arguments": as_json(binding.arguments),
    }
