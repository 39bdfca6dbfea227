"""RabbitMQ's definitions files (JSON) to records, and records to what a broker holds.

`read` checks a whole file and tells every problem at once. `apply` then puts virtual hosts, users, permissions, limits
and policies in place before queues, exchanges and bindings, goes on past what the broker refuses, and returns that.
What is there already stays; what is there with other properties is a problem. Only at a start it is none: the queue
that a file declares otherwise than last time may hold messages, so it stays as it is in the store, and that is logged.

Files come from many versions, so keys that we do not know are passed over; parameters of components that we do not
have (federation, shovels) and default queue types are passed over too, and named.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeGuard, TypeVar

import attrs

from broker_core.access import User
from broker_core.broker import Broker
from broker_core.config import ConfigError
from broker_core.config_sections import MANY, NAME
from broker_core.errors import Failure
from broker_core.exchange import Destination
from broker_core.kinds import (
    FREE_TABLE,
    REFUSED,
    Expression,
    Flag,
    Kind,
    ListOf,
    OneOf,
    Place,
    Plain,
    Problem,
    Refused,
    Secret,
    TableOf,
    Text,
    Whole,
)
from broker_core.limits import UserLimits, VirtualHostLimits
from broker_core.passwords import ALGORITHMS, SHA256, PasswordHash
from broker_core.policy import ApplyTo, Policies, Policy
from broker_core.settings import Record, RecordOf, key
from broker_core.topology import PREDECLARED
from broker_core.values import Table

log: Final = logging.getLogger("leveret.definitions")

D = TypeVar("D")
THERE_ANYWAY: Final = frozenset({"", *(name for name, _, _ in PREDECLARED)})

ANY_NAME: Final = Text("a name of at most 255 characters", r"(?s).{0,255}")


class Anything(Kind[object]):
    """Keys of other versions, which nobody reads."""

    accepted = "anything"

    def read(self, value: object, place: Place) -> object | Refused:
        return value


class Tags(Plain[tuple[str, ...]]):
    accepted = "a list of tags, or tags with commas between them"

    def convert(self, value: object) -> tuple[str, ...]:
        tags = value.split(",") if isinstance(value, str) else value
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError
        return tuple(tag.strip() for tag in tags if tag.strip())


class PolicySettings(Kind[Table]):
    """What a policy sets. `rabbitmqctl export_definitions` writes that of operator policies as a list of pairs."""

    accepted = "a table"

    def read(self, value: object, place: Place) -> Table | Refused:
        return FREE_TABLE.read(dict(value) if is_pairs(value) else value, place)


def is_pairs(value: object) -> TypeGuard[list[tuple[str, object]]]:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in value
    )


IGNORED: Final[Mapping[str, object]] = {}
NO_ARGUMENTS: Final[Table] = {}
COUNT: Final = Whole(-MANY, MANY)
OTHERS: Final = TableOf(Anything(), "a table")


@attrs.frozen(kw_only=True)
class Tolerant(Record):
    """A record that passes over the keys it does not know."""

    others: Mapping[str, object] = key(OTHERS, "Passed over.", IGNORED, rest=True)


def limit(count: int | None) -> int | None:
    """A limit as RabbitMQ writes it: a negative one is none."""
    return None if count is None or count < 0 else count


@attrs.frozen(kw_only=True)
class LimitsDefinition(Tolerant):
    """How much a virtual host or a user may hold."""

    connections_max: int | None = key(COUNT, "Connections.", None, name="max-connections")
    queues_max: int | None = key(COUNT, "Queues of a virtual host.", None, name="max-queues")
    channels_max: int | None = key(COUNT, "Channels of a user.", None, name="max-channels")

    @property
    def of_virtual_host(self) -> VirtualHostLimits:
        return VirtualHostLimits(limit(self.connections_max), limit(self.queues_max))

    @property
    def of_user(self) -> UserLimits:
        return UserLimits(limit(self.connections_max), limit(self.channels_max))


@attrs.frozen(kw_only=True)
class UserDefinition(Tolerant):
    """A user, with a password or its hash."""

    name: str = key(NAME, "The name to log in with.")
    password: str | None = key(Secret(pattern=r"(?s).*"), "The password, as it is.", None)
    password_hash: str | None = key(Secret(pattern=r"(?s).*"), "Base64 of salt and digest.", None)
    hashing_algorithm: str = key(OneOf(*ALGORITHMS), "What made the digest.", SHA256)
    tags: tuple[str, ...] = key(Tags(), "What the user may do besides.", ())
    limits: LimitsDefinition = key(RecordOf(LimitsDefinition), "How much of it.", LimitsDefinition())

    def contradictions(self) -> Iterator[Problem]:
        try:
            self.kept_password()
        except ValueError as error:
            yield Problem("password_hash", "another (hidden)", str(error))

    def kept_password(self) -> PasswordHash | None:
        """None: no login by password; RabbitMQ writes an empty hash for that."""
        return PasswordHash.parse(self.password_hash, self.hashing_algorithm) if self.password_hash else None


@attrs.frozen(kw_only=True)
class VirtualHostDefinition(Tolerant):
    """A virtual host."""

    name: str = key(NAME, "The name that clients open.")
    default_queue_type: str | None = key(Text(), "The type of queues that name none; passed over.", None)


@attrs.frozen(kw_only=True)
class PermissionDefinition(Tolerant):
    """What a user may do in a virtual host."""

    user: str = key(NAME, "Who.")
    vhost: str = key(NAME, "Where.")
    configure: str = key(Expression(), "Names of what may be declared and deleted.")
    write: str = key(Expression(), "Names of what may be published to and bound.")
    read: str = key(Expression(), "Names of what may be consumed from and bound to.")


@attrs.frozen(kw_only=True)
class TopicPermissionDefinition(Tolerant):
    """Which routing keys a user may use on a topic exchange."""

    user: str = key(NAME, "Who.")
    vhost: str = key(NAME, "Where.")
    exchange: str = key(ANY_NAME, "On which exchange.")
    write: str = key(Expression(), "Routing keys that may be published with.")
    read: str = key(Expression(), "Routing keys that may be bound with.")


def faults(put: Callable[[Policy], None], policy: Policy, where: str) -> Iterator[Problem]:
    """What stands in the way of a policy."""
    try:
        put(policy)
    except Failure as failure:
        yield Problem(where, str(failure))


@attrs.frozen(kw_only=True)
class PolicyDefinition(Tolerant):
    """A policy; operator policies are parameters with the same keys in their value."""

    name: str = key(NAME, "The policy's name.")
    vhost: str = key(NAME, "Where it applies.")
    pattern: str = key(Expression(), "The names it applies to.")
    apply_to: str = key(OneOf(*(each.value for each in ApplyTo)), "To what.", "all", name="apply-to")
    priority: int = key(COUNT, "Of several that match the highest holds.", 0)
    definition: Table = key(PolicySettings(), "What it sets.")

    @property
    def policy(self) -> Policy:
        apply_to = ApplyTo(self.apply_to)
        return Policy(self.name, self.vhost, self.pattern, self.definition, self.priority, apply_to)

    def contradictions(self) -> Iterator[Problem]:
        yield from faults(Policies().set, self.policy, "definition")


VIRTUAL_HOST_LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"


@attrs.frozen(kw_only=True)
class ParameterDefinition(Tolerant):
    """Settings of a component. We have two: limits of virtual hosts, and operator policies."""

    component: str = key(NAME, "Whose it is.")
    name: str = key(NAME, "Its name.")
    vhost: str = key(NAME, "Where it holds.")
    value: object = key(Anything(), "What it says; the component decides what may stand here.")

    def limits(self, place: Place) -> LimitsDefinition | Refused:
        return RecordOf(LimitsDefinition).read(self.value, place)

    def operator_policy(self, place: Place) -> PolicyDefinition | Refused:
        said = self.value if isinstance(self.value, Mapping) else {}
        return RecordOf(PolicyDefinition).read({**said, "name": self.name, "vhost": self.vhost}, place)

    def contradictions(self) -> Iterable[Problem]:
        place = Place([], "value")
        if self.component == VIRTUAL_HOST_LIMITS:
            self.limits(place)
        elif self.component == OPERATOR_POLICY:
            operator = self.operator_policy(place)
            if operator is not REFUSED and not place.problems:
                yield from faults(Policies().set_operator, operator.policy, "value.definition")
        yield from place.problems


@attrs.frozen(kw_only=True)
class QueueDefinition(Tolerant):
    """A queue."""

    name: str = key(NAME, "Its name.")
    vhost: str = key(NAME, "Where it is.")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It goes with its last consumer.", False)
    type: str | None = key(Text(), "Its type, where the arguments do not say.", None)
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)

    @property
    def all_arguments(self) -> Table:
        said = {"x-queue-type": self.type} if self.type not in (None, "classic") else {}
        return {**said, **self.arguments}


@attrs.frozen(kw_only=True)
class ExchangeDefinition(Tolerant):
    """An exchange."""

    name: str = key(NAME, "Its name.")
    vhost: str = key(NAME, "Where it is.")
    type: str = key(NAME, "How it routes.")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It goes with its last binding.", False)
    internal: bool = key(Flag(), "Clients cannot publish to it.", False)
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)


@attrs.frozen(kw_only=True)
class BindingDefinition(Tolerant):
    """A binding."""

    source: str = key(NAME, "The exchange.")
    vhost: str = key(NAME, "Where it is.")
    destination: str = key(NAME, "The queue or exchange it leads to.")
    destination_type: str = key(OneOf("queue", "exchange"), "Which of them.", "queue")
    routing_key: str = key(ANY_NAME, "The binding key.", "")
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)


@attrs.frozen(kw_only=True)
class Definitions(Tolerant):
    """A whole file."""

    vhosts: tuple[VirtualHostDefinition, ...] = key(
        ListOf(RecordOf(VirtualHostDefinition)), "Virtual hosts.", ()
    )
    users: tuple[UserDefinition, ...] = key(ListOf(RecordOf(UserDefinition)), "Users.", ())
    permissions: tuple[PermissionDefinition, ...] = key(
        ListOf(RecordOf(PermissionDefinition)), "Permissions.", ()
    )
    topic_permissions: tuple[TopicPermissionDefinition, ...] = key(
        ListOf(RecordOf(TopicPermissionDefinition)), "Permissions on routing keys.", ()
    )
    parameters: tuple[ParameterDefinition, ...] = key(
        ListOf(RecordOf(ParameterDefinition)), "Parameters.", ()
    )
    policies: tuple[PolicyDefinition, ...] = key(ListOf(RecordOf(PolicyDefinition)), "Policies.", ())
    queues: tuple[QueueDefinition, ...] = key(ListOf(RecordOf(QueueDefinition)), "Queues.", ())
    exchanges: tuple[ExchangeDefinition, ...] = key(ListOf(RecordOf(ExchangeDefinition)), "Exchanges.", ())
    bindings: tuple[BindingDefinition, ...] = key(ListOf(RecordOf(BindingDefinition)), "Bindings.", ())

    @property
    def passed_over(self) -> list[str]:
        """What means something in RabbitMQ and nothing here."""
        components = {p.component for p in self.parameters} - {VIRTUAL_HOST_LIMITS, OPERATOR_POLICY}
        return [f"the parameters of '{component}'" for component in sorted(components)] + [
            f"the default queue type '{host.default_queue_type}' of virtual host '{host.name}'"
            for host in self.vhosts
            if host.default_queue_type not in (None, "undefined", "classic")
        ]


# Reading.


def read(source: str | bytes) -> Definitions:
    """The definitions in the text of a file. Raises `ConfigError`."""
    try:
        content: object = json.loads(source)
    except ValueError as error:
        raise ConfigError([Problem("definitions", f"a mistake: {error}", "JSON")]) from None
    place = Place([])
    definitions = RecordOf(Definitions).read(content, place)
    if definitions is REFUSED or place.problems:
        raise ConfigError(place.problems)
    return definitions


def read_file(path: Path) -> Definitions:
    """As `read`; the problems name the file."""
    try:
        return read(path.read_bytes())
    except OSError as error:
        found = (error.strerror or "an error").lower()
        raise ConfigError([Problem(str(path), found, "a file that can be read")]) from None
    except ConfigError as error:
        raise ConfigError(_in_file(path, error.problems)) from None


def read_files(paths: Iterable[Path]) -> list[Definitions]:
    """Raises `ConfigError` with every problem of every file."""
    problems: list[Problem] = []
    definitions: list[Definitions] = []
    for path in paths:
        try:
            definitions.append(read_file(path))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return definitions


def load_files(broker: Broker, paths: Sequence[Path]) -> None:
    """Read all the files, then apply them in order. Raises `ConfigError` with everything that went wrong."""
    problems: list[Problem] = []
    stored = set(_in_store(broker))
    for path, definitions in zip(paths, read_files(paths), strict=True):
        problems += _in_file(path, apply(definitions, broker, stored))
        for what in definitions.passed_over:
            log.warning("%s: passed over: %s", path, what)
    if problems:
        raise ConfigError(problems)


def _in_file(path: Path, problems: Iterable[Problem]) -> list[Problem]:
    return [attrs.evolve(each, where=f"{path}: {each.where}".removesuffix(": ")) for each in problems]


# Applying.


def _in_store(broker: Broker) -> Iterator[Destination]:
    """What has come back from the store."""
    if broker.catalogue is not None:
        for host in broker.hosts():
            yield from host.queues.values()
            yield from (each for name, each in host.exchanges.items() if name not in THERE_ANYWAY)


def apply(definitions: Definitions, broker: Broker, stored: Set[Destination] = frozenset()) -> list[Problem]:
    """Put everything into the broker. Returns what it refused; the rest is in place.

    What is in `stored` stays as it is, also if it should have other properties.
    """
    problems: list[Problem] = []
    _apply_each("vhosts", definitions.vhosts, partial(_put_virtual_host, broker), problems)
    _apply_each("users", definitions.users, partial(_put_user, broker), problems)
    _apply_each("permissions", definitions.permissions, partial(_put_permission, broker), problems)
    topics = definitions.topic_permissions
    _apply_each("topic_permissions", topics, partial(_put_topic_permission, broker), problems)
    _apply_each("parameters", definitions.parameters, partial(_put_parameter, broker), problems)
    _apply_each("policies", definitions.policies, partial(_put_policy, broker), problems)
    for host in broker.hosts():
        host.apply_policies()
    _apply_each("exchanges", definitions.exchanges, partial(_put_exchange, broker, stored), problems)
    _apply_each("queues", definitions.queues, partial(_put_queue, broker, stored), problems)
    _apply_each("bindings", definitions.bindings, partial(_put_binding, broker), problems)
    return problems


def _apply_each(section: str, items: Sequence[D], put: Callable[[D], None], problems: list[Problem]) -> None:
    for index, item in enumerate(items):
        try:
            put(item)
        except Failure as failure:
            problems.append(Problem(f"{section}[{index}]", str(failure)))


def _put_virtual_host(broker: Broker, host: VirtualHostDefinition) -> None:
    broker.add_virtual_host(host.name)


def _put_user(broker: Broker, user: UserDefinition) -> None:
    if user.password:
        broker.access.add_user(user.name, user.password, user.tags, user.limits.of_user)
        return
    kept = user.kept_password()
    broker.access.put_user(User(user.name, frozenset(user.tags), kept, user.limits.of_user))


def _put_permission(broker: Broker, each: PermissionDefinition) -> None:
    broker.virtual_host(each.vhost)
    broker.access.set_permissions(each.user, each.vhost, each.configure, each.write, each.read)


def _put_topic_permission(broker: Broker, each: TopicPermissionDefinition) -> None:
    broker.virtual_host(each.vhost)
    broker.access.set_topic_permissions(each.user, each.vhost, each.exchange, each.write, each.read)


def _put_parameter(broker: Broker, parameter: ParameterDefinition) -> None:
    if parameter.component == VIRTUAL_HOST_LIMITS:
        limits = parameter.limits(Place([]))
        if limits is not REFUSED:
            broker.virtual_host(parameter.vhost).set_limits(limits.of_virtual_host)
    elif parameter.component == OPERATOR_POLICY:
        operator = parameter.operator_policy(Place([]))
        if operator is not REFUSED:
            broker.virtual_host(parameter.vhost)
            broker.policies.set_operator(operator.policy)


def _put_policy(broker: Broker, policy: PolicyDefinition) -> None:
    broker.virtual_host(policy.vhost)
    broker.policies.set(policy.policy)


@contextmanager
def _unless_stored(thing: Destination | None, stored: Set[Destination]) -> Iterator[None]:
    """Whether it can be declared so is a question for what is not there yet."""
    try:
        yield
    except Failure as failure:
        if thing not in stored:
            raise
        log.warning("%s; it stays as it is in the store", failure)


def _put_exchange(broker: Broker, stored: Set[Destination], each: ExchangeDefinition) -> None:
    host = broker.virtual_host(each.vhost)
    said = each.name, each.type, each.durable, each.auto_delete, each.internal, each.arguments
    with _unless_stored(host.exchanges.get(each.name), stored):
        host.declare_exchange(*said)


def _put_queue(broker: Broker, stored: Set[Destination], each: QueueDefinition) -> None:
    host = broker.virtual_host(each.vhost)
    with _unless_stored(host.queues.get(each.name), stored):
        host.declare_queue(
            each.name,
            durable=each.durable,
            auto_delete=each.auto_delete,
            arguments=each.all_arguments,
            generated=True,  # a queue that was once named by a server keeps its name
        )


def _put_binding(broker: Broker, each: BindingDefinition) -> None:
    host = broker.virtual_host(each.vhost)
    to_queue = each.destination_type == "queue"
    destination: Destination = host.queue(each.destination) if to_queue else host.exchange(each.destination)
    host.bind(host.exchange(each.source), destination, each.routing_key, each.arguments)
