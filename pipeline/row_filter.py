"""Decide which messages of a block a read gives, by the options `selector`, `minBodyBytes` and `maxBodyBytes`.

Spark hands over no conditions on headers and on the length of a body, and none of streaming reads. These options are
looked at in the task, before anything is decoded for Spark: once for all messages with the same properties. Where
properties differ, the headers that a selector names are columns, of rows of one shape (pipeline/shapes.py), for which
Arrow evaluates it (pipeline/column_conditions.py). What Arrow cannot is evaluated once for all rows of equal values.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.durable.store.origin import Origin, facts_of, notes_of
from leveret.message import Encoding, Facts, Message
from leveret.pipeline import properties091
from leveret.pipeline.arrays import Groups, as_flags, grouped, paired
from leveret.pipeline.arrow import Array, array_of, repeated
from leveret.pipeline.column_conditions import column, constant, truths
from leveret.pipeline.decode import NOTES, WALKERS, bodies_of, is_plain
from leveret.pipeline.options import Options
from leveret.pipeline.shapes import Joined, Shape, Shapes, Walker, shapes_of
from leveret.pipeline.shapes10 import APPLICATION_BEGIN
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec.sections import PROPERTIES, bounds
from leveret.protocols.amqp10.codec.types import encode
from leveret.selectors.conditions import (
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    HeaderField,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Reading,
    known,
)
from leveret.selectors.parser import Selector, compile_selector
from leveret.values import Value

if TYPE_CHECKING:
    from leveret.pipeline.decode import Piece

Entries: TypeAlias = "Sequence[tuple[str, bytes]]"

NOTHING: Final = Message(AMQP091, "", "", b"\0\0", b"", Facts())  # of which headers alone are looked at
HEADERS_FLAG: Final = b"\x20\x00"  # properties of AMQP 0-9-1 that have headers, and no more
MAP: Final = b"\xd1"  # of AMQP 1.0, with four bytes for each size
COLUMNS_MIN: Final = 200  # rows with properties of their own; fewer are looked at one by one
REMEMBERED_MAX: Final = 1 << 16  # distinct properties whose outcome is kept
REMEMBERED_SIZE_MAX: Final = 1024  # bytes


class RowFilter:
    """The options of one read."""

    def __init__(self, options: Options) -> None:
        self._selector = None if options.selector is None else compile_selector(options.selector)
        self._least = options.min_body_octets
        self._most = options.max_body_octets
        self._headers = None if self._selector is None else headers_in(self._selector)
        self._known: dict[tuple[str, bytes], bool] = {}

    def flags(self, run: Sequence[Piece], shapes: Shapes | None = None) -> array[int]:
        """Return 1 for each row of these pieces that is wanted, and 0 for the others. Raises DamagedError.

        `shapes` are those of the rows, with their headers, if they are known.
        """
        found = (
            array("B", (1,)) * sum(map(len, run)) if self._selector is None else self._selected(run, shapes)
        )
        if self._least is not None or self._most is not None:
            least, most = self._least or 0, float("inf") if self._most is None else self._most
            for at, octets in enumerate(chain.from_iterable(map(lengths, run))):
                if not least <= octets <= most:
                    found[at] = 0
        return found

    def _selected(self, run: Sequence[Piece], shapes: Shapes | None) -> array[int]:
        walker = self._walker(run)
        if walker is not None:
            return self._by_columns(run, walker, shapes)
        found = array("B")
        for piece in run:
            found.extend(self._one_by_one(piece))
        return found

    def _walker(self, run: Sequence[Piece]) -> Walker | None:
        """Return what finds the shapes of the rows; None if few differ, or more than headers decides."""
        owners, count = sum(piece.owners for piece in run), sum(map(len, run))
        if self._headers is None or owners < max(COLUMNS_MIN, count // 2):
            return None
        names = {encoding.name for piece in run for encoding in piece.encodings()}
        is_dead = any(origin[NOTES] for piece in run for origin in piece.block.origins)
        return None if len(names) > 1 or is_dead else WALKERS.get(names.pop())

    def _by_columns(self, run: Sequence[Piece], walker: Walker, shapes: Shapes | None) -> array[int]:
        if shapes is None:
            lengths = array("q")
            parts = [piece.all_properties(lengths) for piece in run]
            shapes = shapes_of(Joined(parts, lengths), True, walker)
        encoding = run[0].encodings()[0]
        begins = list(accumulate(map(len, run), initial=0))

        def found_at(row: int) -> tuple[Piece, int]:
            """Return the piece of a row, and the row's number in the block."""
            which = bisect_right(begins, row) - 1
            return run[which], run[which].low + row - begins[which]

        def shaped(shape: Shape) -> Array:
            (first,) = cast("list[int]", shape.rows.slice(0, 1).to_pylist())
            piece, at = found_at(first)
            return self._shaped(shape, encoding, piece.properties(at))

        def single(rows: Sequence[int]) -> Array:
            found = [
                self._look(encoding, piece.block.origins[piece.which(at)], piece.properties(at))
                for piece, at in map(found_at, rows)
            ]
            return array_of(found, pa.bool_())

        return as_flags(shapes.column(shaped, single))

    def _shaped(self, shape: Shape, encoding: Encoding, raw: bytes) -> Array:
        """Return which rows of a shape are wanted. `raw` are the properties of one of them."""
        assert self._selector is not None
        shared = headers_of(encoding, ONLY[encoding.name](raw, ()))

        def header(name: str) -> Array:
            values = shape.varying.get(name)
            return constant(known(shared.get(name))) if values is None else column(values.typed)

        found = truths(self._selector.condition, header, len(shape.rows))
        return self._by_values(shape, encoding, raw) if found is None else found

    def _by_values(self, shape: Shape, encoding: Encoding, raw: bytes) -> Array:
        """Return the same, with the condition evaluated once for all rows with the same values."""
        names = [name for name in self._headers or () if name in shape.varying]
        alike: Groups[tuple[object, ...]] = Groups(None, [()])
        for name in names:
            both = paired(alike, grouped(shape.varying[name].spelled()))
            alike = Groups(both.which, [(*before, value) for before, value in both.distinct])
        outcomes = [
            self._outcome(
                encoding, ONLY[encoding.name](raw, cast(Entries, list(zip(names, values, strict=True))))
            )
            for values in alike.distinct
        ]
        if alike.which is None:
            return repeated(outcomes[0], len(shape.rows), pa.bool_())
        return array_of(outcomes, pa.bool_()).take(alike.which)

    def _outcome(self, encoding: Encoding, raw: bytes) -> bool:
        """Return the outcome for properties that have nothing but headers."""
        found = self._known.get((encoding.name, raw))
        if found is None:
            found = self._holds(encoding, raw)
            self._keep(encoding.name, raw, found)
        return found

    def _holds(self, encoding: Encoding, raw: bytes) -> bool:
        assert self._selector is not None
        try:
            return self._selector.condition.value(Reading(NOTHING, headers_of(encoding, raw))) is True
        except Exception:  # as `Selector.matches`: what cannot be read does not match
            return False

    def _keep(self, text: str, raw: bytes, found: bool) -> None:
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        if len(raw) <= REMEMBERED_SIZE_MAX:
            self._known[text, raw] = found

    def _one_by_one(self, piece: Piece) -> array[int]:
        block, encodings = piece.block, piece.encodings()
        texts = [json.dumps(origin) for origin in block.origins]

        def is_selected(at: int) -> bool:
            place, raw = piece.which(at), piece.properties(at)
            key = texts[place], raw
            found = self._known.get(key)
            if found is None:
                found = self._look(encodings[place], block.origins[place], raw)
                self._keep(*key, found)
            return found

        if block.property_ends is None and block.which is None:
            return array("B", (is_selected(piece.low),)) * len(piece)
        return array("B", map(is_selected, range(piece.low, piece.high)))

    def _look(self, encoding: Encoding, origin: Sequence[object], raw: bytes) -> bool:
        assert self._selector is not None
        known = cast(Origin, tuple(origin[: NOTES + 1]))
        facts = encoding.restored(facts_of(known), raw)
        message = Message(encoding, str(origin[-2]), str(origin[-1]), raw, b"", facts, notes_of(known[-1]))
        return self._selector.matches(message)


