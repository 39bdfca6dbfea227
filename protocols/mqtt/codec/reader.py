"""The splitter of MQTT input: bytes as they come become packets, those that are many in runs.

Nearly all traffic is PUBLISH packets and their acknowledgements. `Reader.take` returns them gathered: a `PublishRun`
has the columns of all whole PUBLISH packets that follow each other with the same first byte, and an `AckRun` the
identifiers of acknowledgements that say nothing else. Both are read in straight code, without a call for each field;
whatever is unusual in a packet ends the run, and `packets.decode_packet` reads that packet, or says what is wrong with
it. Tests hold that both ways read the same.

Topics and properties repeat themselves, so both are remembered by their bytes: what a run has twice is the same object,
and checked once.

A packet that is larger than allowed is refused by its first bytes. Input is kept in the pieces in which it came, and
joined once a packet is whole; the payload of a large PUBLISH is joined directly.
"""

from typing import ClassVar, Final, TypeAlias

from mypy_extensions import i64

from leveret.protocols.mqtt.codec.errors import MalformedError, MqttError, ProtocolError
from leveret.protocols.mqtt.codec.packets import (
    DUP,
    FROM_CLIENTS,
    FROM_SERVERS,
    MQTT_5,
    RETAIN,
    Ack,
    AnyPacket,
    Publish,
    check_first,
    check_publish,
    decode_packet,
    level_at,
)
from leveret.protocols.mqtt.codec.properties import (
    CONNECT,
    NONE,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    Properties,
    decode_properties,
)
from leveret.protocols.mqtt.codec.reason_codes import PACKET_TOO_LARGE
from leveret.protocols.mqtt.codec.topics import check_topic_name
from leveret.protocols.mqtt.codec.values import text_of, two_bytes_at, variable_at
from leveret.protocols.shared.machine.pieces import keep

PACKET_MAX: Final = 268_435_460  # bytes of the largest packet that the wire format can express

RUN_MAX: Final = 1024  # packets of a run, so that others have a turn
REMEMBERED_MAX: Final = 1024  # topics, and properties, that are remembered
REMEMBERED_SIZE_MAX: Final = 256  # bytes of each
QOS: Final = 0x06  # the bits of the first byte that are the QoS
LARGE: Final = 16_384  # bytes of a packet; to join less is quicker than to treat it on its own


class PublishRun:
    """PUBLISH packets with the same QoS and flags, in columns; there is at least one.

    `packet_ids` is empty with QoS 0. `is_alike` is true if all have the same topic and properties.
    """

    __slots__ = ("dup", "is_alike", "packet_ids", "payloads", "properties", "qos", "retain", "topics")

    kind: ClassVar[int] = PUBLISH

    def __init__(self, flags: int) -> None:
        self.qos = flags >> 1 & 3
        self.retain = bool(flags & RETAIN)
        self.dup = bool(flags & DUP)
        self.topics: list[str] = []
        self.properties: list[Properties] = []
        self.payloads: list[bytes] = []
        self.packet_ids: list[int] = []
        self.is_alike = True

    def packets(self) -> list[Publish]:
        """Return the packets one by one."""
        return [
            Publish(
                self.topics[at],
                self.payloads[at],
                self.qos,
                self.retain,
                self.dup,
                self.packet_ids[at] if self.qos else 0,
                self.properties[at],
            )
            for at in range(len(self.payloads))
        ]


class AckRun:
    """PUBACK, PUBREC, PUBREL or PUBCOMP packets, as `kind` says, that have reason code 0 and no properties."""

    __slots__ = ("kind", "packet_ids")

    def __init__(self, kind: int, packet_ids: list[int]) -> None:
        self.kind = kind
        self.packet_ids = packet_ids

    def packets(self) -> list[Ack]:
        """Return the packets one by one."""
        return [Ack(self.kind, packet_id) for packet_id in self.packet_ids]


Taken: TypeAlias = AnyPacket | PublishRun | AckRun  # but no Publish


