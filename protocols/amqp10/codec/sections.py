"""Splitting of an AMQP 1.0 message into its sections by their offsets, without decoding them.

    header?  delivery-annotations?  message-annotations?  properties?  application-properties?
    ( data+ | amqp-sequence+ | amqp-value )  footer?

The sections come in this order, each at most once except for those of the body (part 3, section 3.2). A message is
described by eight offsets, its `bounds`: section n is `data[bounds[n]:bounds[n + 1]]`, which is empty if it is absent.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError, Symbol, ULong, Value, skip_at, value_at

HEADER: Final = 0
DELIVERY: Final = 1
ANNOTATIONS: Final = 2
PROPERTIES: Final = 3
APPLICATION: Final = 4
BODY: Final = 5
FOOTER: Final = 6
END: Final = 7

DATA: Final = 0x75
VALUE: Final = 0x77
SMALL_ULONG: Final = 0x53
LISTS: Final = b"\x45\xc0\xd0"
MAPS: Final = b"\xc1\xd1"
BINARIES: Final = b"\xa0\xb0"

ROWS: Final = (  # descriptor in both spellings, place, format codes of the value
    (0x70, "amqp:header:list", HEADER, LISTS),
    (0x71, "amqp:delivery-annotations:map", DELIVERY, MAPS),
    (0x72, "amqp:message-annotations:map", ANNOTATIONS, MAPS),
    (0x73, "amqp:properties:list", PROPERTIES, LISTS),
    (0x74, "amqp:application-properties:map", APPLICATION, MAPS),
    (DATA, "amqp:data:binary", BODY, BINARIES),
    (0x76, "amqp:amqp-sequence:list", BODY, LISTS),
    (VALUE, "amqp:amqp-value:*", BODY, bytes(range(256))),
    (0x78, "amqp:footer:map", FOOTER, MAPS),
)
CODES: Final[dict[object, int]] = {name: code for code, symbol, _, _ in ROWS for name in (code, symbol)}
PLACES: Final = {code: place for code, _, place, _ in ROWS}
FORMATS: Final = {code: formats for code, _, _, formats in ROWS}
WORD: Final = Struct(">I")
# The four bytes with which nearly all sections begin, mapped to the width of their size and to the section's place.
SHAPES: Final = {
    0x0053_0000 | code << 8 | form: (size, place)
    for code, _, place, forms in ROWS
    for form, size in ((0x45, 0), (0xA0, 1), (0xA1, 1), (0xC0, 1), (0xC1, 1), (0xB0, 4), (0xD0, 4), (0xD1, 4))
    if form in forms
}


class MalformedError(AmqpError):
    """Raised for bytes that are no message: the link ends."""

    def __init__(self, why: str) -> None:
        super().__init__(p.DECODE_ERROR, f"failed to parse message: {why}")


def bounds(data: bytes, at: int = 0) -> list[int]:
    """Return the offsets of the sections of `data[at:]`. It is for the caller to check that none is missing.

    Raises MalformedError.
    """
    end = len(data)
    found = [end] * (END + 1)
    last = -1  # the place of the section before
    word_at = WORD.unpack_from
    try:
        while at < end:
            shape = SHAPES.get(word_at(data, at)[0])
            if shape is None:
                code, _, after = _section_at(data, at, end)
                place = PLACES[code]
            else:
                size, place = shape
                if size == 1:
                    after = at + 5 + data[at + 4]
                else:
                    after = at + 8 + word_at(data, at + 4)[0] if size else at + 4
            if place <= last and not (last == BODY and _goes_on(data, found[BODY], at)):
                raise MalformedError("its sections are not in order")
            while last < place:
                last += 1
                found[last] = at
            at = after
    except (IndexError, struct_error):
        at = end + 1
    if at > end:
        raise MalformedError("a section is cut short")
    return found


def _goes_on(data: bytes, body: int, at: int) -> bool:
    """Return whether the section at `at` continues the body, which begins at `body`."""
    code, _, _ = _section_at(data, body, len(data))
    return code != VALUE and code == _section_at(data, at, len(data))[0]


def _section_at(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return a section's descriptor code and the offsets of its value: where it begins and ends."""
    try:
        if data[at]:
            raise MalformedError("a section has no descriptor")
        descriptor, value = value_at(data, at + 1, end)
        after = skip_at(data, value, end)
    except DecodeError as error:
        raise MalformedError(error.description) from None
    code = code_of(descriptor)
    if code is None:
        raise MalformedError(f"unknown section {descriptor!r:.100}")
    if data[value] not in FORMATS[code]:
        raise MalformedError(f"section 0x{code:02x} has format code 0x{data[value]:02x}")
    return code, value, after


def code_of(descriptor: Value) -> int | None:
    """Return the number of the section for a descriptor in either spelling, or None if there is none."""
    return CODES.get(descriptor) if isinstance(descriptor, ULong | Symbol) else None


def value_of(data: bytes, at: int) -> int:
    """Return the offset of a section's value. Raises MalformedError."""
    return at + 3 if data[at + 1] == SMALL_ULONG else _section_at(data, at, len(data))[1]


def offset_of(data: bytes, number: int, offset: int) -> int:
    """Return the offset in a message of a place that a `received` state tells: a byte of a section, counted from 0.

    Raises MalformedError if there is no such place.
    """
    at, end = 0, len(data)
    while number and at < end:
        at = _section_at(data, at, end)[2]
        number -= 1
    after = at if at == end else _section_at(data, at, end)[2]
    if number or offset > after - at:
        raise MalformedError("there is no such place in it")
    return at + offset


def octets_of(body: bytes) -> bytes | None:
    """Return the content of a body of data sections, without a footer, or None if it is another kind of body."""
    parts: list[bytes] = []
    at, end = 0, bounds(body)[FOOTER]
    while at < end:
        code, value, after = _section_at(body, at, end)
        if code != DATA:
            return None
        parts.append(body[value + (2 if body[value] == BINARIES[0] else 5) : after])
        at = after
    return parts[0] if len(parts) == 1 else b"".join(parts)


def data_begin(octets: bytes) -> bytes:
    """Return the bytes in front of the content of a data section."""
    size = len(octets)
    return b"\x00\x53\x75\xa0" + bytes((size,)) if size < 256 else b"\x00\x53\x75\xb0" + WORD.pack(size)


def is_body(octets: bytes) -> bool:
    """Return whether these bytes are body sections, with a footer or without."""
    try:
        found = bounds(octets)
    except MalformedError:
        return False
    return found[BODY] == 0 < found[FOOTER]
