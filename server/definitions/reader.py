"""Reads RabbitMQ's definitions files (JSON) into records: checks a whole file, and reports every problem at once.

Files come from many versions, so unknown keys are passed over, and so are parameters of components that we do not have
(MQTT); `warnings.py` tells of them. `importer.py` applies the records, and `exporter.py` writes files.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeGuard

import attrs

from leveret.catalogue import COMPONENTS
from leveret.config.config import ConfigError
from leveret.config.records import Record, RecordOf, key
from leveret.config.sections import NAME
from leveret.config.types import (
    FREE_TABLE,
    MANY,
    REFUSED,
    Flag,
    Kind,
    ListOf,
    Name,
    OneOf,
    Place,
    Problem,
    RefusedValue,
    RegularExpression,
    Secret,
    SingleValue,
    TableOf,
    Text,
    Whole,
    octets_of,
    printed,
)
from leveret.errors import Failure, PreconditionFailed
from leveret.limits import QueueType, UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy, check, check_operator
from leveret.queues.default_type import default_type
from leveret.security.passwords import ALGORITHMS, SHA256, PasswordHash
from leveret.selectors.parser import compile_selector
from leveret.server.definitions.labels import named
from leveret.values import Json, Table
from leveret.virtual_host import Description

MD5: Final = "rabbit_password_hashing_md5"  # which RabbitMQ means, too, where a file names no algorithm
OF_VIRTUAL_HOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
MD5_SIZE: Final = 20  # bytes of such a hash: a salt of 4, and the digest
ANY_NAME: Final = Name("a name of at most 255 characters", r"(?s).{0,255}")
OBJECT_NAME: Final = Name("a name of 1 to 255 characters", r"(?s).{1,255}")  # in the bytes that a client sent
ANY_TEXT: Final = Text("a text", r"(?s).*")


class Anything(Kind[object]):
    """Any value; for keys of other versions, which are not used."""

    accepted = "anything"

    def read(self, value: object, place: Place) -> object | RefusedValue:
        return value


class AnyJson(Kind[Json]):
    """Any JSON value, unchanged."""

    accepted = "anything"

    def read(self, value: object, place: Place) -> Json | RefusedValue:
        if value is None or isinstance(value, str | int | float | list | dict):
            return value
        return place.refuse(type(value).__name__, self.accepted)


class Tags(SingleValue[tuple[str, ...]]):
    accepted = "a list of tags, or tags with commas between them"

    def convert(self, value: object) -> tuple[str, ...]:
        tags = value.split(",") if isinstance(value, str) else value
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError
        for tag in tags:
            octets_of(tag)
        return tuple(tag.strip() for tag in tags if tag.strip())


class PolicySettings(Kind[Table]):
    """The settings of a policy. `rabbitmqctl export_definitions` writes operator policies' as a list of pairs."""

    accepted = "a table"

    def read(self, value: object, place: Place) -> Table | RefusedValue:
        return FREE_TABLE.read(dict(value) if is_pairs(value) else value, place)


class NotZero(SingleValue[int]):
    """A rate, which cannot be 0: nothing would ever be read again. Negative is no limit."""

    accepted = f"a whole number from 1 to {MANY}, or a negative one"

    def convert(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value and abs(value) <= MANY:
            return value
        raise ValueError


class ArgumentTable(Kind[Table]):
    """A table of arguments. Tools in languages whose empty table is an empty list write that."""

    accepted = "a table"

    def read(self, value: object, place: Place) -> Table | RefusedValue:
        return NO_ARGUMENTS if value == [] else FREE_TABLE.read(value, place)


def is_pairs(value: object) -> TypeGuard[list[tuple[str, object]]]:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in value
    )


class DefaultQueueType(Kind[QueueType | None]):
    """A type of queue, or what RabbitMQ writes for none."""

    accepted = "a type of queue: classic, quorum or stream"

    def read(self, value: object, place: Place) -> QueueType | RefusedValue | None:
        try:
            return default_type(value)
        except Failure:
            return place.refuse(printed(value), self.accepted)


