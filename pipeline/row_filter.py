"""Decide which messages of a block a read gives, by the options `selector`, `minBodyBytes` and `maxBodyBytes`.

Spark hands over no conditions on headers and on the length of a body, and none of streaming reads. These options are
looked at in the task, before anything is decoded for Spark: once for all messages with the same properties.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

from leveret.durable.store.origin import Origin, facts_of, notes_of
from leveret.message import Encoding, Message
from leveret.pipeline.decode import NOTES, bodies_of, is_plain
from leveret.pipeline.options import Options
from leveret.selectors.parser import compile_selector

if TYPE_CHECKING:
    from leveret.pipeline.decode import Piece

REMEMBERED_MAX: Final = 1 << 16  # distinct properties whose outcome is kept
REMEMBERED_SIZE_MAX: Final = 1024  # bytes


class RowFilter:
    """The options of one read."""

    def __init__(self, options: Options) -> None:
        self._selector = None if options.selector is None else compile_selector(options.selector)
        self._least = options.min_body_octets
        self._most = options.max_body_octets
        self._known: dict[tuple[str, bytes], bool] = {}

    def flags(self, piece: Piece) -> array[int]:
        """Return 1 for each row that is wanted, and 0 for the others. Raises DamagedError."""
        found = array("B", (1,)) * len(piece) if self._selector is None else self._selected(piece)
        if self._least is not None or self._most is not None:
            least, most = self._least or 0, float("inf") if self._most is None else self._most
            for at, octets in enumerate(lengths(piece)):
                if not least <= octets <= most:
                    found[at] = 0
        return found

    def _selected(self, piece: Piece) -> array[int]:
        block, encodings = piece.block, piece.encodings()
        texts = [json.dumps(origin) for origin in block.origins]

        def is_selected(at: int) -> bool:
            place, raw = piece.which(at), piece.properties(at)
            found = self._known.get((texts[place], raw))
            return (
                self._look(encodings[place], block.origins[place], texts[place], raw)
                if found is None
                else found
            )

        if block.property_ends is None and block.which is None:
            return array("B", (is_selected(piece.low),)) * len(piece)
        return array("B", map(is_selected, range(piece.low, piece.high)))

    def _look(self, encoding: Encoding, origin: Sequence[object], text: str, raw: bytes) -> bool:
        assert self._selector is not None
        known = cast(Origin, tuple(origin[: NOTES + 1]))
        facts = encoding.restored(facts_of(known), raw)
        message = Message(encoding, str(origin[-2]), str(origin[-1]), raw, b"", facts, notes_of(known[-1]))
        found = self._selector.matches(message)
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        if len(raw) <= REMEMBERED_SIZE_MAX:
            self._known[text, raw] = found
        return found


def row_filter(options: Options) -> RowFilter | None:
    """Return the filter that options ask for; None if they ask for none."""
    return RowFilter(options) if options.leaves_out else None


def lengths(piece: Piece) -> Iterator[int]:
    """Yield the bytes of each row's body, as the column `body` has it."""
    if is_plain(piece):
        ends = piece.block.body_ends[piece.low : piece.high + 1]
        return (end - begin for begin, end in pairwise(ends))
    return map(len, bodies_of(piece))
