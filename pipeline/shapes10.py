"""Find the shape of AMQP 1.0 messages: the same header and annotations, and values of the same types behind them.

    header, annotations │ properties: ulong 7041, null, ... │ application-properties: "n" int 7041, "country" str8 "FI"
    header, annotations │ properties: ulong 998, null, ...  │ application-properties: "n" int 998, "country" str8 "SE"

A value has its type in front of it, of which an encoder chooses the shortest, so that one publisher's messages may have
several shapes. Bodies that are a single section of data are taken out of it together, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Final, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.arrays import Buffered
from leveret.pipeline.arrow import Array, Kind, array_of, counted, repeated
from leveret.pipeline.shapes import (
    Column,
    Joined,
    Shape,
    Walk,
    by_value,
    item,
    merged,
    short_text,
    texts,
    times,
    written,
)
from leveret.pipeline.texts import CONVERTED, readable, said
from leveret.protocols.amqp10.broker import addresses, conversion
from leveret.protocols.amqp10.broker.core_values import neutral
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.reading import WIDTHS
from leveret.protocols.amqp10.codec.sections import APPLICATION, BODY, DATA, PROPERTIES, bounds
from leveret.protocols.amqp10.codec.types import Value, value_at

# Types, and lists and maps, by their format codes.
NULL, BOOLEAN, INT, LONG, ULONG, TIMESTAMP, UUID, EMPTY_LIST = 0x40, 0x56, 0x71, 0x81, 0x80, 0x83, 0x98, 0x45
BINARIES: Final = frozenset((0xA0, 0xB0))
STRINGS: Final = frozenset((0xA1, 0xB1))
SYMBOLS: Final = frozenset((0xA3, 0xB3))
TEXTS: Final = STRINGS | SYMBOLS
UNSIGNED_INTS: Final = frozenset((0x43, 0x52, 0x70))
INTEGERS: Final = UNSIGNED_INTS | {0x44, 0x50, 0x51, 0x53, 0x54, 0x55, 0x60, 0x61, INT, LONG, ULONG}
IDS: Final = TEXTS | BINARIES | INTEGERS | {UUID}
# Those that a header may have here: others are rare.
SCALARS: Final = IDS | {NULL, BOOLEAN, 0x41, 0x42, 0x72, 0x73, 0x82, TIMESTAMP}
LISTS: Final = frozenset((0xC0, 0xD0))
MAPS: Final = frozenset((0xC1, 0xD1))
SHORT_NAMES: Final = frozenset((0xA1, 0xA3))
# in which their size is; that of others has four
ONE_OCTET: Final = frozenset((0xA0, 0xA1, 0xA3, 0xC0, 0xC1))
UUID_PARTS: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))  # of its digits
PROPERTIES_BEGIN: Final = b"\x00\x53\x73"
APPLICATION_BEGIN: Final = b"\x00\x53\x74"


class UnusualError(Exception):
    """Raised where the first of some rows has something that is decoded one by one."""


def shape_of(joined: Joined, rows: Array, with_headers: bool) -> Shape | None:
    """Return the shape of some rows; None if the first is malformed or unusual. Raises DifferentError."""
    walk = Walk(joined, rows)
    try:
        at = bounds(joined.row(cast(int, item(rows, 0))))
        envelope = conversion.read(walk.same(at[PROPERTIES]))
        values: dict[str, Column] = {
            name: partial(repeated, CONVERTED[name](value), len(rows), kind)
            for name, kind in ENVELOPE.items()
            if (value := getattr(envelope, name)) is not None
        }
        if at[PROPERTIES] < at[APPLICATION]:
            values |= _properties(joined, walk)
        varying: dict[str, Values] = {}
        headers: list[tuple[str, Column]] = [
            (readable(name), partial(repeated, said(value), len(rows), pa.string()))
            for name, value in (envelope.headers or {}).items()
        ]
        if at[APPLICATION] < at[BODY]:
            found = _application(joined, walk, with_headers)
            headers = [(name, each.texts) for name, each in found] + headers
            varying = dict(found)
    except (UnusualError, AmqpError):
        return None
    walk.end()
    if len({name for name, _ in headers}) < len(headers):
        return None
    return Shape(rows, values, headers or None, varying)


ENVELOPE: Final = {"durable": pa.bool_(), "priority": pa.int64(), "ttl_ms": pa.int64(), "type": pa.string()}


def _properties(joined: Joined, walk: Walk) -> dict[str, Column]:
    found: dict[str, Column] = {}
    end, count = _compound(walk, PROPERTIES_BEGIN, LISTS)
    if count > len(FIELDS):
        raise UnusualError
    for name, types, column in FIELDS[:count]:
        values = Values(joined, walk, types | {NULL})
        if values.type != NULL and column is not None:
            found[name] = partial(column, values)
    walk.require(pc.equal(walk.at, end))
    return found


def _application(joined: Joined, walk: Walk, with_headers: bool) -> list[tuple[str, Values]]:
    found: list[tuple[str, Values]] = []
    begin = walk.at
    end, count = _compound(walk, APPLICATION_BEGIN, MAPS)
    walk.require(pc.less_equal(pc.subtract(end, begin), conversion.LOOKED_INTO_MAX))
    if not with_headers:
        walk.at = end
        return found
    until = cast(int, item(end, 0))
    while walk.first < until:
        (kind,) = walk.same(1)
        if kind not in SHORT_NAMES:
            raise UnusualError
        try:
            name = walk.same(1 + walk.next)[1:].decode("utf-8" if kind in STRINGS else "ascii")
        except UnicodeDecodeError:
            raise UnusualError from None
        found.append((name, Values(joined, walk, SCALARS)))
    walk.require(pc.equal(walk.at, end))
    if count != 2 * len(found):
        raise UnusualError
    return found


def _compound(walk: Walk, section: bytes, kinds: frozenset[int]) -> tuple[Array, int]:
    """Pass the beginning of a section that is a list or a map; return where it ends, and the number of its values."""
    if walk.same(len(section)) != section:
        raise UnusualError
    (kind,) = walk.same(1)
    if kind == EMPTY_LIST and kinds is LISTS:
        return walk.at, 0
    if kind not in kinds:
        raise UnusualError
    is_short = kind in ONE_OCTET
    walk.at, end = walk.short() if is_short else walk.long()
    return end, int.from_bytes(walk.same(1 if is_short else 4), "big")


class Values:
    """The values that the rows of a shape have at one place, all of one type."""

    def __init__(self, joined: Joined, walk: Walk, types: frozenset[int]) -> None:
        """Pass the values. Raises UnusualError for types that are not among those given, and texts that are none."""
        self._joined = joined
        self._begin = walk.at
        (self.type,) = walk.same(1)
        if self.type not in types:
            raise UnusualError
        if WIDTHS[self.type] >= 0:
            self._span = walk.fixed(WIDTHS[self.type])
        else:
            self._span = walk.short() if self.type in ONE_OCTET else walk.long()
        self._text = self._checked() if self.type in TEXTS else None

    def _checked(self) -> Array:
        try:
            text: Array = pc.cast(self.octets(), pa.string())
        except pa.ArrowInvalid:
            raise UnusualError from None
        if self.type in SYMBOLS and not pc.all(pc.string_is_ascii(text)).as_py():
            raise UnusualError
        return text

    def octets(self) -> Array:
        """Return the values' bytes, without types and lengths."""
        return self._joined.slices(self._span)

    def spelled(self) -> Array:
        """Return the values' bytes, with types and lengths."""
        return self._joined.slices((self._begin, self._span[1]))

    def numbers(self) -> Array:
        return self._joined.numbers(self._span, LETTERS[self.type])

    @cached_property
    def typed(self) -> Array | None:
        """The values, unless they are of a type that Arrow does not have, or booleans that are none."""
        if self._text is not None:
            return self._text
        if self.type in CONSTANTS:
            value, kind = CONSTANTS[self.type]
            return repeated(value, len(self._begin), kind)
        convert = TYPED.get(self.type)
        return None if convert is None else convert(self)

    def texts(self) -> Array:
        """Return values of headers, or ids, as texts."""
        found = written(self.typed)
        return self.converted(lambda value: said(neutral(value))) if found is None else found

    def converted(self, convert: Callable[[Value], str | None]) -> Array:
        """Return what `convert` makes of each; equal ones are converted once."""

        def decoded(octets: bytes) -> str | None:
            return convert(value_at(octets, 0, len(octets))[0])

        return by_value(self.spelled(), decoded, pa.string())