IGNORED: Final[Mapping[str, object]] = {}
QUEUE_TYPE: Final = DefaultQueueType()
NO_ARGUMENTS: Final[Table] = {}
ARGUMENTS: Final = ArgumentTable()
COUNT: Final = Whole(-MANY, MANY)
RATE: Final = NotZero()
OTHERS: Final = TableOf(Anything(), "a table")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Tolerant(Record):
    """A record that ignores unknown keys."""

    others: Mapping[str, object] = key(OTHERS, "Ignored.", IGNORED, rest=True)


@attrs.frozen(kw_only=True)
class LimitsDefinition(Tolerant):
    """The limits of a virtual host or a user."""

    connections_max: int | None = key(COUNT, "Connections.", None, name="max-connections")
    queues_max: int | None = key(COUNT, "Queues of a virtual host.", None, name="max-queues")
    channels_max: int | None = key(COUNT, "Channels of a user.", None, name="max-channels")
    publish_rate: int | None = key(
        RATE, "Messages published in a second, on all connections.", None, name="max-publish-rate"
    )

    @property
    def of_virtual_host(self) -> VirtualHostLimits:
        return VirtualHostLimits(self.connections_max, self.queues_max, self.publish_rate)

    @property
    def of_user(self) -> UserLimits:
        return UserLimits(self.connections_max, self.channels_max, self.publish_rate)


@attrs.frozen(kw_only=True)
class UserDefinition(Tolerant):
    """A user, with a password or its hash."""

    name: str = key(NAME, "The name to log in with.")
    password: str | None = key(Secret(pattern=r"(?s).*"), "The password in plain text.", None)
    password_hash: str | None = key(Secret(pattern=r"(?s).*"), "Base64 of salt and digest.", None)
    hashing_algorithm: str = key(OneOf(*ALGORITHMS, MD5), "The algorithm of the digest.", SHA256)
    tags: tuple[str, ...] = key(Tags(), "The user's tags.", ())
    limits: LimitsDefinition = key(RecordOf(LimitsDefinition), "The user's limits.", LimitsDefinition())

    def contradictions(self) -> Iterator[Problem]:
        try:
            self.kept_password()
        except ValueError as error:
            yield Problem("password_hash", "another (hidden)", str(error))

    def kept_password(self) -> PasswordHash | None:
        """Return the hash; None if there is no login by password: RabbitMQ writes an empty hash, or it is an MD5."""
        if not self.password_hash or is_md5(self):
            return None
        return PasswordHash.parse(self.password_hash, self.hashing_algorithm)


def is_md5(user: UserDefinition) -> bool:
    """Return whether the password of a user is hashed with MD5."""
    if user.password or not user.password_hash:
        return False
    if user.hashing_algorithm == MD5:
        return True
    try:
        return len(base64.b64decode(user.password_hash, validate=True)) == MD5_SIZE
    except ValueError:
        return False


@attrs.frozen(kw_only=True)
class MetadataDefinition(Tolerant):
    """The metadata of a virtual host."""

    description: str | None = key(ANY_TEXT, "A description.", None)
    tags: tuple[str, ...] = key(Tags(), "Tags to find it by.", ())
    default_queue_type: QueueType | None = key(QUEUE_TYPE, "The type of queues that name none.", None)


@attrs.frozen(kw_only=True)
class VirtualHostDefinition(Tolerant):
    """A virtual host."""

    name: str = key(NAME, "The name that clients open.")
    description: str | None = key(ANY_TEXT, "A description.", None)
    tags: tuple[str, ...] = key(Tags(), "Tags to find it by.", ())
    tracing: bool | None = key(Flag(), "Whether its messages are copied to `amq.rabbitmq.trace`.", None)
    default_queue_type: QueueType | None = key(QUEUE_TYPE, "The type of queues that name none.", None)
    metadata: MetadataDefinition = key(
        RecordOf(MetadataDefinition), "The same, where new.", MetadataDefinition()
    )

    @property
    def queue_type(self) -> QueueType | None:
        """The default type of queues; what the metadata say goes before, since versions of RabbitMQ differ."""
        return self.metadata.default_queue_type or self.default_queue_type

    @property
    def about(self) -> Description | None:
        """The description and tags, which newer files have in the metadata, too; None if there are none."""
        value = self.metadata.description if self.description is None else self.description
        tags = self.tags or self.metadata.tags
        return None if value is None and not tags else Description(value or "", tags)