class Reader:
    """The reader of one connection's input.

    `version` is 0 until a CONNECT has said it; the reader of a client is given it. It is set also if the rest of the
    CONNECT is wrong, so that the error can be told in its words. `packet_size_max` may be changed between packets.
    """

    __slots__ = (
        "_at",
        "_data",
        "_fine",
        "_from_client",
        "_needed",
        "_pieces",
        "_pieces_size",
        "_properties",
        "_topics",
        "packet_size_max",
        "version",
    )

    def __init__(self, packet_size_max: int = PACKET_MAX, from_client: bool = True, version: int = 0) -> None:
        self.packet_size_max = packet_size_max
        self.version = version
        self._from_client = from_client
        self._fine = FROM_CLIENTS if from_client else FROM_SERVERS  # first bytes
        self._data = b""  # what is being read, from `_at` on
        self._at = 0
        self._pieces: list[bytes] = []  # what came behind it
        self._pieces_size = 0
        self._needed = 1  # bytes from `_at` on, before there can be another packet
        self._topics: dict[bytes, str] = {}
        self._properties: dict[bytes, Properties] = {}

    @property
    def waiting(self) -> int:
        """The number of bytes that have been received and not yet returned as packets."""
        return len(self._data) - self._at + self._pieces_size

    def push(self, data: bytes) -> None:
        """Receive bytes."""
        if data:
            keep(self._pieces, data)
            self._pieces_size += len(data)

    def take(self) -> Taken | None:
        """Return the next packet or run, or None until more bytes have come.

        Raises MqttError for a packet that is wrong, after all before it have been returned; nothing can be read
        afterwards.
        """
        while True:
            data, at = self._data, self._at
            if len(data) - at < self._needed:
                if len(data) - at + self._pieces_size < self._needed:
                    return None
                if self._needed >= LARGE and (large := self._take_large()) is not None:
                    return large
                self._join()
                data, at = self._data, 0
            first = data[at]
            kind = first >> 4
            if kind == PUBLISH and self.version:
                run = self._publish_run(first)
                if run is not None:
                    return run
            elif PUBACK <= kind <= PUBCOMP and self.version:
                acknowledged = self._ack_run(first)
                if acknowledged is not None:
                    return acknowledged
            body_at, end = self._bounds(data, at)
            if body_at:
                self._at = end
                self._needed = 1
                return self._decode(data, at, body_at, end)

    def _join(self) -> None:
        """Join what is left with what came behind it."""
        rest = self._data[self._at :]
        pieces = self._pieces
        self._data = b"".join((rest, *pieces)) if rest or len(pieces) > 1 else pieces[0]
        self._pieces = []
        self._at = self._pieces_size = 0

    def _bounds(self, data: bytes, at: int) -> tuple[int, int]:
        """Return where the body of the packet at `at` begins and ends, or zeros while it is not whole.

        Then `_needed` says how many bytes must be there. Raises MqttError as soon as the first bytes are wrong.
        """
        first = data[at]
        kind = first >> 4 if first in self._fine else check_first(first, self._from_client)
        if not self.version and kind != CONNECT:
            raise ProtocolError("the first packet is no CONNECT")
        if self.version and kind == CONNECT:
            raise ProtocolError("a second CONNECT")
        end = len(data)
        body_at = at + 1
        size = shift = 0
        while True:
            if body_at >= end:
                self._needed = body_at - at + 1
                return 0, 0
            byte = data[body_at]
            body_at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedError("the size of a packet has more than four bytes")
        after = body_at + size
        if after - at > self.packet_size_max:
            raise MqttError(PACKET_TOO_LARGE, f"a packet of {after - at} bytes is larger than allowed")
        if after > end:
            self._needed = after - at
            return 0, 0
        return body_at, after

    def _decode(self, data: bytes, at: int, body_at: int, end: int) -> Taken:
        """Return the packet at `at`, whose body is `data[body_at:end]`."""
        first, body = data[at], data[body_at:end]
        if first >> 4 == CONNECT:
            self.version = level_at(body)[0]
        if self.version == MQTT_5 and body_at - at > 2 and not data[body_at - 1]:
            raise MalformedError("the size of a packet is longer than necessary")
        packet = decode_packet(first, body, self.version, self._from_client)
        return run_of(packet) if isinstance(packet, Publish) else packet

    def _ack_run(self, first: int) -> AckRun | None:
        """Return the acknowledgements with this first byte that are whole and have no reason code, or None."""
        data = self._data
        at: i64 = self._at
        end: i64 = len(data) - 3
        packet_ids: list[int] = []
        while at < end and data[at] == first and data[at + 1] == 2 and len(packet_ids) < RUN_MAX:
            upper: i64 = data[at + 2]
            lower: i64 = data[at + 3]
            packet_id = upper << 8 | lower
            if not packet_id:
                break
            packet_ids.append(int(packet_id))
            at += 4
        if not packet_ids:
            return None
        if first not in self._fine:
            check_first(first, self._from_client)
        self._at = int(at)
        self._needed = 1
        return AckRun(first >> 4, packet_ids)

    def _publish_run(self, first: int) -> PublishRun | None:
        """Return the PUBLISH packets with this first byte that are whole, or None if the first one is not, or is
        unusual."""
        flags = first & 0x0F
        qos = flags >> 1 & 3
        if qos == 3 or (flags & DUP and not qos):
            return None
        data = self._data
        at: i64 = self._at
        end: i64 = len(data)
        size_max: i64 = self.packet_size_max
        has_properties = self.version == MQTT_5
        known_topics = self._topics
        run = PublishRun(flags)
        topics, several, payloads, packet_ids = run.topics, run.properties, run.payloads, run.packet_ids
        properties = NONE
        packet_id: i64 = 0
        count = 0
        while at + 4 < end and data[at] == first and count < RUN_MAX:
            size: i64 = data[at + 1]
            body = at + 2
            if size > 0x7F:
                second: i64 = data[at + 2]
                third: i64 = data[at + 3]
                if second < 0x80:
                    size = (size & 0x7F) | second << 7
                    body = at + 3
                elif third < 0x80:
                    size = (size & 0x7F) | (second & 0x7F) << 7 | third << 14
                    body = at + 4
                else:
                    break  # larger than 2 MiB
                if not data[body - 1]:
                    break
            after = body + size
            if after > end or size < 2 or after - at > size_max:
                break
            upper: i64 = data[body]
            lower: i64 = data[body + 1]
            payload_at = body + 2 + (upper << 8 | lower)
            if payload_at > after:
                break
            octets = data[body + 2 : payload_at]
            topic = known_topics.get(octets)
            if topic is None:
                topic = self._new_topic(octets)
                if topic is None:
                    break
            if qos:
                if payload_at + 2 > after:
                    break
                upper = data[payload_at]
                lower = data[payload_at + 1]
                packet_id = upper << 8 | lower
                payload_at += 2
                if not packet_id:
                    break
            if has_properties:
                if payload_at >= after:
                    break
                if data[payload_at]:
                    found = self._properties_at(data, int(payload_at), int(after))
                    if found is None:
                        break
                    properties = found[0]
                    payload_at = found[1]
                else:
                    properties = NONE
                    payload_at += 1
            if not topic and properties.topic_alias is None:
                break
            if count and (topic is not topics[-1] or properties is not several[-1]):
                run.is_alike = False
            topics.append(topic)
            several.append(properties)
            payloads.append(data[payload_at:after])
            if qos:
                packet_ids.append(int(packet_id))
            at = after
            count += 1
        if not count:
            return None
        self._at = int(at)
        self._needed = 1
        return run

    def _new_topic(self, octets: bytes) -> str | None:
        """Return a topic that is not remembered, or None if it is wrong."""
        if not octets:  # a topic alias stands for it
            return ""
        try:
            topic = text_of(octets)
            check_topic_name(topic)
        except MqttError:
            return None
        if len(octets) <= REMEMBERED_SIZE_MAX:
            if len(self._topics) >= REMEMBERED_MAX:
                self._topics.clear()
            self._topics[octets] = topic
        return topic

    def _properties_at(self, data: bytes, at: int, end: int) -> tuple[Properties, int] | None:
        """Return the properties of a PUBLISH and the offset after them, or None if they are wrong."""
        try:
            size, at = variable_at(data, at, end)
            after = at + size
            if after > end:
                return None
            octets = data[at:after]
            found = self._properties.get(octets)
            if found is None:
                found = decode_properties(octets, PUBLISH)
                check_publish("x", found, self._from_client)
        except MqttError:
            return None
        if size <= REMEMBERED_SIZE_MAX:
            if len(self._properties) >= REMEMBERED_MAX:
                self._properties.clear()
            self._properties[octets] = found
        return found, after

    def _take_large(self) -> PublishRun | None:
        """Return the PUBLISH of which `_needed` bytes are there now, or None if it is to be read as others are.

        The payload is joined from the pieces, and its bytes are copied once.
        """
        data, start = self._data, self._at
        head_end = self._head_end(data, start)
        if not head_end:
            return None
        size = self._needed
        parts: list[bytes | memoryview] = [memoryview(data)[head_end:]]
        missing = size - (len(data) - start)
        pieces = self._pieces
        count = 0
        while missing > len(pieces[count]):
            parts.append(pieces[count])
            missing -= len(pieces[count])
            count += 1
        last = pieces[count]
        parts.append(memoryview(last)[:missing])
        body_at = variable_at(data, start + 1, len(data))[1]
        publish = Publish.decode(data[start] & 0x0F, data[body_at:head_end], self.version, self._from_client)
        publish.payload = b"".join(parts)
        self._data, self._at, self._needed = last, missing, 1
        self._pieces = pieces[count + 1 :]
        self._pieces_size = sum(map(len, self._pieces))
        return run_of(publish)

    def _head_end(self, data: bytes, at: int) -> int:
        """Return where the payload of the PUBLISH at `at` begins, or 0 if that is not there yet, or it is none."""
        if data[at] >> 4 != PUBLISH or not self.version:
            return 0
        end = len(data)
        try:
            _, at_topic = variable_at(data, at + 1, end)
            topic_size, payload_at = two_bytes_at(data, at_topic, end)
            payload_at += topic_size + (2 if data[at] & QOS else 0)
            if self.version == MQTT_5:
                size, payload_at = variable_at(data, payload_at, end)
                payload_at += size
        except MalformedError:
            return 0
        return payload_at if payload_at <= end and payload_at - at <= self._needed else 0


def run_of(publish: Publish) -> PublishRun:
    """Return a run of one packet."""
    run = PublishRun(publish.qos << 1)
    run.retain, run.dup = publish.retain, publish.dup
    run.topics.append(publish.topic)
    run.properties.append(publish.properties)
    run.payloads.append(publish.payload)
    if publish.qos:
        run.packet_ids.append(publish.packet_id)
    return run
