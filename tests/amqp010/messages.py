"""Header segments of AMQP 0-10, any that a client may send: what they say, and their octets."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from hypothesis import strategies as st

from leveret.protocols.amqp010.codec.commands import (
    DeliveryProperties,
    FragmentProperties,
    MessageProperties,
    ReplyTo,
)
from leveret.protocols.amqp010.codec.types import (
    Array,
    Char,
    Datetime,
    Float32,
    Int8,
    Int16,
    Int32,
    Opaque,
    Str8,
    Struct32,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Value,
    Vbin8,
    Vbin32,
)

UNKNOWN = Struct32(0x04F1, b"\x01\x00odd")  # a struct that no table has

# One value of each type that a map may hold.
VALUES: list[Value] = [
    *(None, True, False, 0, -(2**63), 2**63 - 1, 2.5, "text", "caf\u00e9", "", b"octets", b""),
    *(UInt8(255), Int8(-128), UInt16(65535), Int16(-1), UInt32(2**32 - 1), Int32(-5), UInt64(2**64 - 1)),
    *(Float32(1.5), Datetime(1000), Char("x"), Str8("short"), Vbin8(b"v"), Vbin32(b"w"), Decimal("1.25")),
    *(UUID(int=7), [1, "two", [3]], {"a": {"b": [None]}}, Array(0x31, [1, 2]), {}, []),
    *(Opaque(0xC1, b"12345"), UNKNOWN, "stray \udce9"),
]
LONG: Value = "x" * 70_000  # two of these are more than is looked into

texts = st.text(max_size=12)
shorts = st.text(max_size=60).filter(lambda text: len(text.encode()) < 256)
uint8 = st.integers(0, 255)
uint64 = st.integers(0, 2**64 - 1)
maybe = st.none
flags = st.booleans()
headers = st.dictionaries(shorts, st.sampled_from(VALUES), max_size=4)

deliveries = st.builds(
    DeliveryProperties,
    discard_unroutable=flags,
    immediate=flags,
    redelivered=flags,
    priority=maybe() | uint8,
    delivery_mode=maybe() | st.sampled_from((1, 2)),
    ttl=maybe() | st.integers(0, 10**7) | uint64,
    timestamp=maybe() | uint64,
    expiration=maybe() | st.integers(0, 2**33),
    exchange=maybe() | shorts,
    routing_key=maybe() | shorts,
    resume_id=maybe() | texts,
    resume_ttl=maybe() | uint64,
)
messages = st.builds(
    MessageProperties,
    content_length=maybe() | uint64,
    message_id=maybe() | st.uuids(),
    correlation_id=maybe() | st.binary(max_size=300),
    reply_to=maybe() | st.builds(ReplyTo, exchange=maybe() | shorts, routing_key=maybe() | shorts),
    content_type=maybe() | shorts,
    content_encoding=maybe() | shorts,
    user_id=maybe() | st.binary(max_size=12),
    app_id=maybe() | st.binary(max_size=12),
    application_headers=maybe() | headers,
)
fragments = st.builds(FragmentProperties, first=flags, last=flags, fragment_size=maybe() | uint64)


class Said:
    """A header segment, and the structs it was made of."""

    def __init__(
        self, delivery: DeliveryProperties | None, message: MessageProperties | None, octets: bytes
    ) -> None:
        self.delivery = delivery
        self.message = message
        self.octets = octets

    def __repr__(self) -> str:
        return f"Said({self.delivery}, {self.message})"


@st.composite
def header_segments(draw: st.DrawFn) -> Said:
    """Each struct once or not at all, in any order, with strangers among them."""
    delivery, message = draw(maybe() | deliveries), draw(maybe() | messages)
    structs = [each.encode() for each in (delivery, message) if each is not None]
    structs += [each.encode() for each in draw(st.lists(fragments | st.just(UNKNOWN), max_size=2))]
    return Said(delivery, message, b"".join(draw(st.permutations(structs))))
