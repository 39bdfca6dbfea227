"""A broker that stands in for another, to try definitions on: what they name is there with the same properties.

Limits of virtual hosts and of the node are not tried, because the stand-in has only what the definitions name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import attrs

from leveret.broker import Broker
from leveret.config.config import ConfigError
from leveret.config.types import Problem
from leveret.exchanges.standard import STANDARD
from leveret.security.users import User
from leveret.server.definitions import exporter, importer, incremental_reader
from leveret.server.definitions.incremental_reader import Steps
from leveret.server.definitions.reader import Definitions

T = TypeVar("T")


def stand_in(broker: Broker, definitions: Definitions) -> Steps[Broker]:
    """Return a broker with whatever of `broker` the definitions name. It writes to no store and no log."""
    made = Broker(
        clock=broker.clock,
        exchange_types=broker.exchange_types,
        compat=broker.compat,
        default_queue_type=broker.default_queue_type,
    )
    made.queue_arguments = broker.queue_arguments
    made.notices.tell = lambda line: None
    names = named(definitions)
    hosts = [host for host in broker.hosts() if host.name in names]
    content: dict[str, object] = {"vhosts": [{"name": host.name} for host in hosts]}
    content["users"] = [{"name": each.name} for each in broker.access.users()]
    content["exchanges"] = [
        exporter.exchange_json(each)
        for host in hosts
        for each in _of(names[host.name], host.exchanges)
        if each.name and not each.name.startswith(exporter.RESERVED)
    ]
    content["queues"] = [
        exporter.queue_json(each) for host in hosts for each in _of(names[host.name], host.queues)
    ]
    there = yield from incremental_reader.records(content, [])
    for _ in importer.steps(there, made):
        yield
    return made


def problems_of(content: object) -> list[Problem]:
    """Return what a node would refuse in the content of a definitions file.

    What the file names and does not have may be there already: virtual hosts, users, and types of exchanges.
    """
    problems: list[Problem] = []
    try:
        definitions = finished(incremental_reader.records(content, problems))
    except ConfigError as error:
        return list(error.problems)
    made = Broker()
    made.notices.tell = lambda line: None
    for host in named(definitions):
        made.add_virtual_host(host)
    for name in {
        *(each.user for each in definitions.permissions),
        *(each.user for each in definitions.topic_permissions),
    }:
        made.access.put_user(User(name))
    known = tuple(
        each if each.type in STANDARD else attrs.evolve(each, type="fanout", arguments={})
        for each in definitions.exchanges
    )
    trial = attrs.evolve(without_passwords(definitions), exchanges=known)
    tried = importer.steps(trial, made, user="", is_trial=True)
    return [*problems, *(each for each in tried if each is not None)]


def finished(steps: Steps[T]) -> T:
    """Do all steps at once, and return what they do."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def named(definitions: Definitions) -> dict[str, set[str]]:
    """Return the names of queues and exchanges by virtual host that definitions have or refer to."""
    found: dict[str, set[str]] = {each.name: set() for each in definitions.vhosts}
    for section in ("permissions", "topic_permissions", "parameters", "policies"):
        for item in getattr(definitions, section):
            found.setdefault(item.vhost, set())
    for exchange in definitions.exchanges:
        found.setdefault(exchange.vhost, set()).add(exchange.name)
    for queue in definitions.queues:
        found.setdefault(queue.vhost, set()).add(queue.name)
    for binding in definitions.bindings:
        found.setdefault(binding.vhost, set()).update((binding.source, binding.destination))
    return found


def _of(names: set[str], there: Mapping[str, T]) -> Iterator[T]:
    return (there[name] for name in names & there.keys())


def without_passwords(definitions: Definitions) -> Definitions:
    """Return definitions without plain passwords, which would be hashed slowly."""
    users = tuple(attrs.evolve(user, password=None) for user in definitions.users)
    return attrs.evolve(definitions, users=users)
