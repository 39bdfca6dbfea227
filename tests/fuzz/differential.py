"""Our codecs beside those of others: what both can read means the same, and what we write, others read.

Each comparison is of what both accept. Where another one is laxer or stricter, that is its own affair; where it reads
another value from the same bytes, it is named here, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs
import pamqp.decode
import pika.data
import pika.spec
import proton
from paho.mqtt import _packet as paho
from paho.mqtt import properties as properties_paho
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode
from pamqp.commands import INDEX_MAPPING

from leveret.protocols.amqp091.codec.fields import AmqpError as AmqpError091
from leveret.protocols.amqp091.codec.fields import Timestamp
from leveret.protocols.amqp091.codec.wire import decode_table, encode_table, method_at
from leveret.protocols.amqp10.codec import reading as reading10
from leveret.protocols.amqp10.codec import writing as writing10
from leveret.protocols.amqp10.codec.errors import AmqpError as AmqpError10
from leveret.protocols.amqp10.codec.types import Array, Decimal32, Decimal64, Decimal128, Described, Key
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.packets import (
    Ack,
    ConnAck,
    Disconnect,
    Publish,
    SubAck,
    UnsubAck,
    decode_packet,
)
from leveret.protocols.mqtt.codec.properties import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SEVERAL,
    SUBACK,
    UNSUBACK,
    Properties,
)
from leveret.protocols.mqtt.codec.values import variable_at
from tests.amqp091 import samples as samples091
from tests.amqp10 import samples as samples10
from tests.fuzz.targets import Fault, Target
from tests.mqtt import samples as samples_mqtt

YEARS_MAX: Final = 253_402_300_799  # seconds until the year 10000, which datetime cannot tell


def plain(value: object) -> object:
    """Return a value in the words that all libraries share: numbers, texts as bytes, lists and maps."""
    if value is None or isinstance(value, bool | Decimal | UUID):
        return value
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, Array):
        return [plain(item) for item in value.items]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return repr(value)


def agree(ours: object, theirs: object, whose: str) -> None:
    if repr(plain(ours)) != repr(plain(theirs)):
        raise Fault(f"{whose} reads {theirs!r}, we read {ours!r}")


def anywhere(value: object, holds: Callable[[object], bool]) -> bool:
    """Return whether something holds of a value, or of one in it."""
    if isinstance(value, dict):
        return any(anywhere(each, holds) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return any(anywhere(each, holds) for each in value)
    return holds(value)


def is_beyond_python(value: object) -> bool:
    """Return whether it is a time that datetime cannot tell, or a text that is no UTF-8."""
    if isinstance(value, Timestamp):
        return int(value) > YEARS_MAX
    return isinstance(value, str) and any("\udc80" <= letter <= "\udcff" for letter in value)


def is_beyond_pamqp(value: object) -> bool:
    """Return whether it is such a thing, a time that pamqp takes for milliseconds, or a number that it takes for less
    than 0."""
    if isinstance(value, Timestamp):
        return int(value) >= 1 << 32
    return is_beyond_python(value) or (isinstance(value, int) and value >= 1 << 63)


def is_beyond_pika(value: object) -> bool:
    """Return whether it is such a thing, or a float: pika makes an integer of it."""
    return is_beyond_python(value) or isinstance(value, float)


def table_with_pamqp(octets: bytes) -> None:
    try:
        ours = decode_table(octets)
    except AmqpError091:
        return
    if anywhere(ours, is_beyond_pamqp):
        return
    written = encode_table(ours)
    used, theirs = pamqp.decode.field_table(written)
    if used != len(written):
        raise Fault(f"pamqp reads {used} of {len(written)} bytes")
    agree(ours, theirs, "pamqp")


def table_with_pika(octets: bytes) -> None:
    try:
        ours = decode_table(octets)
    except AmqpError091:
        return
    if anywhere(ours, is_beyond_pika):
        return
    written = encode_table(ours)
    theirs, end = pika.data.decode_table(written, 0)
    if end != len(written):
        raise Fault(f"pika reads {end} of {len(written)} bytes")
    agree(ours, theirs, "pika")


def method_with_pamqp(octets: bytes) -> None:
    try:
        ours = method_at(octets, 0, len(octets))
    except AmqpError091:
        return
    fields = ours.fields()
    if anywhere(fields, is_beyond_pamqp):
        return
    written = ours.encode()
    known = INDEX_MAPPING.get(int.from_bytes(written[:4], "big"))
    if known is None:  # an extension of RabbitMQ's that pamqp does not have
        return
    theirs = known()
    theirs.unmarshal(written[4:])
    for name, value in theirs:
        ours_as = NAMED.get(name, name)
        if ours_as in fields:
            agree(fields[ours_as], value, f"pamqp, as {ours.name}.{name},")


NAMED: Final = {"nowait": "no_wait", "exchange_type": "type", "global_": "global", "locales": "locales"}


def value_with_proton(octets: bytes) -> None:
    """What we read and write again is read by proton as the same value."""
    try:
        ours, _ = reading10.value_at(octets, 0, len(octets))
    except AmqpError10:
        return
    if not is_shared(ours):
        return
    written = writing10.encode(ours)
    data = proton.Data()
    if data.decode(written) != len(written):
        raise Fault("proton does not read all of it")
    data.rewind()
    data.next()
    agree(ours, unwrapped(data.get_object()), "proton")


def unwrapped(value: object) -> object:
    if isinstance(value, proton.Array):
        return [unwrapped(each) for each in value.elements]
    if isinstance(value, dict):
        return {unwrapped(key): unwrapped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unwrapped(each) for each in value]
    return value


def is_shared(value: object) -> bool:
    """Return whether proton's Python has such a value as we do: no decimals, and as keys only what can be hashed."""
    if isinstance(value, Described | Decimal32 | Decimal64 | Decimal128):
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str | int) for key in value) and all(map(is_shared, value.values()))
    if isinstance(value, Array):
        return all(map(is_shared, value.items))
    return all(map(is_shared, value)) if isinstance(value, list) else not isinstance(value, Key)


