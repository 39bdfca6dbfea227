"""The sections of the configuration: a frozen record for each table, with kinds, defaults and a sentence per key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

from broker_core.config.compat import PROFILES, ROWS, Compat, compat
from broker_core.config.records import Record, RecordOf, key
from broker_core.config.types import (
    FREE_TABLE,
    GIB,
    KIB,
    MIB,
    AnyValue,
    Expression,
    FilePath,
    Flag,
    Limit,
    ListOf,
    Octets,
    OneOf,
    Place,
    Plain,
    Problem,
    Secret,
    TableOf,
    Text,
    Whole,
    printed,
)
from broker_core.errors import PreconditionFailed
from broker_core.policy import ApplyTo, Policies, Policy
from broker_core.security import passwords
from broker_core.security.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN
from broker_core.values import Table

NO_ROWS: Final[Table] = {}
MANY: Final = (1 << 31) - 1

NAME: Final = Text("a name of 1 to 255 characters", r"(?s).{1,255}")
NAMES: Final = ListOf(Text())


@attrs.frozen(kw_only=True)
class NodeSettings(Record):
    """The node as a whole."""

    name: str = key(NAME, "What the node calls itself in logs and to clients.", "leveret")
    data_dir: Path | None = key(
        FilePath(),
        "The folder for durable data, for one node at a time; it is made if need be. Without one everything is in "
        "memory only. Its disk is watched for the disk alarm.",
        None,
    )


@attrs.frozen(kw_only=True)
class LogSettings(Record):
    """What is written to standard error."""

    level: str = key(
        OneOf("debug", "info", "warning", "error"), "The least important events to log.", "info", reload=True
    )
    format: str = key(OneOf("text", "json"), "Lines for people, or one JSON object a line.", "text")
    audit: str = key(
        Text("an empty string, `log`, or the absolute path of a file", r"|log|/.+"),
        "Where it is told who did what: `log` for where the rest is, or a file, which a reload opens again; "
        "empty for nowhere.",
        "",
        reload=True,
    )


@attrs.frozen(kw_only=True)
class EventsSettings(Record):
    """What happens in the broker, as messages. It costs nothing as long as nothing is bound to the exchange."""

    virtual_host: str = key(
        Text("the name of a virtual host, or an empty string for none", r"(?s).{0,255}"),
        "Where the exchange `amq.rabbitmq.event` is.",
        "/",
    )


@attrs.frozen(kw_only=True)
class LimitsSettings(Record):
    """What one node, virtual host, connection or message may use up."""

    connections_max: int | None = key(Limit(0, MANY), "Connections to the node.", None, reload=True)
    queues_max: int | None = key(
        Limit(0, MANY), "Queues in a virtual host that sets no limit of its own.", None, reload=True
    )
    exchanges_max: int | None = key(
        Limit(0, MANY), "Exchanges on the node, over all virtual hosts.", None, reload=True
    )
    consumers_per_channel_max: int | None = key(
        Limit(0, MANY), "Consumers on one channel, session or its like.", None, reload=True
    )
    channels_max: int | None = key(
        Limit(0, MANY), "Channels, sessions and their like, on all connections.", None, reload=True
    )
    virtual_hosts_max: int | None = key(Limit(0, MANY), "Virtual hosts of the node.", None, reload=True)
    handshake_timeout_s: int = key(
        Whole(1, 3600), "Seconds for a peer to log in, from the moment it has connected.", 10, reload=True
    )
    connection_rate: int | None = key(
        Limit(1, MANY), "Connections in a second, in all; others are hung up on.", None, reload=True
    )
    connection_rate_per_address: int | None = key(
        Limit(1, MANY), "Connections in a second from one address elsewhere.", 1000, reload=True
    )
    strangers_max: int | None = key(
        Limit(1, MANY),
        "Connections whose users have not logged in; with one more, the oldest of them ends.",
        4096,
        reload=True,
    )
    strangers_per_address_max: int | None = key(
        Limit(1, MANY), "Those from one address elsewhere; others are hung up on.", 1024, reload=True
    )
    login_failures_per_address: int | None = key(
        Limit(1, MANY),
        "Failed logins from one address elsewhere, after which it has to wait between tries, up to half a minute.",
        20,
        reload=True,
    )
    login_failures_per_user: int | None = key(
        Limit(1, MANY),
        "Failed logins of one name, after which it has to wait, too, but not where its user is known from.",
        20,
        reload=True,
    )
    message_size_max: int = key(Octets(0, 512 * MIB), "The largest message body.", 16 * MIB, reload=True)
    outbox_size_max: int = key(
        Octets(4 * KIB, GIB),
        "What may wait to be sent to one client before its consumers are passed over.",
        MIB,
        reload=True,
    )
    consumer_timeout_ms: int | None = key(
        Limit(1000, MANY),
        "Milliseconds that a consumer may keep a delivery unsettled.",
        30 * 60 * 1000,
        reload=True,
    )


class Portion(Plain[int | float]):
    """A fraction of something that is limited (float), or octets (int)."""

    octets = Octets(64 * KIB, 1 << 50)

    def __init__(self, of: str, most: float) -> None:
        self.most = most
        self.accepted = f'a fraction of {of} from 0.0 to {most}, 0 for none, or octets such as "512MiB"'

    def convert(self, value: object) -> int | float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= self.most:
            return float(value)
        return self.octets.convert(value)


@attrs.frozen(kw_only=True)
class MemorySettings(Record):
    """When publishers have to wait for memory, and messages are on disk only."""

    watermark: int | float | None = key(
        Portion("the memory", 64.0),
        "Above it the memory alarm is raised, 0: never; without it `compat.memory_watermark` holds (0.4).",
        None,
        reload=True,
    )

    messages_max: int | float = key(
        Portion("the watermark", 1.0),
        "What waiting messages may take of it; with a data folder, those beyond are on disk only until their turn "
        "comes. 0: no limit; a fraction is none, either, if there is no alarm.",
        0.4,
        reload=True,
    )


@attrs.frozen(kw_only=True)
class DiskSettings(Record):
    """When publishers have to wait for disk space."""

    free_limit: int = key(
        Octets(0, 1 << 50),
        "With less free space in the data folder the disk alarm is raised; 0 switches it off.",
        50_000_000,
        reload=True,
    )


@attrs.frozen(kw_only=True)
class FlowSettings(Record):
    """How publishers are held back during an alarm."""

    mechanism: str | None = key(
        OneOf("block", "channel-flow"),
        "`block` stops reading from connections that publish; `channel-flow` asks their channels to pause. "
        "Without it `compat.flow_mechanism` holds (block).",
        None,
        reload=True,
    )


@attrs.frozen(kw_only=True)
class PluginsSettings(Record):
    """Exchange types, protocols and mechanisms from elsewhere."""

    folders: tuple[Path, ...] = key(
        ListOf(FilePath()), "Folders whose *.py files are loaded as plug-ins.", (), reload=True
    )
    watch: bool = key(Flag(), "Reload a plug-in when its file changes.", False, reload=True)
    disabled: tuple[str, ...] = key(NAMES, "Names of plug-ins that are not loaded.", (), reload=True)


@attrs.frozen(kw_only=True)
class PermissionEntry(Record):
    """What a user may do in a virtual host: one regular expression on the names for each kind of operation."""

    configure: str = key(Expression(), "Names of what may be declared and deleted.", "^$")
    write: str = key(Expression(), "Names of what may be published to and bound.", "^$")
    read: str = key(Expression(), "Names of what may be consumed from and bound to.", "^$")


@attrs.frozen(kw_only=True)
class TopicPermissionEntry(Record):
    """What a user may do on a topic exchange: one regular expression on the routing keys for each direction."""

    write: str = key(Expression(), "Routing keys that may be published with.", ".*")
    read: str = key(Expression(), "Routing keys that may be bound with.", ".*")


class PasswordHash(Plain[str]):
    """An argon2id string, or base64 of a 4-octet salt and the SHA-256 or SHA-512 of salt and password (RabbitMQ)."""

    secret = True
    accepted = "what `leveret hash-password` prints, or a hash of RabbitMQ's (base64 of salt and digest)"

    def convert(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        passwords.PasswordHash.parse(value, None)
        return value


PERMISSIONS: Final = TableOf(RecordOf(PermissionEntry), "a table with a permission for each virtual host")
TOPIC_PERMISSIONS: Final = TableOf(
    TableOf(RecordOf(TopicPermissionEntry), "a table with a permission for each exchange"),
    "a table for each virtual host",
)
NO_PERMISSIONS: Final[Mapping[str, PermissionEntry]] = {}
NO_TOPIC_PERMISSIONS: Final[Mapping[str, Mapping[str, TopicPermissionEntry]]] = {}


@attrs.frozen(kw_only=True)
class UserEntry(Record):
    """A user. Without any, there is `guest` with password `guest`, an administrator who may do everything in `/`.

    At most one of the four password keys is given; a user without any cannot log in with a password.
    """

    name: str = key(NAME, "The name to log in with.")
    password: str | None = key(Secret(), "The password, as it is.", None)
    password_hash: str | None = key(
        PasswordHash(), "The password's hash: `leveret hash-password` makes one.", None
    )
    password_env: str | None = key(Text(), "The environment variable with the password.", None)
    password_file: Path | None = key(
        FilePath(), "The file with the password; its last line end is dropped.", None
    )
    tags: tuple[str, ...] = key(
        NAMES, "`administrator`, `monitoring`, `policymaker`, `management`; none for plain clients.", ()
    )
    permissions: Mapping[str, PermissionEntry] = key(
        PERMISSIONS, "Virtual host -> what the user may do there; others cannot be opened.", NO_PERMISSIONS
    )
    topic_permissions: Mapping[str, Mapping[str, TopicPermissionEntry]] = key(
        TOPIC_PERMISSIONS,
        "Virtual host -> topic exchange -> routing keys; others are free.",
        NO_TOPIC_PERMISSIONS,
    )
    connections_max: int | None = key(Limit(0, MANY), "Connections of this user.", None)
    channels_max: int | None = key(Limit(0, MANY), "Channels on all connections of this user.", None)

    def contradictions(self) -> Iterator[Problem]:
        given = [name for name in PASSWORD_KEYS if getattr(self, name) is not None]
        for name in given[1:]:
            yield Problem(name, f"{given[0]} as well", "one of " + ", ".join(PASSWORD_KEYS))


PASSWORD_KEYS: Final = ("password", "password_hash", "password_env", "password_file")
EVERYTHING: Final = PermissionEntry(configure=".*", write=".*", read=".*")
GUEST: Final = UserEntry(
    name="guest", password="guest", tags=("administrator",), permissions={"/": EVERYTHING}
)


@attrs.frozen(kw_only=True)
class SecuritySettings(Record):
    """Who may come in, and from where."""

    loopback_users: tuple[str, ...] = key(
        NAMES, "Users who can log in from this machine only.", ("guest",), reload=True
    )
    anonymous_user: str | None = key(
        Text("the name of a user, or an empty string for nobody", r"(?s).*"),
        "The user that ANONYMOUS logs in as; without it `guest` as long as no users are configured, then nobody.",
        None,
        reload=True,
    )
    password_hashing: str = key(
        OneOf("argon2id", "rabbitmq"),
        "How passwords are kept that clients and definitions files bring; `rabbitmq` is for definitions that are to be "
        "taken back there. Hashes that are there stay as they are.",
        "argon2id",
        reload=True,
    )
    scram_iterations: int = key(
        Whole(ITERATIONS_MIN, ITERATIONS_MAX),
        "What SCRAM-SHA-256 costs a client at each login, and who guesses; it is offered where `mechanisms` name it.",
        ITERATIONS,
        reload=True,
    )


@attrs.frozen(kw_only=True)
class VirtualHostEntry(Record):
    """A virtual host. Without any, there is `/`."""

    name: str = key(NAME, "The name that clients open.")
    connections_max: int | None = key(Limit(0, MANY), "Connections to this virtual host.", None)
    queues_max: int | None = key(Limit(0, MANY), "Queues in it; without it `limits.queues_max` holds.", None)


@attrs.frozen(kw_only=True)
class PolicyEntry(Record):
    """Settings for all queues or exchanges whose names match."""

    name: str = key(NAME, "The policy's name.")
    virtual_host: str = key(NAME, "Where it applies.", "/")
    pattern: str = key(Expression(), "The names it applies to.")
    apply_to: str = key(
        OneOf("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"),
        "The kind of thing it applies to.",
        "all",
    )
    priority: int = key(
        Whole(-MANY, MANY), "Of several that match, the one with the highest priority holds.", 0
    )
    operator: bool = key(Flag(), "An operator policy: it can only tighten what the others say.", False)
    definition: Table = key(FREE_TABLE, "What it sets, such as { max-length = 1000 }.")

    @property
    def policy(self) -> Policy:
        """The same in the core's words."""
        return Policy(
            name=self.name,
            virtual_host=self.virtual_host,
            pattern=self.pattern,
            definition=self.definition,
            priority=self.priority,
            apply_to=ApplyTo(self.apply_to),
        )

    def contradictions(self) -> Iterator[Problem]:
        policies = Policies()
        try:
            (policies.set_operator if self.operator else policies.set)(self.policy)
        except PreconditionFailed as error:
            yield Problem("definition", printed(self.definition), f"what a policy can set ({error})")


@attrs.frozen(kw_only=True)
class DefinitionsSettings(Record):
    """Users, virtual hosts, queues, exchanges and bindings to create at start."""

    load: tuple[Path, ...] = key(ListOf(FilePath()), "Files in RabbitMQ's definitions format (JSON).", ())


@attrs.frozen(kw_only=True)
class CompatSettings(Record):
    """Which side to take where specifications and brokers differ."""

    profile: str = key(OneOf(*PROFILES), "Sets every row together.", "default")
    rows: Table = key(
        TableOf(AnyValue(), "a value for each row"),
        "Single rows that differ from the profile.",
        NO_ROWS,
        rest=True,
    )

    @cached_property
    def chosen(self) -> Compat:
        """The profile with the rows that differ. Made once: every connection looks something up."""
        return compat(self.profile, **self.rows)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the rows; while there is anything, there is no `chosen`."""
        problems: list[Problem] = []
        ROWS.read(self.rows, Place(problems))
        return problems

    def contradictions(self) -> Iterator[Problem]:
        yield from self.problems
