"""What a 1.0 client says and hears, in octets: frames, the sections of messages, deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from typing import TypeAlias

import attrs

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import types
from leveret.protocols.amqp10.codec.types import Described, Symbol, ULong, Value

AMQP, SASL = 0, 1  # types of frames
DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES = 0x71, 0x72, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

Section: TypeAlias = "bytes | p.Header | p.Properties"


def frame(channel: int, performative: object, payload: bytes = b"", kind: int = AMQP) -> bytes:
    body = performative.encode() + payload
    return pack(">IBBH", 8 + len(body), 2, kind, channel) + body


def told(error: p.Error | None) -> str:
    """An error as one line; an empty one if there is none."""
    if error is None:
        return ""
    return f"{error.condition} {error.description}" if error.description else str(error.condition)


# Sections of a message.


def section(code: int, value: Value) -> bytes:
    return types.encode(Described(ULong(code), value))


def data(octets: bytes = b"") -> bytes:
    """A body."""
    return section(DATA, octets)


def annotations(values: Mapping[str, Value]) -> bytes:
    """Message annotations."""
    return section(MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in values.items()})


def application_properties(values: Mapping[str, Value]) -> bytes:
    return section(APPLICATION_PROPERTIES, dict(values))


def message(*sections: Section) -> bytes:
    """A message from sections in their order: octets, or p.Header and p.Properties."""
    return b"".join(each if isinstance(each, bytes) else each.encode() for each in sections)


@attrs.frozen
class Delivery:
    """A message received: its octets, and what each section says. Absent ones are None."""

    id: int
    tag: bytes
    settled: bool
    octets: bytes
    state: p.DeliveryState | None = None

    def sections(self) -> dict[int, list[tuple[bytes, Value]]]:
        """For each section's code, in order: its octets and its value (a composite's fields as a list)."""
        found: dict[int, list[tuple[bytes, Value]]] = {}
        at = 0
        while at < len(self.octets):
            value, end = types.value_at(self.octets, at, len(self.octets))
            assert isinstance(value, Described), value
            found.setdefault(int(value.descriptor), []).append((self.octets[at:end], value.value))
            at = end
        return found

    def _value(self, code: int):
        found = self.sections().get(code)
        return None if found is None else found[0][1]

    def _composite(self, code: int):
        found = self.sections().get(code)
        if found is None:
            return None
        octets = found[0][0]
        return p.decode(octets, 0, len(octets))[0]

    @property
    def header(self) -> p.Header:
        return self._composite(p.Header.CODE) or p.Header()

    @property
    def properties(self) -> p.Properties:
        return self._composite(p.Properties.CODE) or p.Properties()

    @property
    def delivery_annotations(self):
        return self._value(DELIVERY_ANNOTATIONS)

    @property
    def annotations(self):
        return self._value(MESSAGE_ANNOTATIONS) or {}

    @property
    def application_properties(self):
        return self._value(APPLICATION_PROPERTIES)

    @property
    def footer(self):
        return self._value(FOOTER)

    @property
    def body(self):
        """The data sections joined, or the value, or the list of sequences."""
        sections = self.sections()
        if VALUE in sections:
            return sections[VALUE][0][1]
        if SEQUENCE in sections:
            return [value for _, value in sections[SEQUENCE]]
        return b"".join(value for _, value in sections.get(DATA, ()))

    @property
    def bare(self) -> bytes:
        """The octets that nobody may change: properties, application properties and body, in the order given."""
        found = ((code, octets) for code, each in self.sections().items() for octets, _ in each)
        return b"".join(octets for code, octets in found if 0x73 <= code < FOOTER)