def headers_in(selector: Selector) -> frozenset[str] | None:
    """Return the names of the headers that decide a selector; None if other properties do, too."""
    names: set[str] = set()
    waiting: list[object] = [selector.condition]
    while waiting:
        node = waiting.pop()
        if isinstance(node, HeaderField):
            names.add(node.name)
        elif isinstance(node, AnyOf):
            waiting += node.parts
        elif isinstance(node, Comparison):
            waiting += (node.left, node.right)
        elif isinstance(node, Between):
            waiting += (node.part, node.low, node.high)
        elif isinstance(node, Arithmetic):
            waiting += (node.first, *(part for _, part in node.steps))
        elif isinstance(node, Not | In | Like | IsNull | Negative):
            waiting.append(node.part)
        elif not isinstance(node, Literal):
            return None
    return frozenset(names)


def headers_of(encoding: Encoding, raw: bytes) -> dict[str, Value]:
    """Return the headers in properties. Raises whatever the encoding raises."""
    return dict((properties091.read(raw).headers if encoding is AMQP091 else encoding.headers(raw)) or {})


def only_091(raw: bytes, headers: Entries) -> bytes:
    """Return properties of AMQP 0-9-1 that have nothing but these headers, given by names and encoded values."""
    table = b"".join(
        bytes((len(octets),)) + octets + value
        for octets, value in ((name.encode("utf-8", "surrogateescape"), value) for name, value in headers)
    )
    return HEADERS_FLAG + len(table).to_bytes(4, "big") + table


def only_10(raw: bytes, headers: Entries) -> bytes:
    """Return the same of AMQP 1.0, with the header and annotations that `raw` has: a shape's rows share them."""
    entries = b"".join(encode(name) + value for name, value in headers)
    sizes = (len(entries) + 4).to_bytes(4, "big") + (2 * len(headers)).to_bytes(4, "big")
    return raw[: bounds(raw)[PROPERTIES]] + APPLICATION_BEGIN + MAP + sizes + entries


ONLY: Final = {AMQP091.name: only_091, AMQP10.name: only_10}


def row_filter(options: Options) -> RowFilter | None:
    """Return the filter that options ask for; None if they ask for none."""
    return RowFilter(options) if options.leaves_out else None


def lengths(piece: Piece) -> Iterator[int]:
    """Yield the bytes of each row's body, as the column `body` has it."""
    if is_plain(piece):
        ends = piece.block.body_ends[piece.low : piece.high + 1]
        return (end - begin for begin, end in pairwise(ends))
    return map(len, bodies_of(piece))
