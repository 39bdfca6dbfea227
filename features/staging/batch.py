"""The pieces and batches of a staging, and the names of the notes in its log that record them.

note                                    number
BATCH/PARTITION/ATTEMPT/PIECE/END       offset of the next row to publish; END is the offset after the last row
committed                               the last batch that was committed
used                                    when the staging was last used, in seconds since 1970-01-01 UTC
used/BATCH                              the same for a batch that is not committed
published/BATCH, unroutable/BATCH       how many rows of a committed batch were routed, and how many were not
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from leveret.queues.stream_log import Log

COMMITTED: Final = "committed"
USED: Final = "used"
PUBLISHED: Final = "published"
UNROUTABLE: Final = "unroutable"
NUMBER_MAX: Final = 1 << 62  # of a batch, a partition, an attempt


@attrs.frozen(order=True)
class BatchPart:
    """One attempt at one partition of a batch."""

    batch: int
    partition: int
    attempt: int


class Piece:
    """The rows of one request; they are consecutive in the log."""

    __slots__ = ("end", "next", "number", "part")

    def __init__(self, part: BatchPart, number: int, first: int, end: int) -> None:
        self.part = part
        self.number = number  # in its part
        self.next = first  # offset of the first row that is not published
        self.end = end  # offset after the last row

    @property
    def rows(self) -> int:
        """The number of rows not yet published."""
        return self.end - self.next

    @property
    def note(self) -> str:
        part = self.part
        return f"{part.batch}/{part.partition}/{part.attempt}/{self.number}/{self.end}"


def pieces_in(notes: Mapping[str, int]) -> list[Piece]:
    """Return the pieces that a log's notes record, in the order of publication."""
    found: list[Piece] = []
    for name, following in notes.items():
        batch, *rest = name.split("/")
        if len(rest) == 4:
            partition, attempt, number, end = map(int, rest)
            found.append(Piece(BatchPart(int(batch), partition, attempt), number, following, end))
    return in_order(found)


def in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """Sort pieces by batch, partition and number."""
    return sorted(pieces, key=lambda piece: (piece.part, piece.number))


def used_note(batch: int) -> str:
    return f"{USED}/{batch}"


class Batch:
    """A committed batch: its pieces still to be published, and how many rows were routed and not."""

    __slots__ = ("_log", "number", "pieces", "published", "rows", "unroutable", "waiting")

    def __init__(self, number: int, pieces: list[Piece], log: Log) -> None:
        """Take `pieces` in the order of publication."""
        self.number = number
        self.pieces = pieces[::-1]  # the next one is the last of the list
        self.rows = sum(piece.rows for piece in pieces)  # still to be published
        self.published = log.sequences.get(f"{PUBLISHED}/{number}", 0)
        self.unroutable = log.sequences.get(f"{UNROUTABLE}/{number}", 0)
        self.waiting: list[Callable[[], None]] = []  # called when it is published
        self._log = log

    @property
    def is_published(self) -> bool:
        return not self.pieces

    def move(self, rows: int) -> None:
        """Count rows of the next piece as done; the note is in the same commit as their publication."""
        piece = self.pieces[-1]
        if rows == piece.rows:
            self._log.unnote(piece.note)
            self.pieces.pop()
        else:
            piece.next += rows
            self._log.note(piece.note, piece.next)
        self.rows -= rows

    def keep_counts(self) -> None:
        self._log.note(f"{PUBLISHED}/{self.number}", self.published)
        self._log.note(f"{UNROUTABLE}/{self.number}", self.unroutable)

    def forget_counts(self) -> None:
        """Remove the counts when they are not needed any more."""
        self._log.unnote(f"{PUBLISHED}/{self.number}")
        self._log.unnote(f"{UNROUTABLE}/{self.number}")
