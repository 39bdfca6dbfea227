"""Packets that are sent often, written with as few calls as possible: PUBLISH, and acknowledgements without a reason.

A message goes to many subscribers: what is the same in all of them is encoded once. `topic` is a topic name with its
size in front (`topic_field`); `properties` is what `encode_properties` returns in version 5, and `b""` in version 4.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from leveret.protocols.mqtt.codec.values import encode_string, encode_variable

PUBLISH_FIRST: Final = 0x30  # the first byte of a PUBLISH; QoS << 1, and these:
RETAIN: Final = 0x01
DUP: Final = 0x08

SMALL_PAYLOAD_MAX: Final = 16_384  # bytes; up to here a copy costs less than sending another piece
SIZES: Final = tuple(encode_variable(size) for size in range(2048))  # of most packets
ACK: Final = Struct(">BBH")
PACKET_IDS: Final = Struct(">H")


def topic_field(topic: str) -> bytes:
    """Return a topic name as a packet has it. Raises ValueError if it does not fit."""
    return encode_string(topic)


def append_publish(
    out: list[bytes], first: int, topic: bytes, packet_id: int, properties: bytes, payload: bytes
) -> int:
    """Append a PUBLISH with this first byte; return the number of bytes appended.

    A packet identifier of 0 is none, as with QoS 0. A small payload becomes part of one bytes object; a large one is
    not copied.
    """
    payload_size = len(payload)
    size = len(topic) + len(properties) + payload_size
    if packet_id:
        size += 2
        topic += PACKET_IDS.pack(packet_id)
    sized = SIZES[size] if size < 2048 else encode_variable(size)
    if payload_size <= SMALL_PAYLOAD_MAX:
        out.append(b"".join((FIRST_BYTES[first], sized, topic, properties, payload)))
    else:
        out += (b"".join((FIRST_BYTES[first], sized, topic, properties)), payload)
    return 1 + len(sized) + size


FIRST_BYTES: Final = tuple(bytes((first,)) for first in range(256))


def ack(first: int, packet_id: int) -> bytes:
    """Return a PUBACK (first byte 0x40), PUBREC (0x50), PUBREL (0x62) or PUBCOMP (0x70) without a reason code."""
    return ACK.pack(first, 2, packet_id)


def acks(first: int, packet_ids: Sequence[int]) -> bytes:
    """Return such packets for all of these, in their order."""
    pack = ACK.pack
    return b"".join([pack(first, 2, packet_id) for packet_id in packet_ids])
