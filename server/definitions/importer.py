"""Imports definitions into a broker: virtual hosts, users, permissions, limits and policies, then queues and the rest.

What the broker refuses is returned as problems, and the rest takes effect. An existing object stays; if its properties
differ, that is a problem. Only at a start it is none: a queue that the file now declares otherwise may hold messages,
so it stays as it is in the store, and that is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from leveret.broker import Broker
from leveret.catalogue import (
    COMPONENTS,
    PARAMETER,
    PERMISSIONS,
    POLICY,
    TOPIC_PERMISSIONS,
    USER,
    VIRTUAL_HOST,
)
from leveret.catalogue import OPERATOR_POLICY as KIND_OPERATOR_POLICY
from leveret.config.config import ConfigError
from leveret.config.file_objects import BINDING, EXCHANGE, QUEUE, binding_words
from leveret.config.types import REFUSED, Place, Problem
from leveret.errors import Failure, NotFound
from leveret.exchanges.destination import Destination
from leveret.security.users import User
from leveret.selectors.parser import compile_selector
from leveret.server.definitions.labels import of_record, placed
from leveret.server.definitions.reader import (
    OPERATOR_POLICY,
    VIRTUAL_HOST_LIMITS,
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    GlobalParameterDefinition,
    ParameterDefinition,
    PermissionDefinition,
    PolicyDefinition,
    QueueDefinition,
    TopicPermissionDefinition,
    UserDefinition,
    VirtualHostDefinition,
    in_file,
    is_md5,
)
from leveret.server.definitions.warnings import Warnings
from leveret.server.definitions.warnings import steps as warnings_of
from leveret.virtual_host import PREDECLARED

log: Final = logging.getLogger("leveret.definitions")

D = TypeVar("D")
THERE_ANYWAY: Final = frozenset({"", *(name for name, _, _ in PREDECLARED)})


def load(broker: Broker, files: Sequence[tuple[Path, Definitions]]) -> None:
    """Apply the definitions of files in order. Raises ConfigError with every problem."""
    problems: list[Problem] = []
    stored = set(_in_store(broker))
    for path, definitions in files:
        for kind, *names in named(definitions):
            broker.file_objects.add(str(path), kind, *names)
        problems += in_file(path, [*md5_problems(definitions), *apply(definitions, broker, stored)])
        noticed = Warnings()
        for _ in warnings_of(definitions, broker, noticed):
            pass
        for warning in noticed.sentences():
            broker.notices.tell(f"{path}: {warning}")
    if problems:
        raise ConfigError(problems)


def named(definitions: Definitions) -> Iterator[tuple[str, ...]]:
    """Yield the kind and the names of each object that definitions put in place (`file_objects.py`)."""
    yield from ((VIRTUAL_HOST, each.name) for each in definitions.vhosts)
    yield from ((USER, each.name) for each in definitions.users)
    yield from ((PERMISSIONS, each.user, each.vhost) for each in definitions.permissions)
    for topics in definitions.topic_permissions:
        yield TOPIC_PERMISSIONS, topics.user, topics.vhost, topics.exchange
    for parameter in definitions.parameters:
        if parameter.component == VIRTUAL_HOST_LIMITS:
            yield VIRTUAL_HOST, parameter.vhost
        elif parameter.component == OPERATOR_POLICY:
            yield KIND_OPERATOR_POLICY, parameter.vhost, parameter.name
        elif parameter.component in COMPONENTS:
            yield parameter.component, parameter.vhost, parameter.name
    yield from ((PARAMETER, each.name) for each in definitions.global_parameters)
    yield from ((POLICY, each.vhost, each.name) for each in definitions.policies)
    yield from ((EXCHANGE, each.vhost, each.name) for each in definitions.exchanges)
    yield from ((QUEUE, each.vhost, each.name) for each in definitions.queues)
    for each in definitions.bindings:
        rest = binding_words(each.destination_type == "exchange", each.destination, each.routing_key)
        yield BINDING, each.vhost, each.source, rest


def md5_problems(definitions: Definitions) -> Iterator[Problem]:
    """Yield a problem for each user whose password is hashed with MD5, for those that want all or nothing."""
    for index, user in enumerate(definitions.users):
        if is_md5(user):
            where = placed(of_record("users", user), f"users[{index}].password_hash")
            yield Problem(
                where,
                "the password is hashed with MD5, which can be reversed: set another one there and export again,"
                " or put a hash that `leveret hash-password` makes into the file",
            )


def _in_store(broker: Broker) -> Iterator[Destination]:
    """Yield the queues and exchanges that were recovered from the store."""
    if broker.catalogue is not None:
        for host in broker.hosts():
            yield from host.queues.values()
            yield from (each for name, each in host.exchanges.items() if name not in THERE_ANYWAY)


def apply(definitions: Definitions, broker: Broker, stored: Set[Destination] = frozenset()) -> list[Problem]:
    """Put all definitions into the broker. Returns what it refused; the rest takes effect.

    Objects in `stored` stay as they are, even if the file gives them other properties.
    """
    return [problem for problem in steps(definitions, broker, stored) if problem is not None]


def steps(
    definitions: Definitions,
    broker: Broker,
    stored: Set[Destination] = frozenset(),
    user: str | None = None,
    is_trial: bool = False,
) -> Iterator[Problem | None]:
    """Apply definitions item by item; yield the problem of each, or None.

    Shovels and upstreams get the permissions of `user`; by default of the first administrator by name. In a trial none
    begins.
    """
    yield from _each("vhosts", definitions.vhosts, partial(_put_virtual_host, broker))
    yield from _each("users", definitions.users, partial(_put_user, broker))
    yield from _each("permissions", definitions.permissions, partial(_put_permission, broker))
    topics = definitions.topic_permissions
    yield from _each("topic_permissions", topics, partial(_put_topic_permission, broker))
    yield from _each("parameters", definitions.parameters, partial(_put_parameter, broker, user, is_trial))
    yield from _each("global_parameters", definitions.global_parameters, partial(_put_global, broker))
    yield from _each("policies", definitions.policies, partial(_put_policy, broker))
    if definitions.parameters or definitions.policies:
        for host in list(broker.hosts()):
            for _ in host.policy_steps():
                yield None
    yield from _each("exchanges", definitions.exchanges, partial(_put_exchange, broker, stored))
    yield from _each("queues", definitions.queues, partial(_put_queue, broker, stored))
    yield from _each("bindings", definitions.bindings, partial(_put_binding, broker))


def _each(section: str, items: Sequence[D], put: Callable[[D], None]) -> Iterator[Problem | None]:
    for index, item in enumerate(items):
        try:
            put(item)
        except Failure as failure:
            yield Problem(placed(of_record(section, item), f"{section}[{index}]"), str(failure))
        else:
            yield None


def _put_virtual_host(broker: Broker, host: VirtualHostDefinition) -> None:
    broker.require_room(host.name)
    put = broker.add_virtual_host(host.name)
    if host.about is not None:
        put.describe(host.about)
    if host.tracing is not None:
        put.set_tracing(host.tracing)
    if host.queue_type is not None:
        put.set_default_queue_type(host.queue_type)


def _put_user(broker: Broker, user: UserDefinition) -> None:
    """Add a user. Hashing a plain password takes 0.25 s, at a start only: over HTTP, passwords are hashed before."""
    kept = broker.access.hashing.kept(user.password) if user.password else user.kept_password()
    if kept is None and is_md5(user) and (before := broker.access.user(user.name)) is not None:
        kept = before.password  # better than a user that cannot log in any more
    broker.access.put_user(User(user.name, user.tags, kept, user.limits.of_user))


def _put_permission(broker: Broker, each: PermissionDefinition) -> None:
    broker.virtual_host(each.vhost)
    broker.access.set_permissions(each.user, each.vhost, each.configure, each.write, each.read)


def _put_topic_permission(broker: Broker, each: TopicPermissionDefinition) -> None:
    broker.virtual_host(each.vhost)
    broker.access.set_topic_permissions(each.user, each.vhost, each.exchange, each.write, each.read)


def _put_parameter(broker: Broker, user: str | None, is_trial: bool, parameter: ParameterDefinition) -> None:
    if parameter.component == VIRTUAL_HOST_LIMITS:
        limits = parameter.limits(Place([]))
        if limits is not REFUSED:
            broker.virtual_host(parameter.vhost).set_limits(limits.of_virtual_host)
    elif parameter.component == OPERATOR_POLICY:
        operator = parameter.operator_policy(Place([]))
        if operator is not REFUSED:
            broker.virtual_host(parameter.vhost)
            broker.policies.set_operator(operator.policy)
    elif parameter.component in COMPONENTS:
        if is_trial:
            broker.virtual_host(parameter.vhost)
        else:
            _connect(broker, user, parameter)


def _connect(broker: Broker, user: str | None, parameter: ParameterDefinition) -> None:
    """Set a parameter of shovels or federation."""
    from leveret.features.parameters.components import component_of  # not needed for files without any

    acts = administrator(broker) if user is None else user
    component = component_of(broker, parameter.component)
    component.set(parameter.vhost, parameter.name, parameter.json(), acts)


def administrator(broker: Broker) -> str:
    """Return the first administrator by name. Raises NotFound."""
    found = [user.name for user in broker.access.users() if "administrator" in user.tags]
    if not found:
        raise NotFound("there is no administrator with whose permissions it could act")
    return min(found)


def _put_global(broker: Broker, each: GlobalParameterDefinition) -> None:
    broker.parameters.set(each.name, each.value)


def _put_policy(broker: Broker, policy: PolicyDefinition) -> None:
    broker.virtual_host(policy.vhost)
    broker.policies.set(policy.policy)


@contextmanager
def _unless_stored(thing: Destination | None, stored: Set[Destination]) -> Iterator[None]:
    """Log a refused declaration instead of raising, if the object was recovered from the store."""
    try:
        yield
    except Failure as failure:
        if thing not in stored:
            raise
        log.warning("%s; it stays as it is in the store", failure)


def _put_exchange(broker: Broker, stored: Set[Destination], each: ExchangeDefinition) -> None:
    """Add an exchange, also one named `amq.*` of another broker; the default exchange is there."""
    if not each.name:
        return
    host = broker.virtual_host(each.vhost)
    if each.name not in host.exchanges:
        broker.compat.check_name("exchange", each.name)
    fields = each.name, each.type, each.durable, each.auto_delete, each.internal, each.arguments
    with _unless_stored(host.exchanges.get(each.name), stored):
        host.declare_exchange(*fields, reserved=True)


def _put_queue(broker: Broker, stored: Set[Destination], each: QueueDefinition) -> None:
    host = broker.virtual_host(each.vhost)
    if each.name not in host.queues:
        broker.compat.check_name("queue", each.name)
    with _unless_stored(host.queues.get(each.name), stored):
        host.declare_queue(
            each.name,
            durable=each.durable,
            auto_delete=each.auto_delete,
            arguments=each.all_arguments,
            generated=True,  # permits the name of a queue that was once named by a server
            selector=None if each.selector is None else compile_selector(each.selector),
        )


def _put_binding(broker: Broker, each: BindingDefinition) -> None:
    if not each.source:
        return
    host = broker.virtual_host(each.vhost)
    to_queue = each.destination_type == "queue"
    destination: Destination = host.queue(each.destination) if to_queue else host.exchange(each.destination)
    host.bind(host.exchange(each.source), destination, each.routing_key, each.arguments)
