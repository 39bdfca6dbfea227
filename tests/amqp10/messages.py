"""Hypothesis' idea of AMQP 1.0 messages: any sections that there may be, of any types."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec.types import Symbol, UByte, UInt, Value, encode

from . import samples

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
SYMBOLS = {
    HEADER: "amqp:header:list",
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
    PROPERTIES: "amqp:properties:list",
    APPLICATION_PROPERTIES: "amqp:application-properties:map",
    DATA: "amqp:data:binary",
    SEQUENCE: "amqp:amqp-sequence:list",
    VALUE: "amqp:amqp-value:*",
    FOOTER: "amqp:footer:map",
}


@attrs.frozen
class Said:
    """The octets of each section, in their order; None: it is not there."""

    header: bytes | None
    delivery_annotations: bytes | None
    annotations: bytes | None
    properties: bytes | None
    application_properties: bytes | None
    body: bytes
    footer: bytes | None

    @property
    def octets(self) -> bytes:
        return b"".join(each for each in attrs.astuple(self) if each is not None)

    @property
    def bare(self) -> bytes:
        return (self.properties or b"") + (self.application_properties or b"") + self.body

    @property
    def before_the_body(self) -> bytes:
        """What is kept of it."""
        kept = (self.header, self.annotations, self.properties, self.application_properties)
        return b"".join(each for each in kept if each is not None)


def descriptors(code: int) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [
            bytes((0, 0x53, code)),
            bytes((0, 0x80, 0, 0, 0, 0, 0, 0, 0, code)),
            b"\0" + encode(Symbol(SYMBOLS[code])),
            b"\0\xb3" + len(SYMBOLS[code]).to_bytes(4, "big") + SYMBOLS[code].encode(),
        ]
    )


@st.composite
def sections(draw: st.DrawFn, code: int, values: st.SearchStrategy[Value]) -> bytes:
    """One section, its value perhaps in a longer encoding than it needs."""
    octets = encode(draw(values))
    if draw(st.booleans()):
        octets = longer(octets)
    return draw(descriptors(code)) + octets


def longer(octets: bytes) -> bytes:
    """A binary, list or map in the encoding that has room for more."""
    if octets[0] == 0xA0:
        return b"\xb0" + octets[1].to_bytes(4, "big") + octets[2:]
    if octets[0] in (0xC0, 0xC1):
        size, count = octets[1] + 3, octets[2]
        return bytes((octets[0] + 0x10,)) + size.to_bytes(4, "big") + count.to_bytes(4, "big") + octets[3:]
    return octets


def absent_or(strategy: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.none() | strategy


uints = st.integers(0, 2**32 - 1).map(UInt)
ids = st.one_of(*(samples.scalars[name] for name in ("ulong", "uuid", "binary", "string")))
symbols = samples.names.map(Symbol)
times = samples.scalars["timestamp"]
HEADER_FIELDS = (st.booleans(), st.integers(0, 255).map(UByte), uints, st.booleans(), uints)
PROPERTY_FIELDS = (
    *(ids, samples.scalars["binary"], samples.text, samples.text, samples.text, ids, symbols, symbols),
    *(times, times, samples.text, uints, samples.text),
)


@st.composite
def fields(draw: st.DrawFn, kinds: tuple[st.SearchStrategy[Value], ...]) -> list[Value]:
    """Some fields of a composite; the last may be null, as it should not."""
    present = draw(st.integers(0, (1 << len(kinds)) - 1))
    count = draw(st.integers(present.bit_length(), len(kinds)))
    return [draw(kinds[place]) if present >> place & 1 else None for place in range(count)]


x_names = samples.names.map(lambda name: Symbol("x-" + name))
BROKERS = ("x-cc", "x-exchange", "x-routing-key")
few_values = samples.scalar | samples.arrays() | st.lists(samples.scalar, max_size=3)
annotation_maps = st.dictionaries(x_names.filter(lambda name: name not in BROKERS), few_values, max_size=3)
application_maps = st.dictionaries(samples.text, samples.scalar, max_size=3)


def body_sections() -> st.SearchStrategy[bytes]:
    octets = sections(DATA, st.binary(max_size=300))
    sequences = sections(SEQUENCE, st.lists(few_values, max_size=3))
    return st.one_of(
        octets,
        st.lists(octets, min_size=1, max_size=3).map(b"".join),
        st.lists(sequences, min_size=1, max_size=3).map(b"".join),
        sections(VALUE, samples.values),
    )


def messages() -> st.SearchStrategy[Said]:
    maps = st.dictionaries(x_names, few_values, max_size=1)
    return st.builds(
        Said,
        absent_or(sections(HEADER, fields(HEADER_FIELDS))),
        absent_or(sections(DELIVERY_ANNOTATIONS, maps)),
        absent_or(sections(MESSAGE_ANNOTATIONS, annotation_maps)),
        absent_or(sections(PROPERTIES, fields(PROPERTY_FIELDS))),
        absent_or(sections(APPLICATION_PROPERTIES, application_maps)),
        body_sections(),
        absent_or(sections(FOOTER, maps)),
    )
