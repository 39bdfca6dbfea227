"""The control packets of MQTT 3.1.1 and 5, chapter 3: bytes to values and back. No state.

A packet is a byte with its kind and four flags, the size of the rest as a variable byte integer, and that rest, which
is called its body here. `decode` of a class reads a body, `encode` returns the whole packet. `version` is the protocol
version that CONNECT says: 4 is 3.1.1, and 5 is 5. A packet of version 4 has no properties and, outside of CONNACK and
SUBACK, no reason codes: those that are set are not sent.

`decode` raises MalformedError for what cannot be read, ProtocolError for what is not allowed, and MqttError with
another reason code where the specification names one. `encode` raises ValueError for what does not fit the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import ClassVar, Final, TypeAlias

import attrs

from leveret.protocols.mqtt.codec import reason_codes
from leveret.protocols.mqtt.codec.errors import MalformedError, MqttError, ProtocolError
from leveret.protocols.mqtt.codec.properties import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    KIND_NAMES,
    NONE,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    WILL,
    Properties,
    encode_properties,
    properties_at,
)
from leveret.protocols.mqtt.codec.topics import check_topic_filter, check_topic_name, shared
from leveret.protocols.mqtt.codec.values import (
    binary_at,
    byte_at,
    encode_binary,
    encode_string,
    encode_two_bytes,
    encode_variable,
    string_at,
    two_bytes_at,
)

MQTT_311: Final = 4
MQTT_5: Final = 5
NAME: Final = "MQTT"
BRIDGE: Final = 0x80  # of the protocol level
VERSIONS: Final = {MQTT_311: MQTT_311, MQTT_311 | BRIDGE: MQTT_311, MQTT_5: MQTT_5}  # by protocol level

QOS_MAX: Final = 2
DUP: Final = 0x08
RETAIN: Final = 0x01

# The flags of a packet's first byte (table 2-2); those of a PUBLISH say something.
FLAGS: Final = {kind: 0 for kind in range(CONNECT, AUTH + 1) if kind != PUBLISH} | {
    PUBREL: 2,
    SUBSCRIBE: 2,
    UNSUBSCRIBE: 2,
}
EITHER: Final = frozenset((PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH))
OF_CLIENTS: Final = EITHER | {CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ}
OF_SERVERS: Final = EITHER | {CONNACK, SUBACK, UNSUBACK, PINGRESP}

# Bits of a CONNECT's flags.
USER_NAME: Final = 0x80
PASSWORD: Final = 0x40
WILL_RETAIN: Final = 0x20
WILL_QOS: Final = 0x18
WILL_FLAG: Final = 0x04
CLEAN_START: Final = 0x02
RESERVED: Final = 0x01

# Bits of a subscription's options in version 5.
NO_LOCAL: Final = 0x04
RETAIN_AS_PUBLISHED: Final = 0x08
RETAIN_HANDLING_MAX: Final = 2

REASONS_OF_RETURN_CODES: Final = (
    reason_codes.SUCCESS,
    reason_codes.UNSUPPORTED_PROTOCOL_VERSION,
    reason_codes.CLIENT_IDENTIFIER_NOT_VALID,
    reason_codes.SERVER_UNAVAILABLE,
    reason_codes.BAD_USER_NAME_OR_PASSWORD,
    reason_codes.NOT_AUTHORIZED,
)


def whole(first: int, body: bytes) -> bytes:
    """Return a packet with this first byte and body."""
    return bytes((first,)) + encode_variable(len(body)) + body


@attrs.define
class Will:
    """The message that is published when its client is gone."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


