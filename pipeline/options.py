"""The options of `format("amqp")`: from the texts that Spark passes to one checked record.

A new option is a line in `Options`. Names are those of Spark's Kafka source where it has the same option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import attrs

from leveret.pipeline.errors import BadOption
from leveret.pipeline.option_hints import KAFKAS, READING

T = TypeVar("T")
Numbers: TypeAlias = Mapping[str, Mapping[int, int]]  # by stream and partition
Table: TypeAlias = "Mapping[str, attrs.Attribute[object]]"  # fields by their options' names, in lower case

EARLIEST, LATEST = -2, -1  # in place of an offset
OFFSET_MAX: Final = (1 << 63) - 1
READER_OCTETS_MAX: Final = 255
FETCH_MIN, FETCH_MAX = 64 << 10, 16 << 20  # bytes; the latter is the broker's own limit


class Edge(Enum):
    """An end of every stream."""

    EARLIEST = "earliest"
    LATEST = "latest"


@attrs.frozen
class Offsets:
    """An offset for each partition of each stream; -2 stands for the earliest, -1 for the latest."""

    by_partition: Numbers


@attrs.frozen
class Since:
    """Messages that arrived at this time or later, in ms since 1970-01-01 UTC."""

    timestamp: int


@attrs.frozen
class SinceEach:
    """Messages that arrived at a time or later, with a time for each partition of each stream."""

    by_partition: Numbers


Position: TypeAlias = Edge | Offsets | Since | SinceEach


@attrs.frozen
class Span:
    """A length of time, and the text that gave it."""

    said: str
    seconds: float

    def __str__(self) -> str:
        return self.said


# Parsers of values. Each raises ValueError that says what is expected.


def text(given: str) -> str:
    if not given:
        raise ValueError("must not be empty")
    return given


def flag(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.lower() == "true"


def whole(least: int, most: int = OFFSET_MAX) -> Callable[[str], int]:
    def read(given: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", given) or not least <= int(given) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(given)

    return read


UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def span(given: str) -> Span:
    """Return a length of time as Spark parses it: in milliseconds, unless it has a unit."""
    found = re.fullmatch(r"([0-9]{1,12}) *([a-z]*)", given.strip().lower())
    if found is None or (found[2] or "ms") not in UNITS_MS:
        raise ValueError(f"must be a time such as 500ms, 30s or 15m (units: {', '.join(UNITS_MS)})")
    return Span(given, int(found[1]) * UNITS_MS[found[2] or "ms"] / 1000)


def reader(given: str) -> str:
    if not 0 < len(given.encode("utf-8", "surrogatepass")) <= READER_OCTETS_MAX:
        raise ValueError(f"must have 1 to {READER_OCTETS_MAX} bytes")
    return given


def one_of(*known: str) -> Callable[[str], str]:
    def read(given: str) -> str:
        if given.lower() not in known:
            raise ValueError(f"must be {' or '.join(known)}")
        return given.lower()

    return read


def addresses(given: str) -> tuple[str, ...]:
    """Return URLs that commas separate. A password in one is refused: all who see the query would see it."""
    found = []
    for each in filter(None, (part.strip() for part in given.split(","))):
        try:
            parts = urlsplit(each if "//" in each else f"http://{each}")
            port, host = parts.port, parts.hostname
        except ValueError:
            raise ValueError("must be URLs such as http://localhost:15672") from None
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold a user or password; see username and passwordFile")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ValueError("must be URLs such as http://localhost:15672")
        shown = f"[{host}]" if ":" in host else host
        port = port if port is not None else 443 if parts.scheme == "https" else 15672
        found.append(f"{parts.scheme}://{shown}:{port}{parts.path.rstrip('/')}")
    if not found:
        raise ValueError("must be URLs such as http://localhost:15672")
    return tuple(dict.fromkeys(found))


def names(given: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (part.strip() for part in given.split(",")))))
    if not found:
        raise ValueError("must name a stream, or some with commas between them")
    return found


def column_names(given: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in given.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("must name columns with commas between them, each once")
    return found


def selector(given: str) -> str:
    from leveret.errors import PreconditionFailed
    from leveret.selectors.parser import compile_selector

    try:
        compile_selector(given)
    except PreconditionFailed as error:
        raise ValueError(f"must be a selector: {error}") from None
    return given


def pattern(given: str) -> re.Pattern[str]:
    try:
        return re.compile(text(given))
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None


def assigned(given: str) -> Mapping[str, frozenset[int]]:
    shape = 'must be JSON such as {"orders":[0,1]}'
    found = {}
    for stream, partitions in _object(given, shape).items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)) or not partitions:
            raise ValueError(shape)
        found[stream] = frozenset(cast("list[int]", partitions))
    if not found:
        raise ValueError(shape)
    return found


def position(given: str) -> Position:
    for edge in Edge:
        if given.lower() == edge.value:
            return edge
    shape = 'must be earliest, latest, or JSON such as {"orders":{"0":23,"1":-1}}'
    return Offsets(_numbers(given, shape, EARLIEST))


def since(given: str) -> Position:
    return Since(whole(0)(given))


def since_each(given: str) -> Position:
    return SinceEach(_numbers(given, 'must be JSON such as {"orders":{"0":1767225600000}}', 0))


def _numbers(given: str, shape: str, least: int) -> Numbers:
    found: dict[str, dict[int, int]] = {}
    for stream, partitions in _object(given, shape).items():
        if not isinstance(partitions, dict):
            raise ValueError(shape)
        numbers = found[stream] = {}
        for partition, number in partitions.items():
            if not re.fullmatch(r"[0-9]{1,9}", partition) or type(number) is not int:
                raise ValueError(shape)
            if not least <= number <= OFFSET_MAX:
                raise ValueError(shape)
            numbers[int(partition)] = number
    return found


def _object(given: str, shape: str) -> dict[str, object]:
    try:
        content = json.loads(given)
    except (ValueError, RecursionError):
        raise ValueError(shape) from None
    if not isinstance(content, dict):
        raise ValueError(shape)
    return content


def _is_partition(given: object) -> bool:
    return type(given) is int and 0 <= given < 10**9


# The table.


class Use(Enum):
    """The reads that an option applies to. `ALWAYS` also applies where the kind of read is not known yet."""

    ALWAYS = "reads"
    BATCH = "batch reads"
    STREAM = "streaming reads"


class _Required:
    """The default of an option that must be given."""


REQUIRED: Final = _Required()


def option(
    name: str, read: Callable[[str], T], default: T | _Required | None, purpose: str, use: Use = Use.ALWAYS
) -> T:
    """Return a field of `Options`. With a default of None the field may be None."""
    metadata = {"name": name, "read": read, "default": default, "purpose": purpose, "use": use}
    return cast("T", attrs.field(metadata=metadata))


@attrs.frozen(kw_only=True)
class Connection:
    """The address of the broker and the user to log in as: options of the source and of the sink."""

    endpoints: tuple[str, ...] = option(
        "endpoints", addresses, REQUIRED, "URLs of the broker's HTTP front-end, with commas between them"
    )
    vhost: str = option("vhost", text, "/", "the virtual host")
    username: str = option("username", text, "guest", "the user to log in as")
    password_file: str | None = option(
        "passwordFile",
        text,
        None,
        "a file whose first line is the password, on the driver and on executors;"
        " otherwise the environment variable LEVERET_PASSWORD, otherwise `guest`",
    )
    ca_file: str | None = option(
        "tls.caFile", text, None, "certificates to trust at https URLs; otherwise those of the system"
    )
    cert_file: str | None = option(
        "tls.certFile",
        text,
        None,
        "a certificate to present at https URLs, on driver and executors, with its key unless `tls.keyFile` has it",
    )
    key_file: str | None = option(
        "tls.keyFile", text, None, "the key of that certificate, without a password of its own"
    )
    minimum_version: str = option(
        "tls.minimumVersion",
        one_of("1.2", "1.3"),
        "1.2",
        "the oldest version of TLS that is spoken: 1.2 or 1.3",
    )
    timeout_s: int = option("timeoutSeconds", whole(1, 3600), 30, "how long to wait for an answer")
    retry_s: int = option(
        "retrySeconds", whole(0, 86_400), 60, "how long to repeat requests that get no answer"
    )


@attrs.frozen(kw_only=True)
class Options(Connection):
    """The options of a query. They hold no password, so that they may be printed."""

    subscribe: tuple[str, ...] | None = option(
        "subscribe",
        names,
        None,
        "streams, super streams and (with `readerName`) queues, with commas between them",
    )
    subscribe_pattern: re.Pattern[str] | None = option(
        "subscribePattern", pattern, None, "all streams whose whole name matches a regular expression"
    )
    assign: Mapping[str, frozenset[int]] | None = option(
        "assign", assigned, None, 'some partitions of super streams: `{"orders":[0,1]}`'
    )
    reader_name: str | None = option(
        "readerName",
        reader,
        None,
        "the name under which queues are read: a different one for each query, kept as long as its checkpoint",
    )
    starting_offsets: Position | None = option(
        "startingOffsets",
        position,
        None,
        '`earliest`, `latest` or `{"orders":{"0":23,"1":-1}}` (-2 earliest, -1 latest);'
        " default: streaming `latest`, batch `earliest`",
    )
    starting_timestamp: Position | None = option(
        "startingTimestamp", since, None, "ms since 1970: begin with messages that arrived then or later"
    )
    starting_offsets_by_timestamp: Position | None = option(
        "startingOffsetsByTimestamp", since_each, None, 'the same for each partition: `{"orders":{"0":MS}}`'
    )
    strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        "latest",
        "what to do where no message arrived at the time to begin with or later: begin with what comes, or end with an"
        " error, which is the default of Spark's Kafka source",
    )
    ending_offsets: Position | None = option(
        "endingOffsets", position, None, "where to end, exclusive; default `latest`", Use.BATCH
    )
    ending_timestamp: Position | None = option(
        "endingTimestamp",
        since,
        None,
        "ms since 1970: end before messages that arrived then or later",
        Use.BATCH,
    )
    ending_offsets_by_timestamp: Position | None = option(
        "endingOffsetsByTimestamp", since_each, None, "the same for each partition", Use.BATCH
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger", whole(1), None, "messages in a micro-batch, at most", Use.STREAM
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        whole(1),
        None,
        "bytes of bodies in a micro-batch, about (by the average of each stream)",
        Use.STREAM,
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        whole(1),
        None,
        "messages that a micro-batch waits for; not with `Trigger.AvailableNow`",
        Use.STREAM,
    )
    max_trigger_delay: Span = option(
        "maxTriggerDelay",
        span,
        Span("15m", 900),
        "how long it waits for them, from the last micro-batch or the start; then it takes those there are",
        Use.STREAM,
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole(1, 100_000),
        None,
        "split each read into this many tasks, or a few more; none gets less than 1000 messages for that",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", whole(1), None, "messages that one task reads, at most"
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss", flag, True, "whether messages that are gone end the query, or are passed over"
    )
    headers_format: str = option(
        "headersFormat",
        one_of("map", "variant", "none"),
        "map",
        "the form of the column `headers`: a map of texts, a variant that keeps the types of headers, or no column",
    )
    include_headers: bool = option(
        "includeHeaders",
        flag,
        True,
        "whether there is a column `headers`; `false` is the same as `headersFormat` `none`",
    )
    include_annotations: bool = option(
        "includeAnnotations", flag, False, "whether there is a column `annotations`, for AMQP 1.0"
    )
    columns: str = option(
        "schema", one_of("amqp", "kafka"), "amqp", "the columns: ours, or those of Spark's Kafka source"
    )
    chosen: tuple[str, ...] | None = option(
        "columns",
        column_names,
        None,
        "the columns that the query needs, with commas between them: others are not decoded, and not there",
    )
    selector: str | None = option(
        "selector",
        selector,
        None,
        "a JMS selector on properties and headers, such as `country = 'FI' AND priority > 3`: tasks leave out what"
        " does not fulfil it, in streaming reads, too; streams only",
    )
    min_body_octets: int | None = option(
        "minBodyBytes", whole(0), None, "the length from which on bodies are read; streams only"
    )
    max_body_octets: int | None = option(
        "maxBodyBytes", whole(0), None, "the length up to which bodies are read; streams only"
    )
    fetch_octets: int = option(
        "fetchBytes", whole(FETCH_MIN, FETCH_MAX), 4 << 20, "bytes that a task asks for at once"
    )

    @property
    def headers(self) -> str:
        """The format of the column `headers`; `none` if there is no such column."""
        return self.headers_format if self.include_headers else "none"

    @property
    def leaves_out(self) -> bool:
        """Return whether messages are left out by what they are."""
        return (self.selector, self.min_body_octets, self.max_body_octets) != (None, None, None)

    @property
    def starting(self) -> Position | None:
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def ending(self) -> Position:
        given = self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets
        return Edge.LATEST if given is None else given


FIELDS: Final = {field.metadata["name"]: field.name for field in attrs.fields(Options)}
TABLE: Final = {field.metadata["name"].lower(): field for field in attrs.fields(Options)}
CHOICES: Final = (  # at most one of each line; exactly one of the first
    ("subscribe", "subscribePattern", "assign"),
    ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
    ("headersFormat", "includeHeaders"),
)


def read_options(given: Mapping[str, str], use: Use) -> Options:
    """Return checked options. Names may be in any case. Raises BadOption, naming the option."""
    require_known(given, TABLE, READING)
    lower = {name.lower() for name in given}
    for choice in CHOICES:
        both = [name for name in choice if name.lower() in lower]
        if len(both) > 1:
            raise BadOption(f"options {both[0]} and {both[1]} exclude each other")
    options = Options(**values_of(given, TABLE, use))  # type: ignore[arg-type]
    if not any(getattr(options, FIELDS[name]) is not None for name in CHOICES[0]):
        raise BadOption("one of the options subscribe, subscribePattern and assign must name the streams")
    if options.columns == "kafka" and (options.headers == "variant" or options.include_annotations):
        raise BadOption("options headersFormat=variant and includeAnnotations are for schema=amqp")
    if (options.min_offsets_per_trigger or 0) > (options.max_offsets_per_trigger or OFFSET_MAX):
        raise BadOption("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return options


def require_known(given: Mapping[str, str], table: Table, elsewhere: Mapping[str, str]) -> None:
    """Check the names. `elsewhere` holds texts for names that might be mistaken for options. Raises BadOption."""
    for shown in given:
        name = shown.lower()
        if name in table:
            continue
        if name in elsewhere:
            raise BadOption(f"unknown option '{shown}': {elsewhere[name]}")
        if name.startswith(KAFKAS):
            raise BadOption(
                f"unknown option '{shown}': it is for Kafka's client, and has no counterpart here"
            )
        near = get_close_matches(name, table, 1, 0.5)
        hint = f"; did you mean {table[near[0]].metadata['name']}?" if near else ""
        raise BadOption(f"unknown option '{shown}'{hint}")


def values_of(given: Mapping[str, str], table: Table, use: Use) -> dict[str, object]:
    """Return the value of each field by its name. Raises BadOption."""
    lower = {name.lower(): str(value) for name, value in given.items()}
    return {field.name: _value(field, lower.get(name), use) for name, field in table.items()}


def _value(field: attrs.Attribute[object], given: str | None, use: Use) -> object:
    metadata = field.metadata
    if given is None:
        if metadata["default"] is REQUIRED:
            raise BadOption(f"option {metadata['name']} is missing: {metadata['purpose']}")
        return metadata["default"]
    if Use.ALWAYS not in (metadata["use"], use) and metadata["use"] is not use:
        raise BadOption(f"option {metadata['name']} is for {metadata['use'].value} only")
    try:
        return metadata["read"](given)
    except ValueError as error:
        raise BadOption(f"option {metadata['name']} is '{_shown(given)}': {error}") from None


def _shown(given: str) -> str:
    """Return a value for an error: the beginning of a long one, without anything that may be a password."""
    return re.sub(r"[^/,\s]*@", "***@", given[:200])


def documentation(record: type[attrs.AttrsInstance] = Options) -> Iterator[str]:
    """Yield a table of docs/spark.md, line by line."""
    yield "| Option | Default | What for |"
    yield "|---|---|---|"
    for field in attrs.fields(record):
        metadata = field.metadata
        default = metadata["default"]
        if default is REQUIRED:
            shown = "must be given"
        elif default is None:
            shown = ""
        else:
            shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
        only = f"; {metadata['use'].value} only" if metadata["use"] is not Use.ALWAYS else ""
        yield f"| `{metadata['name']}` | {shown} | {metadata['purpose']}{only} |"