@attrs.frozen(kw_only=True)
class PermissionDefinition(Tolerant):
    """A user's permissions in a virtual host."""

    user: str = key(NAME, "The user.")
    vhost: str = key(NAME, "The virtual host.")
    configure: str = key(RegularExpression(), "Names that may be declared and deleted.")
    write: str = key(RegularExpression(), "Names that may be published to, and bound to an exchange.")
    read: str = key(RegularExpression(), "Names that may be consumed from, and that others may be bound to.")


@attrs.frozen(kw_only=True)
class TopicPermissionDefinition(Tolerant):
    """The routing keys that a user may use on a topic exchange."""

    user: str = key(NAME, "The user.")
    vhost: str = key(NAME, "The virtual host.")
    exchange: str = key(ANY_NAME, "The exchange.")
    write: str = key(RegularExpression(), "Routing keys that may be published with.")
    read: str = key(RegularExpression(), "Routing keys that may be bound with.")


def refusals(step: Callable[[], object], where: str) -> Iterator[Problem]:
    """Yield the problem if a step fails."""
    try:
        step()
    except Failure as failure:
        yield Problem(where, str(failure))


@attrs.frozen(kw_only=True)
class PolicyDefinition(Tolerant):
    """A policy; operator policies are parameters with the same keys in their value."""

    name: str = key(NAME, "The policy's name.")
    vhost: str = key(NAME, "The virtual host.")
    pattern: str = key(RegularExpression(), "The names it applies to.")
    apply_to: str = key(OneOf(*(each.value for each in ApplyTo)), "The kind.", "all", name="apply-to")
    priority: int = key(COUNT, "Of several that match, the highest holds.", 0)
    definition: Table = key(PolicySettings(), "The settings.")

    @property
    def policy(self) -> Policy:
        apply_to = ApplyTo(self.apply_to)
        return Policy(self.name, self.vhost, self.pattern, self.definition, self.priority, apply_to)

    def contradictions(self) -> Iterator[Problem]:
        yield from refusals(lambda: check(self.policy), "definition")


VIRTUAL_HOST_LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"


@attrs.frozen(kw_only=True)
class ParameterDefinition(Tolerant):
    """Settings of a component. Supported are limits of virtual hosts, operator policies, shovels, and federation."""

    component: str = key(NAME, "The component.")
    name: str = key(NAME, "Its name.")
    vhost: str = key(NAME, "The virtual host.")
    value: object = key(Anything(), "The settings; the component decides what is accepted.")

    def limits(self, place: Place) -> LimitsDefinition | RefusedValue:
        return RecordOf(LimitsDefinition).read(self.value, place)

    def operator_policy(self, place: Place) -> PolicyDefinition | RefusedValue:
        value = self.value if isinstance(self.value, Mapping) else {}
        return RecordOf(PolicyDefinition).read({**value, "name": self.name, "vhost": self.vhost}, place)

    def json(self) -> Json:
        """Return the value of a parameter of shovels or federation. Raises PreconditionFailed if it is no JSON."""
        value = AnyJson().read(self.value, Place([]))
        if value is REFUSED:
            raise PreconditionFailed("the value is no JSON")
        return value

    def _check_connection(self) -> None:
        from leveret.features.parameters.components import require_valid

        require_valid(self.component, self.json())

    def contradictions(self) -> Iterable[Problem]:
        place = Place([], "value")
        if self.component in COMPONENTS:
            yield from refusals(self._check_connection, "value")
        elif self.component == VIRTUAL_HOST_LIMITS:
            self.limits(place)
        elif self.component == OPERATOR_POLICY:
            operator = self.operator_policy(place)
            if operator is not REFUSED and not place.problems:
                policy = operator.policy
                yield from refusals(lambda: check_operator(policy), "value.definition")
        yield from place.problems


@attrs.frozen(kw_only=True)
class GlobalParameterDefinition(Tolerant):
    """A value that an operator's tool stores."""

    name: str = key(NAME, "Its name.")
    value: Json = key(AnyJson(), "Any JSON.", None)


