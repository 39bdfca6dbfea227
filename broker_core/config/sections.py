"""The sections of the configuration: a frozen record for each table, with kinds, defaults and a sentence per key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

import attrs

from leveret.config.compat import PROFILES, ROWS, Compat, compat
from leveret.config.records import Record, RecordOf, key
from leveret.config.tls import SYSTEM, PeerTlsSettings
from leveret.config.types import (
    FREE_TABLE,
    GIB,
    KIB,
    MANY,
    MIB,
    AnyValue,
    Duration,
    FilePath,
    Flag,
    Limit,
    ListOf,
    Name,
    Octets,
    OneOf,
    Place,
    Problem,
    RegularExpression,
    Secret,
    SingleValue,
    TableOf,
    Text,
    Whole,
    printed,
)
from leveret.config.urls import HttpUrl
from leveret.errors import PreconditionFailed
from leveret.policy import ApplyTo, Policy, check, check_operator
from leveret.security import passwords
from leveret.security.scram import ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN
from leveret.values import Table

NO_ROWS: Final[Table] = {}

NAMED: Final = "a name of 1 to 255 characters", r"[^\ud800-\udfff]{1,255}"
NAME: Final = Name(*NAMED)
NODE_NAME: Final = Text(*NAMED)  # of any number of bytes
NAMES: Final = ListOf(Text())
QUEUE_TYPES: Final = OneOf("classic", "quorum", "stream")
LOG_LEVEL: Final = OneOf("debug", "info", "warning", "error", "none")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class NodeSettings(Record):
    """The node as a whole."""

    name: str = key(
        NODE_NAME,
        "The node's name in logs and for clients. One of its own where several nodes are monitored together.",
        "leveret",
    )
    data_dir: Path | None = key(
        FilePath(),
        "The folder for durable data, for one node at a time; it is created if it is missing. Without one everything "
        "is in memory only. The disk alarm watches its disk.",
        None,
    )
    default_queue_type: str | None = key(
        QUEUE_TYPES,
        "The type of new queues whose declaration names none, in virtual hosts without such a default of their own. "
        "Queues that such a type does not suit (transient, exclusive, auto-delete) are classic. Set it where programs "
        "cannot be changed to name one.",
        None,
        reload=True,
    )
    core_dumps: bool = key(
        Flag(),
        "Whether the system may keep a core file of a node that crashes, as its limit (`ulimit -c`) says. It has "
        "passwords, tokens and messages, in plain text. True while the cause of crashes is looked for.",
        False,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LogLevels(Record):
    """The lowest level that is logged, by category; without one it is `log.level`.

    A lower one is for the part in which a fault is looked for, a higher one for a part that says too much.
    """

    node: str | None = key(
        LOG_LEVEL, "The node: start, reload, alarms, listeners, plug-ins.", None, reload=True
    )
    connection: str | None = key(
        LOG_LEVEL,
        "Connections before they speak a protocol.",
        None,
        reload=True,
    )
    cluster: str | None = key(LOG_LEVEL, "The nodes of a cluster: who serves, takeovers.", None, reload=True)
    amqp091: str | None = key(LOG_LEVEL, "AMQP 0-9-1: logins, refused requests.", None, reload=True)
    amqp10: str | None = key(LOG_LEVEL, "AMQP 1.0: logins, refused requests.", None, reload=True)
    amqp010: str | None = key(LOG_LEVEL, "AMQP 0-10: logins, refused requests.", None, reload=True)
    protocols: str | None = key(
        LOG_LEVEL, "Protocols without a category of their own: logins, refused requests.", None, reload=True
    )
    http: str | None = key(LOG_LEVEL, "The control endpoint: logins, changes.", None, reload=True)
    http_client: str | None = key(LOG_LEVEL, "Requests that the node sends.", None, reload=True)
    broker: str | None = key(LOG_LEVEL, "Queues, dead letters, bindings.", None, reload=True)
    exchanges: str | None = key(LOG_LEVEL, "Exchanges and their types.", None, reload=True)
    shovel: str | None = key(LOG_LEVEL, "Shovels.", None, reload=True)
    pipeline: str | None = key(LOG_LEVEL, "Pipelines that the node runs.", None, reload=True)
    federation: str | None = key(LOG_LEVEL, "Links of a federation.", None, reload=True)
    store: str | None = key(LOG_LEVEL, "The store: recovery, damage, full disks.", None, reload=True)
    security: str | None = key(LOG_LEVEL, "Passwords and tokens.", None, reload=True)
    timeouts: str | None = key(LOG_LEVEL, "Deliveries that were not acknowledged in time.", None, reload=True)
    arguments: str | None = key(LOG_LEVEL, "What was asked for and has no effect.", None, reload=True)
    definitions: str | None = key(LOG_LEVEL, "Definitions files.", None, reload=True)
    audit: str | None = key(LOG_LEVEL, 'The audit log, where `log.audit` is "log".', None, reload=True)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LogFileSettings(Record):
    """A file for the log. A thread writes it; lines are left out, and counted, where the disk cannot keep up."""

    path: Path | None = key(
        FilePath(),
        "The file, which a reload opens again; its folder has to be there. Without one there is none.",
        None,
        reload=True,
    )
    format: str | None = key(
        OneOf("text", "json"),
        "As `log.format`, which it is by default. Another where people read one of the two, and programs the other.",
        None,
        reload=True,
    )
    size_max: int = key(
        Octets(0, 1 << 40),
        "The size before which the file is renamed to FILE.1, FILE.1 to FILE.2 and so on; 0 leaves that to others.",
        64 * MIB,
        reload=True,
    )
    keep: int = key(
        Whole(1, 1000),
        "How many renamed files there are; older ones are deleted. More to look back further: all files take up to "
        "`size_max` times one more than these.",
        10,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LogSettings(Record):
    """The log, which is written to standard error, to a file, or to both."""

    level: str = key(
        LOG_LEVEL,
        "The lowest level that is logged. `debug` while a fault is looked for, `warning` to hear of faults only.",
        "info",
        reload=True,
    )
    levels: LogLevels = key(RecordOf(LogLevels), "The levels of categories.", LogLevels())
    format: str = key(
        OneOf("text", "json"),
        "Lines for people, or one JSON object a line, for programs that collect logs.",
        "text",
        reload=True,
    )
    console: bool = key(
        Flag(),
        "Whether the log is written to standard error. False where `log.file` has it, and both would be kept.",
        True,
        reload=True,
    )
    file: LogFileSettings = key(RecordOf(LogFileSettings), "A file for the log.", LogFileSettings())
    audit: str = key(
        Text("an empty string, `log`, or the absolute path of a file", r"|log|/.+"),
        "The audit log of administrative actions: `log` for the rest of the log, or a file, which a reload reopens; "
        "empty for none. A file where it is kept for longer than the log, or read by others.",
        "",
        reload=True,
    )

    def contradictions(self) -> Iterator[Problem]:
        if not self.console and self.file.path is None:
            yield Problem("console", "false", "true, as long as there is no `log.file.path`")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class EventsSettings(Record):
    """Events in the broker as messages. They cost nothing as long as nothing is bound to the exchange."""

    virtual_host: str = key(
        Text("the name of a virtual host, or an empty string for none", r"(?s).{0,255}"),
        "The virtual host with the exchange `amq.rabbitmq.event`. Another where users of `/` must not see them.",
        "/",
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OpenTelemetrySettings(Record):
    """Spans for messages whose publishers have begun a trace; needs the extra `opentelemetry`."""

    endpoint: str | None = key(
        HttpUrl(secure=False),
        "The URL at which a collector takes traces over OTLP/HTTP, such as http://127.0.0.1:4318/v1/traces; without it "
        "nothing is recorded.",
        None,
    )
    service: str = key(
        Text(),
        "The name of the service in traces. One of its own where several nodes send to one collector.",
        "leveret",
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LimitsSettings(Record):
    """Limits of nodes, virtual hosts, connections and messages."""

    connections_max: int | None = key(
        Limit(0, MANY),
        "Connections to the node. A number where clients that open ever more must not fill it.",
        None,
        reload=True,
    )
    queues_max: int | None = key(
        Limit(0, MANY),
        "Queues in a virtual host that sets no limit of its own. A number where users declare what they like.",
        None,
        reload=True,
    )
    exchanges_max: int | None = key(
        Limit(0, MANY),
        "Exchanges on the node, over all virtual hosts. A number where users declare what they like.",
        None,
        reload=True,
    )
    consumers_per_channel_max: int | None = key(
        Limit(0, MANY),
        "Consumers on one channel or session. A number for clients that forget to cancel theirs.",
        None,
        reload=True,
    )
    channels_max: int | None = key(
        Limit(0, MANY),
        "Channels and sessions, on all connections. A number for clients that open channels and do not close them.",
        None,
        reload=True,
    )
    virtual_hosts_max: int | None = key(
        Limit(0, MANY),
        "Virtual hosts of the node. A number where others than operators create them.",
        None,
        reload=True,
    )
    handshake_timeout_s: int = key(
        Whole(1, 3600),
        "Seconds that a peer has to log in, from the moment it connects. More where a slow server checks passwords.",
        10,
        reload=True,
    )
    send_timeout_s: int = key(
        Whole(0, 86_400),
        "Seconds without a byte sent after which a connection is ended, while some wait for its peer; 0: never. Those "
        "that an alarm or a rate has stopped are not meant. More where networks stall for longer.",
        15,
        reload=True,
    )
    connection_rate: int | None = key(
        Limit(1, MANY),
        "Connections in a second, in all; further ones are closed. A number where strangers reach the node.",
        None,
        reload=True,
    )
    connection_rate_per_address: int | None = key(
        Limit(1, MANY),
        "Connections in a second from one address, local ones aside. More where many clients share an address.",
        1000,
        reload=True,
    )
    strangers_max: int | None = key(
        Limit(1, MANY),
        "Connections whose users have not logged in; with one more, the oldest of them ends. More where thousands of "
        "clients connect at once, as after a restart.",
        4096,
        reload=True,
    )
    strangers_per_address_max: int | None = key(
        Limit(1, MANY),
        "Such connections from one address, local ones aside; further ones are closed. More where many clients share "
        "an address.",
        1024,
        reload=True,
    )
    login_failures_per_address: int | None = key(
        Limit(1, MANY),
        "Failed logins from one address, local ones aside, before it has to wait between tries, up to half a minute. "
        "More where many users share an address.",
        20,
        reload=True,
    )
    login_failures_per_user: int | None = key(
        Limit(1, MANY),
        "Failed logins by one name before it has to wait, too, but not at addresses it has logged in from. More where "
        "many programs log in by one name.",
        20,
        reload=True,
    )
    publish_rate_per_connection: int | None = key(
        Limit(1, MANY),
        "Messages a second that one connection may publish; then it is not read from for a while. A number where one "
        "publisher must not take what others need.",
        None,
        reload=True,
    )
    message_size_max: int | None = key(
        Octets(0, 512 * MIB),
        "The largest message body; without it `compat.message_size_max` holds (16 MiB). More for clients that send "
        "larger ones.",
        None,
        reload=True,
    )
    outbox_size_max: int = key(
        Octets(4 * KIB, GIB),
        "Bytes that may wait to be sent to one client before its consumers get no more messages. More for fast "
        "consumers that are far away, less where thousands of slow ones would fill the memory.",
        MIB,
        reload=True,
    )
    unacknowledged_max: int | None = key(
        Octets(KIB, 1 << 50),
        "Bytes of messages that a consumer (subscription, receiver) may have without answering, whatever its prefetch "
        "or credit; for consumers that begin later. One message is always sent. A number where consumers without a "
        "prefetch must not take a whole queue.",
        None,
        reload=True,
    )
    unacknowledged_per_connection_max: int | None = key(
        Octets(KIB, 1 << 50),
        "Such bytes of all consumers of one connection together. A number where clients begin many consumers.",
        None,
        reload=True,
    )
    consumer_timeout_ms: int | None = key(
        Limit(1000, MANY),
        "Milliseconds that a consumer may keep a delivery unsettled. More where the work on one message takes longer.",
        30 * 60 * 1000,
        reload=True,
    )


class Portion(SingleValue[int | float]):
    """A fraction of something that is limited (float), or bytes (int)."""

    octets = Octets(64 * KIB, 1 << 50)

    def __init__(self, of: str, most: float) -> None:
        self.most = most
        self.accepted = f'a fraction of {of} from 0.0 to {most}, 0 for none, or bytes such as "512MiB"'

    def convert(self, value: object) -> int | float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= self.most:
            return float(value)
        return self.octets.convert(value)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MemorySettings(Record):
    """The memory alarm, which makes publishers wait, and the memory that waiting messages may take."""

    watermark: int | float | None = key(
        Portion("the memory", 64.0),
        "The memory above which the alarm is raised, 0: never; without it `compat.memory_watermark` holds (0.4). Less "
        "where other programs of the machine need memory, more where it is the node's alone.",
        None,
        reload=True,
    )
    messages_max: int | float = key(
        Portion("the watermark", 1.0),
        "The memory that waiting messages may take; with a data folder, those beyond are on disk only until their "
        "turn comes. 0: no limit; without a memory alarm, a fraction is no limit either. More where long queues had "
        "better be read from memory than from the disk.",
        0.4,
        reload=True,
    )
    unacknowledged_max: int | float = key(
        Portion("the watermark", 1.0),
        "With a data folder: the memory that messages may take which consumers have and do not acknowledge. Beyond it "
        "the consumers with the most get nothing more until they acknowledge some. 0: no limit; without a memory "
        "alarm, a fraction is no limit either. More where many consumers work on large messages for long.",
        0.25,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class DiskSettings(Record):
    """The disk alarm, which makes publishers wait for disk space."""

    free_limit: int = key(
        Octets(0, 1 << 50),
        "The free space in the data folder below which the disk alarm is raised; 0 switches it off. More where other "
        "programs fill the disk, too, or messages are large.",
        50_000_000,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class FlowSettings(Record):
    """Holding publishers back where a queue grows."""

    renamed: ClassVar[Mapping[str, str]] = {"mechanism": ".compat.flow_mechanism"}

    credit: int | None = key(
        Limit(1, MANY),
        "Messages that may wait in a queue without a limit of its own; beyond that those that publish to it are not "
        "read from until four fifths are left, as with overflow `producer-flow-control`. Without it queues take what "
        "comes, as RabbitMQ's do, and publishers wait for alarms and for the store only. A number where publishers "
        "are to go no faster than consumers.",
        None,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PluginsSettings(Record):
    """Plug-ins: exchange types, protocols and mechanisms from elsewhere."""

    folders: tuple[Path, ...] = key(
        ListOf(FilePath()), "Folders whose *.py files are loaded as plug-ins.", (), reload=True
    )
    watch: bool = key(
        Flag(), "Reload a plug-in when its file changes, while one is written.", False, reload=True
    )
    disabled: tuple[str, ...] = key(
        NAMES,
        "Names of plug-ins that are not loaded. Those that come with Leveret and are not wanted.",
        (),
        reload=True,
    )
    slow_call_ms: int = key(
        Whole(1, 3_600_000),
        "Milliseconds that code of a plug-in may hold the node up without being named in the log and the metrics. "
        "Fewer to find what costs latency, more where slow calls are known, and meant.",
        100,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class InterceptorEntry(Record):
    """An interceptor, which sees each published message before it is routed, in the order of these entries."""

    name: str = key(
        Text(), "Its name: `set_header_timestamp`, `set_header_routing_node`, or that of a plug-in."
    )
    options: Table = key(
        FREE_TABLE,
        "Whatever the interceptor documents; those named here take `overwrite`.",
        NO_ROWS,
        rest=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ShovelEntry(Record):
    """A shovel, which moves messages between queues and brokers. Those that are set over HTTP are kept in the store."""

    name: str = key(NAME, "Its name.")
    virtual_host: str = key(NAME, "Its virtual host.", "/")
    user: str | None = key(
        NAME,
        "The user whose permissions it has here; by default the first administrator by name. One that may do what the "
        "shovel needs, and no more.",
        None,
    )
    definition: Table = key(
        FREE_TABLE, "The keys of a shovel's parameter: `src-uri`, `src-queue` and so on.", NO_ROWS, rest=True
    )

    def contradictions(self) -> Iterator[Problem]:
        from leveret.features.shovels.definition import definition_of  # not needed in a node without shovels
        from leveret.values import as_json

        try:
            definition_of(as_json(self.definition))
        except PreconditionFailed as error:
            yield Problem("", str(error))


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PipelineEntry(Record):
    """A pipeline: a process of the node's that takes what streams and queues have, and what comes, to a Delta table."""

    renamed: ClassVar[Mapping[str, str]] = {"ca_file": "tls.ca"}

    sources: tuple[str, ...] = key(
        ListOf(Text(), least=1), "The streams, super streams and queues that are read."
    )
    target: str = key(
        Text(), "The folder of the table, as an absolute path, or a URI such as `s3://lake/orders`."
    )
    name: str | None = key(
        NAME,
        "Its name; by default the names of its sources. One of its own where two read the same sources.",
        None,
    )
    virtual_host: str = key(NAME, "Its virtual host.", "/")
    user: str = key(
        NAME,
        "The user that reads, with the permissions of any client of that name. One that may read these sources, and "
        "no more.",
        "guest",
    )
    password_file: Path | None = key(
        FilePath(),
        "A file whose first line is the password, or a token; read again when it is refused. Without it, the variable"
        " `LEVERET_PASSWORD` of the node's environment, else `guest`.",
        None,
    )
    every: float = key(
        Duration(0.1, 86_400),
        "How often a micro-batch begins. Less where rows are wanted sooner, more for fewer and larger files.",
        10.0,
    )
    batch: int = key(
        Whole(1, 1_000_000_000),
        "Messages in a micro-batch, at most. Fewer where memory is short.",
        1_000_000,
    )
    partition_by: tuple[str, ...] = key(
        NAMES,
        "Folders of the table: some of `day`, `hour`, `stream`, `routing_key`, `header:NAME`; or none. Those that "
        "queries ask for; none where each would get little.",
        ("day",),
    )
    format: str | None = key(
        OneOf("delta", "iceberg"),
        "The format of a new table; without it `delta`, or that of the table. `iceberg` for what reads no Delta "
        "tables.",
        None,
    )
    catalog: str | None = key(
        Text(),
        "An Iceberg catalogue of pyiceberg's configuration, in which `target` is `NAMESPACE.TABLE`.",
        None,
    )
    decode: str | None = key(
        OneOf("json", "avro", "protobuf"),
        "Have the fields of bodies as typed columns. Set it where queries ask for fields.",
        None,
    )
    schema: Path | None = key(FilePath(), "With `decode`, the file with the schema of all bodies.", None)
    message: str | None = key(Text(), "The message in a `schema` of protobuf, such as `shop.Order`.", None)
    registry: str | None = key(
        Text(), "With `decode`, the URL of a schema registry, by whose ids bodies name their schemas.", None
    )
    registry_user: str | None = key(NAME, "The user to log in as there.", None)
    registry_password_file: Path | None = key(FilePath(), "A file with the password there.", None)
    registry_token_file: Path | None = key(
        FilePath(), "A file with a token instead, read again for each request.", None
    )
    registry_ca_file: Path | None = key(FilePath(), "Certificates to trust there.", None)
    decode_prefix: str | None = key(
        Text(),
        "What the names of decoded columns begin with. Set it where fields have the names of other columns.",
        None,
    )
    without_body: bool = key(
        Flag(),
        "Whether the table has the decoded columns only. True where nothing needs the bodies themselves, nor a "
        "`replay`.",
        False,
    )
    undecoded: str | None = key(
        Text(),
        "The table for rows that cannot be decoded; by default the target's name and `.undecoded`, in a catalogue"
        " `_undecoded`.",
        None,
    )
    starting: str = key(
        OneOf("earliest", "latest"),
        "Where a new table begins in a stream. `latest` to leave out what the stream has already.",
        "earliest",
    )
    reader: str | None = key(
        NAME, "The name under which messages of queues are set aside; needed for queues.", None
    )
    checkpoint: str | None = key(Text(), "The folder of its position; by default beside the table.", None)
    endpoint: str | None = key(
        Text(),
        "The URL of the HTTP endpoint to read from; by default this node's own, without TLS if it can be.",
        None,
    )
    tls: PeerTlsSettings = key(RecordOf(PeerTlsSettings), "TLS with it, if it is an https URL.", SYSTEM)
    options: Table = key(FREE_TABLE, "Other options of the source, such as `maxBytesPerTrigger`.", NO_ROWS)

    @property
    def title(self) -> str:
        """The name, given or not."""
        return self.name or ",".join(self.sources)

    def contradictions(self) -> Iterator[Problem]:
        if self.catalog is None and "://" not in self.target and not Path(self.target).is_absolute():
            yield Problem("target", printed(self.target), "an absolute path, or a URI")
        if self.decode is None:
            if self.schema is not None or self.registry is not None:
                yield Problem("decode", "nothing", "a format, with `schema` or `registry`")
        elif (self.schema is None) == (self.registry is None):
            yield Problem("decode", printed(self.decode), "either `schema` or `registry` with it")
        if "@" in (self.registry or ""):
            yield Problem("registry", "a URL with a user", "a URL without one; `registry_user` names it")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PermissionEntry(Record):
    """A user's permissions in a virtual host: a regular expression on names for each kind of operation."""

    configure: str = key(RegularExpression(), "Names that may be declared and deleted.", "^$")
    write: str = key(RegularExpression(), "Names that may be published to, and bound to an exchange.", "^$")
    read: str = key(
        RegularExpression(),
        "Names that may be consumed from, and that others may be bound to.",
        "^$",
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TopicPermissionEntry(Record):
    """A user's permissions on a topic exchange: a regular expression on routing keys for each direction."""

    write: str = key(RegularExpression(), "Routing keys that may be published with.", ".*")
    read: str = key(RegularExpression(), "Routing keys that may be bound with.", ".*")


class PasswordHashText(SingleValue[str]):
    """An argon2id string, or base64 of a 4-byte salt and the SHA-256 or SHA-512 of salt and password (RabbitMQ)."""

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


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UserEntry(Record):
    """A user. Without any, here and in definitions, there is `guest` with password `guest`, an administrator of `/`.

    At most one of the four password keys is given; a user without any cannot log in with a password.
    """

    name: str = key(NAME, "The name to log in with.")
    password: str | None = key(Secret(), "The password in plain text.", None)
    password_hash: str | None = key(
        PasswordHashText(), "The password's hash: `leveret hash-password` makes one.", None
    )
    password_env: str | None = key(Text(), "The environment variable with the password.", None)
    password_file: Path | None = key(
        FilePath(), "The file with the password; its last line end is dropped.", None
    )
    tags: tuple[str, ...] = key(
        NAMES, "`administrator`, `monitoring`, `policymaker`, `management`; none for plain clients.", ()
    )
    permissions: Mapping[str, PermissionEntry] = key(
        PERMISSIONS, "Virtual host -> the user's permissions there; others cannot be opened.", NO_PERMISSIONS
    )
    topic_permissions: Mapping[str, Mapping[str, TopicPermissionEntry]] = key(
        TOPIC_PERMISSIONS,
        "Virtual host -> topic exchange -> routing keys; other exchanges are not restricted.",
        NO_TOPIC_PERMISSIONS,
    )
    connections_max: int | None = key(
        Limit(0, MANY),
        "Connections of this user. A number where a program must not take all connections.",
        None,
    )
    channels_max: int | None = key(
        Limit(0, MANY),
        "Channels on all connections of this user. A number for programs that open channels and do not close them.",
        None,
    )
    publish_rate: int | None = key(
        Limit(1, MANY),
        "Messages a second that this user may publish, on all connections; then they are not read from for a while. A "
        "number where a program must not take what others need.",
        None,
    )

    def contradictions(self) -> Iterator[Problem]:
        given = [name for name in PASSWORD_KEYS if getattr(self, name) is not None]
        for name in given[1:]:
            yield Problem(name, f"{given[0]} as well", "one of " + ", ".join(PASSWORD_KEYS))


PASSWORD_KEYS: Final = ("password", "password_hash", "password_env", "password_file")
EVERYTHING: Final = PermissionEntry(configure=".*", write=".*", read=".*")
GUEST: Final = UserEntry(
    name="guest", password="guest", tags=("administrator",), permissions={"/": EVERYTHING}
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SecuritySettings(Record):
    """Authentication: anonymous and local users, and the storing of passwords."""

    loopback_users: tuple[str, ...] = key(
        NAMES,
        "Users that can log in from this machine only. Empty once `guest` has a password of its own, and is to come "
        "from elsewhere.",
        ("guest",),
        reload=True,
    )
    anonymous_user: str | None = key(
        Text("the name of a user, or an empty string for none", r"(?s).*"),
        "The user that ANONYMOUS logs in as; without it `guest` as long as no users are configured, then none. Empty "
        "to let none in without a name, or a user with few permissions.",
        None,
        reload=True,
    )
    password_hashing: str = key(
        OneOf("argon2id", "rabbitmq"),
        "The hash for passwords that clients and definitions files set; `rabbitmq` is for definitions that will be "
        "imported into RabbitMQ. Existing hashes stay as they are.",
        "argon2id",
        reload=True,
    )
    check_policies: bool = key(
        Flag(),
        "Whether a policymaker needs the permission to read everything, and to write to the exchange, for a policy "
        "with a dead-letter exchange, which can take messages out of all queues that it matches. True where "
        "policymakers must not see all messages.",
        False,
        reload=True,
    )
    backends: tuple[str, ...] = key(
        ListOf(OneOf("internal", "http", "ldap"), least=1),
        "What passwords are checked by, in this order, the next one if one has refused: `internal`, the users here, "
        "`http`, the server in `[auth_http]`, and `ldap`, the directory in `[auth_ldap]`.",
        ("internal",),
        reload=True,
    )
    scram_iterations: int = key(
        Whole(ITERATIONS_MIN, ITERATIONS_MAX),
        "The cost of SCRAM-SHA-256 for a client at each login, and for each guess; offered if `mechanisms` name it. "
        "Fewer for small devices, more where hashes could be stolen.",
        ITERATIONS,
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class VirtualHostEntry(Record):
    """A virtual host. Without any, there is `/`."""

    name: str = key(NAME, "The name that clients open.")
    connections_max: int | None = key(
        Limit(0, MANY),
        "Connections to this virtual host. A number where one virtual host must not crowd out the others.",
        None,
    )
    queues_max: int | None = key(
        Limit(0, MANY),
        "Queues in it; without it `limits.queues_max` holds. A number where its users declare what they like.",
        None,
    )
    publish_rate: int | None = key(
        Limit(1, MANY),
        "Messages a second that may be published in it, on all connections. A number where one virtual host must not "
        "take what the others need.",
        None,
    )
    default_queue_type: str | None = key(
        QUEUE_TYPES,
        "The type of new queues whose declaration names none; without it what was set over the API holds, or "
        "`node.default_queue_type`. Set it where programs cannot be changed to name one.",
        None,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class PolicyEntry(Record):
    """Settings for all queues or exchanges whose names match."""

    name: str = key(NAME, "The policy's name.")
    virtual_host: str = key(NAME, "The virtual host that it applies to.", "/")
    pattern: str = key(RegularExpression(), "The names it applies to.")
    apply_to: str = key(
        OneOf("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"),
        "The kind of object it applies to. One kind where the pattern matches names of others, too.",
        "all",
    )
    priority: int = key(
        Whole(-MANY, MANY), "Of several policies that match, the one with the highest priority holds.", 0
    )
    operator: bool = key(
        Flag(),
        "An operator policy: it can only tighten the other policies. True for limits that users' own policies must "
        "not lift.",
        False,
    )
    definition: Table = key(FREE_TABLE, "The settings, such as { max-length = 1000 }.")

    @property
    def policy(self) -> Policy:
        """The entry as the core's `Policy`."""
        return Policy(
            name=self.name,
            virtual_host=self.virtual_host,
            pattern=self.pattern,
            definition=self.definition,
            priority=self.priority,
            apply_to=ApplyTo(self.apply_to),
        )

    def contradictions(self) -> Iterator[Problem]:
        try:
            (check_operator if self.operator else check)(self.policy)
        except PreconditionFailed as error:
            yield Problem("definition", printed(self.definition), f"what a policy can set ({error})")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class DefinitionsSettings(Record):
    """Users, virtual hosts, queues, exchanges and bindings to create at start."""

    load: tuple[Path, ...] = key(ListOf(FilePath()), "Files in RabbitMQ's definitions format (JSON).", ())


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RecordSettings(Record):
    """Recordings of what happens in virtual hosts, which `leveret replay-session` plays again (docs/time-travel.md)."""

    virtual_hosts: tuple[str, ...] = key(
        NAMES,
        "Virtual hosts that are recorded from the start on. Others are with `leveret record start`.",
        (),
    )
    folder: Path | None = key(
        FilePath(),
        "The folder for recordings, created if it is missing. Without one it is `recordings` in `node.data_dir`. "
        "Another on a disk of its own, so that recordings take no space from the data.",
        None,
        reload=True,
    )
    max_bytes: int = key(
        Octets(MIB, 1 << 44),
        "The bytes that one recording takes on disk at most. More to look back further.",
        256 * MIB,
        reload=True,
    )
    when_full: str = key(
        OneOf("rotate", "stop"),
        "`rotate` goes on in a new file and keeps the one before, each of half of `max_bytes`; `stop` ends the "
        "recording. The latter where the beginning matters.",
        "rotate",
        reload=True,
    )
    redact_bodies: bool = key(
        Flag(),
        "Write zeros in place of the bodies of messages, as many as there were bytes. True where bodies are "
        "confidential.",
        False,
        reload=True,
    )
    redact_headers: tuple[str, ...] = key(
        NAMES,
        "Patterns of names of headers (`*token*`; capitals do not matter) whose values are not written. More where "
        "other headers are confidential.",
        ("*authorization*", "*password*", "*secret*", "*token*"),
        reload=True,
    )
    redact_properties: tuple[str, ...] = key(
        NAMES,
        "Patterns of names of properties (`user_id`, `correlation_id`, `reply_to`, ...) that are not written. Those "
        "that tell of people, where a recording goes to others.",
        (),
        reload=True,
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class CompatSettings(Record):
    """The choices where specifications and brokers differ.

    A profile is for programs that were written for one broker, a single row for those that rely on one behaviour.
    """

    profile: str = key(
        OneOf(*PROFILES),
        "Sets every row together. The broker for which the programs were written.",
        "default",
    )
    rows: Table = key(
        TableOf(AnyValue(), "a value for each row"),
        "Single rows that differ from the profile.",
        NO_ROWS,
        rest=True,
    )

    @cached_property
    def chosen(self) -> Compat:
        """The profile with the rows that differ. Computed once, because every connection looks something up."""
        return compat(self.profile, **self.rows)

    @property
    def problems(self) -> list[Problem]:
        """The problems of the rows; while there are any, `chosen` raises."""
        problems: list[Problem] = []
        ROWS.read(self.rows, Place(problems))
        return problems

    def contradictions(self) -> Iterator[Problem]:
        yield from self.problems