def _uuids(octets: Array) -> Array:
    """Return binaries of 16 bytes as UUIDs are written."""
    raw = cast(Buffered, octets).buffers()[2]
    assert raw is not None
    digits = pa.py_buffer(bytes(memoryview(raw)[: 16 * len(octets)]).hex().encode())
    text = pc.cast(pa.Array.from_buffers(pa.binary(32), len(octets), [None, digits]), pa.string())
    parts = [pc.utf8_slice_codeunits(text, *part) for part in UUID_PARTS]
    found: Array = pc.binary_join_element_wise(*parts, "-")
    return found


def _truths(values: Values) -> Array | None:
    octets = values.numbers()
    found: Array = pc.cast(octets, pa.bool_())
    return found if pc.all(pc.less_equal(octets, 1)).as_py() else None


def _seconds(values: Values) -> Array:
    """Return times in whole seconds, rounded down."""
    milliseconds = values.numbers()
    towards_zero = pc.divide(milliseconds, 1000)
    is_below = pc.less(milliseconds, pc.multiply(towards_zero, 1000))
    found: Array = pc.subtract(towards_zero, pc.cast(is_below, pa.int64()))
    return found


LETTERS: Final = {  # of numbers, in `struct`
    **dict.fromkeys((0x50, 0x52, 0x53, BOOLEAN), "B"),
    **dict.fromkeys((0x51, 0x54, 0x55), "b"),
    0x60: "H",
    0x61: "h",
    0x70: "I",
    INT: "i",
    ULONG: "Q",
    LONG: "q",
    TIMESTAMP: "q",
    0x72: "f",
    0x82: "d",
}
CONSTANTS: Final[dict[int, tuple[object, Kind]]] = {  # types that have one value
    NULL: (None, pa.null()),
    0x41: (True, pa.bool_()),
    0x42: (False, pa.bool_()),
    0x43: (0, pa.int64()),
    0x44: (0, pa.int64()),
}
TYPED: Final[dict[int, Callable[[Values], Array | None]]] = {
    **dict.fromkeys(LETTERS, Values.numbers),
    BOOLEAN: _truths,
    TIMESTAMP: _seconds,
    UUID: lambda values: _uuids(values.octets()),
}