@attrs.define
class Connect:
    """CONNECT (section 3.1). `clean_start` is clean session in version 4. `keep_alive` is seconds; 0 is off.

    A client of version 4 that is a bridge between brokers may say so by the highest bit of the protocol level, which is
    no part of the specification; Mosquitto's does.
    """

    kind: ClassVar[int] = CONNECT

    version: int
    client_id: str = ""
    clean_start: bool = True
    keep_alive: int = 0
    user_name: str | None = None
    password: bytes | None = attrs.field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = NONE
    is_bridge: bool = False

    @staticmethod
    def decode(body: bytes) -> Connect:
        end = len(body)
        version, at = level_at(body)
        is_bridge = body[at - 1] != version
        flags, at = byte_at(body, at, end)
        _check_flags(flags, version)
        keep_alive, at = two_bytes_at(body, at, end)
        properties, at = _properties_at(body, at, end, CONNECT, version)
        client_id, at = string_at(body, at, end)
        will = None
        if flags & WILL_FLAG:
            will, at = _will_at(body, at, flags, version)
        user_name = password = None
        if flags & USER_NAME:
            user_name, at = string_at(body, at, end)
        if flags & PASSWORD:
            password, at = binary_at(body, at, end)
        _expect_end(at, end)
        is_clean = bool(flags & CLEAN_START)
        return Connect(
            version, client_id, is_clean, keep_alive, user_name, password, will, properties, is_bridge
        )

    def encode(self, version: int = 0) -> bytes:
        """Return the packet, in its own version."""
        will = self.will
        flags = CLEAN_START if self.clean_start else 0
        if self.user_name is not None:
            flags |= USER_NAME
        if self.password is not None:
            flags |= PASSWORD
        if will is not None:
            flags |= WILL_FLAG | will.qos << 3 | (WILL_RETAIN if will.retain else 0)
        parts = [
            encode_string(NAME)
            + bytes((self.version | BRIDGE * self.is_bridge, flags))
            + encode_two_bytes(self.keep_alive),
            _encoded_properties(self.properties, self.version),
            encode_string(self.client_id),
        ]
        if will is not None:
            parts.append(_encoded_properties(will.properties, self.version))
            parts.append(encode_string(will.topic) + encode_binary(will.payload))
        if self.user_name is not None:
            parts.append(encode_string(self.user_name))
        if self.password is not None:
            parts.append(encode_binary(self.password))
        return whole(CONNECT << 4, b"".join(parts))


def level_at(body: bytes) -> tuple[int, int]:
    """Read protocol name and version at the beginning of a CONNECT's body.

    Raises MqttError 0x84 for another protocol than MQTT 3.1.1 and 5.
    """
    name, at = string_at(body, 0, len(body))
    if name != NAME:
        raise MqttError(reason_codes.UNSUPPORTED_PROTOCOL_VERSION, "the protocol's name is not MQTT")
    level, at = byte_at(body, at, len(body))
    if level not in VERSIONS:
        text = f"protocol version {level} is not supported"
        raise MqttError(reason_codes.UNSUPPORTED_PROTOCOL_VERSION, text)
    return VERSIONS[level], at


def _check_flags(flags: int, version: int) -> None:
    if flags & RESERVED:
        raise MalformedError("the reserved flag of a CONNECT is set")
    if flags & WILL_FLAG:
        if flags & WILL_QOS == WILL_QOS:
            raise MalformedError("the QoS of a will is 3")
    elif flags & (WILL_QOS | WILL_RETAIN):
        raise MalformedError("there are flags of a will, but no will")
    if version == MQTT_311 and flags & PASSWORD and not flags & USER_NAME:
        raise MalformedError("there is a password, but no user name")


def _will_at(body: bytes, at: int, flags: int, version: int) -> tuple[Will, int]:
    end = len(body)
    properties, at = _properties_at(body, at, end, WILL, version)
    topic, at = string_at(body, at, end)
    check_topic_name(topic)
    payload, at = binary_at(body, at, end)
    return Will(topic, payload, (flags & WILL_QOS) >> 3, bool(flags & WILL_RETAIN), properties), at


