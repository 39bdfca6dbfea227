"""Find the shape of properties of AMQP 0-9-1: the same flags, and headers of the same names and types."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Final, cast

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.arrow import Array, repeated
from leveret.pipeline.properties091 import FIELDS, LONGLONG, OCTET, REST, SHORT, TABLE
from leveret.pipeline.shapes import (
    Joined,
    Shape,
    Span,
    Walk,
    by_value,
    item,
    short_text,
    short_texts,
    times,
    written,
)
from leveret.pipeline.texts import CONVERTED, readable, said
from leveret.protocols.amqp091.broker.core_values import core_value
from leveret.protocols.amqp091.broker.encoding import DURABLE, ttl_ms
from leveret.protocols.amqp091.codec.fields import NUMBERS, value_at

WIDTHS: Final = {  # bytes of a header's value, by its type
    kind: width
    for kinds, width in ((b"V", 0), (b"tbB", 1), (b"sUu", 2), (b"Iif", 4), (b"D", 5), (b"LldT", 8))
    for kind in kinds
}
SIZED: Final = frozenset(b"SxAF")  # types of headers whose value begins with its size
STEPS: Final = {OCTET: 1, LONGLONG: 8}  # bytes of properties that are numbers


@attrs.frozen(slots=False)
class Header:
    """A header of all rows of a shape: its name, the type of its values, and where those are."""

    joined: Joined
    name: bytes
    kind: int
    kind_at: Array
    span: Span

    @cached_property
    def typed(self) -> Array | None:
        """The values, unless they are of a type that Arrow does not have, or bytes that are no text."""
        convert = TYPED.get(self.kind)
        return None if convert is None else convert(self.joined, self.span)

    def spelled(self) -> Array:
        """Return the values' bytes, with types and lengths."""
        return self.joined.slices((self.kind_at, self.span[1]))

    def texts(self) -> Array:
        found = written(self.typed)
        return by_value(self.spelled(), _said_field, pa.string()) if found is None else found


def shape_of(joined: Joined, rows: Array, with_headers: bool) -> Shape | None:
    """Return the shape of some rows; None if the first is malformed or unusual. Raises DifferentError."""
    walk = Walk(joined, rows)
    flags = int.from_bytes(walk.same(2), "big")
    if flags & REST:
        return None
    spans: dict[str, Span] = {}
    headers: list[Header] | None = None
    for flag, name, kind in FIELDS:
        if not flags & flag:
            continue
        if kind == SHORT:
            spans[name] = walk.short()
        elif kind in STEPS:
            spans[name] = walk.fixed(STEPS[kind])
        elif not with_headers:
            walk.long()
        else:
            assert kind == TABLE
            headers = _table(joined, walk)
            if headers is None:
                return None
    walk.end()
    values = {}
    for field, span in spans.items():
        name, convert = COLUMNS.get(field, (field, short_texts))
        values[name] = partial(convert, joined, span)
    if headers is None:
        return Shape(rows, values, None, {})
    named = {each.name.decode("utf-8", "surrogateescape"): each for each in headers}
    return Shape(rows, values, [(readable(name), each.texts) for name, each in named.items()], named)


def _table(joined: Joined, walk: Walk) -> list[Header] | None:
    """Pass a table; None if the first row's is none."""
    begin, end = walk.long()
    walk.at = begin
    until = cast(int, item(end, 0))
    headers: list[Header] = []
    while walk.first < until:
        name = walk.same(1 + walk.next)[1:]
        kind_at = walk.at
        (kind,) = walk.same(1)
        if kind not in WIDTHS and kind not in SIZED:
            return None
        span = walk.long() if kind in SIZED else walk.fixed(WIDTHS[kind])
        headers.append(Header(joined, name, kind, kind_at, span))
    walk.require(pc.equal(walk.at, end))
    return headers if len({each.name for each in headers}) == len(headers) else None


def _times_to_live(joined: Joined, span: Span) -> Array:
    return by_value(
        joined.slices(span), lambda octets: CONVERTED["ttl_ms"](ttl_ms(short_text(octets))), pa.int64()
    )


def _is_durable(joined: Joined, span: Span) -> Array:
    found: Array = pc.equal(joined.at(span[0]), DURABLE)
    return found


def _octets(joined: Joined, span: Span) -> Array:
    return joined.at(span[0])


def _times(joined: Joined, span: Span) -> Array:
    return times(joined.numbers(span, "q"))


def _null(joined: Joined, span: Span) -> Array:
    return repeated(None, len(span[0]), pa.null())


def _truth(joined: Joined, span: Span) -> Array:
    found: Array = pc.not_equal(joined.at(span[0]), 0)
    return found


def _number(letter: str, joined: Joined, span: Span) -> Array:
    return joined.numbers(span, letter)


def _text(joined: Joined, span: Span) -> Array | None:
    try:
        found: Array = pc.cast(joined.slices(span), pa.string())
    except pa.ArrowInvalid:
        return None
    return found


TYPED: Final[dict[int, Callable[[Joined, Span], Array | None]]] = {  # by the type of a header
    **{kind: partial(_number, struct.format[1:]) for kind, struct in NUMBERS.items()},
    ord("t"): _truth,
    ord("T"): partial(_number, "Q"),
    ord("S"): _text,
    ord("V"): _null,
}


def _said_field(octets: bytes) -> str | None:
    return said(core_value(value_at(octets, 0, len(octets), 1)[0]))


# By the encoding's name of a property: its neutral name, and how its values are read, unless they are texts.
COLUMNS: Final[dict[str, tuple[str, Callable[[Joined, Span], Array]]]] = {
    "expiration": ("ttl_ms", _times_to_live),
    "delivery_mode": ("durable", _is_durable),
    "priority": ("priority", _octets),
    "timestamp": ("timestamp", _times),
}
