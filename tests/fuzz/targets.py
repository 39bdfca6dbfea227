"""What is fuzzed: functions that take any bytes, each with what may come of them and samples to begin with.

A target returns for bytes that it can read and for those that it refuses in the right way. Anything that it raises is a
fault: an error in other words than the reader's own, a value that is not the same after it was written and read again,
or two readers that disagree. Targets that differ from another implementation are in `differential.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final
from zlib import crc32

import attrs

from leveret.broker import Broker
from leveret.config import amqp_uri as uri
from leveret.config.config import ConfigError, parse
from leveret.durable.store import block, chunk, records, typed_json
from leveret.durable.store.contract import Append, DamagedError, Entries
from leveret.errors import PreconditionFailed
from leveret.message import Facts, Message
from leveret.protocols.amqp010.broker import encoding as encoding010
from leveret.protocols.amqp010.codec import fields as fields010
from leveret.protocols.amqp010.codec import reading as reading010
from leveret.protocols.amqp010.codec import values as values010
from leveret.protocols.amqp010.codec import writing as writing010
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec.fields import AmqpError as AmqpError091
from leveret.protocols.amqp091.codec.methods import BasicProperties
from leveret.protocols.amqp091.codec.wire import decode_table, encode_table, method_at, property_fields
from leveret.protocols.amqp10.broker import addresses
from leveret.protocols.amqp10.broker import encoding as encoding10
from leveret.protocols.amqp10.broker.publishing import Projection
from leveret.protocols.amqp10.codec import reading as reading10
from leveret.protocols.amqp10.codec import sections, wire
from leveret.protocols.amqp10.codec import writing as writing10
from leveret.protocols.amqp10.codec.errors import AmqpError as AmqpError10
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.packets import AnyPacket, Connect, Publish, decode_packet
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun
from leveret.protocols.mqtt.codec.reader import Reader as ReaderMqtt
from leveret.protocols.mqtt.codec.values import encode_variable
from leveret.selectors.erlang_term import compile_term
from leveret.selectors.parser import Selector, compile_selector
from leveret.selectors.sql_filter import compile_sql
from leveret.server.definitions import importer, reader
from leveret.server.node.proxy_protocol import BadHeader, header_in
from tests.amqp010 import attack as attack010
from tests.amqp010 import samples as samples010
from tests.amqp091 import attack as attack091
from tests.amqp091 import samples as samples091
from tests.amqp10 import attack as attack10
from tests.amqp10 import conversation as conversation10
from tests.amqp10 import samples as samples10
from tests.harness.attack import Attack
from tests.mqtt import attack as attack_mqtt
from tests.mqtt import samples as samples_mqtt

NAME_MAX: Final = 255  # bytes of the name of a queue
READ_MAX: Final = 4096  # bytes of one attack: its time grows with them


@attrs.frozen
class Target:
    """A function of bytes that raises only if there is a fault, and samples to begin with."""

    run: Callable[[bytes], None]
    samples: tuple[bytes, ...]
    is_slow: bool = False  # milliseconds for an input instead of microseconds


class Fault(AssertionError):  # noqa: N818 - it is found, not made
    """Two readings of the same bytes that are not the same."""


def same(first: object, second: object, what: str) -> None:
    """Compare by what is printed, for which a not-a-number is itself."""
    if repr(first) != repr(second):
        raise Fault(f"{what}: {first!r} and {second!r}")


# AMQP 0-9-1.


def table091(octets: bytes) -> None:
    with suppress(AmqpError091):
        table = decode_table(octets)
        same(table, decode_table(encode_table(table)), "a table, written and read again")


def method091(octets: bytes) -> None:
    with suppress(AmqpError091):
        method = method_at(octets, 0, len(octets))
        again = method.encode()
        same(method.fields(), method_at(again, 0, len(again)).fields(), "a method, written and read again")


def properties091(octets: bytes) -> None:
    """The three ways in which properties are read: as a whole, as fields, and one header at a time."""
    try:
        read = BasicProperties.decode(octets)
    except AmqpError091:
        with suppress(AmqpError091, PreconditionFailed):
            encoding091.project(octets)
        return
    written = read.encode()
    same(vars_of(read), vars_of(BasicProperties.decode(written)), "properties, written and read again")
    property_fields(octets)
    headers = encoding091.ENCODING.headers(octets)
    for name in (*headers, "missing"):
        same(header091(octets, name), headers.get(name), f"the header {name!r}")
    with suppress(PreconditionFailed):
        facts, visible = encoding091.project(octets)
        same(facts.has_headers, bool(read.headers), "whether there are headers")
        BasicProperties.decode(visible)


def header091(octets: bytes, name: str) -> object:
    return encoding091.ENCODING.header(octets, name)


def vars_of(properties: BasicProperties) -> list[object]:
    return [getattr(properties, name) for name in BasicProperties.__slots__]


# AMQP 1.0.


def value10(octets: bytes) -> None:
    """A value, which is skipped to the same place at which its reading ends."""
    try:
        value, end = reading10.value_at(octets, 0, len(octets))
    except AmqpError10:
        with suppress(AmqpError10):
            reading10.skip_at(octets, 0, len(octets))
        return
    same(reading10.skip_at(octets, 0, len(octets)), end, "the end of a value")
    written = writing10.encode(value)
    same(value, reading10.value_at(written, 0, len(written))[0], "a value, written and read again")


def performative10(octets: bytes) -> None:
    with suppress(AmqpError10):
        wire.performative_at(octets, 0, len(octets))
    for quick in (wire.disposition_at, wire.flow_at):
        quick(octets, 0, len(octets))


def message10(octets: bytes) -> None:
    try:
        sections.bounds(octets)
        encoding10.project(octets)
        known = Projection(octets)
    except AmqpError10:
        return
    message = Message(encoding10.ENCODING, "", "q", known.properties, octets[known.body_at :], known.facts)
    with suppress(AmqpError10):
        encoding10.ENCODING.convert(message)
        headers = message.headers
        for name in headers:
            same(message.header(name), headers[name], f"the header {name!r}")


def address10(octets: bytes) -> None:
    text = octets.decode("utf-8", "replace")
    for version in (False, True):
        for read in (addresses.target, addresses.source, addresses.subscription):
            with suppress(AmqpError10):
                read(text, version)
    addresses.queue_named(text)
    if 0 < len(text.encode()) <= NAME_MAX:
        same(addresses.queue_named(addresses.queue_address(text)), text, "the address of a queue")


# AMQP 0-10.


def value010(octets: bytes) -> None:
    with suppress(values010.MalformedError):
        value, _ = reading010.map_at(octets, 0, len(octets))
        again = writing010.encode_map(value)
        same(value, reading010.map_at(again, 0, len(again))[0], "a map, written and read again")


def command010(octets: bytes) -> None:
    with suppress(values010.MalformedError, fields010.UnknownCommand):
        fields010.command_at(octets, 0, len(octets))
    with suppress(values010.MalformedError, fields010.UnknownCommand):
        fields010.control_at(octets, 0, len(octets))


def header010(octets: bytes) -> None:
    with suppress(values010.MalformedError):
        encoding010.envelope_of(octets)
        encoding010.ENCODING.read(octets)


# MQTT.


def packets_mqtt(octets: bytes) -> None:
    """The bytes that come after a CONNECT, or from the first one on.

    The first byte says which version and whose, the second how many bytes are read at once: in one piece and in many
    they are the same packets and the same error, and so are those packets written and read again.
    """
    if len(octets) < 2:
        return
    version, from_client, size = (0, 4, 5)[octets[0] % 3], octets[0] < 128, octets[1] + 1
    said = octets[2:READ_MAX]
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    read, error, reader_version = taken_mqtt([said], version, from_client)
    same((read, error, reader_version), taken_mqtt(pieces, version, from_client), "packets, in pieces")
    written = b"".join(packet.encode(reader_version) for packet in read)
    again, _, _ = taken_mqtt([written], version, from_client)
    same(read, again, "packets, written and read again")


def taken_mqtt(
    pieces: list[bytes], version: int, from_client: bool
) -> tuple[list[AnyPacket], tuple[int, str] | None, int]:
    """Return the packets, how reading them ended, and the version that a CONNECT said."""
    reader, found = ReaderMqtt(READ_MAX, from_client, version), []
    try:
        for piece in pieces:
            reader.push(piece)
            while (packet := reader.take()) is not None:
                found += packet.packets() if isinstance(packet, PublishRun | AckRun) else [packet]
    except MqttError as error:
        return found, (error.reason_code, error.text), reader.version
    return found, None, reader.version


def publish_mqtt(octets: bytes) -> None:
    """A PUBLISH, read in a run and by itself. The first byte is its own, but for the version in the highest bit."""
    if not octets:
        return
    first, version, body = 0x30 | octets[0] & 0x0F, 4 + (octets[0] >> 7), octets[1 : READ_MAX - 8]
    read, error, _ = taken_mqtt([bytes((first,)) + encode_variable(len(body)) + body], version, True)
    try:
        alone = decode_packet(first, body, version, True)
    except MqttError as refused:
        same((read, error), ([], (refused.reason_code, refused.text)), "a refused PUBLISH")
    else:
        same((read, error), ([alone], None), "a PUBLISH, in a run and by itself")


# The store.


def chunk_entries(octets: bytes) -> None:
    """Columns with a checksum that fits, so that more is looked at."""
    with suppress(DamagedError):
        chunk.read(octets + chunk.CHECKSUM.pack(crc32(octets)))
    with suppress(DamagedError):
        chunk.read(octets)


def blocks(octets: bytes) -> None:
    """A block of a stream, also with the checksum that fits."""
    with suppress(DamagedError):
        read = block.Block(octets)
        block.messages_of(read, lambda name: encoding091.ENCODING)


def json_values(octets: bytes) -> None:
    text = octets.decode("utf-8", "replace")
    try:
        said = records.json_in(text)
    except typed_json.Unreadable:
        return
    with suppress(typed_json.Unreadable):
        value = typed_json.read(said)
        same(value, typed_json.read(typed_json.written(value)), "a value, written and read again")


# Texts.

MESSAGES: Final = tuple(
    Message(
        encoding091.ENCODING,
        "x",
        "a.b",
        BasicProperties(headers=dict(headers), priority=3, message_id="m", timestamp=1_700_000_000).encode(),
        b"body",
        Facts(has_headers=True, priority=3),
    )
    for headers in (
        {"a": 1, "b": "text", "c": None, "d": 1.5, "e": True, "t": b"\xff"},
        {"a": "1", "n": [1, {"k": 2}]},
    )
)


def selecting(compiled: Callable[[str], Selector]) -> Callable[[bytes], None]:
    """A language of conditions: what compiles says yes or no to every message, at once and without an error."""

    def run(octets: bytes) -> None:
        with suppress(PreconditionFailed):
            selector = compiled(octets.decode("utf-8", "replace"))
            for message in MESSAGES:
                selector.matches(message)

    return run


def configuration(octets: bytes) -> None:
    with suppress(ConfigError):
        parse(octets.decode("utf-8", "replace"), environ={})


def definitions(octets: bytes) -> None:
    """A definitions file, applied to a broker."""
    try:
        read = reader.read(octets)
    except ConfigError:
        return
    importer.apply(read, Broker())


def uris(octets: bytes) -> None:
    text = octets.decode("utf-8", "replace")
    uri.hidden(text)
    with suppress(PreconditionFailed):
        uri.parse(text)


def proxy_header(octets: bytes) -> None:
    with suppress(BadHeader):
        header_in(octets)


def entries_of(*messages: Message) -> Entries:
    """Return a row for each message, and twice for the first."""
    entries = Entries(7, arrived=1_700_000_000_000)
    entries.messages = list(messages)
    for place in (*range(len(messages)), *[0] * bool(messages)):
        entries.queues.append(1 + place % 2)
        entries.positions.append(place)
        entries.priorities.append(place % 3)
        entries.expiries.append(place * 1000)
        entries.records.append(place)
    return entries


# Whole connections.


def attacking(attack: Attack, states: Mapping[str, Callable[..., object]]) -> Callable[[bytes], None]:
    """A connection in the state that the first byte chooses; the second says how many bytes are read at once."""
    chosen = list(states.values())

    def run(octets: bytes) -> None:
        if len(octets) < 2:
            return
        state, size, said = chosen[octets[0] % len(chosen)], octets[1] + 1, octets[2:READ_MAX]
        attack(state, [said[at : at + size * 16] for at in range(0, len(said), size * 16)])

    return run


def conversations(frames: Iterable[bytes], states: int) -> tuple[bytes, ...]:
    """Samples: the words of a good client, and each part of them in each state."""
    said = tuple(frames)
    whole = [bytes((0, 255)) + b"".join(said)[: READ_MAX - 2]]
    return (*whole, *[bytes((at % states, 255)) + frame for at, frame in enumerate(said)])


JSON_SAMPLES: Final = (
    b"{}", b'{"I":"-1"}', b'["a",1,true,null,1.5]', b'{"T":[["a",1]]}', b'{"D":"1.5"}', b'{"x":"00ff"}', b'"text"',
)  # fmt: skip
SELECTORS: Final = (
    b"a = 1 AND b LIKE 't%x_' ESCAPE '\\'",
    b"a BETWEEN 1 AND 2 OR NOT (c IS NULL)",
    b"JMSPriority > 3 AND d * 2 + 1 < -4.5e3",
    b"b IN ('x', 'y''z') OR e = TRUE",
    b"",
)
SQL: Final = (
    b"header.priority > 3 AND properties.subject LIKE 'a%'",
    b"application_properties.a IN (1, 2) AND UTC() > 1",
    b"a % 2 = 0 AND EXISTS(b)",
    b"\"a\" = 'x' || 'y'",
)
TERMS: Final = (
    b'{\'and\', {\'=\', {ident, <<"a">>}, 1}, {like, {ident, <<"b">>}, {<<"t%">>, no_escape}}}.',
    b'{is_null, {ident, <<"c">>}}.',
    b"true.",
    b'{in, {ident, <<"b">>}, [<<"x">>, <<"y">>]}.',
)
SETTINGS: Final = (
    b'[[listeners]]\naddress = "127.0.0.1:5672"\nprotocols = ["amqp091"]\n[limits]\nmessage_size_max = "1MiB"\n',
    b'[[users]]\nname = "a"\npassword = "b"\ntags = ["administrator"]\npermissions."/" = { write = ".*" }\n',
    b'[[policies]]\nname = "p"\npattern = "^q"\ndefinition = { max-length = 1000, message-ttl = 5 }\n',
    b'[node]\ndata_dir = "data"\n[http]\nenabled = true\n[log.levels]\nconnection = "debug"\n',
)
DEFINITIONS: Final = (
    json.dumps(
        {
            "vhosts": [{"name": "/"}, {"name": "v", "default_queue_type": "quorum"}],
            "users": [{"name": "a", "password_hash": "AAAA", "tags": "administrator"}],
            "permissions": [{"user": "a", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [
                {
                    "name": "q",
                    "vhost": "/",
                    "durable": True,
                    "arguments": {"x-max-length": 5, "x-queue-type": "stream"},
                }
            ],
            "exchanges": [{"name": "e", "vhost": "/", "type": "topic", "durable": True, "arguments": {}}],
            "bindings": [
                {
                    "source": "e",
                    "vhost": "/",
                    "destination": "q",
                    "destination_type": "queue",
                    "routing_key": "a.#",
                }
            ],
            "policies": [
                {
                    "name": "p",
                    "vhost": "/",
                    "pattern": "^q",
                    "apply-to": "queues",
                    "definition": {"max-length": 1},
                }
            ],
            "parameters": [
                {"component": "shovel", "name": "s", "vhost": "/", "value": {"src-uri": "amqp://"}}
            ],
        }
    ).encode(),
    b"{}",
    b'{"vhosts": [{"name": "a", "limits": {"max-queues": 1}}], "global_parameters": [{"name": "x", "value": 1}]}',
)
ADDRESSES: Final = (
    b"/queues/q%2Fa", b"/exchanges/e/a%20b", b"/exchanges/e", b"/queue/q", b"/exchange/e/k", b"/topic/a.#",
    b"/amq/queue/q", b"/temp-queue/x", b"q", b"", b"/management",
)  # fmt: skip
URIS: Final = (
    b"amqp://user:secret@host:5672/v%2Fh?heartbeat=10&connection_timeout=5", b"amqps://[::1]/%2f?verify=verify_none",
    b"amqp://", b"amqp:///v",
)  # fmt: skip
PROXIES: Final = (
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 5672\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x03\xe8\x16\x28",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
)
MAPS: Final = (
    writing010.encode_map(
        {"a": 1, "b": "text", "c": None, "d": 1.5, "e": True, "f": b"x", "g": [1, "y"], "h": {"i": 2}}
    ),
    writing010.encode_map({}),
)
PACKETS_MQTT: Final = tuple(
    bytes((0 if isinstance(each.packet, Connect) else each.version - 3 + 129 * (not each.from_client), 255))
    + each.octets
    for each in samples_mqtt.SAMPLES
)
PUBLISHES_MQTT: Final = tuple(
    bytes((each.octets[0] & 0x0F | (each.version - 4) << 7,)) + each.octets[2:]
    for each in samples_mqtt.SAMPLES
    if isinstance(each.packet, Publish)
)
CHUNKS: Final = tuple(
    chunk.pack(entries_of(*messages)).entries[: -chunk.CHECKSUM.size]
    for messages in ((), MESSAGES, MESSAGES * 9)
)
BLOCKS: Final = (block.pack(Append(1, 0, 0, 1_700_000_000_000, list(MESSAGES))),)

TARGETS: Final[dict[str, Target]] = {
    "091-table": Target(table091, tuple(encode_table({"k": value}) for value, _ in samples091.VALUES)),
    "091-method": Target(method091, tuple(octets for _, octets in samples091.METHODS)),
    "091-properties": Target(
        properties091,
        (
            *(octets for _, octets in samples091.PROPERTIES),
            *(BasicProperties(headers={"k": value, "": 1}).encode() for value, _ in samples091.VALUES),
        ),
    ),
    "091-connection": Target(
        attacking(attack091.attack, attack091.STATES),
        conversations(attack091.transcript(), len(attack091.STATES)),
        is_slow=True,
    ),
    "10-value": Target(
        value10,
        (*(octets for _, octets in samples10.VALUES), *samples10.ARRAYS, *samples10.MALFORMED.values()),
    ),
    "10-performative": Target(performative10, tuple(octets for _, octets in samples10.VALUES)),
    "10-message": Target(message10, (b"\0Su\xa0\x04body", b"\0Sp\xc0\x02\x01A\0Ss\xc0\x03\x01\xa1\0\0SwV")),
    "10-address": Target(address10, ADDRESSES),
    "10-connection": Target(
        attacking(attack10.attack, attack10.STATES),
        conversations(conversation10.transcript(), len(attack10.STATES)),
        is_slow=True,
    ),
    "010-map": Target(value010, MAPS),
    "010-command": Target(command010, tuple(each.payload for each in samples010.VECTORS)),
    "010-header": Target(header010, tuple(each.header for each in samples010.VECTORS if each.header)),
    "010-connection": Target(
        attacking(attack010.attack, attack010.STATES),
        conversations(attack010.transcript(), len(attack010.STATES)),
        is_slow=True,
    ),
    "mqtt-packets": Target(packets_mqtt, PACKETS_MQTT),
    "mqtt-publish": Target(publish_mqtt, PUBLISHES_MQTT),
    "mqtt-connection": Target(
        attacking(attack_mqtt.attack, attack_mqtt.STATES),
        conversations(attack_mqtt.transcript(), len(attack_mqtt.STATES)),
        is_slow=True,
    ),
    "chunk": Target(chunk_entries, CHUNKS),
    "block": Target(blocks, BLOCKS),
    "json-value": Target(json_values, JSON_SAMPLES),
    "selector": Target(selecting(compile_selector), SELECTORS),
    "sql-filter": Target(selecting(compile_sql), SQL),
    "erlang-term": Target(selecting(compile_term), TERMS),
    "configuration": Target(configuration, SETTINGS, is_slow=True),
    "definitions": Target(definitions, DEFINITIONS, is_slow=True),
    "uri": Target(uris, URIS),
    "proxy-header": Target(proxy_header, PROXIES),
}