@attrs.define
class ConnAck:
    """CONNACK (section 3.2). The return codes of version 4 are read as the reason codes that they stand for."""

    kind: ClassVar[int] = CONNACK

    reason_code: int = reason_codes.SUCCESS
    session_present: bool = False
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> ConnAck:
        end = len(body)
        flags, at = byte_at(body, 0, end)
        if flags > 1:
            raise MalformedError("reserved flags of a CONNACK are set")
        reason_code, at = byte_at(body, at, end)
        if version == MQTT_311:
            if reason_code >= len(REASONS_OF_RETURN_CODES):
                raise ProtocolError(f"return code {reason_code} is unknown")
            reason_code = REASONS_OF_RETURN_CODES[reason_code]
        else:
            _check_reason(reason_code, reason_codes.OF_CONNACK, CONNACK)
        if flags and reason_code:
            raise ProtocolError("a session is present, but the connection refused")
        properties, at = _properties_at(body, at, end, CONNACK, version)
        _expect_end(at, end)
        return ConnAck(reason_code, bool(flags), properties)

    def encode(self, version: int) -> bytes:
        """Return the packet. In version 4 a reason code that no return code stands for is a ValueError."""
        code = self.reason_code
        if version == MQTT_311:
            if code not in reason_codes.RETURN_CODES:
                raise ValueError(f"no return code stands for reason code {code:#04x}")
            code = reason_codes.RETURN_CODES[code]
        start = bytes((self.session_present, code))
        return whole(CONNACK << 4, start + _encoded_properties(self.properties, version))


@attrs.define
class Publish:
    """PUBLISH (section 3.3). `packet_id` is 0 with QoS 0; the topic may be empty where there is a topic alias."""

    kind: ClassVar[int] = PUBLISH

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NONE

    @staticmethod
    def decode(flags: int, body: bytes, version: int, from_client: bool) -> Publish:
        end = len(body)
        qos = check_publish_flags(flags)
        topic, at = string_at(body, 0, end)
        packet_id = 0
        if qos:
            packet_id, at = _packet_id_at(body, at, end)
        properties, at = _properties_at(body, at, end, PUBLISH, version)
        check_publish(topic, properties, from_client)
        return Publish(topic, body[at:], qos, bool(flags & RETAIN), bool(flags & DUP), packet_id, properties)

    def encode(self, version: int) -> bytes:
        first = PUBLISH << 4 | self.qos << 1 | (RETAIN if self.retain else 0) | (DUP if self.dup else 0)
        parts = (
            encode_string(self.topic),
            encode_two_bytes(self.packet_id) if self.qos else b"",
            _encoded_properties(self.properties, version),
            self.payload,
        )
        return whole(first, b"".join(parts))


def check_publish_flags(flags: int) -> int:
    """Return the QoS in the flags of a PUBLISH. Raises MalformedError for QoS 3, and for DUP with QoS 0."""
    qos = flags >> 1 & 3
    if qos > QOS_MAX:
        raise MalformedError("the QoS of a PUBLISH is 3")
    if flags & DUP and not qos:
        raise MalformedError("a PUBLISH with QoS 0 is a duplicate")
    return qos


def check_publish(topic: str, properties: Properties, from_client: bool) -> None:
    """Raise MqttError for a topic or a property that a PUBLISH may not have."""
    if topic:
        check_topic_name(topic)
    elif properties.topic_alias is None:
        raise ProtocolError("a PUBLISH has neither a topic nor a topic alias")
    if from_client and properties.subscription_identifiers:
        raise ProtocolError("a client sent a subscription identifier with a message")


@attrs.define
class Ack:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7), as `kind` says."""

    kind: int
    packet_id: int
    reason_code: int = reason_codes.SUCCESS
    properties: Properties = NONE

    @staticmethod
    def decode(kind: int, body: bytes, version: int) -> Ack:
        end = len(body)
        packet_id, at = _packet_id_at(body, 0, end)
        if version == MQTT_311 or at == end:
            _expect_end(at, end)
            return Ack(kind, packet_id)
        reason_code, properties = _reason_at(body, at, kind)
        return Ack(kind, packet_id, reason_code, properties)

    def encode(self, version: int) -> bytes:
        rest = encode_two_bytes(self.packet_id) + _encoded_reason(self.reason_code, self.properties, version)
        return whole(self.kind << 4 | FLAGS[self.kind], rest)


@attrs.define
class Subscription:
    """A topic filter with its options (section 3.8.3.1), of which version 4 has only `qos`."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0  # 0: send retained messages, 1: if the subscription is new, 2: do not