def _user_id(values: Values) -> Array:
    return texts(values.octets(), short_text)


def _reply_to(values: Values) -> Array:
    return values.converted(lambda address: addresses.queue_named(str(address)) or str(address))


def _creation_time(values: Values) -> Array:
    milliseconds = values.numbers()
    seconds = pc.divide(milliseconds, pa.scalar(1000, pa.int64()))  # towards zero
    return times(pc.if_else(pc.less(milliseconds, 0), pa.scalar(-1, pa.int64()), seconds))


FIELDS: Final[tuple[tuple[str, frozenset[int], Callable[[Values], Array] | None], ...]] = (
    ("message_id", IDS, Values.texts),
    ("user_id", BINARIES, _user_id),
    ("to", STRINGS, None),
    ("subject", STRINGS, None),
    ("reply_to", STRINGS, _reply_to),
    ("correlation_id", IDS, Values.texts),
    ("content_type", SYMBOLS, Values.texts),
    ("content_encoding", SYMBOLS, Values.texts),
    ("absolute_expiry_time", frozenset((TIMESTAMP,)), None),
    ("timestamp", frozenset((TIMESTAMP,)), _creation_time),
    ("app_id", STRINGS, Values.texts),
    ("group_sequence", UNSIGNED_INTS, None),
    ("reply_to_group_id", STRINGS, None),
)


class Bodies:
    """The bodies of many messages, which are sections."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined
        head = [joined.at(pc.add(joined.begins, place)) for place in range(8)]
        is_data = pc.and_(pc.and_(pc.equal(head[0], 0), pc.equal(head[1], 0x53)), pc.equal(head[2], DATA))
        size = head[4]
        for octet in head[5:]:
            size = pc.add(pc.multiply(size, 256), octet)
        begins = [pc.add(joined.begins, width) for width in (5, 8)]
        is_short, is_long = (
            pc.and_(pc.equal(head[3], kind), pc.equal(pc.add(begin, length), joined.ends))
            for kind, begin, length in ((0xA0, begins[0], head[4]), (0xB0, begins[1], size))
        )
        self._begins: Array = pc.if_else(is_short, *begins)
        self._are_plain: Array = pc.and_(is_data, pc.or_(is_short, is_long))

    @cached_property
    def others(self) -> list[int]:
        """The rows whose bodies are not one section of data."""
        rows = pc.filter(counted(0, len(self._joined)), pc.invert(self._are_plain))
        return cast("list[int]", rows.to_pylist())

    def row(self, at: int) -> bytes:
        return self._joined.row(at)

    def contents(self, other: Callable[[bytes], bytes]) -> Array:
        """Return what sections of data hold, and what `other` makes of other bodies."""
        rows: Array = pc.filter(counted(0, len(self._joined)), self._are_plain)
        parts: list[tuple[Array, Array]] = []
        if len(rows):
            span = self._begins.take(rows), self._joined.ends.take(rows)
            parts.append((rows, self._joined.slices(span)))
        if self.others:
            found = [other(self.row(at)) for at in self.others]
            parts.append((array_of(self.others, pa.int64()), array_of(found, pa.binary())))
        return merged(parts)