@attrs.frozen(kw_only=True)
class QueueDefinition(Tolerant):
    """A queue."""

    name: str = key(OBJECT_NAME, "Its name.")
    vhost: str = key(NAME, "The virtual host.")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It is deleted with its last consumer.", False)
    type: str | None = key(Text(), "Its type, if the arguments do not say.", None)
    arguments: Table = key(ARGUMENTS, "Its arguments.", NO_ARGUMENTS)
    selector: str | None = key(Text(), "The condition for messages; others are not kept.", None)

    def contradictions(self) -> Iterator[Problem]:
        if self.selector is not None:
            yield from refusals(lambda: compile_selector(self.selector or ""), "selector")

    @property
    def all_arguments(self) -> Table:
        fields = {"x-queue-type": self.type} if self.type not in (None, "classic") else {}
        return {**fields, **self.arguments}


@attrs.frozen(kw_only=True)
class ExchangeDefinition(Tolerant):
    """An exchange; the default exchange, which some brokers write into their files, is there anyway."""

    name: str = key(ANY_NAME, "Its name.")
    vhost: str = key(NAME, "The virtual host.")
    type: str = key(NAME, "Its type.")
    durable: bool = key(Flag(), "It survives a restart.", True)
    auto_delete: bool = key(Flag(), "It is deleted with its last binding.", False)
    internal: bool = key(Flag(), "Clients cannot publish to it.", False)
    arguments: Table = key(ARGUMENTS, "Its arguments.", NO_ARGUMENTS)


@attrs.frozen(kw_only=True)
class BindingDefinition(Tolerant):
    """A binding; those of the default exchange are there anyway."""

    source: str = key(ANY_NAME, "The exchange.")
    vhost: str = key(NAME, "The virtual host.")
    destination: str = key(OBJECT_NAME, "The queue or exchange that is bound.")
    destination_type: str = key(OneOf("queue", "exchange"), "Its kind.", "queue")
    routing_key: str = key(ANY_NAME, "The binding key.", "")
    arguments: Table = key(ARGUMENTS, "Its arguments.", NO_ARGUMENTS)


@attrs.frozen(kw_only=True)
class Definitions(Tolerant):
    """The contents of a definitions file."""

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


def read(source: str | bytes) -> Definitions:
    """Return the definitions in the text of a file. Raises ConfigError with every problem."""
    try:
        content: object = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("definitions", f"a mistake: {error}", "JSON")]) from None
    return read_content(content)


def read_content(content: object) -> Definitions:
    """Return the definitions in parsed JSON. Raises ConfigError with every problem."""
    require_virtual_hosts(content)
    place = Place([])
    definitions = RecordOf(Definitions).read(content, place)
    if definitions is REFUSED or place.problems:
        raise ConfigError(list(named(place.problems, content)))
    return definitions


def require_virtual_hosts(content: object) -> None:
    """Raise ConfigError if these are the definitions of one virtual host, whose items name none."""
    if not isinstance(content, Mapping) or "vhosts" in content:
        return
    lists = [content.get(section) for section in OF_VIRTUAL_HOST]
    items = [item for each in lists if isinstance(each, list) for item in each if isinstance(item, Mapping)]
    if items and all("vhost" not in item and ("name" in item or "source" in item) for item in items):
        raise ConfigError(
            [
                Problem(
                    "",
                    "this is the file of one virtual host, whose objects name none: say which one they are for, with"
                    " `leveret import FILE --vhost NAME` or POST /api/definitions/NAME",
                )
            ]
        )


def read_file(path: Path) -> Definitions:
    """Return the definitions in a file. Raises ConfigError, whose problems name the file."""
    try:
        return read(path.read_bytes())
    except OSError as error:
        found = (error.strerror or "an error").lower()
        raise ConfigError([Problem(str(path), found, "a file that can be read")]) from None
    except ConfigError as error:
        raise ConfigError(in_file(path, error.problems)) from None


def read_files(paths: Iterable[Path]) -> list[Definitions]:
    """Return the definitions of each file. Raises ConfigError with every problem of every file."""
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