@attrs.define
class Subscribe:
    """SUBSCRIBE (section 3.8)."""

    kind: ClassVar[int] = SUBSCRIBE

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> Subscribe:
        end = len(body)
        packet_id, at = _packet_id_at(body, 0, end)
        properties, at = _properties_at(body, at, end, SUBSCRIBE, version)
        found: list[Subscription] = []
        while at < end:
            topic_filter, at = string_at(body, at, end)
            options, at = byte_at(body, at, end)
            found.append(_subscription(topic_filter, options, version))
        if not found:
            raise ProtocolError("a SUBSCRIBE has no topic filter")
        return Subscribe(packet_id, tuple(found), properties)

    def encode(self, version: int) -> bytes:
        parts = [encode_two_bytes(self.packet_id), _encoded_properties(self.properties, version)]
        parts += [encode_string(each.topic_filter) + _options(each, version) for each in self.subscriptions]
        return whole(SUBSCRIBE << 4 | FLAGS[SUBSCRIBE], b"".join(parts))


def _subscription(topic_filter: str, options: int, version: int) -> Subscription:
    if options & (0xFC if version == MQTT_311 else 0xC0):
        raise MalformedError("reserved bits of a subscription's options are set")
    qos, retain_handling = options & 3, options >> 4 & 3
    if qos > QOS_MAX:
        if version == MQTT_311:
            raise MalformedError("the QoS of a subscription is 3")
        raise ProtocolError("the QoS of a subscription is 3")
    if retain_handling > RETAIN_HANDLING_MAX:
        raise ProtocolError("the retain handling of a subscription is 3")
    check_topic_filter(topic_filter)
    no_local = bool(options & NO_LOCAL)
    if version == MQTT_5 and shared(topic_filter) and no_local:
        raise ProtocolError("a shared subscription asks for no local messages")
    return Subscription(topic_filter, qos, no_local, bool(options & RETAIN_AS_PUBLISHED), retain_handling)


def _options(subscription: Subscription, version: int) -> bytes:
    if version == MQTT_311:
        return bytes((subscription.qos,))
    flags = NO_LOCAL * subscription.no_local | RETAIN_AS_PUBLISHED * subscription.retain_as_published
    return bytes((subscription.qos | flags | subscription.retain_handling << 4,))


@attrs.define
class SubAck:
    """SUBACK (section 3.9): a reason code for each topic filter of a SUBSCRIBE, in its order."""

    kind: ClassVar[int] = SUBACK

    packet_id: int
    reason_codes: tuple[int, ...]
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> SubAck:
        end = len(body)
        packet_id, at = _packet_id_at(body, 0, end)
        properties, at = _properties_at(body, at, end, SUBACK, version)
        allowed = reason_codes.OF_SUBACK_311 if version == MQTT_311 else reason_codes.OF_SUBACK
        return SubAck(packet_id, _codes_at(body, at, allowed, SUBACK), properties)

    def encode(self, version: int) -> bytes:
        codes = bytes(self.reason_codes)
        if version == MQTT_311:  # which knows one failure
            codes = bytes([min(code, reason_codes.UNSPECIFIED_ERROR) for code in codes])
        start = encode_two_bytes(self.packet_id) + _encoded_properties(self.properties, version)
        return whole(SUBACK << 4, start + codes)


@attrs.define
class Unsubscribe:
    """UNSUBSCRIBE (section 3.10)."""

    kind: ClassVar[int] = UNSUBSCRIBE

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> Unsubscribe:
        end = len(body)
        packet_id, at = _packet_id_at(body, 0, end)
        properties, at = _properties_at(body, at, end, UNSUBSCRIBE, version)
        found: list[str] = []
        while at < end:
            topic_filter, at = string_at(body, at, end)
            check_topic_filter(topic_filter)
            found.append(topic_filter)
        if not found:
            raise ProtocolError("an UNSUBSCRIBE has no topic filter")
        return Unsubscribe(packet_id, tuple(found), properties)

    def encode(self, version: int) -> bytes:
        parts = [encode_two_bytes(self.packet_id), _encoded_properties(self.properties, version)]
        parts += [encode_string(topic_filter) for topic_filter in self.topic_filters]
        return whole(UNSUBSCRIBE << 4 | FLAGS[UNSUBSCRIBE], b"".join(parts))


