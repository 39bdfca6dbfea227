"""The properties of MQTT 5, section 2.2.2: bytes to values and back. Pure functions, no state.

One table says which properties there are, how each is written, in which packets it may be, and which values it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from leveret.protocols.mqtt.codec.errors import MalformedError, MqttError, ProtocolError
from leveret.protocols.mqtt.codec.reason_codes import TOPIC_ALIAS_INVALID
from leveret.protocols.mqtt.codec.topics import check_response_topic
from leveret.protocols.mqtt.codec.values import (
    binary_at,
    byte_at,
    encode_binary,
    encode_string,
    encode_two_bytes,
    encode_variable,
    four_bytes_at,
    string_at,
    two_bytes_at,
    variable_at,
)

# Kinds of packets (section 2.1.2). The properties of a will are those of no packet, and have a kind of their own.
WILL: Final = 0
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

KIND_NAMES: Final = (
    "will", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
    "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip

PropertyValue: TypeAlias = int | str | bytes | tuple[str, str]


@attrs.define(repr=False)
class Properties:
    """The properties of a packet or a will; what was not sent is None, or an empty tuple. Treat one as immutable: those
    that were read may be shared by many packets.

    Names and units are the specification's: intervals are seconds.
    """

    payload_format_indicator: int | None = None  # 1: the payload is UTF-8
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()  # one in SUBSCRIBE, any number in a PUBLISH of a server
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()  # in the order in which they were sent
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        """Return the properties that are there, and nothing of a secret."""
        found = ((name, getattr(self, name)) for _, name, *_ in TABLE)
        said = ", ".join(
            f"{name}={'***' if name == SECRET else repr(value)}"
            for name, value in found
            if value not in (None, ())
        )
        return f"Properties({said})"


NONE: Final = Properties()  # of a packet without properties

SECRET: Final = "authentication_data"
SEVERAL: Final = frozenset(
    ("subscription_identifiers", "user_properties")
)  # may be in a packet more than once


def _is_flag(value: int) -> bool:
    return value <= 1


def _is_positive(value: int) -> bool:
    return value > 0


def _pair_at(data: bytes, at: int, end: int) -> tuple[tuple[str, str], int]:
    name, at = string_at(data, at, end)
    value, at = string_at(data, at, end)
    return (name, value), at


Read: TypeAlias = Callable[[bytes, int, int], tuple[PropertyValue, int]]
Valid: TypeAlias = Callable[[int], bool] | None

MESSAGE: Final = (WILL, PUBLISH)
ANSWERS: Final = (CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)
LOGINS: Final = (CONNECT, CONNACK, AUTH)
ANY: Final = tuple(kind for kind in range(AUTH + 1) if kind not in (PINGREQ, PINGRESP))

# Table 2-4: identifier, name, type, packets that may have it, and the values that are allowed if not all of the type.
TABLE: Final[tuple[tuple[int, str, Read, tuple[int, ...], Valid], ...]] = (
    (0x01, "payload_format_indicator", byte_at, MESSAGE, _is_flag),
    (0x02, "message_expiry_interval", four_bytes_at, MESSAGE, None),
    (0x03, "content_type", string_at, MESSAGE, None),
    (0x08, "response_topic", string_at, MESSAGE, None),
    (0x09, "correlation_data", binary_at, MESSAGE, None),
    (0x0B, "subscription_identifiers", variable_at, (PUBLISH, SUBSCRIBE), _is_positive),
    (0x11, "session_expiry_interval", four_bytes_at, (CONNECT, CONNACK, DISCONNECT), None),
    (0x12, "assigned_client_identifier", string_at, (CONNACK,), None),
    (0x13, "server_keep_alive", two_bytes_at, (CONNACK,), None),
    (0x15, "authentication_method", string_at, LOGINS, None),
    (0x16, "authentication_data", binary_at, LOGINS, None),
    (0x17, "request_problem_information", byte_at, (CONNECT,), _is_flag),
    (0x18, "will_delay_interval", four_bytes_at, (WILL,), None),
    (0x19, "request_response_information", byte_at, (CONNECT,), _is_flag),
    (0x1A, "response_information", string_at, (CONNACK,), None),
    (0x1C, "server_reference", string_at, (CONNACK, DISCONNECT), None),
    (0x1F, "reason_string", string_at, ANSWERS, None),
    (0x21, "receive_maximum", two_bytes_at, (CONNECT, CONNACK), _is_positive),
    (0x22, "topic_alias_maximum", two_bytes_at, (CONNECT, CONNACK), None),
    (0x23, "topic_alias", two_bytes_at, (PUBLISH,), None),
    (0x24, "maximum_qos", byte_at, (CONNACK,), _is_flag),
    (0x25, "retain_available", byte_at, (CONNACK,), _is_flag),
    (0x26, "user_properties", _pair_at, ANY, None),
    (0x27, "maximum_packet_size", four_bytes_at, (CONNECT, CONNACK), _is_positive),
    (0x28, "wildcard_subscription_available", byte_at, (CONNACK,), _is_flag),
    (0x29, "subscription_identifier_available", byte_at, (CONNACK,), _is_flag),
    (0x2A, "shared_subscription_available", byte_at, (CONNACK,), _is_flag),
)
ROWS: Final = {identifier: (name, read, kinds, valid) for identifier, name, read, kinds, valid in TABLE}


def properties_at(data: bytes, at: int, end: int, kind: int) -> tuple[Properties, int]:
    """Read the properties of a packet of this kind, with their length. Raises MqttError."""
    size, at = variable_at(data, at, end)
    after = at + size
    if after > end:
        raise MalformedError("the properties are longer than the packet")
    return (decode_properties(data[at:after], kind) if size else NONE), after


def decode_properties(octets: bytes, kind: int) -> Properties:
    """Return the properties of a packet of this kind from their bytes without the length.

    Raises MalformedError for one that such a packet may not have, ProtocolError for one that is there twice or has a
    value that is not allowed, and MqttError 0x94 for topic alias 0.
    """
    found: dict[str, PropertyValue] = {}
    identifiers: list[int] = []
    pairs: list[tuple[str, str]] = []
    at, end = 0, len(octets)
    while at < end:
        row = ROWS.get(octets[at])
        if row is None:
            raise MalformedError(f"property {octets[at]:#04x} is unknown")
        name, read, kinds, valid = row
        if kind not in kinds:
            raise MalformedError(f"a {KIND_NAMES[kind]} has no property {name}")
        value, at = read(octets, at + 1, end)
        if isinstance(value, tuple):
            pairs.append(value)
            continue
        if valid is not None and isinstance(value, int) and not valid(value):
            raise ProtocolError(f"property {name} is {value}")
        if name == "subscription_identifiers" and isinstance(value, int):
            identifiers.append(value)
        elif name in found:
            raise ProtocolError(f"property {name} is there twice")
        else:
            found[name] = value
    properties = Properties(subscription_identifiers=tuple(identifiers), user_properties=tuple(pairs))
    for name, value in found.items():
        setattr(properties, name, value)
    _check(properties, kind)
    return properties


def _check(properties: Properties, kind: int) -> None:
    """Raise MqttError for values that are wrong, or do not go together."""
    if properties.topic_alias == 0:
        raise MqttError(TOPIC_ALIAS_INVALID, "topic alias 0 is not allowed")
    if properties.response_topic is not None:
        check_response_topic(properties.response_topic)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError("there are authentication data, but no authentication method")
    if kind == SUBSCRIBE and len(properties.subscription_identifiers) > 1:
        raise ProtocolError("property subscription_identifiers is there twice")


def encode_properties(properties: Properties) -> bytes:
    """Return the properties with their length in front; `b"\\0"` for none. Raises ValueError for a value that does not
    fit.

    Which packet they are for is not checked.
    """
    if properties is NONE:
        return b"\0"
    octets = b"".join([bytes((identifier,)) + value for identifier, value in _encoded(properties)])
    return encode_variable(len(octets)) + octets


def _encoded(properties: Properties) -> list[tuple[int, bytes]]:
    """Return the identifier and the bytes of each property, in the order of the table."""
    out: list[tuple[int, bytes]] = []
    for identifier, name, read, _, _ in TABLE:
        value = getattr(properties, name)
        if name == "user_properties":
            out += [(identifier, encode_string(key) + encode_string(text)) for key, text in value]
        elif name == "subscription_identifiers":
            out += [(identifier, encode_variable(number)) for number in value]
        elif value is not None:
            out.append((identifier, ENCODERS[read](value)))
    return out


def _encode_byte(value: int) -> bytes:
    return bytes((value,))


def _encode_four_bytes(value: int) -> bytes:
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit four bytes")
    return value.to_bytes(4, "big")


ENCODERS: Final[dict[Read, Callable[..., bytes]]] = {
    byte_at: _encode_byte,
    two_bytes_at: encode_two_bytes,
    four_bytes_at: _encode_four_bytes,
    string_at: encode_string,
    binary_at: encode_binary,
}
