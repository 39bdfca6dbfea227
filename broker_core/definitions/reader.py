"""RabbitMQ's definitions files (JSON) to records: a whole file is checked, and every problem told at once.

Files come from many versions, so keys that we do not know are passed over; parameters of components that we do not
have (federation, shovels) and default queue types are passed over too, and named. What is done with the records is in
`applying.py`, how a file is written in `exporting.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeGuard

import attrs

from broker_core.config.load import ConfigError
from broker_core.config.records import Record, RecordOf, key
from broker_core.config.sections import MANY, NAME
from broker_core.config.types import (
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
from broker_core.errors import Failure
from broker_core.limits import UserLimits, VirtualHostLimits
from broker_core.policy import ApplyTo, Policies, Policy
from broker_core.security.passwords import ALGORITHMS, SHA256, PasswordHash
from broker_core.selectors.parser import compile_selector
from broker_core.values import Json, Table

ANY_NAME: Final = Text("a name of at most 255 characters", r"(?s).{0,255}")
ANY_TEXT: Final = Text("a text", r"(?s).*")


class Anything(Kind[object]):
    """Keys of other versions, which nobody reads."""

    accepted = "anything"

    def read(self, value: object, place: Place) -> object | Refused:
        return value


class AnyJson(Kind[Json]):
    """What JSON has, as it is."""

    accepted = "anything"

    def read(self, value: object, place: Place) -> Json | Refused:
        if value is None or isinstance(value, str | int | float | list | dict):
            return value
        return place.refuse(type(value).__name__, self.accepted)


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


@attrs.frozen(kw_only=True)
class LimitsDefinition(Tolerant):
    """How much a virtual host or a user may hold."""

    connections_max: int | None = key(COUNT, "Connections.", None, name="max-connections")
    queues_max: int | None = key(COUNT, "Queues of a virtual host.", None, name="max-queues")
    channels_max: int | None = key(COUNT, "Channels of a user.", None, name="max-channels")

    @property
    def of_virtual_host(self) -> VirtualHostLimits:
        return VirtualHostLimits(self.connections_max, self.queues_max)

    @property
    def of_user(self) -> UserLimits:
        return UserLimits(self.connections_max, self.channels_max)


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
    description: str | None = key(ANY_TEXT, "What people say of it.", None)
    tags: tuple[str, ...] = key(Tags(), "Words to find it by.", ())
    tracing: bool | None = key(Flag(), "Whether its messages are copied to `amq.rabbitmq.trace`.", None)
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


def refusals(step: Callable[[], object], where: str) -> Iterator[Problem]:
    """What stands in the way of a step."""
    try:
        step()
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
        yield from refusals(lambda: Policies().set(self.policy), "definition")


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
                policy = operator.policy
                yield from refusals(lambda: Policies().set_operator(policy), "value.definition")
        yield from place.problems


@attrs.frozen(kw_only=True)
class GlobalParameterDefinition(Tolerant):
    """Something that an operator's tool wants to remember."""

    name: str = key(NAME, "Its name.")
    value: Json = key(AnyJson(), "What it says.", None)


@attrs.frozen(kw_only=True)
class QueueDefinition(Tolerant):
    """A queue."""

    name: str = key(NAME, "Its name.")
    vhost: str = key(NAME, "Where it is.")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It goes with its last consumer.", False)
    type: str | None = key(Text(), "Its type, where the arguments do not say.", None)
    arguments: Table = key(FREE_TABLE, "Its arguments.", NO_ARGUMENTS)
    selector: str | None = key(Text(), "What its messages say; others are not kept.", None)

    def contradictions(self) -> Iterator[Problem]:
        if self.selector is not None:
            yield from refusals(lambda: compile_selector(self.selector or ""), "selector")

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
    global_parameters: tuple[GlobalParameterDefinition, ...] = key(
        ListOf(RecordOf(GlobalParameterDefinition)), "Global parameters.", ()
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
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("definitions", f"a mistake: {error}", "JSON")]) from None
    return read_content(content)


def read_content(content: object) -> Definitions:
    """As `read`, from the parsed JSON."""
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
        raise ConfigError(in_file(path, error.problems)) from None


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


def in_file(path: Path, problems: Iterable[Problem]) -> list[Problem]:
    return [attrs.evolve(each, where=f"{path}: {each.where}".removesuffix(": ")) for each in problems]