@attrs.define
class UnsubAck:
    """UNSUBACK (section 3.11); in version 4 it has no reason codes."""

    kind: ClassVar[int] = UNSUBACK

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> UnsubAck:
        end = len(body)
        packet_id, at = _packet_id_at(body, 0, end)
        if version == MQTT_311:
            _expect_end(at, end)
            return UnsubAck(packet_id)
        properties, at = _properties_at(body, at, end, UNSUBACK, version)
        return UnsubAck(packet_id, _codes_at(body, at, reason_codes.OF_UNSUBACK, UNSUBACK), properties)

    def encode(self, version: int) -> bytes:
        start = encode_two_bytes(self.packet_id)
        if version == MQTT_311:
            return whole(UNSUBACK << 4, start)
        return whole(UNSUBACK << 4, start + encode_properties(self.properties) + bytes(self.reason_codes))


@attrs.define
class PingReq:
    """PINGREQ (section 3.12)."""

    kind: ClassVar[int] = PINGREQ

    def encode(self, version: int) -> bytes:
        return b"\xc0\0"


@attrs.define
class PingResp:
    """PINGRESP (section 3.13)."""

    kind: ClassVar[int] = PINGRESP

    def encode(self, version: int) -> bytes:
        return b"\xd0\0"


@attrs.define
class Disconnect:
    """DISCONNECT (section 3.14); in version 4 only a client sends it, and it says nothing."""

    kind: ClassVar[int] = DISCONNECT

    reason_code: int = reason_codes.NORMAL_DISCONNECTION
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int, from_client: bool) -> Disconnect:
        if version == MQTT_311 or not body:
            _expect_end(0, len(body))
            return Disconnect()
        reason_code, properties = _reason_at(body, 0, DISCONNECT)
        if from_client:
            _check_reason(reason_code, reason_codes.OF_CLIENTS_DISCONNECT, DISCONNECT)
            if properties.server_reference is not None:
                raise ProtocolError("a client sent a server reference")
        else:
            _check_reason(reason_code, reason_codes.OF_SERVERS_DISCONNECT, DISCONNECT)
            if properties.session_expiry_interval is not None:
                raise ProtocolError("a server sent a session expiry interval with its DISCONNECT")
        return Disconnect(reason_code, properties)

    def encode(self, version: int) -> bytes:
        return whole(DISCONNECT << 4, _encoded_reason(self.reason_code, self.properties, version))


@attrs.define
class Auth:
    """AUTH (section 3.15), which version 4 does not have."""

    kind: ClassVar[int] = AUTH

    reason_code: int = reason_codes.SUCCESS
    properties: Properties = NONE

    @staticmethod
    def decode(body: bytes, version: int) -> Auth:
        if version != MQTT_5:
            raise MalformedError("AUTH is a packet of version 5")
        return Auth(*_reason_at(body, 0, AUTH)) if body else Auth()

    def encode(self, version: int) -> bytes:
        return whole(AUTH << 4, _encoded_reason(self.reason_code, self.properties, version))


AnyPacket: TypeAlias = (
    Connect | ConnAck | Publish | Ack | Subscribe | SubAck | Unsubscribe | UnsubAck
    | PingReq | PingResp | Disconnect | Auth
)  # fmt: skip


def check_first(first: int, from_client: bool) -> int:
    """Return the kind of the packet with this first byte.

    Raises MalformedError for a kind or flags that there are not, and ProtocolError for a kind that this side does not
    send.
    """
    kind, flags = first >> 4, first & 0x0F
    if kind == PUBLISH:
        check_publish_flags(flags)
        return kind
    if kind not in FLAGS:
        raise MalformedError("packets of kind 0 do not exist")
    if flags != FLAGS[kind]:
        raise MalformedError(f"the flags of a {KIND_NAMES[kind]} are {flags}")
    if kind not in (OF_CLIENTS if from_client else OF_SERVERS):
        raise ProtocolError(f"a {'client' if from_client else 'server'} sent a {KIND_NAMES[kind]}")
    return kind