def packet_with_paho(octets: bytes) -> None:
    """What a server sends is read by paho as the same packet. The first byte is the packet's, the second says the
    version, and the rest is the body."""
    if len(octets) < 2 or octets[0] >> 4 not in PAHO:
        return
    version = 4 + octets[1] % 2
    try:
        ours = decode_packet(octets[0], octets[2:], version, from_client=False)
    except MqttError:
        return
    written = ours.encode(version)
    body = written[variable_at(written, 1, len(written))[1] :]
    theirs = PAHO[ours.kind](written[0], body, MQTTProtocolVersion(version))
    for name, value in words_of(ours).items():
        found = getattr(theirs, OF_PAHO.get(name, name))
        agree(value, words_of_paho(found, name), f"paho, as {type(ours).__name__}.{name},")
    known = getattr(theirs, "properties", None)
    agree(set_in(ours.properties), {} if known is None else set_in_paho(known), "paho, as properties,")


def words_of(packet: Publish | ConnAck | Ack | SubAck | UnsubAck | Disconnect) -> dict[str, object]:
    """Return what paho has of a packet besides properties. It reads no reason code where none was sent."""
    fields = attrs.asdict(packet, recurse=False)
    fields.pop("properties")
    fields.pop("kind", None)
    if isinstance(packet, Disconnect):
        fields = {"reason_code": packet.reason_code} if packet.reason_code else {}
    if isinstance(packet, UnsubAck) and not packet.reason_codes:
        del fields["reason_codes"]
    return fields


def words_of_paho(value: object, name: str) -> object:
    if isinstance(value, ReasonCode):
        return value.value
    if isinstance(value, list):
        return [words_of_paho(each, name) for each in value]
    return bool(value) if name == "session_present" else value


def set_in(properties: Properties) -> dict[str, object]:
    """Return the properties that are there, by paho's names."""
    found = {
        of_paho(name): value for name, value in attrs.asdict(properties).items() if value not in (None, ())
    }
    return dict(sorted(found.items()))


def of_paho(name: str) -> str:
    words = name.removesuffix("s").replace("propertie", "property") if name in SEVERAL else name
    return words.replace("_", " ").title().replace("Qos", "QoS").replace(" ", "")


def set_in_paho(properties: properties_paho.Properties) -> dict[str, object]:
    names = (name.replace(" ", "") for name in properties.names)
    return dict(sorted((name, getattr(properties, name)) for name in names if hasattr(properties, name)))


PAHO: Final[dict[int, Callable[..., object]]] = {
    CONNACK: paho.decode_connack,
    PUBLISH: paho.decode_publish,
    PUBACK: paho.decode_puback,
    PUBREC: paho.decode_pubrec,
    PUBREL: paho.decode_pubrel,
    PUBCOMP: paho.decode_pubcomp,
    SUBACK: paho.decode_suback,
    UNSUBACK: paho.decode_unsuback,
    DISCONNECT: paho.decode_disconnect,
}
OF_PAHO: Final = {"packet_id": "mid", "reason_code": "reason", "session_present": "flags"}

TABLES: Final = tuple(encode_table({"k": value}) for value, _ in samples091.VALUES)
METHODS: Final = tuple(octets for _, octets in samples091.METHODS)
VALUES: Final = tuple(octets for _, octets in samples10.VALUES)
PACKETS: Final = tuple(
    bytes((each.octets[0], each.version - 4)) + each.octets[2:]
    for each in samples_mqtt.SAMPLES
    if each.packet.kind in PAHO
)

TARGETS: Final[dict[str, Target]] = {
    "091-table-pamqp": Target(table_with_pamqp, TABLES),
    "091-table-pika": Target(table_with_pika, TABLES),
    "091-method-pamqp": Target(method_with_pamqp, METHODS),
    "10-value-proton": Target(value_with_proton, VALUES),
    "mqtt-packet-paho": Target(packet_with_paho, PACKETS),
}