def _fine(from_client: bool) -> Iterator[int]:
    """Yield the first bytes that `check_first` takes."""
    for first in range(256):
        with suppress(MqttError):
            check_first(first, from_client)
            yield first


FROM_CLIENTS: Final = frozenset(_fine(True))
FROM_SERVERS: Final = frozenset(_fine(False))


def decode_packet(first: int, body: bytes, version: int, from_client: bool) -> AnyPacket:
    """Return the packet with this first byte and body, as a client or a server has sent it. Raises MqttError."""
    kind = check_first(first, from_client)
    if kind == CONNECT:
        return Connect.decode(body)
    if kind == PUBLISH:
        return Publish.decode(first & 0x0F, body, version, from_client)
    if kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        return Ack.decode(kind, body, version)
    if kind == DISCONNECT:
        return Disconnect.decode(body, version, from_client)
    if kind in (PINGREQ, PINGRESP):
        _expect_end(0, len(body))
        return PingReq() if kind == PINGREQ else PingResp()
    return DECODERS[kind](body, version)


DECODERS: Final[dict[int, Callable[[bytes, int], AnyPacket]]] = {
    CONNACK: ConnAck.decode,
    SUBSCRIBE: Subscribe.decode,
    SUBACK: SubAck.decode,
    UNSUBSCRIBE: Unsubscribe.decode,
    UNSUBACK: UnsubAck.decode,
    AUTH: Auth.decode,
}


def _properties_at(body: bytes, at: int, end: int, kind: int, version: int) -> tuple[Properties, int]:
    return properties_at(body, at, end, kind) if version == MQTT_5 else (NONE, at)


def _encoded_properties(properties: Properties, version: int) -> bytes:
    return encode_properties(properties) if version == MQTT_5 else b""


def _packet_id_at(body: bytes, at: int, end: int) -> tuple[int, int]:
    packet_id, at = two_bytes_at(body, at, end)
    if not packet_id:
        raise ProtocolError("a packet identifier is 0")
    return packet_id, at


REASONS: Final = {
    PUBACK: reason_codes.OF_PUBACK,
    PUBREC: reason_codes.OF_PUBACK,
    PUBREL: reason_codes.OF_PUBREL,
    PUBCOMP: reason_codes.OF_PUBREL,
    DISCONNECT: reason_codes.OF_CLIENTS_DISCONNECT | reason_codes.OF_SERVERS_DISCONNECT,
    AUTH: reason_codes.OF_AUTH,
}


def _reason_at(body: bytes, at: int, kind: int) -> tuple[int, Properties]:
    """Read a reason code and, unless the packet ends there, its properties, which end it."""
    end = len(body)
    reason_code, at = byte_at(body, at, end)
    _check_reason(reason_code, REASONS[kind], kind)
    properties = NONE
    if at < end:
        properties, at = properties_at(body, at, end, kind)
    _expect_end(at, end)
    return reason_code, properties


def _encoded_reason(reason_code: int, properties: Properties, version: int) -> bytes:
    """Return what is sent of a reason code and properties: nothing, where they say nothing."""
    if version == MQTT_311 or (properties == NONE and not reason_code):
        return b""
    return bytes((reason_code,)) + (b"" if properties == NONE else encode_properties(properties))


def _codes_at(body: bytes, at: int, allowed: frozenset[int], kind: int) -> tuple[int, ...]:
    codes = tuple(body[at:])
    if not codes:
        raise ProtocolError(f"a {KIND_NAMES[kind]} has no reason code")
    for code in codes:
        _check_reason(code, allowed, kind)
    return codes


def _check_reason(code: int, allowed: frozenset[int], kind: int) -> None:
    if code not in allowed:
        raise ProtocolError(f"a {KIND_NAMES[kind]} has no reason code {code:#04x}")


def _expect_end(at: int, end: int) -> None:
    if at != end:
        raise MalformedError(f"{end - at} bytes follow the last field")
